//! The generic store: the life of an object from request to bytes and back, the same for every kind
//! (apiserver `registry/generic/registry.Store`).

mod complete;
mod continuation;
mod create;
mod delete;
mod index;
mod items;
mod read;
mod reservation;
mod trees;
mod unreadable;
mod update;
mod watch;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::auth::User;
use crate::base::clock::Clock;
use crate::cacher::{Cacher, Reflector, ServedId};
use crate::codec;
use crate::merge::managers;
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvk, Gvr, Key, Object, Status, Value, time};
use crate::schema::{TypeId, TypeRef};
use crate::storage::{self, Revision, Storage, StorageError, Stored, WriteOutcome};

use super::resource::Resource;
use super::strategy::{Context, Subresource};
use super::validation::MetaRules;
use reservation::Failure;
use unreadable::Logged;

pub use complete::{Completing, Incomplete};
pub use items::Items;
pub use read::{Page, Selection};
pub use trees::{KnownKeys, Trees};
pub use unreadable::unreadable;
pub use update::Target;
pub use watch::{Event, EventKind, Events};

/// Seconds after which a client should try again when storage could not be reached.
const RETRY_AFTER_SECONDS: u32 = 2;

/// The bytes of warnings after which no more are taken: many more than a response may have.
const MAX_WARNING_BYTES: usize = 64 * 1024;

/// Warnings for the client, gathered while a request is worked on; each text once.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Gathered>);

#[derive(Debug, Default)]
struct Gathered {
    /// In the order in which they came.
    texts: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        let mut gathered = self.0.lock();
        if gathered.bytes > MAX_WARNING_BYTES {
            return;
        }
        let text: Arc<str> = text.into().into();
        if gathered.known.insert(text.clone()) {
            gathered.bytes += text.len();
            gathered.texts.push(text);
        }
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
            .texts
            .iter()
            .map(|text| text.as_ref().to_owned())
            .collect()
    }
}

/// The request that a write belongs to.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    pub user: &'a User,
    /// Empty for cluster-scoped resources.
    pub namespace: &'a str,
    pub dry_run: bool,
    pub warnings: &'a Warnings,
}

/// Admission, as the store sees it: the handlers bind it to the request.
#[async_trait]
pub trait Gate: Send + Sync {
    /// Validates the object that is about to be written: `new` is `None` for a delete, `old` for a
    /// create. Plugins take an object that they may change, but none does any more.
    async fn validate(&self, new: Option<&mut Object>, old: Option<&Object>) -> Result<()>;

    /// Returns field errors of a prepared object that depend on other objects or on the rights of
    /// the user. They are reported together with the strategy's.
    async fn field_errors(
        &self,
        _sub: Subresource<'_>,
        _new: &Object,
        _old: Option<&Object>,
    ) -> ErrorList {
        ErrorList::new()
    }

    /// Reports whether an update (or apply) may create what does not exist.
    async fn authorize_create(&self) -> Result<()>;
}

/// Lets everything through: for the server's own writes.
#[derive(Clone, Copy, Debug)]
pub struct OpenGate;

#[async_trait]
impl Gate for OpenGate {
    async fn validate(&self, _new: Option<&mut Object>, _old: Option<&Object>) -> Result<()> {
        Ok(())
    }

    async fn authorize_create(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes the new state of an object out of the present one; called again when the object changed
/// meanwhile.
#[async_trait]
pub trait Updater: Send + Sync {
    /// The UID that the object must have, where the client named one.
    fn uid(&self) -> Option<&str>;

    /// The object to write. `live` is `None` where nothing exists.
    async fn updated(&self, live: Option<&Object>) -> Result<Object>;

    /// Reports whether an object that is too large may not do without its managed fields: those of
    /// an apply are what it is about.
    fn keeps_managers(&self) -> bool {
        false
    }
}

/// The objects of one resource in storage.
#[derive(Clone)]
pub struct Store {
    pub resource: Arc<Resource>,
    pub storage: Arc<dyn Storage>,
    pub clock: Clock,
    /// The watch cache that serves reads and watches, if there is one.
    cacher: Option<Arc<Cacher>>,
    trees: Trees,
    logged: Arc<Logged>,
    /// The root of all keys, `/registry` unless `--etcd-prefix` says otherwise.
    root: Arc<str>,
    /// The served apiVersion.
    api_version: Arc<str>,
    /// The type of the stored kind.
    stored: TypeId,
    allow_privileged: bool,
    served_id: ServedId,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.resource)
    }
}

/// The state that a write begins with. The cache's is most often current; where it is not, the
/// transaction fails. Only a write that ends without a transaction has to be checked against
/// storage.
struct Origin {
    stored: Option<Stored>,
    /// True if storage has said so.
    certain: bool,
}

/// Options of a put.
#[derive(Clone, Copy, Default)]
struct Put {
    /// The revision that it must stand at; `None` for a new object.
    expected: Option<Revision>,
    /// See [`Updater::keeps_managers`].
    keeps_managers: bool,
}

/// An object with the revision that it was read at.
#[derive(Clone, Debug)]
pub struct Live {
    pub object: Object,
    pub stored: Stored,
}

impl Store {
    pub fn new(
        resource: Arc<Resource>,
        storage: Arc<dyn Storage>,
        trees: Trees,
        clock: Clock,
        root: &str,
    ) -> Self {
        let (api_version, stored) = (resource.gvk.api_version().into(), resource.storage_ty().id);
        Self {
            resource,
            storage,
            clock,
            cacher: None,
            trees,
            logged: Arc::default(),
            root: root.trim_end_matches('/').into(),
            api_version,
            stored,
            allow_privileged: false,
            served_id: ServedId::unique(),
        }
    }

    /// The id of the resource as this store and its clones serve it.
    pub fn served_id(&self) -> ServedId {
        self.served_id
    }

    /// The same store with the reflector's cache of its keys, if there is a reflector.
    pub fn cached(mut self, reflector: Option<&Reflector>) -> Self {
        if let Some(reflector) = reflector.filter(|_| !self.resource.decl.storage_prefix.is_empty())
        {
            self.cacher = Some(reflector.cacher(&self.prefix(), Some(index::reader(&self))));
        }
        self
    }

    /// The same store, whose pods may or may not have privileged containers; without this they may
    /// not.
    pub fn privileged(mut self, allowed: bool) -> Self {
        self.allow_privileged = allowed;
        self
    }

    /// The message of a stored object, without its envelope; `None` for one that is stored as JSON.
    ///
    /// # Errors
    /// 500 for stored bytes that cannot be decoded.
    pub fn message<'a>(
        &'a self,
        stored: &'a Stored,
    ) -> Result<Option<codec::protobuf::Message<'a>>> {
        if !stored.value.starts_with(codec::protobuf::MAGIC) {
            return Ok(None);
        }
        let envelope = self.envelope(&stored.value)?;
        Ok(Some(codec::protobuf::Message {
            bytes: envelope.raw,
            ty: TypeRef {
                schema: &self.resource.schema,
                id: self.stored,
            },
        }))
    }

    /// Those parts of a stored object that `part` names, or more of it.
    ///
    /// # Errors
    /// 500 for stored bytes that cannot be decoded.
    pub fn decode_part(
        &self,
        stored: &Stored,
        part: &codec::protobuf::Projection,
    ) -> Result<Object> {
        let Some(message) = self.message(stored)? else {
            return self.decode(stored);
        };
        let mut object =
            codec::protobuf::decode_part(message.bytes, message.ty, part).map_err(unreadable)?;
        self.name_kind(&mut object);
        Ok(object)
    }

    /// Sets apiVersion and kind of a stored object.
    fn name_kind(&self, object: &mut Object) {
        object.insert("kind", self.resource.storage_gvk.kind.clone().into());
        object.insert("apiVersion", self.resource.storage_gvk.api_version().into());
    }

    /// Writes a key that must not exist yet.
    async fn put_new(&self, key: &str, value: Bytes) -> std::result::Result<WriteOutcome, Failure> {
        self.written(
            self.storage.create(key, value, self.resource.ttl).await,
            "create",
        )
    }

    /// Writes over what stands at the revision `expected`.
    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: Revision,
    ) -> std::result::Result<WriteOutcome, Failure> {
        self.written(
            self.storage
                .update(key, value, expected, self.resource.ttl)
                .await,
            "update",
        )
    }

    /// Writes an object whose bytes are `value`: a new one, or over what stands at the revision
    /// `expected`. Where that is too large and managed fields (which can be large) may go, without
    /// them. Gives the bytes that were written.
    async fn put_object(
        &self,
        key: &str,
        object: &mut Object,
        value: Bytes,
        write: Put,
    ) -> std::result::Result<(WriteOutcome, Bytes), Failure> {
        let first = self.put_at(key, value.clone(), write.expected).await;
        let too_large =
            matches!(&first, Err(failure) if failure.status.message == storage::TOO_LARGE);
        if !too_large
            || write.keeps_managers
            || object
                .metadata_mut()
                .shift_remove("managedFields")
                .is_none()
        {
            return first.map(|outcome| (outcome, value));
        }
        let value = self.encode(object)?;
        self.put_at(key, value.clone(), write.expected)
            .await
            .map(|outcome| (outcome, value))
    }

    async fn put_at(
        &self,
        key: &str,
        value: Bytes,
        expected: Option<Revision>,
    ) -> std::result::Result<WriteOutcome, Failure> {
        match expected {
            Some(expected) => self.put(key, value, expected).await,
            None => self.put_new(key, value).await,
        }
    }

    /// Deletes what stands at the revision that it was read at.
    async fn erase(&self, stored: &Stored) -> Result<WriteOutcome> {
        Ok(self.written(
            self.storage.delete(&stored.key, stored.mod_revision).await,
            "delete",
        )?)
    }

    /// The outcome of a write. Who reads what this server knows must see it.
    fn written(
        &self,
        outcome: storage::Result<WriteOutcome>,
        verb: &str,
    ) -> std::result::Result<WriteOutcome, Failure> {
        let outcome = outcome
            .map_err(|error| Failure::of_transaction(&error, self.fault(error.clone(), verb)))?;
        if let (WriteOutcome::Committed(revision), Some(cacher)) = (&outcome, &self.cacher) {
            cacher.record_write(*revision);
        }
        Ok(outcome)
    }

    /// Reads the state that a write begins with.
    async fn origin(&self, key: &str, verb: &str) -> Result<Origin> {
        if let Some(snapshot) = self.cacher.as_ref().and_then(|cacher| cacher.snapshot())
            && let Some(stored) = snapshot.get(key)
        {
            return Ok(Origin {
                stored: Some(Stored::clone(stored)),
                certain: false,
            });
        }
        self.certain_origin(key, verb).await
    }

    async fn certain_origin(&self, key: &str, verb: &str) -> Result<Origin> {
        let stored = self
            .storage
            .get(key)
            .await
            .map_err(|error| self.fault(error, verb))?;
        Ok(Origin {
            stored,
            certain: true,
        })
    }

    /// The prefix of all keys of the resource, with its closing slash.
    pub fn prefix(&self) -> String {
        format!("{}/{}/", self.root, self.resource.decl.storage_prefix)
    }

    /// The prefix of the keys of a namespace; of all where it is empty.
    pub fn namespace_prefix(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            self.prefix()
        } else {
            format!("{}{namespace}/", self.prefix())
        }
    }

    /// The key of an object, below the prefix of its resource.
    ///
    /// # Errors
    /// 400 for a name or namespace that cannot be part of a path.
    pub fn key(&self, namespace: &str, name: &str) -> Result<String> {
        if self.resource.decl.namespaced && namespace.is_empty() {
            return Err(Status::bad_request("Namespace parameter required."));
        }
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let wrong = crate::meta::names::path_segment_name(name);
        if !wrong.is_empty() {
            return Err(Status::bad_request(format!(
                "Name parameter invalid: {name:?}: {}",
                wrong.join(";")
            )));
        }
        let namespace = if self.resource.decl.namespaced {
            namespace
        } else {
            ""
        };
        Ok(format!("{}{name}", self.namespace_prefix(namespace)))
    }

    /// The stored object as a tree of the storage version, with its resourceVersion.
    ///
    /// # Errors
    /// 500 for stored bytes that cannot be decoded.
    pub fn decode(&self, stored: &Stored) -> Result<Object> {
        let mut object = self.decode_value(&stored.value)?;
        // A dry run's object has been nowhere: it has no revision.
        if stored.mod_revision > 0 {
            object.set_resource_version(&stored.mod_revision.to_string());
        }
        Ok(object)
    }

    fn decode_value(&self, value: &Bytes) -> Result<Object> {
        if let Some(custom) = &self.resource.custom {
            return custom.decode(value);
        }
        let ty = self.resource.storage_ty();
        let mut object = if value.starts_with(codec::protobuf::MAGIC) {
            let envelope = self.envelope(value)?;
            codec::protobuf::decode(envelope.raw, ty).map_err(unreadable)?
        } else {
            codec::json::decode(value, ty).map_err(unreadable)?.object
        };
        self.name_kind(&mut object);
        Ok(object)
    }

    /// The bytes to store for an object of the storage version. Its resourceVersion is storage's
    /// own and not in them.
    ///
    /// # Errors
    /// With its managed fields the object nests deeper than JSON may: it could not be read again.
    fn encode(&self, object: &mut Object) -> Result<Bytes> {
        object.metadata_mut().shift_remove("resourceVersion");
        object.metadata_mut().shift_remove("selfLink");
        if let Some(custom) = &self.resource.custom {
            let bytes = custom.encode(object)?;
            codec::json::Document::new(&bytes).map_err(|why| Status::failure(500, "", why.0))?;
            return Ok(bytes.into());
        }
        let gvk = &self.resource.storage_gvk;
        if self.resource.decl.stored_as_json {
            let mut bytes = codec::json::encode(object);
            bytes.push(b'\n');
            return Ok(bytes.into());
        }
        let raw = codec::protobuf::encode(object, self.resource.storage_ty());
        Ok(codec::protobuf::wrap(&gvk.api_version(), &gvk.kind, &raw).into())
    }

    /// Completes bytes that were stored just now, as clients are shown them.
    fn completed(&self, value: Bytes) -> Bytes {
        let resource = &self.resource;
        if resource.strategy.incomplete().is_none() {
            return value;
        }
        complete::completed(
            &value,
            &resource.storage_gvk,
            resource.storage_ty(),
            &*resource.strategy,
        )
        .unwrap_or(value)
    }

    /// An object of the served version becomes a defaulted one of the storage version.
    pub fn to_storage(&self, object: &mut Object) {
        let resource = &self.resource;
        if let Some(conversion) = resource.conversion {
            conversion.to_storage(object);
        }
        if resource.custom.is_none() {
            self.name_kind(object);
        }
        resource.strategy.default(object);
    }

    /// Records who set which field: `manager`, in a write to `sub` that turns `live` into `object`.
    /// Fields are named as in the served version.
    pub fn track(
        &self,
        live: Option<&Object>,
        object: &mut Object,
        sub: Subresource,
        manager: &str,
    ) {
        let writer = self.writer(sub, manager);
        if self.resource.conversion.is_none() {
            managers::update(live, object, &writer);
            return;
        }
        let mut served = self.served(object).into_owned();
        managers::update(
            live.map(|live| self.served(live)).as_deref(),
            &mut served,
            &writer,
        );
        match served.metadata_mut().shift_remove("managedFields") {
            Some(managed) => object.metadata_mut().insert("managedFields", managed),
            None => object.metadata_mut().shift_remove("managedFields"),
        };
    }

    /// The manager of a write in the served version.
    pub fn writer<'a>(&'a self, sub: Subresource<'a>, manager: &'a str) -> managers::Writer<'a> {
        let resource = &self.resource;
        managers::Writer {
            manager,
            api_version: &self.api_version,
            subresource: subresource_name(sub),
            now: self.clock.now(),
            reset_fields: resource.strategy.reset_fields(sub),
            ty: resource.ty().into(),
            versions: match &resource.custom {
                Some(custom) => custom.versions(),
                None => &resource.versions,
            },
        }
    }

    /// An object of the storage version as one of the served version.
    pub fn served<'o>(&self, object: &'o Object) -> Cow<'o, Object> {
        let resource = &self.resource;
        if resource.gvk == resource.storage_gvk {
            return Cow::Borrowed(object);
        }
        let mut served = object.clone();
        if let Some(conversion) = resource.conversion {
            conversion.to_served(&mut served);
        }
        served.insert("kind", resource.gvk.kind.clone().into());
        served.insert("apiVersion", resource.gvk.api_version().into());
        // Without a conversion both versions look the same.
        if resource.conversion.is_some() {
            reshape(&mut served, resource.ty());
        }
        Cow::Owned(served)
    }

    /// The rules for the metadata of objects.
    fn meta_rules(&self) -> MetaRules<'_> {
        MetaRules {
            namespaced: self.resource.decl.namespaced,
            strategy: &*self.resource.strategy,
        }
    }

    /// The Status for an object that is not valid. One of a custom kind is named as it names
    /// itself.
    fn invalid(&self, object: &Object, errors: ErrorList) -> Status {
        let itself = self
            .resource
            .custom
            .as_ref()
            .map(|_| Gvk::from_api_version(object.api_version(), object.kind()));
        Status::invalid(
            itself.as_ref().unwrap_or(&self.resource.storage_gvk),
            object.name(),
            errors,
        )
    }

    /// The context that strategies are given.
    fn context<'a>(&self, ctx: &WriteContext<'a>) -> Context<'a> {
        Context {
            now: self.clock.now(),
            user: ctx.user,
            allow_privileged: self.allow_privileged,
        }
    }

    fn now_text(&self) -> String {
        time::format(self.clock.now().as_second())
    }

    /// The Status for a failure of storage while doing `verb`.
    fn fault(&self, error: StorageError, verb: &str) -> Status {
        storage_status(error, &self.resource.gvr, verb)
    }
}

/// The Status for a failure of storage (apiserver `storage/errors`).
pub fn storage_status(error: StorageError, gvr: &Gvr, verb: &str) -> Status {
    match error {
        StorageError::Compacted { .. } | StorageError::Restored { .. } => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        StorageError::FutureRevision { asked, current } => {
            too_large_resource_version(asked.unsigned_abs(), current)
        }
        StorageError::TooLarge(_) => Status::failure(500, "", storage::TOO_LARGE),
        StorageError::NoSpace(_) => Status::failure(500, "", storage::NO_SPACE),
        StorageError::Unavailable(_) => {
            let resource = gvr.group_resource();
            let message = format!(
                "The {verb} operation against {resource} could not be completed at this time, please try again."
            );
            let mut status = Status::failure(500, "ServerTimeout", message);
            let details = status.details_mut();
            (details.name, details.group, details.kind) =
                (verb.to_owned(), gvr.group.clone(), gvr.resource.clone());
            details.retry_after_seconds = RETRY_AFTER_SECONDS;
            status
        }
        StorageError::Internal(why) => Status::internal(why),
    }
}

/// The revision that a resourceVersion means, 0 for none. No store comes as far as those that are
/// no revision.
fn revision_of(version: Option<u64>) -> Revision {
    Revision::try_from(version.unwrap_or(0)).unwrap_or(Revision::MAX)
}

/// 504: the revision asked for has not happened yet.
pub fn too_large_resource_version(asked: u64, current: Revision) -> Status {
    let mut status = Status::timeout(
        &format!("Too large resource version: {asked}, current: {current}"),
        1,
    );
    status.details_mut().causes = vec![crate::meta::status::Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }];
    status
}

/// Counts a change of anything but metadata and (where it is a subresource) status in
/// `metadata.generation`.
fn bump_generation(object: &mut Object, old: &Object, has_status: bool) {
    let counts = |key: &str| !is_housekeeping(key) || (key == "status" && !has_status);
    let differs = |(key, value): (&Key, &Value)| counts(key) && old.get(key) != Some(value);
    let gone = old
        .keys()
        .any(|key| counts(key) && !object.contains_key(key));
    if gone || object.iter().any(differs) {
        // As Go, whose numbers wrap around.
        object.set_generation(old.generation().wrapping_add(1));
    }
}

fn is_housekeeping(key: &str) -> bool {
    matches!(key, "metadata" | "status" | "kind" | "apiVersion")
}

/// Brings a tree into the order and form of its type. What does not fit it stays as it is.
pub fn reshape(object: &mut Object, ty: crate::schema::TypeRef<'_>) {
    codec::normalize::normalize(object, ty, codec::normalize::Rules::Unstructured);
}

/// The subresource's name in managed fields.
fn subresource_name(sub: Subresource<'_>) -> &str {
    match sub {
        Subresource::Main => "",
        Subresource::Status => "status",
        Subresource::Other(name) => name,
    }
}

/// Reports whether the subresource is the object itself.
fn is_main(sub: Subresource) -> bool {
    sub == Subresource::Main
}
