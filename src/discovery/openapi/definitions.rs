//! JSON schemas of the types in the schema graph, in the dialects of OpenAPI v2 and v3.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::custom::{self, CustomKind};
use super::descriptions::Descriptions;
use crate::builtin::CERTIFICATE_USAGES;
use crate::meta::{Gvk, Map, Value, json};
use crate::schema::{
    Field, Kind, ListType, MapType, PatchStrategy, Presence, Schema, SchemaAlternative, Type,
    TypeRef,
};

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// The version of OpenAPI that a schema is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// A reference to the definition `name`.
    pub fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The definitions that a document needs: those it names and all that these refer to.
pub struct Definitions<'a> {
    schema: &'a Schema,
    dialect: Dialect,
    descriptions: &'a Descriptions,
    /// The group and version that the document is about; `None` for one about everything.
    about: Option<(&'a str, &'a str)>,
    /// Definitions that are not of the schema, by name.
    given: BTreeMap<String, Value>,
    /// The names of their kinds.
    names: HashMap<Gvk, String>,
    pending: BTreeSet<String>,
    done: BTreeMap<String, Value>,
}

impl<'a> Definitions<'a> {
    pub fn new(
        schema: &'a Schema,
        dialect: Dialect,
        descriptions: &'a Descriptions,
        about: Option<(&'a str, &'a str)>,
    ) -> Self {
        Self {
            schema,
            dialect,
            descriptions,
            about,
            given: BTreeMap::new(),
            names: HashMap::new(),
            pending: BTreeSet::new(),
            done: BTreeMap::new(),
        }
    }

    /// With the definitions of custom kinds. Where a built-in type has the name already, theirs
    /// gets a number.
    #[must_use]
    pub fn with_custom(mut self, kinds: &[&CustomKind]) -> Self {
        for (gvk, definition) in kinds
            .iter()
            .flat_map(|kind| kind.definitions(self.dialect, self.descriptions))
        {
            let mut name = custom::model_name(&gvk);
            if self.find(&name).is_some() {
                name.push_str("_v2");
            }
            self.given.insert(name.clone(), definition);
            self.names.insert(gvk, name);
        }
        self
    }

    /// A reference to the definition `name`, which becomes part of the document.
    pub fn reference(&mut self, name: &str) -> Value {
        if !self.done.contains_key(name) {
            self.pending.insert(name.to_owned());
        }
        self.dialect.reference(name)
    }

    /// The name of the definition of `kind`, where one is published.
    pub fn name_of(&self, kind: &Gvk) -> Option<String> {
        if let Some(name) = self.names.get(kind) {
            return Some(name.clone());
        }
        let ty = self.schema.get(kind)?.get();
        (!ty.openapi_name.is_empty()).then(|| ty.openapi_name.clone())
    }

    /// Writes every definition that was referred to, by name.
    pub fn finish(mut self) -> Map {
        while let Some(name) = self.pending.pop_first() {
            let definition = self.definition(&name);
            self.done.insert(name, definition);
        }
        self.done.into_iter().collect()
    }

    fn definition(&mut self, name: &str) -> Value {
        if let Some(given) = self.given.remove(name) {
            self.follow(&given);
            return given;
        }
        let mut out = Map::new();
        put(&mut out, "description", &self.descriptions.of_type(name));
        let built = match self.find(name) {
            Some(ty) => self.object(ty),
            None => well_known(name, self.dialect),
        };
        out.extend(built);
        Value::Object(out)
    }

    /// Also defines the types that a value refers to.
    fn follow(&mut self, value: &Value) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, one)| {
                match one.as_str().and_then(|target| target.rsplit('/').next()) {
                    Some(name) if key == "$ref" => drop(self.reference(name)),
                    _ => self.follow(one),
                }
            }),
            Value::Array(list) => list.iter().for_each(|one| self.follow(one)),
            _ => {}
        }
    }

    fn find(&self, name: &str) -> Option<TypeRef<'a>> {
        let local = name
            .strip_prefix("io.k8s.")?
            .replace("apiextensions-apiserver", "apiextensions_apiserver");
        self.schema.named(&format!(
            "k8s.io.{}",
            local.replace("kube-aggregator", "kube_aggregator")
        ))
    }

    fn object(&mut self, ty: TypeRef<'a>) -> Map {
        let ty = ty.get();
        let mut out = Map::from_iter([("type".to_owned(), Value::from("object"))]);
        let shown = || {
            ty.fields
                .iter()
                .filter(|field| !matches!(field.kind, Kind::Inline(_)))
        };
        let required: Vec<&str> = shown()
            .filter(|field| field.required)
            .map(|field| field.json.as_str())
            .collect();
        if !required.is_empty() {
            out.insert("required", required.into());
        }
        let mut properties: Vec<(&str, Value)> = shown()
            .map(|field| (field.json.as_str(), self.field(ty, field)))
            .collect();
        if !properties.is_empty() {
            properties.sort_unstable_by_key(|(name, _)| *name);
            let properties: Map = properties
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            out.insert("properties", properties.into());
        }
        let gvks = self.kinds(ty);
        if !gvks.is_empty() {
            out.insert("x-kubernetes-group-version-kind".to_owned(), gvks.into());
        }
        if ty.map_type == MapType::Atomic {
            out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if let Some(unions) = &ty.unions {
            out.insert("x-kubernetes-unions".to_owned(), unions.clone());
        }
        out
    }

    /// The kinds that a type is the schema of, as far as the document is about them.
    fn kinds(&self, ty: &Type) -> Vec<Value> {
        let mut kinds: Vec<&Gvk> = ty
            .gvks
            .iter()
            .filter(|gvk| !gvk.group.starts_with("meta.k8s.io") && self.is_about(ty, gvk))
            .collect();
        kinds.sort_unstable_by_key(|gvk| (&gvk.group, &gvk.version));
        kinds
            .into_iter()
            .map(|gvk| json!({"group": gvk.group, "kind": gvk.kind, "version": gvk.version}))
            .collect()
    }

    /// Request options are kinds of every version; a document names the core one and its own.
    fn is_about(&self, ty: &Type, gvk: &Gvk) -> bool {
        ty.gvks.len() <= 2
            || self.about.is_none_or(|(group, version)| {
                (gvk.group.is_empty() && gvk.version == "v1")
                    || (gvk.group == group && gvk.version == version)
            })
    }

    fn field(&mut self, ty: &Type, field: &Field) -> Value {
        let mut out = Map::new();
        put(
            &mut out,
            "description",
            self.descriptions.of_field(&ty.openapi_name, &field.json),
        );
        let items: Vec<String>;
        let enumeration = match enumerated_items(ty, field) {
            Some(values) => {
                items = values.iter().map(|value| (*value).to_owned()).collect();
                &items
            }
            None => &field.enumeration,
        };
        let mut value = self.value(ty, &field.kind, enumeration);
        if let Some(reference) = value.swap_remove("$ref") {
            if self.dialect == Dialect::V3
                && let Some(default) = default_of(ty, field)
            {
                out.insert("default", default);
            }
            extensions(ty, field, &mut value);
            match (self.dialect, out.is_empty() && value.is_empty()) {
                (Dialect::V3, false) => out.insert("allOf", json!([{"$ref": reference}])),
                _ => out.insert("$ref".to_owned(), reference),
            };
            out.extend(value);
            return Value::Object(out);
        }
        if self.dialect == Dialect::V3
            && let Some(default) = default_of(ty, field)
        {
            value.insert("default", default);
        }
        extensions(ty, field, &mut value);
        out.extend(value);
        Value::Object(out)
    }

    /// The schema of a value; a list or map puts `enumeration` on its items.
    fn value(&mut self, ty: &Type, kind: &Kind, enumeration: &[String]) -> Map {
        let mut out = match kind {
            Kind::List(item, _) => {
                let item = self.value(ty, item, enumeration);
                return Map::from_iter([
                    ("type".to_owned(), "array".into()),
                    ("items".to_owned(), item.into()),
                ]);
            }
            Kind::Map(item, _) => {
                let item = self.value(ty, item, enumeration);
                return Map::from_iter([
                    ("type".to_owned(), "object".into()),
                    ("additionalProperties".to_owned(), item.into()),
                ]);
            }
            Kind::String => scalar("string", ""),
            Kind::Bool => scalar("boolean", ""),
            Kind::Int32 => scalar("integer", "int32"),
            Kind::Int64 => scalar("integer", "int64"),
            Kind::Double => scalar("number", "double"),
            Kind::Bytes => scalar("string", "byte"),
            Kind::Any => Map::new(),
            Kind::Quantity => self.named(QUANTITY),
            Kind::IntOrString => self.named(INT_OR_STRING),
            Kind::Time => self.named(&format!("{META}.Time")),
            Kind::MicroTime => self.named(&format!("{META}.MicroTime")),
            Kind::FieldsV1 => self.named(&format!("{META}.FieldsV1")),
            Kind::Raw if ty.openapi_name.starts_with(APIEXTENSIONS) => {
                self.named(&format!("{APIEXTENSIONS}.JSON"))
            }
            Kind::Raw => self.named(RAW_EXTENSION),
            Kind::SchemaOr(alternative, _) => {
                self.named(&format!("{APIEXTENSIONS}.{}", schema_or(*alternative)))
            }
            Kind::Message(id) | Kind::Inline(id) => {
                let name = self.schema.types[id.0 as usize].openapi_name.clone();
                self.named(&name)
            }
        };
        if !enumeration.is_empty() {
            out.insert("enum", enumeration.into());
        }
        out
    }

    fn named(&mut self, name: &str) -> Map {
        match self.reference(name) {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }
}

fn schema_or(alternative: SchemaAlternative) -> &'static str {
    match alternative {
        SchemaAlternative::Array => "JSONSchemaPropsOrArray",
        SchemaAlternative::Bool => "JSONSchemaPropsOrBool",
        SchemaAlternative::StringArray => "JSONSchemaPropsOrStringArray",
    }
}

fn scalar(kind: &str, format: &str) -> Map {
    let mut out = Map::new();
    put(&mut out, "type", kind);
    put(&mut out, "format", format);
    out
}

/// The declared default, or the zero value of a Go value that is always shown.
fn default_of(ty: &Type, field: &Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    // A pointer whose declared default is the zero value.
    if ty.name == "k8s.io.api.core.v1.GRPCAction" && field.json == "service" {
        return Some("".into());
    }
    match &field.kind {
        _ if field.presence != Presence::Always => None,
        Kind::String => Some("".into()),
        Kind::Bool => Some(false.into()),
        Kind::Int32 | Kind::Int64 | Kind::Double => Some(0.into()),
        Kind::Message(_) => Some(json!({})),
        _ => None,
    }
}

/// The values that items of a list or map may have, where the schema has no enumeration.
fn enumerated_items(ty: &Type, field: &Field) -> Option<&'static [&'static str]> {
    let local = ty.name.rsplit('.').next().unwrap_or_default();
    let is_collection = matches!(field.kind, Kind::List(..) | Kind::Map(..));
    Some(match (local, field.json.as_str()) {
        _ if !is_collection || !field.enumeration.is_empty() => return None,
        (
            "PersistentVolumeSpec" | "PersistentVolumeClaimSpec" | "PersistentVolumeClaimStatus",
            "accessModes",
        ) => &[
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOnce",
            "ReadWriteOncePod",
        ],
        ("PersistentVolumeClaimStatus", "allocatedResourceStatuses") => &[
            "ControllerResizeInProgress",
            "ControllerResizeInfeasible",
            "NodeResizeInProgress",
            "NodeResizeInfeasible",
            "NodeResizePending",
        ],
        ("ResourceQuotaSpec", "scopes") => &[
            "BestEffort",
            "CrossNamespacePodAffinity",
            "NotBestEffort",
            "NotTerminating",
            "PriorityClass",
            "Terminating",
            "VolumeAttributesClass",
        ],
        ("ServiceSpec", "ipFamilies") => &["", "IPv4", "IPv6"],
        ("NamedRuleWithOperations" | "RuleWithOperations", "operations") => {
            &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
        }
        ("ValidatingAdmissionPolicyBindingSpec", "validationActions") => &["Audit", "Deny", "Warn"],
        ("CertificateSigningRequestSpec", "usages") => CERTIFICATE_USAGES,
        ("NetworkPolicySpec", "policyTypes") => &["Egress", "Ingress"],
        _ => return None,
    })
}

/// The `x-kubernetes-` marks of a field.
fn extensions(ty: &Type, field: &Field, out: &mut Map) {
    let mut mark = |key: &str, value: Value| out.insert(format!("x-kubernetes-{key}"), value);
    match &field.kind {
        Kind::List(_, ListType::Map(keys)) => {
            mark("list-map-keys", keys.as_slice().into());
            mark("list-type", "map".into());
        }
        Kind::List(_, ListType::Set) => {
            mark("list-type", "set".into());
        }
        // Upstream marks every other list, less the items of list kinds and the verbs of
        // APIResource.
        Kind::List(..) if !field.wrapped && !is_items_of_list(ty, field) => {
            mark("list-type", "atomic".into());
        }
        Kind::Bytes if ty.name.starts_with("k8s.io.kube_aggregator") => {
            mark("list-type", "atomic".into());
        }
        _ => {}
    }
    match field.map_type {
        Some(MapType::Granular) => mark("map-type", "granular".into()),
        Some(MapType::Atomic) => mark("map-type", "atomic".into()),
        None => None,
    };
    if !field.patch_merge_key.is_empty() {
        mark("patch-merge-key", field.patch_merge_key.as_str().into());
    }
    let PatchStrategy {
        merge,
        retain_keys,
        replace,
    } = field.patch_strategy;
    let strategies: Vec<&str> = [
        (merge, "merge"),
        (replace, "replace"),
        (retain_keys, "retainKeys"),
    ]
    .into_iter()
    .filter(|(on, _)| *on)
    .map(|(_, name)| name)
    .collect();
    if !strategies.is_empty() {
        mark("patch-strategy", strategies.join(",").into());
    }
}

fn is_items_of_list(ty: &Type, field: &Field) -> bool {
    field.json == "items" && ty.gvks.iter().any(|gvk| gvk.kind.ends_with("List"))
}

/// Definitions of types that are not objects of fields.
fn well_known(name: &str, dialect: Dialect) -> Map {
    let local = name.rsplit('.').next().unwrap_or_default();
    let value = match (name, local, dialect) {
        (QUANTITY, _, Dialect::V2) => json!({"type": "string"}),
        (QUANTITY, _, Dialect::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (INT_OR_STRING, _, Dialect::V2) => json!({"type": "string", "format": "int-or-string"}),
        (INT_OR_STRING, _, Dialect::V3) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        (VERSION_INFO, _, _) => version_info(dialect),
        (_, "Time" | "MicroTime", _) => json!({"type": "string", "format": "date-time"}),
        (_, "FieldsV1" | "Patch" | "RawExtension", _) => json!({"type": "object"}),
        _ => json!({}),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn version_info(dialect: Dialect) -> Value {
    const REQUIRED: [&str; 9] = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    const OTHER: [&str; 4] = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let mut properties = BTreeMap::new();
    for name in REQUIRED {
        properties.insert(
            name,
            if dialect == Dialect::V3 {
                json!({"type": "string", "default": ""})
            } else {
                json!({"type": "string"})
            },
        );
    }
    for name in OTHER {
        properties.insert(name, json!({"type": "string"}));
    }
    json!({"type": "object", "required": REQUIRED, "properties": properties})
}

fn put(out: &mut Map, key: &str, text: &str) {
    if !text.is_empty() {
        out.insert(key.to_owned(), text.into());
    }
}
