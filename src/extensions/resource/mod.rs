//! A version of a custom kind: reading and storing its objects, and the resource that serves it.

mod merge_schema;
mod strategy;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::strategy::CustomStrategy;
use crate::codec::{self, DecodeError};
use crate::extensions::conversion::{WebhookConverter, Webhooks};
use crate::extensions::definition::{Definition, Version};
use crate::extensions::openapi;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::prune_and_default::{self, SchemaCoercer};
use crate::merge::scale::ReplicasPaths;
use crate::merge::{Ty, Versions};
use crate::meta::Map;
use crate::meta::{Gvk, Gvr, Object, Status, Value, status};
use crate::registry::resource::{Converter, KindVersions, SchemaHandle};
use crate::registry::scale::{self, ScalePaths};
use crate::registry::store::unreadable;
use crate::registry::{Custom, Resource, StrategyHandle};
use crate::schema::{ResourceDecl, Schema, SubresourceDecl};

/// The verbs of a custom resource, as discovery lists them.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// Those that are left while its definition is being deleted.
const LAST_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The schemas of all versions of a kind.
pub struct VersionedSchemas {
    group: String,
    kind: String,
    preserve: bool,
    /// Converts between versions, where they differ in more than their names.
    converter: Option<Arc<dyn Converter>>,
    schemas: BTreeMap<String, Option<Arc<JsonSchemaProps>>>,
    types: Arc<Schema>,
    /// The path of the replicas in each version.
    replicas: Vec<(String, Option<Vec<String>>)>,
    /// A text that changes with the definition.
    fingerprint: String,
}

/// One version among the others.
struct CustomKind {
    family: Arc<VersionedSchemas>,
    gvk: Gvk,
    api_version: String,
    storage_api_version: String,
    list_kind: String,
    deprecation: Option<String>,
    terminating: bool,
    scale: Option<ScalePaths>,
    /// The schema as it was given, if it is structural.
    given: Option<Value>,
    selectable: Vec<String>,
}

/// The resources of the versions that a definition serves.
pub fn resources(definition: &Definition, webhooks: &Webhooks) -> Vec<Resource> {
    if !definition.is_served() {
        return Vec::new();
    }
    let family = Arc::new(VersionedSchemas::new(definition, webhooks));
    definition
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| resource(definition, version, &family))
        .collect()
}

/// The resource of the version that objects are stored in, served or not.
pub fn storage_resource(definition: &Definition, webhooks: &Webhooks) -> Option<Resource> {
    let version = definition.versions.iter().find(|version| version.storage)?;
    Some(resource(
        definition,
        version,
        &Arc::new(VersionedSchemas::new(definition, webhooks)),
    ))
}

impl VersionedSchemas {
    fn new(definition: &Definition, webhooks: &Webhooks) -> Self {
        let gvk =
            |version: &Version| Gvk::new(&definition.group, &version.name, &definition.names.kind);
        let types = definition
            .versions
            .iter()
            .map(|one| (gvk(one), one.schema.as_deref().filter(|_| one.structural)));
        Self {
            group: definition.group.clone(),
            kind: definition.names.kind.clone(),
            preserve: definition.preserve,
            converter: WebhookConverter::of(definition, webhooks),
            schemas: definition
                .versions
                .iter()
                .map(|one| (one.name.clone(), one.schema.clone()))
                .collect(),
            types: Arc::new(merge_schema::schema(types, definition.preserve)),
            replicas: definition
                .versions
                .iter()
                .map(|one| (gvk(one).api_version(), replicas_path(one)))
                .collect(),
            fingerprint: format!(
                "{} {} {:?} {}",
                definition.uid, definition.generation, definition.names, definition.terminating
            ),
        }
    }

    /// The schema for an object as it names itself; `None` for one of another kind.
    fn schema_of(&self, object: &Object) -> Option<Option<&JsonSchemaProps>> {
        let gvk = Gvk::from_api_version(object.api_version(), object.kind());
        let own = gvk.group == self.group && gvk.kind == self.kind;
        own.then(|| self.schemas.get(&gvk.version).and_then(Option::as_deref))
    }

    fn coerce(&self, object: &mut Object, stored: bool) -> Result<Vec<String>, String> {
        let (schema, preserve) = match self.schema_of(object) {
            Some(schema) => (schema, self.preserve),
            None => (None, true),
        };
        SchemaCoercer {
            schema,
            preserve,
            stored,
        }
        .apply(object)
    }

    /// Fills in the defaults of the version that the object names.
    pub fn default(&self, object: &mut Object) {
        if let Some(Some(schema)) = self.schema_of(object) {
            prune_and_default::default_entries(object, schema);
        }
    }
}

impl Custom for CustomKind {
    fn read(&self, object: &mut Object) -> Result<Vec<String>, String> {
        let lost = self.family.coerce(object, false)?;
        self.family.default(object);
        Ok(lost)
    }

    fn decode_stored(&self, bytes: &[u8]) -> status::Result<Object> {
        let damaged = |why: String| unreadable(DecodeError(why));
        let (value, _) = codec::json::parse(bytes).map_err(unreadable)?;
        let mut object = Object::from_value(value)
            .ok_or_else(|| damaged("the stored value is not an object".to_owned()))?;
        self.family.coerce(&mut object, true).map_err(damaged)?;
        // The defaults are those of the version that it was stored in.
        self.family.default(&mut object);
        if object.generation() == 0 {
            object.set_generation(1);
        }
        object.sort();
        Ok(object)
    }

    fn decode(&self, bytes: &[u8]) -> status::Result<Object> {
        let mut object = self.decode_stored(bytes)?;
        if object.api_version() == self.api_version {
            return Ok(object);
        }
        if self.family.converter.is_some() {
            return Err(Status::internal(format!(
                "an object of {} was not converted to {}",
                object.api_version(),
                self.api_version
            )));
        }
        object.insert("apiVersion", self.api_version.as_str().into());
        let damaged = |why: String| unreadable(DecodeError(why));
        self.family.coerce(&mut object, true).map_err(damaged)?;
        object.sort();
        Ok(object)
    }

    fn encode(&self, object: &Object) -> Vec<u8> {
        let mut stored = object.clone();
        if self.storage_api_version != stored.api_version() {
            stored.insert("apiVersion", self.storage_api_version.as_str().into());
            // The metadata is in form, so nothing can be wrong; fields that the storage version
            // does not have go.
            let _ = self.family.coerce(&mut stored, true);
        }
        stored.sort();
        let mut bytes = codec::json::encode(&stored);
        bytes.push(b'\n');
        bytes
    }

    fn storage_api_version(&self) -> &str {
        &self.storage_api_version
    }

    fn converter(&self) -> Option<&Arc<dyn Converter>> {
        self.family.converter.as_ref()
    }

    fn complete(&self, converted: &mut Object) -> Result<(), String> {
        self.family.coerce(converted, false).map(drop)
    }

    fn versions(&self) -> &dyn Versions {
        self
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn replicas_paths(&self) -> &ReplicasPaths {
        &self.family.replicas
    }

    fn list_kind(&self) -> &str {
        &self.list_kind
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn is_terminating(&self) -> bool {
        self.terminating
    }

    fn published(&self, for_v2: bool) -> Option<Map> {
        openapi::root(self.given.as_ref()?, self.family.preserve, for_v2)
    }

    fn selectable(&self) -> &[String] {
        &self.selectable
    }

    fn fingerprint(&self) -> String {
        self.family.fingerprint.clone()
    }
}

impl Versions for CustomKind {
    fn type_of(&self, api_version: &str) -> Option<Ty<'_>> {
        self.family
            .types
            .get(&Gvk::from_api_version(api_version, &self.gvk.kind))
            .map(Ty::from)
    }

    // Upstream knows of those of other versions in writes to status only
    // (`customresource_handler.go`, getStatusResetFields).
    fn resets_all(&self, subresource: &str) -> bool {
        subresource == "status"
    }

    fn convert(&self, object: &Map, api_version: &str) -> Result<Option<Map>, String> {
        if self.type_of(api_version).is_none() {
            return Ok(None);
        }
        let mut converted = object.clone();
        converted.insert("apiVersion", api_version.into());
        Ok(Some(converted))
    }
}

fn replicas_path(version: &Version) -> Option<Vec<String>> {
    version.scale.as_ref().map(|scale| {
        scale::names(&scale.spec_replicas)
            .map(str::to_owned)
            .collect()
    })
}

fn resource(
    definition: &Definition,
    version: &Version,
    family: &Arc<VersionedSchemas>,
) -> Resource {
    let names = &definition.names;
    let gvk = Gvk::new(&definition.group, &version.name, &names.kind);
    let storage_gvk = Gvk::new(&definition.group, definition.storage_version(), &names.kind);
    let custom = CustomKind {
        family: family.clone(),
        api_version: gvk.api_version(),
        storage_api_version: storage_gvk.api_version(),
        gvk: gvk.clone(),
        list_kind: names.list_kind.clone(),
        deprecation: version.deprecation.clone(),
        terminating: definition.terminating,
        scale: version.scale.clone(),
        given: version.raw_schema.clone().filter(|_| version.structural),
        selectable: version.selectable.clone(),
    };
    Resource {
        decl: declare(definition, version, storage_gvk),
        gvr: Gvr::new(&definition.group, &version.name, &names.plural),
        storage_gvk: gvk.clone(),
        versions: KindVersions::default(),
        strategy: StrategyHandle::Shared(Arc::new(CustomStrategy::new(
            version,
            family.clone(),
            gvk.clone(),
        ))),
        gvk,
        schema: SchemaHandle::Shared(family.types.clone()),
        conversion: None,
        custom: Some(Arc::new(custom)),
        hooks: None,
        ttl: None,
    }
}

fn declare(definition: &Definition, version: &Version, storage_gvk: Gvk) -> ResourceDecl {
    let names = &definition.names;
    let texts = |list: &[&str]| {
        list.iter()
            .map(|one| (*one).to_owned())
            .collect::<Vec<String>>()
    };
    let mut subresources = Vec::new();
    if version.status {
        let kind = Gvk::new("", "", &names.kind);
        subresources.push(SubresourceDecl {
            name: "status".to_owned(),
            kind,
            verbs: texts(&SUBRESOURCE_VERBS),
        });
    }
    if version.scale.is_some() {
        let kind = Gvk::new("autoscaling", "v1", "Scale");
        subresources.push(SubresourceDecl {
            name: "scale".to_owned(),
            kind,
            verbs: texts(&SUBRESOURCE_VERBS),
        });
    }
    ResourceDecl {
        group: definition.group.clone(),
        version: version.name.clone(),
        resource: names.plural.clone(),
        singular: names.singular.clone(),
        kind: names.kind.clone(),
        namespaced: definition.namespaced,
        verbs: texts(if definition.terminating {
            &LAST_VERBS
        } else {
            &VERBS
        }),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        subresources,
        storage_prefix: format!("{}/{}", definition.group, names.plural),
        storage_gvk: Some(storage_gvk),
        stored_as_json: true,
    }
}
