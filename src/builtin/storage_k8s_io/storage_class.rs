//! StorageClass.

use std::collections::{BTreeMap, BTreeSet};

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, text, with_default};
use crate::builtin::defaulting::fill;
use crate::builtin::node_labels::deprecation;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, names};
use crate::registry::validation::{Fields, immutable_field, immutable_text, invalid_each, one_of};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `storageclasses`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "storageclasses",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        returns_deleted: true,
        ..DEFAULT
    },
    strategy: &StorageClassStrategy,
    printer: &PRINTER,
};

/// Bounds of parameters: how many, and keys and values together in bytes.
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;

pub struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn default(&self, object: &mut Object) {
        fill(object, "reclaimPolicy", "Delete");
        fill(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_provisioner(
            &mut errors,
            &Path::new("provisioner"),
            object.str("provisioner"),
        );
        check_parameters(&mut errors, object.map("parameters"), true);
        let policy = object.str("reclaimPolicy");
        if !policy.is_empty() {
            one_of(
                &mut errors,
                &Path::new("reclaimPolicy"),
                policy,
                &["Delete", "Retain"],
            );
        }
        let path = Path::new("volumeBindingMode");
        match object.opt_str("volumeBindingMode") {
            None => errors.required(&path, ""),
            Some(mode) => one_of(
                &mut errors,
                &path,
                mode,
                &["Immediate", "WaitForFirstConsumer"],
            ),
        }
        check_topologies(
            &mut errors,
            &Path::new("allowedTopologies"),
            object.list("allowedTopologies"),
        );
        errors
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, topology) in object.list("allowedTopologies").iter().enumerate() {
            let path = Path::new("allowedTopologies")
                .index(index)
                .child("matchLabelExpressions");
            let expressions = topology.list("matchLabelExpressions");
            for (index, expression) in expressions.iter().enumerate() {
                if let Some(text) = deprecation(expression.str("key")) {
                    warnings.push(format!("{}: {text}", path.index(index).child("key")));
                }
            }
        }
        warnings
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = self.validate(ctx, object);
        immutable_field(&mut errors, &Path::default(), "parameters", object, old);
        immutable_text(
            &mut errors,
            &Path::new("provisioner"),
            object.str("provisioner"),
            old.str("provisioner"),
        );
        for key in ["reclaimPolicy", "volumeBindingMode"] {
            immutable_field(&mut errors, &Path::default(), key, object, old);
        }
        errors
    }
}

pub fn check_provisioner(errors: &mut ErrorList, path: &Path, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let lower = name.to_lowercase();
    invalid_each(errors, path, &lower, names::qualified_name(&lower));
}

pub fn check_parameters(errors: &mut ErrorList, parameters: Option<&Map>, may_be_empty: bool) {
    let path = Path::new("parameters");
    let empty = Map::new();
    let parameters = parameters.unwrap_or(&empty);
    if parameters.len() > PARAMETERS_MAX {
        errors.too_long(&path, PARAMETERS_MAX);
        return;
    }
    if parameters.contains_key("") {
        errors.invalid(&path, "", "field can not be empty.");
    }
    let size: usize = parameters
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > PARAMETERS_SIZE_MAX {
        errors.too_long(&path, PARAMETERS_SIZE_MAX);
    }
    if parameters.is_empty() && !may_be_empty {
        errors.required(&path, "must contain at least one key/value pair");
    }
}

fn check_topologies(errors: &mut ErrorList, path: &Path, topologies: &[Value]) {
    let mut seen: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for (index, term) in topologies.iter().enumerate() {
        let path = path.index(index).child("matchLabelExpressions");
        let mut keys = BTreeMap::new();
        for (index, requirement) in term.list("matchLabelExpressions").iter().enumerate() {
            let path = path.index(index);
            let values = check_requirement(errors, &path, requirement);
            let key = requirement.str("key");
            if keys.contains_key(key) {
                errors.duplicate(&path.child("key"), key);
            }
            keys.insert(key, values);
        }
        // Upstream compares also with as many empty terms as there are terms.
        let repeats = seen.iter().filter(|earlier| **earlier == keys).count()
            + if keys.is_empty() { topologies.len() } else { 0 };
        errors.extend((0..repeats).map(|_| FieldError::duplicate(&path, "")));
        seen.push(keys);
    }
}

fn check_requirement<'a>(
    errors: &mut ErrorList,
    path: &Path,
    requirement: &'a Value,
) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let values = requirement.list("values");
    let values_path = path.child("values");
    if values.is_empty() {
        errors.required(&values_path, "");
    }
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        if !found.insert(value) {
            errors.duplicate(&values_path.index(index), value);
        }
    }
    let key = requirement.str("key");
    invalid_each(errors, &path.child("key"), key, names::qualified_name(key));
    found
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Provisioner", "What makes its volumes"),
        text(
            "ReclaimPolicy",
            "What happens to a volume once it is released",
        ),
        text("VolumeBindingMode", "When a claim is bound"),
        text("AllowVolumeExpansion", "Whether its volumes may grow"),
        AGE,
    ],
    paths: "metadata.annotations provisioner reclaimPolicy volumeBindingMode \
        allowVolumeExpansion",
    fill: |row| {
        let default = is_default_class(row.object);
        row.cell(with_default(row.object.name(), default))
            .text("/provisioner")
            .text_or("/reclaimPolicy", "Delete");
        row.text_or("/volumeBindingMode", "Immediate")
            .bool_or("/allowVolumeExpansion", false)
            .age();
    },
};

fn is_default_class(object: &Object) -> bool {
    const MARKS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    object.annotations().is_some_and(|all| {
        MARKS
            .iter()
            .any(|mark| all.get(mark).and_then(Value::as_str) == Some("true"))
    })
}
