//! scheduling.k8s.io: PriorityClasses (`pkg/apis/scheduling/validation`).

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, boolean, integer, text};
use crate::builtin::defaulting::fill;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry};
use crate::meta::{ErrorList, Object, Path};
use crate::registry::validation::{Fields, immutable_field, one_of};
use crate::registry::{Context, Strategy};

/// The entry of `priorityclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "priorityclasses",
    traits: DEFAULT,
    strategy: &PriorityClassStrategy,
    printer: &PRINTER,
};

/// The highest priority that is not the system's.
const USER_MAX: i64 = 1_000_000_000;
/// Names that start so are the system's.
const SYSTEM: &str = "system-";
/// The classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2 * USER_MAX + 1000),
    ("system-cluster-critical", 2 * USER_MAX),
];

pub struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn default(&self, object: &mut Object) {
        fill(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        object.set_generation(1);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let value = object.int("value").unwrap_or(0);
        if object.name().starts_with(SYSTEM) {
            if let Some(why) = system_problem(object, value) {
                let detail = format!(
                    "priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {why}"
                );
                errors.forbidden(&Path::new("metadata").child("name"), detail);
            }
        } else if value > USER_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_MAX}");
            errors.forbidden(&Path::new("value"), detail);
        }
        let path = Path::new("preemptionPolicy");
        match object.opt_str("preemptionPolicy") {
            Some("") => errors.required(&path, ""),
            Some(policy) => one_of(
                &mut errors,
                &path,
                policy,
                &["PreemptLowerPriority", "Never"],
            ),
            None => {}
        }
        errors
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if object.int("value").unwrap_or(0) != old.int("value").unwrap_or(0) {
            errors.forbidden(&Path::new("value"), "may not be changed in an update.");
        }
        let key = "preemptionPolicy";
        immutable_field(&mut errors, &Path::default(), key, object, old);
        errors
    }

    fn delete_refusal(&self, name: &str) -> Option<&'static str> {
        let known = SYSTEM_CLASSES.iter().any(|(known, _)| *known == name);
        known.then_some("this is a system priority class and cannot be deleted")
    }
}

fn system_problem(object: &Object, value: i64) -> Option<String> {
    let name = object.name();
    match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, wanted)) if *wanted != value => {
            Some(format!("value of {name} PriorityClass must be {wanted}"))
        }
        Some(_) if object.flag("globalDefault") => Some(format!(
            "globalDefault of {name} PriorityClass must be false"
        )),
        Some(_) => None,
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        integer("Value", "The greater, the more important"),
        boolean("Global-Default", "Whether pods without a class get it"),
        AGE,
        text("PreemptionPolicy", "Whether its pods may displace others"),
    ],
    paths: "value globalDefault preemptionPolicy",
    fill: |row| {
        row.name()
            .int("/value")
            .bool_or("/globalDefault", false)
            .age()
            .text("/preemptionPolicy");
    },
};
