//! CSIDrivers: how a storage driver wants to be treated.

use std::collections::BTreeSet;

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, UNSET, boolean, join, text};
use crate::builtin::defaulting::fill;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, Value, json, str_at};
use crate::registry::validation::{Fields, immutable, one_of, same};
use crate::registry::{Context, Strategy};

/// The entry of `csidrivers`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "csidrivers",
    traits: ResourceTraits {
        unconditional_update: false,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &CsiDriverStrategy,
    printer: &PRINTER,
};

/// Bounds of a token's life, in seconds.
const TOKEN_MIN: i64 = 600;
const TOKEN_MAX: i64 = 1 << 32;
/// The shortest time between two reports of what a node can hold, in seconds.
const PERIOD_MIN: i64 = 10;
const TOKENS_IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
     possible logging of tokens in volume attributes";

pub struct CsiDriverStrategy;

impl Strategy for CsiDriverStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill(spec, "attachRequired", true);
        for key in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            fill(spec, key, false);
        }
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.insert("volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        object
            .section_mut("spec")
            .shift_remove("preventPodSchedulingIfMissing");
    }

    fn prepare_for_update(&self, _ctx: &Context, object: &mut Object, old: &Object) {
        // Limits that hold pods back are behind a gate that is closed.
        if old
            .at("/spec/preventPodSchedulingIfMissing")
            .is_none_or(Value::is_null)
        {
            object
                .section_mut("spec")
                .shift_remove("preventPodSchedulingIfMissing");
        }
        // Creation does not start the count, changes do.
        if !same(object.field("spec"), old.field("spec")) {
            object.set_generation(old.generation() + 1);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = object.section("spec");
        let path = Path::new("spec");
        if let Some(policy) = spec.opt_str("fsGroupPolicy") {
            one_of(
                &mut errors,
                &path.child("fsGroupPolicy"),
                policy,
                &["File", "None", "ReadWriteOnceWithFSType"],
            );
        }
        check_token_requests(
            &mut errors,
            &path.child("tokenRequests"),
            spec.list("tokenRequests"),
        );
        for mode in spec.list("volumeLifecycleModes") {
            let mode = mode.as_str().unwrap_or("");
            one_of(
                &mut errors,
                &path.child("volumeLifecycleModes"),
                mode,
                &["Persistent", "Ephemeral"],
            );
        }
        let key = "nodeAllocatableUpdatePeriodSeconds";
        if let Some(period) = spec.int(key).filter(|period| *period < PERIOD_MIN) {
            errors.invalid(
                &path.child(key),
                period,
                "must be greater than or equal to 10 seconds",
            );
        }
        if let Some(flag) = spec
            .opt_flag("serviceAccountTokenInSecrets")
            .filter(|_| spec.list("tokenRequests").is_empty())
        {
            let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            errors.invalid(&path.child("serviceAccountTokenInSecrets"), flag, detail);
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        let path = Path::new("spec");
        for (key, shown) in [
            ("attachRequired", "attachedRequired"),
            ("volumeLifecycleModes", "volumeLifecycleModes"),
        ] {
            let at = format!("/spec/{key}");
            immutable(&mut errors, &path.child(shown), object.at(&at), old.at(&at));
        }
        errors
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let requests = object.at("/spec/tokenRequests");
        let changed = old.is_none_or(|old| !same(old.at("/spec/tokenRequests"), requests));
        let wanted = !object.array_at("/spec/tokenRequests").is_empty();
        let unset = object
            .at("/spec/serviceAccountTokenInSecrets")
            .is_none_or(Value::is_null);
        if changed && wanted && unset {
            vec![TOKENS_IN_SECRETS.to_owned()]
        } else {
            Vec::new()
        }
    }
}

fn check_token_requests(errors: &mut ErrorList, path: &Path, requests: &[Value]) {
    let mut audiences = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = request.str("audience");
        if !audiences.insert(audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request.int("expirationSeconds") else {
            continue;
        };
        let path = path.child("expirationSeconds");
        if seconds < TOKEN_MIN {
            errors.invalid(
                &path,
                seconds,
                "may not specify a duration less than 10 minutes",
            );
        }
        if seconds > TOKEN_MAX {
            errors.invalid(
                &path,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        boolean(
            "AttachRequired",
            "Whether volumes are attached before they are mounted",
        ),
        boolean(
            "PodInfoOnMount",
            "Whether it is told about the pod when it mounts",
        ),
        boolean(
            "StorageCapacity",
            "Whether it publishes the capacity that is left",
        ),
        text("TokenRequests", "The audiences of the tokens it wants"),
        boolean(
            "RequiresRepublish",
            "Whether it is called again and again for mounted volumes",
        ),
        text("Modes", "The kinds of volumes it supports"),
        AGE,
    ],
    paths: "spec",
    fill: |row| {
        let audiences = row
            .object
            .at("/spec/tokenRequests")
            .and_then(Value::as_array);
        let audiences = audiences.map_or(UNSET.to_owned(), |list| {
            join(list.iter().map(|one| str_at(one, "/audience")), ",")
        });
        let modes = join(
            row.object
                .array_at("/spec/volumeLifecycleModes")
                .iter()
                .filter_map(Value::as_str),
            ",",
        );
        row.name()
            .bool_or("/spec/attachRequired", true)
            .bool_or("/spec/podInfoOnMount", false)
            .bool_or("/spec/storageCapacity", false);
        row.cell(audiences)
            .bool_or("/spec/requiresRepublish", false)
            .cell(if modes.is_empty() { NONE } else { &modes })
            .age();
    },
};
