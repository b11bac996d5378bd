//! The built-in types, from the descriptor set that build.rs compiles out of `proto/`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::OnceLock;

use prost::Message as _;

use super::descriptor::{self as proto, FileSet, Format, Registered};
use super::graph::*;
use crate::meta::{Gvk, Key};

static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/api.binpb"));

/// The schema of every built-in kind; built at first use, in a few milliseconds.
pub fn builtin() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        build(&FileSet::decode(DESCRIPTORS).expect("build.rs wrote a descriptor set"))
    })
}

fn build(set: &FileSet) -> Schema {
    let builder = Builder::new(set);
    let mut schema = Schema::default();
    for message in &builder.objects {
        let ty = builder.object(message);
        let id = TypeId(schema.types.len() as u32);
        schema.by_name.insert(ty.name.clone(), id);
        schema
            .by_gvk
            .extend(ty.gvks.iter().map(|gvk| (gvk.clone(), id)));
        schema.types.push(ty);
    }
    for message in &builder.objects {
        if let Some(resource) = &message.proto.options.resource {
            schema.resources.push(declare(message, resource));
        }
    }
    // A version that is stored and not served has the same types.
    for resource in &schema.resources {
        if let Some(stored) = &resource.storage_gvk
            && !schema.by_gvk.contains_key(stored)
        {
            let served = Gvk::new(&resource.group, &resource.version, &resource.kind);
            let id = schema.by_gvk[&served];
            schema.by_gvk.insert(stored.clone(), id);
        }
    }
    schema.group_versions = group_versions(set, &schema.resources);
    let order: HashMap<(&str, &str), usize> = schema
        .group_versions
        .iter()
        .enumerate()
        .map(|(index, decl)| ((decl.group.as_str(), decl.version.as_str()), index))
        .collect();
    schema.resources.sort_by_key(|one| {
        (
            order
                .get(&(one.group.as_str(), one.version.as_str()))
                .copied(),
            one.resource.clone(),
        )
    });
    schema
}

/// The versions that have resources, by descending priority; the group of APIServices has none and
/// is announced first.
fn group_versions(set: &FileSet, resources: &[ResourceDecl]) -> Vec<GroupVersionDecl> {
    let mut out: Vec<GroupVersionDecl> = set
        .files
        .iter()
        .map(|file| &file.options)
        .filter(|options| {
            resources
                .iter()
                .any(|one| one.group == options.group && one.version == options.version)
        })
        .map(|options| GroupVersionDecl {
            group: options.group.clone(),
            version: options.version.clone(),
            group_priority: options.group_priority,
            version_priority: options.version_priority,
        })
        .collect();
    let rank = |priority: i32| Reverse(if priority == 0 { i32::MAX } else { priority });
    out.sort_by_key(|decl| {
        (
            !decl.group.is_empty(),
            rank(decl.group_priority),
            decl.group.clone(),
            Reverse(decl.version_priority),
        )
    });
    out
}

fn declare(message: &Located, resource: &proto::Resource) -> ResourceDecl {
    let subresources = resource.subresources.iter().map(|one| SubresourceDecl {
        name: one.name.clone(),
        kind: full_kind(&one.kind).unwrap_or_else(|| Gvk::new("", "", &one.kind)),
        verbs: one.verbs.clone(),
    });
    ResourceDecl {
        group: message.file.group.clone(),
        version: message.file.version.clone(),
        resource: resource.plural.clone(),
        singular: resource.singular.clone(),
        kind: message.proto.name.clone(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.clone(),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        subresources: subresources.collect(),
        storage_prefix: resource.storage_prefix.clone(),
        storage_gvk: full_kind(&resource.stored_as),
        stored_as_json: resource.stored_as_json,
    }
}

/// Reads `group/version/Kind` or `version/Kind`.
fn full_kind(text: &str) -> Option<Gvk> {
    text.rsplit_once('/')
        .map(|(api_version, kind)| Gvk::from_api_version(api_version, kind))
}

/// A message with its place.
struct Located<'a> {
    name: String,
    proto: &'a proto::Message,
    file: &'a proto::FileOptions,
}

struct Builder<'a> {
    /// The messages that are JSON objects, in the order of their [`TypeId`].
    objects: Vec<Located<'a>>,
    ids: HashMap<String, TypeId>,
    /// The others: quantities, times, wrapped lists.
    formats: HashMap<String, &'a proto::Message>,
    /// Every group and version in which request options are kinds.
    everywhere: &'a [String],
}

impl<'a> Builder<'a> {
    fn new(set: &'a FileSet) -> Self {
        let mut builder = Self {
            objects: Vec::new(),
            ids: HashMap::new(),
            formats: HashMap::new(),
            everywhere: &[],
        };
        for file in &set.files {
            if !file.options.group_versions.is_empty() {
                builder.everywhere = &file.options.group_versions;
            }
            for message in file.messages.iter().filter(|_| file.package != "keelson") {
                let name = format!("{}.{}", file.package, message.name);
                if message.options.format() == Format::Object {
                    builder
                        .ids
                        .insert(name.clone(), TypeId(builder.objects.len() as u32));
                    builder.objects.push(Located {
                        name,
                        proto: message,
                        file: &file.options,
                    });
                } else {
                    builder.formats.insert(name, message);
                }
            }
        }
        builder
    }

    fn object(&self, message: &Located) -> Type {
        let options = &message.proto.options;
        let mut fields = Vec::with_capacity(message.proto.fields.len() + 2);
        if options.object {
            fields.push(type_meta("kind"));
            fields.push(type_meta("apiVersion"));
        }
        self.fields(message.proto, None, &mut fields);
        let mut wire_order: Vec<usize> = (0..fields.len())
            .filter(|&at| fields[at].number > 0 && fields[at].via.is_none())
            .collect();
        wire_order.sort_by_key(|&at| fields[at].number);
        let json = |(index, field): (usize, &Field)| {
            (!matches!(field.kind, Kind::Inline(_))).then(|| (field.json.clone(), index))
        };
        Type {
            openapi_name: if options.published {
                openapi_name(&message.name)
            } else {
                String::new()
            },
            name: message.name.clone(),
            gvks: self.gvks(message),
            by_json: fields.iter().enumerate().filter_map(json).collect(),
            by_number: wire_order
                .iter()
                .map(|&at| (fields[at].number, at))
                .collect(),
            wire_order,
            fields,
            map_type: if options.atomic {
                MapType::Atomic
            } else {
                MapType::Granular
            },
            unions: parse(&options.unions),
            preserve_unknown: false,
            wire: std::sync::OnceLock::new(),
        }
    }

    fn gvks(&self, message: &Located) -> Vec<Gvk> {
        let kind = &message.proto.name;
        let file = message.file;
        match message.proto.options.registered() {
            Registered::CoreV1 => vec![Gvk::new("", "v1", kind)],
            Registered::MetaV1 => vec![Gvk::new("meta.k8s.io", "v1", kind)],
            Registered::EveryVersion => self
                .everywhere
                .iter()
                .map(|version| Gvk::from_api_version(version, kind))
                .collect(),
            Registered::Nowhere if message.proto.options.object && file.group != "meta.k8s.io" => {
                vec![Gvk::new(&file.group, &file.version, kind)]
            }
            Registered::Nowhere => Vec::new(),
        }
    }

    /// Appends the fields of `message`; those of an inlined message follow their [`Kind::Inline`].
    fn fields(&self, message: &proto::Message, via: Option<usize>, out: &mut Vec<Field>) {
        for field in &message.fields {
            if !field.options.inline {
                out.push(self.field(message, field, via));
                continue;
            }
            let id = self.ids[&field.type_name[1..]];
            let index = out.len();
            if via.is_none() {
                let kind = Kind::Inline(id);
                out.push(Field {
                    number: field.number as u32,
                    presence: Presence::OmitEmpty,
                    ..Field::new("", kind)
                });
            }
            self.fields(self.objects[id.0 as usize].proto, via.or(Some(index)), out);
        }
    }

    fn field(&self, message: &proto::Message, field: &proto::Field, via: Option<usize>) -> Field {
        let options = &field.options;
        let (kind, wrapped) = self.kind(message, field);
        let map_type = match options.map {
            1 => Some(MapType::Granular),
            2 => Some(MapType::Atomic),
            _ => None,
        };
        let has = |name: &str| options.patch.split(',').any(|one| one == name);
        Field {
            json: Key::forever(&field.json_name),
            number: field.number as u32,
            kind,
            presence: match (options.always, options.nullable, field.optional) {
                (true, ..) => Presence::Always,
                (_, true, _) => Presence::Nullable,
                (.., true) => Presence::Pointer,
                _ => Presence::OmitEmpty,
            },
            patch_strategy: PatchStrategy {
                merge: has("merge"),
                retain_keys: has("retainKeys"),
                replace: has("replace"),
            },
            patch_merge_key: options.merge_key.clone(),
            map_type,
            default: parse(&options.default),
            enumeration: options.enumeration.clone(),
            required: options.required,
            via,
            wrapped,
            go_type: options.go.clone(),
            filled: options.filled.clone(),
            embedded: options.embedded,
            keeps_empty: options.keeps_empty,
        }
    }

    /// The kind of a field, and whether it is a list in a message of its own.
    fn kind(&self, message: &proto::Message, field: &proto::Field) -> (Kind, bool) {
        const REPEATED: i32 = 3;
        if field.label != REPEATED {
            let kind = self.single(field);
            let wrapped = matches!(kind, Kind::List(..));
            return (kind, wrapped);
        }
        let local = field.type_name.rsplit('.').next().unwrap_or_default();
        if let Some(entry) = message
            .nested
            .iter()
            .find(|one| one.options.map_entry && one.name == local)
        {
            let map_type = if field.options.map == 2 {
                MapType::Atomic
            } else {
                MapType::Granular
            };
            return (
                Kind::Map(Box::new(self.single(&entry.fields[1])), map_type),
                false,
            );
        }
        let list = match (field.options.keys.is_empty(), field.options.list) {
            (false, _) => ListType::Map(field.options.keys.clone()),
            (_, 1) => ListType::Set,
            _ => ListType::Atomic,
        };
        (Kind::List(Box::new(self.single(field)), list), false)
    }

    /// The kind of one value of a field, by `FieldDescriptorProto.Type`.
    fn single(&self, field: &proto::Field) -> Kind {
        match field.scalar {
            1 => Kind::Double,
            3 => Kind::Int64,
            5 => Kind::Int32,
            8 => Kind::Bool,
            9 => Kind::String,
            11 => self.message(&field.type_name[1..]),
            12 => Kind::Bytes,
            other => panic!("proto/ uses field type {other}"),
        }
    }

    fn message(&self, name: &str) -> Kind {
        if let Some(&id) = self.ids.get(name) {
            return Kind::Message(id);
        }
        let message = self.formats[name];
        let schema = |alternative| {
            Kind::SchemaOr(
                alternative,
                self.ids["k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"],
            )
        };
        match message.options.format() {
            Format::Quantity => Kind::Quantity,
            Format::Time => Kind::Time,
            Format::MicroTime => Kind::MicroTime,
            Format::IntOrString => Kind::IntOrString,
            Format::FieldsV1 => Kind::FieldsV1,
            Format::WrappedList => {
                Kind::List(Box::new(self.single(&message.fields[0])), ListType::Atomic)
            }
            Format::SchemaOrArray => schema(SchemaAlternative::Array),
            Format::SchemaOrBool => schema(SchemaAlternative::Bool),
            Format::SchemaOrStringArray => schema(SchemaAlternative::StringArray),
            Format::Raw | Format::Object => Kind::Raw,
        }
    }
}

/// `apiVersion` or `kind`, which protobuf carries in the envelope.
fn type_meta(json: &'static str) -> Field {
    Field {
        presence: Presence::OmitEmpty,
        ..Field::new(json, Kind::String)
    }
}

fn openapi_name(proto: &str) -> String {
    let tail = proto.strip_prefix("k8s.io.").unwrap_or(proto);
    format!(
        "io.k8s.{}",
        tail.replace("apiextensions_apiserver", "apiextensions-apiserver")
            .replace("kube_aggregator", "kube-aggregator")
    )
}

/// An option that holds JSON; empty is absent.
fn parse(text: &str) -> Option<crate::meta::Value> {
    if text.is_empty() {
        None
    } else {
        Some(serde_json::from_str(text).expect("proto/ holds valid JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn field<'a>(ty: &str, name: &str) -> &'a Field {
        builtin()
            .named(ty)
            .expect("a built-in type")
            .field(name)
            .expect("a field")
    }

    #[test]
    fn fields_carry_what_proto_says() {
        let containers = field("k8s.io.api.core.v1.PodSpec", "containers");
        assert_eq!(
            (containers.number, containers.presence),
            (2, Presence::Always)
        );
        assert!(
            matches!(&containers.kind, Kind::List(_, ListType::Map(keys)) if *keys == ["name"])
        );
        assert!(containers.patch_strategy.merge);
        assert_eq!(containers.patch_merge_key, "name");

        assert_eq!(
            field("k8s.io.api.apps.v1.DeploymentSpec", "replicas").presence,
            Presence::Pointer
        );
        assert_eq!(
            field("k8s.io.api.core.v1.TypedLocalObjectReference", "apiGroup").presence,
            Presence::Nullable
        );
        assert_eq!(
            field("k8s.io.api.core.v1.ContainerPort", "protocol").default,
            Some(json!("TCP"))
        );
        assert_eq!(
            field("k8s.io.api.core.v1.PersistentVolumeSpec", "claimRef").map_type,
            Some(MapType::Granular)
        );
        assert!(field("k8s.io.apimachinery.pkg.apis.meta.v1.APIResource", "verbs").wrapped);
        let extra = &field("k8s.io.api.authentication.v1.UserInfo", "extra").kind;
        assert!(matches!(extra, Kind::Map(inner, _) if matches!(**inner, Kind::List(..))));
        let items = field(
            "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            "items",
        );
        assert!(matches!(
            items.kind,
            Kind::SchemaOr(SchemaAlternative::Array, _)
        ));
        assert_eq!(
            field(
                "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
                "x-kubernetes-list-map-keys"
            )
            .number,
            41
        );
    }

    #[test]
    fn inlined_fields_stand_in_their_parent_once() {
        let rule = builtin()
            .named("k8s.io.api.admissionregistration.v1.NamedRuleWithOperations")
            .expect("a type")
            .get();
        let names: Vec<&str> = rule
            .fields
            .iter()
            .map(|field| field.json.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "resourceNames",
                "",
                "operations",
                "apiGroups",
                "apiVersions",
                "resources",
                "scope"
            ]
        );
        assert_eq!(rule.fields[3].via, Some(1));
        assert_eq!(rule.by_number.len(), 2);
    }

    #[test]
    fn every_reference_leads_to_a_type() {
        fn check(schema: &Schema, kind: &Kind) {
            match kind {
                Kind::Message(id) | Kind::Inline(id) | Kind::SchemaOr(_, id) => {
                    assert!((id.0 as usize) < schema.types.len())
                }
                Kind::List(inner, _) | Kind::Map(inner, _) => check(schema, inner),
                _ => {}
            }
        }
        let schema = builtin();
        for field in schema.types.iter().flat_map(|ty| &ty.fields) {
            check(schema, &field.kind);
        }
        assert!(schema.types.len() > 600, "{}", schema.types.len());
    }

    #[test]
    fn kinds_are_registered_where_clients_expect_them() {
        let names = [
            ("v1", "Pod", "k8s.io.api.core.v1.Pod"),
            (
                "v1",
                "Status",
                "k8s.io.apimachinery.pkg.apis.meta.v1.Status",
            ),
            (
                "apps/v1",
                "DeleteOptions",
                "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions",
            ),
            (
                "policy/v1beta1",
                "DeleteOptions",
                "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions",
            ),
            (
                "meta.k8s.io/v1",
                "PartialObjectMetadata",
                "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata",
            ),
            ("autoscaling/v1", "Scale", "k8s.io.api.autoscaling.v1.Scale"),
            ("policy/v1", "Eviction", "k8s.io.api.policy.v1.Eviction"),
            (
                "admission.k8s.io/v1",
                "AdmissionReview",
                "k8s.io.api.admission.v1.AdmissionReview",
            ),
            (
                "admissionregistration.k8s.io/v1beta1",
                "MutatingAdmissionPolicy",
                "k8s.io.api.admissionregistration.v1.MutatingAdmissionPolicy",
            ),
        ];
        for (version, kind, name) in names {
            let found = builtin()
                .get(&Gvk::from_api_version(version, kind))
                .map(|ty| ty.get().name.as_str());
            assert_eq!(found, Some(name), "{version} {kind}");
        }
    }

    #[test]
    fn resources_are_declared_in_discovery_order() {
        let schema = builtin();
        let groups: Vec<&str> = schema
            .group_versions
            .iter()
            .map(|one| one.group.as_str())
            .take(5)
            .collect();
        assert_eq!(
            groups,
            [
                "",
                "apiregistration.k8s.io",
                "apps",
                "events.k8s.io",
                "authentication.k8s.io"
            ]
        );
        assert_eq!(schema.resources[0].resource, "bindings");
        let find = |group: &str, resource: &str| {
            schema
                .resources
                .iter()
                .find(|one| one.group == group && one.resource == resource)
                .expect("a resource")
        };
        let deployments = find("apps", "deployments");
        assert_eq!(
            (
                deployments.kind.as_str(),
                deployments.storage_prefix.as_str()
            ),
            ("Deployment", "deployments")
        );
        assert_eq!(
            deployments.subresources[0].kind,
            Gvk::new("autoscaling", "v1", "Scale")
        );
        assert_eq!(
            deployments.subresources[1].kind,
            Gvk::new("", "", "Deployment")
        );
        assert_eq!(find("", "nodes").storage_prefix, "minions");
        assert_eq!(
            find("events.k8s.io", "events").storage_gvk,
            Some(Gvk::new("", "v1", "Event"))
        );
        assert!(find("apiextensions.k8s.io", "customresourcedefinitions").stored_as_json);
    }
}
