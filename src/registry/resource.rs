//! A served resource: its names, its types, its strategy, and where its objects are stored.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::codec::{self, normalize::Rules};
use crate::merge::scale::ReplicasPaths;
use crate::merge::{Ty, Versions};
use crate::meta::{Gvk, Gvr, Map, Object, Value, status};
use crate::schema::{ResourceDecl, TypeRef};

pub use crate::schema::SchemaHandle;

use super::Strategy;
use super::scale::ScalePaths;
use super::write_context::WriteContext;

/// The behaviour of a resource, which lives as long as the program (built-ins) or as long as its
/// users (CRDs).
#[derive(Clone)]
pub enum StrategyHandle {
    Static(&'static dyn Strategy),
    Shared(Arc<dyn Strategy>),
}

impl std::ops::Deref for StrategyHandle {
    type Target = dyn Strategy;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Static(strategy) => *strategy,
            Self::Shared(strategy) => strategy.as_ref(),
        }
    }
}

/// Converts objects of a custom kind from one version to another.
#[async_trait]
pub trait Converter: Send + Sync {
    /// Returns the objects, which are of other versions, in `api_version`, in their order. Dropping
    /// the future ends the conversion.
    ///
    /// # Errors
    /// The message that clients get with a 500.
    async fn convert(&self, objects: Vec<Object>, api_version: &str)
    -> Result<Vec<Object>, String>;
}

/// The form of a kind that a CRD defines. Its objects are trees behind which stands no type of the
/// program: they are of the served version in memory, and of the CRD's storage version in storage.
pub trait Custom: Send + Sync {
    /// Brings a tree from a client into the form of the version that it names, defaults included.
    /// Returns the paths of the unknown fields that it lost.
    ///
    /// # Errors
    /// Metadata that is not in form: Go's text.
    fn read(&self, object: &mut Object) -> Result<Vec<String>, String>;

    /// Stored bytes as an object of the version that they are of.
    ///
    /// # Errors
    /// Bytes that are no JSON object.
    fn decode_stored(&self, bytes: &[u8]) -> status::Result<Object>;

    /// Stored bytes as an object of the served version.
    ///
    /// # Errors
    /// Bytes that are no JSON object, or that a [`Converter`] has to convert first.
    fn decode(&self, bytes: &[u8]) -> status::Result<Object>;

    /// The bytes to store for an object of the served version; for one of the storage version where
    /// there is a [`Converter`].
    fn encode(&self, object: &Object) -> Vec<u8>;

    /// The version that objects are stored in, such as `example.com/v1`.
    fn storage_api_version(&self) -> &str;

    /// Returns the converter between versions; `None` where they differ in nothing but their names.
    fn converter(&self) -> Option<&Arc<dyn Converter>>;

    /// Brings what a converter returned into the form of its version.
    ///
    /// # Errors
    /// Metadata that is not in form: Go's text.
    fn complete(&self, converted: &mut Object) -> Result<(), String>;

    /// The other versions of the kind, for field managers that use them.
    fn versions(&self) -> &dyn Versions;

    /// Returns the paths of the fields that the version's Scale shows; `None` if it has no scale
    /// subresource.
    fn scale(&self) -> Option<&ScalePaths>;

    /// Returns the path of the replicas in each version, for the managers of a Scale.
    fn replicas_paths(&self) -> &ReplicasPaths;

    /// The kind of lists.
    fn list_kind(&self) -> &str;

    /// Returns the warning for clients that use the version.
    fn deprecation(&self) -> Option<&str>;

    /// Reports whether the definition is on its way out: there will be no new objects.
    fn is_terminating(&self) -> bool;

    /// The schema as documents in OpenAPI v2 or else v3 publish it, without what every object has;
    /// `None` where objects may have any field.
    fn published(&self, for_v2: bool) -> Option<Map>;

    /// The fields that objects may be selected by, besides name and namespace.
    fn selectable(&self) -> &[String];

    /// Changes with all that documents say of the kind, and is the same on all servers.
    fn fingerprint(&self) -> String;
}

/// Conversion of a served version to the storage version and back. Only for the kinds that are
/// served in another version than they are stored in.
pub trait Conversion: Send + Sync {
    /// Turns an object of the served version into one of the storage version.
    fn to_storage(&self, object: &mut Object);
    /// Turns an object of the storage version into one of the served version.
    fn to_served(&self, object: &mut Object);
}

/// One of the versions of a kind that has several.
#[derive(Clone)]
pub struct Version {
    gvk: Gvk,
    api_version: String,
    /// `None` for the storage version.
    conversion: Option<&'static dyn Conversion>,
}

impl Version {
    pub fn new(gvk: Gvk, conversion: Option<&'static dyn Conversion>) -> Self {
        Self {
            api_version: gvk.api_version(),
            gvk,
            conversion,
        }
    }
}

/// The versions of one group that a kind is served in, for the field managers that wrote in each.
/// Managers who wrote through another group (events) are forgotten, as upstream forgets them.
#[derive(Clone, Default)]
pub struct KindVersions(pub Vec<Version>);

impl KindVersions {
    fn find(&self, api_version: &str) -> Option<&Version> {
        self.0
            .iter()
            .find(|version| version.api_version == api_version)
    }
}

impl Versions for KindVersions {
    fn type_of(&self, api_version: &str) -> Option<Ty<'_>> {
        self.find(api_version)
            .and_then(|version| crate::schema::builtin().get(&version.gvk))
            .map(Ty::from)
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Option<Map>, String> {
        let from = object
            .get("apiVersion")
            .and_then(Value::as_str)
            .and_then(|version| self.find(version));
        let Some((from, to)) = from.zip(self.find(api_version)) else {
            return Ok(None);
        };
        let Some(ty) = crate::schema::builtin().get(&to.gvk) else {
            return Ok(None);
        };
        let mut object = Object(object.clone());
        if let Some(conversion) = from.conversion {
            conversion.to_storage(&mut object);
        }
        if let Some(conversion) = to.conversion {
            conversion.to_served(&mut object);
        }
        object.insert("kind", to.gvk.kind.clone().into());
        object.insert("apiVersion", api_version.into());
        codec::normalize::normalize(&mut object, ty, Rules::Unstructured);
        Ok(Some(object.0))
    }
}

/// Side effects that belong to a write, such as the allocation of a cluster IP.
#[async_trait]
pub trait Hooks: Send + Sync {
    /// Runs before validation of a new (`old` is `None`) or updated object, subresources apart, and
    /// may complete it. What it takes for the object is the reservation's; where it fails, it has
    /// given back what it took. A dry run takes nothing.
    async fn reserve<'a>(
        &'a self,
        _ctx: &WriteContext<'_>,
        _object: &mut Object,
        _old: Option<&Object>,
    ) -> status::Result<Option<Box<dyn Reservation + 'a>>> {
        Ok(None)
    }

    /// Runs after an object was created or updated for good.
    async fn written(&self, _object: &Object, _old: Option<&Object>) {}

    /// Runs after an object is gone for good, with what it was at the end. Once for each object:
    /// whoever deleted it runs this.
    async fn deleted(&self, object: &Object);
}

/// Resources that one attempt to write took from a shared pool. Exactly one of its ends is called,
/// or none where the outcome of the write is not known: then everything stays taken until a repair
/// has compared the stock with the objects.
#[async_trait]
pub trait Reservation: Send {
    /// The write was done and `object` is what stands now: gives back what it does not use any
    /// more.
    async fn keep(self: Box<Self>, object: &Object);

    /// The write was not done: gives back what was taken for it, and nothing else.
    async fn release(self: Box<Self>);
}

/// Everything that the handlers know of a resource.
pub struct Resource {
    pub decl: ResourceDecl,
    /// The served group, version and resource.
    pub gvr: Gvr,
    /// The served kind.
    pub gvk: Gvk,
    /// The kind whose bytes are stored.
    pub storage_gvk: Gvk,
    pub schema: SchemaHandle,
    pub strategy: StrategyHandle,
    pub conversion: Option<&'static dyn Conversion>,
    /// All versions of a built-in kind; none where it has only one.
    pub versions: KindVersions,
    /// `None` for built-in kinds.
    pub custom: Option<Arc<dyn Custom>>,
    pub hooks: Option<Arc<dyn Hooks>>,
    /// The lifetime of objects (events).
    pub ttl: Option<Duration>,
}

impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Resource({} {})",
            self.gvr.api_version(),
            self.gvr.resource
        )
    }
}

impl Resource {
    /// The built-in resource of a declaration.
    pub fn builtin(decl: &ResourceDecl, strategy: &'static dyn Strategy) -> Self {
        let gvr = Gvr::new(&decl.group, &decl.version, &decl.resource);
        let gvk = Gvk::new(&decl.group, &decl.version, &decl.kind);
        let storage_gvk = decl.storage_gvk.clone().unwrap_or_else(|| gvk.clone());
        Self {
            decl: decl.clone(),
            gvr,
            gvk,
            storage_gvk,
            schema: SchemaHandle::Static(crate::schema::builtin()),
            strategy: StrategyHandle::Static(strategy),
            conversion: None,
            versions: KindVersions::default(),
            custom: None,
            hooks: None,
            ttl: None,
        }
    }

    /// The type of the served kind. Every resource is built over a schema that has it.
    pub fn ty(&self) -> TypeRef<'_> {
        self.schema
            .get(&self.gvk)
            .expect("the schema of a resource has its kind")
    }

    /// The type of the stored kind.
    pub fn storage_ty(&self) -> TypeRef<'_> {
        self.schema
            .get(&self.storage_gvk)
            .expect("the schema of a resource has its stored kind")
    }

    /// Reports whether stored bytes can become JSON without a tree in between.
    pub fn stored_as_served(&self) -> bool {
        self.conversion.is_none() && !self.decl.stored_as_json
    }

    /// Reports whether a selector may use a field label; the error is the one that clients know.
    ///
    /// # Errors
    /// The message that clients know.
    pub fn check_field_label(&self, label: &str) -> Result<(), String> {
        let known = self.strategy.selectable_fields();
        let plain = known.is_empty() && self.custom.is_none();
        let meta = label == "metadata.name"
            || (label == "metadata.namespace" && (self.decl.namespaced || plain));
        if meta || self.strategy.is_selectable(label) {
            return Ok(());
        }
        Err(match self.gvk.kind.as_str() {
            _ if plain => format!(
                "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
            // Two kinds have words of their own.
            "Job" if self.gvk.group == "batch" => {
                format!("field label {label:?} not supported for Job")
            }
            "ResourceSlice" if self.gvk.group == "resource.k8s.io" => {
                format!(
                    "field label not supported for {}, Kind=ResourceSlice: {label}",
                    self.gvk.api_version()
                )
            }
            _ => format!("field label not supported: {label}"),
        })
    }
}
