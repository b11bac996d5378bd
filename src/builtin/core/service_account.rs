//! ServiceAccounts.

use crate::builtin::columns::{AGE, ColumnPrinter, NAME};
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{Object, Value, json};
use crate::registry::validation::Fields;
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `serviceaccounts`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "serviceaccounts",
    traits: ResourceTraits {
        returns_deleted: true,
        meta_checks: MetaChecks::Everything,
        ..DEFAULT
    },
    strategy: &ServiceAccountStrategy,
    printer: &PRINTER,
};

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

pub struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        keep_names_only(object);
    }

    fn prepare_for_update(&self, _ctx: &Context, object: &mut Object, _old: &Object) {
        keep_names_only(object);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let has = |object: &Object| {
            object
                .annotations()
                .is_some_and(|annotations| annotations.contains_key(MOUNTABLE_SECRETS))
        };
        if !has(object) || old.is_some_and(has) {
            return Vec::new();
        }
        let advice =
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        vec![format!(
            "metadata.annotations[{MOUNTABLE_SECRETS}]: {advice}"
        )]
    }
}

/// A reference to a secret is its name and nothing else.
fn keep_names_only(object: &mut Object) {
    for secret in object
        .get_mut("secrets")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let name = secret.str("name").to_owned();
        *secret = if name.is_empty() {
            json!({})
        } else {
            json!({"name": name})
        };
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[NAME, AGE],
    paths: "",
    fill: |row| {
        row.name().age();
    },
};
