//! Namespaces: the label with their name, the finalizer that empties them, and the phase between.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text};
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::{ErrorList, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, invalid_each};
use crate::registry::{Context, MetaChecks, NameRule, Strategy, Subresource};

/// The entry of `namespaces`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "namespaces",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        name: NameRule::DnsLabel,
        returns_deleted: true,
        selectable: &["status.phase"],
        ..WITH_STATUS
    },
    strategy: &NamespaceStrategy,
    printer: &PRINTER,
};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that the namespace controller takes off once everything inside is gone.
const KUBERNETES: &str = "kubernetes";
const STANDARD_FINALIZERS: [&str; 3] = [KUBERNETES, "orphan", "foregroundDeletion"];

pub struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn default(&self, object: &mut Object) {
        label_with_name(object);
        let status = object.section_mut("status");
        if status.str("phase").is_empty() {
            status.insert("phase", "Active".into());
        }
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        label_with_name(object);
        object.insert("status", json!({"phase": "Active"}));
        let finalizers = object
            .section_mut("spec")
            .entry("finalizers")
            .or_insert_with(|| json!([]));
        if let Value::Array(finalizers) = finalizers
            && !finalizers.iter().any(|one| one == KUBERNETES)
        {
            finalizers.push(KUBERNETES.into());
        }
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        label_with_name(object);
        match ctx.subresource {
            Subresource::Main => keep(object, old, "spec"),
            Subresource::Other("finalize") => keep(object, old, "status"),
            _ => {}
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        for finalizer in object
            .map("spec")
            .map_or(&[][..], |spec| spec.list("finalizers"))
        {
            check_finalizer(
                &mut errors,
                &Path::new("spec").child("finalizers"),
                finalizer.as_str().unwrap_or(""),
            );
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, _old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        match ctx.subresource {
            Subresource::Main => return self.validate(ctx, object),
            Subresource::Status => {
                let phase = object
                    .map("status")
                    .map_or("", |status| status.str("phase"));
                let (want, when) = match object.deletion_timestamp() {
                    None => ("Active", "empty"),
                    Some(_) => ("Terminating", "not empty"),
                };
                if phase != want {
                    let detail = format!("may only be '{want}' if `deletionTimestamp` is {when}");
                    errors.invalid(&Path::new("status").child("Phase"), phase, detail);
                }
            }
            Subresource::Other(_) => {
                let path = Path::new("spec").child("finalizers");
                for (index, finalizer) in object.array_at("/spec/finalizers").iter().enumerate() {
                    check_finalizer(
                        &mut errors,
                        &path.index(index),
                        finalizer.as_str().unwrap_or(""),
                    );
                }
            }
        }
        errors
    }

    fn blocks_deletion(&self, object: &Object) -> bool {
        !object.array_at("/spec/finalizers").is_empty()
    }

    /// A namespace has no grace period: it waits for its finalizers, in a phase of its own.
    fn mark_deleting(&self, object: &mut Object) {
        object
            .metadata_mut()
            .shift_remove("deletionGracePeriodSeconds");
        object
            .section_mut("status")
            .insert("phase", "Terminating".into());
        // Its end waits for its content, not for time.
        object
            .metadata_mut()
            .shift_remove("deletionGracePeriodSeconds");
    }

    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match sub {
            Subresource::Other("finalize") => &["/status"],
            _ => &[],
        }
    }
}

fn label_with_name(object: &mut Object) {
    let name = object.name();
    if name.is_empty()
        || object
            .labels()
            .is_some_and(|labels| labels.str(NAME_LABEL) == name)
    {
        return;
    }
    let name = name.to_owned();
    let labels = object
        .metadata_mut()
        .entry("labels")
        .or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[NAME_LABEL] = name.into();
}

fn keep(object: &mut Object, old: &Object, key: &str) {
    match old.get(key) {
        Some(value) => object.insert(key.to_owned(), value.clone()),
        None => object.shift_remove(key),
    };
}

fn check_finalizer(errors: &mut ErrorList, path: &Path, finalizer: &str) {
    invalid_each(errors, path, finalizer, names::qualified_name(finalizer));
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        errors.invalid(
            path,
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, text("Status", "Active or Terminating"), AGE],
    paths: "status.phase",
    fill: |row| {
        row.name().text("/status/phase").age();
    },
};
