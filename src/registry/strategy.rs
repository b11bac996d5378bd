//! Strategy: everything about a resource that the schema cannot say (apiserver `registry/rest`
//! strategies).

use std::borrow::Cow;

use jiff::Timestamp;

use crate::auth::User;
use crate::codec::protobuf::Message;
use crate::meta::names::Problems;
use crate::meta::selector::FieldReader;
use crate::meta::{ErrorList, Object};

use super::table::TablePrinter;
use super::warnings::Warnings;

/// The parts of a request that a strategy may use.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub now: Timestamp,
    pub user: &'a User,
    /// True if containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
    /// The subresource that is written; `Main` for a create.
    pub subresource: Subresource<'a>,
    /// The warnings that the client gets even if the write is refused.
    pub warnings: &'a Warnings,
}

/// The subresource that an update is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource<'a> {
    /// The object itself: everything but what the status subresource owns.
    Main,
    Status,
    /// Another subresource that writes the object: `ephemeralcontainers`, `resize`, `approval`,
    /// `finalize`, ...
    Other(&'a str),
}

impl<'a> Subresource<'a> {
    /// Returns the name in managed fields; empty for the object itself.
    pub fn name(self) -> &'a str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Other(name) => name,
        }
    }
}

/// Reports whether stored bytes lack a default that clients see.
pub type NeedsReadDefaults = fn(&Message<'_>) -> bool;

/// The format of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Dots allowed, 253 characters (most kinds).
    DnsSubdomain,
    /// RFC 1123 label, 63 characters (namespaces).
    DnsLabel,
    /// RFC 1035 label: starts with a letter (services).
    Dns1035Label,
    /// Anything that fits into a URL path segment (RBAC).
    PathSegment,
}

/// The part of an update's metadata that upstream's own check of a kind looks at, after the check
/// that all kinds have in common. Each mistake is one cause for each look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaChecks {
    /// Nothing.
    None,
    /// The fields that may not change.
    Changes,
    /// All that a new object must satisfy.
    State,
    /// The fields that may not change, and all that a new object must satisfy.
    Everything,
}

/// The behaviour of one resource. The defaults suit a kind without surprises: no status, no
/// defaults beyond the schema's, names that are DNS subdomains.
///
/// The generic store calls, for a create: `default`, `prepare_for_create`, `validate`, `warnings`;
/// for an update: `default`, `prepare_for_update`, `validate_update`, `warnings`. ObjectMeta is
/// checked before by the store itself. Objects are complete and normalised: of the storage version,
/// with every field of the right JSON type, so that a strategy reads them with the accessors of
/// [`Object`] and need not fear wrong types.
pub trait Strategy: Send + Sync + 'static {
    /// Fills in what was left out. Runs on every decoded and every stored object, so it must be
    /// idempotent and fast.
    fn default(&self, _object: &mut Object) {}

    /// Returns a test for stored bytes that lack something that [`Strategy::default`] fills in and
    /// that clients see: where objects may be stored before it can be known.
    fn needs_read_defaults(&self) -> Option<NeedsReadDefaults> {
        None
    }

    fn name_rule(&self) -> NameRule {
        NameRule::DnsSubdomain
    }

    /// Returns further errors of the name (or generateName) of a new object.
    fn name_problems(&self, _object: &Object, _name: &str) -> Problems {
        Vec::new()
    }

    /// Reports whether finalizers may be any qualified names. Those of built-in kinds are standard
    /// ones or carry a domain.
    fn takes_any_finalizer(&self) -> bool {
        false
    }

    /// Reports whether the kind counts changes of its spec in `metadata.generation`: 1 at creation,
    /// one more with each change of anything but metadata and status.
    fn has_generation(&self) -> bool {
        false
    }

    /// Reports whether `status` is its own subresource: a create drops it, a main update keeps the
    /// old one, a status update keeps everything but it (and metadata, less what no status update
    /// may touch).
    fn has_status(&self) -> bool {
        false
    }

    /// Reports whether a new object may come with a status, for a kind whose `status` is a
    /// subresource (nodes).
    fn keeps_status_on_create(&self) -> bool {
        false
    }

    /// Returns the metadata that upstream's check of such an update of this kind looks at once
    /// more (see
    /// [`crate::registry::validation::MetaRules::validate_update`]).
    fn meta_checks(&self, _sub: Subresource) -> MetaChecks {
        MetaChecks::Changes
    }

    /// Changes a new object before it is validated, beyond what `has_status` and `has_generation`
    /// say.
    fn prepare_for_create(&self, _ctx: &Context, _object: &mut Object) {}

    /// Changes an updated object before it is validated, beyond what `has_status` and
    /// `has_generation` say.
    fn prepare_for_update(&self, _ctx: &Context, _object: &mut Object, _old: &Object) {}

    fn validate(&self, _ctx: &Context, _object: &Object) -> ErrorList {
        ErrorList::new()
    }

    /// Checks an updated object: both what a new one must satisfy and what may not change.
    fn validate_update(&self, ctx: &Context, object: &Object, _old: &Object) -> ErrorList {
        match ctx.subresource {
            Subresource::Main => self.validate(ctx, object),
            _ => ErrorList::new(),
        }
    }

    /// Returns the warnings for a new object as the client sent it, before
    /// [`Strategy::prepare_for_create`].
    fn warnings_before_create(&self, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warnings for a write.
    fn warnings(&self, _object: &Object, _old: Option<&Object>) -> Vec<String> {
        Vec::new()
    }

    /// Returns the warnings for an update of the status.
    fn status_warnings(&self, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// PUT (and apply) of a name that does not exist creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// PUT without a resourceVersion overwrites.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Field selectors beyond metadata.name and metadata.namespace: the labels that may be asked
    /// for.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The one of [`Strategy::selectable_fields`] that is worth an index in the watch cache: by
    /// which many clients each follow a small share of the objects.
    fn indexed_field(&self) -> Option<&'static str> {
        None
    }

    /// Reports whether objects may be selected by the field label.
    fn is_selectable(&self, label: &str) -> bool {
        self.selectable_fields().contains(&label)
    }

    /// The value of one of [`Strategy::selectable_fields`]: by default the string at that path.
    fn selectable_value<'a>(&self, object: &'a dyn FieldReader, field: &str) -> Cow<'a, str> {
        object.text_at(field)
    }

    /// The seconds a delete waits for, `None` for a kind without graceful deletion. `requested` is
    /// what the client asked for.
    fn grace_period(&self, _object: &Object, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Reports whether the answer of a delete is the deleted object rather than a Status
    /// (upstream's ReturnDeletedObject).
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// Reports whether something beside `metadata.finalizers` keeps a deleted object alive (a
    /// namespace's `spec.finalizers`).
    fn blocks_deletion(&self, _object: &Object) -> bool {
        false
    }

    /// Reports whether the first delete of an object marks it in the kind's own way
    /// ([`Strategy::begin_deletion`]), whatever would hold it else.
    fn begins_deletion(&self) -> bool {
        false
    }

    /// Marks an object as deleted in the kind's own way (CustomResourceDefinitions).
    fn begin_deletion(&self, _object: &mut Object, _now: &str) {}

    /// Makes the kind's own changes to an object that is marked as deleted (a namespace's phase).
    fn mark_deleting(&self, _object: &mut Object) {}

    /// Reports whether dependents are of no concern: no delete of this kind adds a garbage
    /// collection finalizer.
    fn ignores_dependents(&self) -> bool {
        false
    }

    /// Reports whether a delete without a propagation policy orphans dependents.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Returns the reason the object of that name may not be deleted by anybody.
    fn delete_refusal(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Returns the warning for a delete without a propagation policy.
    fn delete_warning(&self) -> Option<&'static str> {
        None
    }

    /// The paths that are set back on this subresource's writes and so never owned there
    /// (upstream's GetResetFields), as slash-separated paths below the object: `/status`.
    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match (self.has_status(), sub) {
            (true, Subresource::Main) => &["/status"],
            (true, Subresource::Status) => &["/spec"],
            _ => &[],
        }
    }

    /// The columns of its Tables; `None` for Name and Created At alone.
    fn printer(&self) -> Option<&dyn TablePrinter> {
        None
    }
}

/// The text of a field; `absent` where there is none.
pub fn text_or<'a>(object: &'a dyn FieldReader, field: &str, absent: &'static str) -> Cow<'a, str> {
    match object.text_at(field) {
        text if text.is_empty() => Cow::Borrowed(absent),
        text => text,
    }
}
