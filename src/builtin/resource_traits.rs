//! Traits of a resource that need no code, and the strategy that they make together with the code.

use std::borrow::Cow;

use crate::builtin::pod_spec::feature_gates::drop_gated_fields;
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, Object, Value};
use crate::registry::NeedsReadDefaults;
use crate::registry::table::TablePrinter;
use crate::registry::{Context, MetaChecks, NameRule, Strategy, Subresource};

/// The facts of one resource (upstream: the small methods in `pkg/registry/*/*/strategy.go`).
/// [`DEFAULT`] is where every row of the table starts.
#[derive(Clone, Copy, Debug)]
pub struct ResourceTraits {
    pub name: NameRule,
    /// `status` is its own subresource.
    pub status: bool,
    /// A new object may come with a status (nodes).
    pub status_on_create: bool,
    /// `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// PUT of a name that does not exist creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// A delete without a propagation policy orphans dependents.
    pub orphans: bool,
    /// A delete answers with the deleted object.
    pub returns_deleted: bool,
    /// No delete waits for dependents, orphans or collects them (events).
    pub ignores_dependents: bool,
    /// The metadata that upstream's own check of an update looks at, and of a write of the status.
    pub meta_checks: MetaChecks,
    pub status_meta_checks: MetaChecks,
    /// Finalizers may be any qualified names: the kind is checked by the rules of custom kinds.
    pub any_finalizer: bool,
    /// The metadata that a write of the status sets back.
    pub status_keeps: &'static [&'static str],
    /// The fields that a write of the status sets back, and so never owns.
    pub status_resets: &'static [&'static str],
    /// The path of a pod's spec in the object: its fields whose feature gates are off are dropped.
    pub pod_spec: Option<&'static str>,
    /// The field labels that selectors may use beside the name and namespace.
    pub selectable: &'static [&'static str],
}

/// The members of metadata that upstream's `ResetObjectMetaForStatus` restores.
pub const METADATA_FIELDS: &[&str] = &[
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// A resource without surprises.
pub const DEFAULT: ResourceTraits = ResourceTraits {
    name: NameRule::DnsSubdomain,
    status: false,
    status_on_create: false,
    generation: false,
    create_on_update: false,
    unconditional_update: true,
    orphans: false,
    returns_deleted: false,
    ignores_dependents: false,
    meta_checks: MetaChecks::Changes,
    status_meta_checks: MetaChecks::Changes,
    any_finalizer: false,
    status_keeps: &[],
    status_resets: &["/spec"],
    pod_spec: None,
    selectable: &[],
};

/// One with a status subresource.
pub const WITH_STATUS: ResourceTraits = ResourceTraits {
    status: true,
    ..DEFAULT
};

/// One with a status subresource whose spec has a generation.
pub const WORKLOAD: ResourceTraits = ResourceTraits {
    status: true,
    generation: true,
    ..DEFAULT
};

/// The traits of a kind with a status, a write of which leaves all metadata but managedFields as it
/// was.
pub const STATUS_ALONE: ResourceTraits = ResourceTraits {
    status_keeps: METADATA_FIELDS,
    status_resets: &["/metadata", "/spec"],
    ..WITH_STATUS
};

/// A built-in resource: its traits, its strategy and its printer.
pub struct ResourceEntry {
    pub resource: &'static str,
    pub traits: ResourceTraits,
    pub strategy: &'static dyn Strategy,
    pub printer: &'static dyn TablePrinter,
}

/// The code of a resource that needs none.
pub struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

/// ResourceTraits come from the row; what a strategy does comes from its code.
impl Strategy for ResourceEntry {
    fn default(&self, object: &mut Object) {
        self.strategy.default(object);
    }

    fn needs_read_defaults(&self) -> Option<NeedsReadDefaults> {
        self.strategy.needs_read_defaults()
    }

    fn name_rule(&self) -> NameRule {
        self.traits.name
    }

    fn has_generation(&self) -> bool {
        self.traits.generation
    }

    fn has_status(&self) -> bool {
        self.traits.status
    }

    fn keeps_status_on_create(&self) -> bool {
        self.traits.status_on_create
    }

    fn takes_any_finalizer(&self) -> bool {
        self.traits.any_finalizer
    }

    fn meta_checks(&self, sub: Subresource) -> MetaChecks {
        match sub {
            Subresource::Main => self.traits.meta_checks,
            Subresource::Status => self.traits.status_meta_checks,
            Subresource::Other(_) => MetaChecks::Changes,
        }
    }

    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        self.strategy.prepare_for_create(ctx, object);
        if let Some(path) = self.traits.pod_spec {
            drop_gated_fields(object, None, path);
        }
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        if ctx.subresource == Subresource::Status {
            for key in self.traits.status_keeps {
                keep_meta(object, old, key);
            }
        }
        self.strategy.prepare_for_update(ctx, object, old);
        if let Some(path) = self.traits.pod_spec {
            drop_gated_fields(object, Some(old), path);
        }
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        self.strategy.validate(ctx, object)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        self.strategy.validate_update(ctx, object, old)
    }

    fn warnings_before_create(&self, object: &Object) -> Vec<String> {
        self.strategy.warnings_before_create(object)
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        self.strategy.warnings(object, old)
    }

    fn status_warnings(&self, object: &Object) -> Vec<String> {
        self.strategy.status_warnings(object)
    }

    fn allow_create_on_update(&self) -> bool {
        self.traits.create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.traits.unconditional_update
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        self.traits.selectable
    }

    fn indexed_field(&self) -> Option<&'static str> {
        self.strategy.indexed_field()
    }

    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        self.strategy.selectable_value(object, field)
    }

    fn grace_period(&self, object: &Object, requested: Option<i64>) -> Option<i64> {
        self.strategy.grace_period(object, requested)
    }

    fn returns_deleted_object(&self) -> bool {
        self.traits.returns_deleted
    }

    fn blocks_deletion(&self, object: &Object) -> bool {
        self.strategy.blocks_deletion(object)
    }

    fn mark_deleting(&self, object: &mut Object) {
        self.strategy.mark_deleting(object);
    }

    fn ignores_dependents(&self) -> bool {
        self.traits.ignores_dependents
    }

    fn orphans_by_default(&self) -> bool {
        self.traits.orphans
    }

    fn delete_refusal(&self, name: &str) -> Option<&'static str> {
        self.strategy.delete_refusal(name)
    }

    fn delete_warning(&self) -> Option<&'static str> {
        self.strategy.delete_warning()
    }

    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match (self.strategy.reset_fields(sub), sub) {
            ([], Subresource::Main) if self.traits.status => &["/status"],
            ([], Subresource::Status) if self.traits.status => self.traits.status_resets,
            (own, _) => own,
        }
    }

    fn printer(&self) -> Option<&'static dyn TablePrinter> {
        Some(self.printer)
    }
}

/// Makes one member of ObjectMeta what it was.
pub fn keep_meta(object: &mut Object, old: &Object, key: &str) {
    match old.metadata().and_then(|meta| meta.get(key)) {
        Some(value) => object
            .metadata_mut()
            .insert(key.to_owned(), Value::clone(value)),
        None => object.metadata_mut().shift_remove(key),
    };
}
