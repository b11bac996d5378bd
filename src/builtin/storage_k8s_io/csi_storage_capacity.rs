//! CSIStorageCapacities: how much a class of storage has left in a part of the cluster.

use crate::builtin::columns::DefaultPrinter;
use crate::builtin::node_labels::{selector_warnings, term_warnings};
use crate::builtin::quantities::quantity;
use crate::builtin::resource_traits::{DEFAULT, ResourceEntry, ResourceTraits};
use crate::meta::{ErrorList, Object, Path, names};
use crate::registry::validation::{
    Fields, IMMUTABLE, NOT_NEGATIVE, SelectorOptions, immutable_text, invalid_each, same,
    validate_label_selector,
};
use crate::registry::{Context, MetaChecks, Strategy};

/// The entry of `csistoragecapacities`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "csistoragecapacities",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        unconditional_update: false,
        ..DEFAULT
    },
    strategy: &CsiStorageCapacityStrategy,
    printer: &DefaultPrinter,
};

pub struct CsiStorageCapacityStrategy;

impl Strategy for CsiStorageCapacityStrategy {
    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let (path, mut warnings) = (Path::new("nodeTopology"), Vec::new());
        if let Some(topology) = object.map("nodeTopology") {
            term_warnings(&mut warnings, &path, topology, false);
            let labels = path.child("matchLabels");
            let path = |label: &str| labels.child(label).to_string();
            warnings.extend(selector_warnings(topology.map("matchLabels"), path));
        }
        warnings
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        check(object, SelectorOptions::default())
    }

    fn validate_update(&self, _ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut before = ErrorList::new();
        validate_label_selector(
            &mut before,
            &Path::default(),
            old.map("nodeTopology"),
            SelectorOptions::default(),
        );
        let mut errors = check(
            object,
            SelectorOptions {
                allow_invalid_values: !before.is_empty(),
            },
        );
        let (new, was) = (object.field("nodeTopology"), old.field("nodeTopology"));
        if !same(new, was) || new.is_some() != was.is_some() {
            errors.invalid(
                &Path::new("nodeTopology"),
                new.cloned().unwrap_or_default(),
                IMMUTABLE,
            );
        }
        let key = "storageClassName";
        immutable_text(&mut errors, &Path::new(key), object.str(key), old.str(key));
        errors
    }
}

fn check(object: &Object, options: SelectorOptions) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_label_selector(
        &mut errors,
        &Path::new("nodeTopology"),
        object.map("nodeTopology"),
        options,
    );
    let class = object.str("storageClassName");
    invalid_each(
        &mut errors,
        &Path::new("storageClassName"),
        class,
        names::dns1123_subdomain(class),
    );
    if let Some(capacity) = object
        .field("capacity")
        .filter(|capacity| quantity(capacity).sign() < 0)
    {
        errors.invalid(&Path::new("capacity"), capacity.clone(), NOT_NEGATIVE);
    }
    errors
}
