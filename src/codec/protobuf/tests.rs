//! Protobuf: the bytes of a real cluster, and any object of any type, survive every way through the
//! codec.

use proptest::prelude::{
    BoxedStrategy, Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, proptest,
};
use serde::Deserialize;

use super::*;
use crate::codec::{json, protobuf};
use crate::meta::selector::FieldReader;
use crate::meta::{Gvk, Object, Value, json};
use crate::schema::{Kind, SchemaAlternative, TypeId, TypeRef, builtin};

/// A key of a real cluster's etcd with its bytes, and what its API server answers for it (see
/// tests/data/stored.jsonl).
#[derive(Deserialize)]
struct Stored {
    key: String,
    value: String,
    object: Value,
}

fn recorded() -> Vec<Stored> {
    let text = include_str!("../../../tests/data/stored.jsonl");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn open(stored: &Stored) -> (Vec<u8>, TypeRef<'static>) {
    let bytes = crate::meta::go::base64::decode(&stored.value);
    let envelope = unwrap(&bytes).expect("an envelope");
    let gvk = Gvk::from_api_version(envelope.api_version, envelope.kind);
    let ty = builtin()
        .get(&gvk)
        .unwrap_or_else(|| panic!("no type for {gvk}"));
    (bytes, ty)
}

fn pretty(value: &Value) -> String {
    String::from_utf8(json::indent(json::text_of(value).as_bytes())).expect("JSON is UTF-8")
}

/// Fails at the first line that differs.
fn assert_same(got: &str, want: &str, name: &str) {
    for (number, (got, want)) in got.lines().zip(want.lines()).enumerate() {
        assert_eq!(got, want, "{name}, line {number}");
    }
    assert_eq!(got.len(), want.len(), "{name}");
}

#[test]
fn stored_bytes_read_and_write_the_same() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let envelope = unwrap(&bytes).expect("an envelope");
        let object =
            decode(envelope.raw, ty).unwrap_or_else(|error| panic!("{}: {error}", stored.key));
        let again = wrap(envelope.api_version, envelope.kind, &encode(&object, ty));
        assert!(
            again == bytes,
            "{}: {:?}\n{:?}",
            stored.key,
            String::from_utf8_lossy(&again),
            String::from_utf8_lossy(&bytes)
        );
    }
}

#[test]
fn stored_bytes_become_what_the_api_answers() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let envelope = unwrap(&bytes).expect("an envelope");
        let revision = stored.object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let mut out = Vec::new();
        to_json(
            envelope.raw,
            ty,
            envelope.api_version,
            envelope.kind,
            revision,
            &mut out,
        )
        .expect("valid");
        let (got, duplicates) = json::parse(&out).expect("JSON");
        assert_eq!(duplicates, Vec::<String>::new(), "{}", stored.key);
        // Compared as text: the order of the fields matters too. (The recording put apiVersion
        // before kind.)
        let mut want = stored.object;
        let kind = want
            .as_object_mut()
            .and_then(|object| object.shift_remove("kind"))
            .expect("a kind");
        want.as_object_mut()
            .expect("an object")
            .shift_insert(0, "kind", kind);
        assert_same(&pretty(&got), &pretty(&want), &stored.key);
    }
}

#[test]
fn tree_and_transcoder_agree() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let raw = unwrap(&bytes).expect("an envelope").raw;
        let mut direct = Vec::new();
        to_json(raw, ty, "", "", None, &mut direct).expect("valid");
        let tree = json::encode(&decode(raw, ty).expect("valid"));
        assert_eq!(
            String::from_utf8_lossy(&direct),
            String::from_utf8_lossy(&tree),
            "{}",
            stored.key
        );
    }
}

#[test]
fn api_answers_decode_to_the_stored_bytes() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let envelope = unwrap(&bytes).expect("an envelope");
        let mut text = Vec::new();
        json::encode_value(&stored.object, &mut text);
        let mut decoded =
            json::decode(&text, ty).unwrap_or_else(|error| panic!("{}: {error}", stored.key));
        assert_eq!(decoded.issues, Vec::<String>::new(), "{}", stored.key);
        decoded.object.set_meta_str("resourceVersion", "");
        let again = decode(&encode(&decoded.object, ty), ty).expect("valid");
        let want = decode(envelope.raw, ty).expect("valid");
        assert_same(&pretty(&again.into()), &pretty(&want.into()), &stored.key);
        assert!(
            encode(&decoded.object, ty) == envelope.raw,
            "{}",
            stored.key
        );
    }
}

#[test]
fn non_pointer_values_are_always_written() {
    let ty = builtin()
        .get(&Gvk::new("", "v1", "Service"))
        .expect("a kind");
    let object = Object::from_value(json!({"spec": {"ports": [{"port": 80}]}})).expect("an object");
    let back = decode(&encode(&object, ty), ty).expect("valid");
    assert_eq!(
        Value::from(back),
        json!({"metadata": {}, "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}}})
    );
}

#[test]
fn reading_fills_in_what_upstream_defaults_at_every_read() {
    for (kind, phase) in [
        ("PersistentVolumeClaim", "Pending"),
        ("PersistentVolume", "Pending"),
        ("Namespace", "Active"),
    ] {
        let ty = builtin().get(&Gvk::new("", "v1", kind)).expect("a kind");
        assert_eq!(
            decode(b"", ty).expect("valid").str_at("/status/phase"),
            phase
        );
        let mut out = Vec::new();
        to_json(b"", ty, "", "", None, &mut out).expect("valid");
        assert_eq!(out, json::encode(&decode(b"", ty).expect("valid")));
    }
}

#[test]
fn rare_kinds_of_values_survive() {
    let crd = builtin()
        .get(&Gvk::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        ))
        .expect("a kind");
    let schema = |props: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": props}}]}});
    let review = builtin()
        .get(&Gvk::new("authentication.k8s.io", "v1", "TokenReview"))
        .expect("a kind");
    let lists = builtin()
        .named("k8s.io.apimachinery.pkg.apis.meta.v1.APIResource")
        .expect("a type");
    let table = [
        (
            crd,
            schema(json!({"maximum": 1.5, "default": {"a": [1]}, "enum": ["a", 1]})),
        ),
        (
            crd,
            schema(json!({"items": [{"type": "string"}], "additionalProperties": false})),
        ),
        (
            crd,
            schema(json!({"items": {"type": "string"}, "additionalProperties": true})),
        ),
        (
            crd,
            schema(
                json!({"additionalProperties": {"x-kubernetes-list-map-keys": ["a"]}, "dependencies": {"a": ["b"], "c": {"type": "x"}}}),
            ),
        ),
        (
            review,
            json!({"status": {"user": {"extra": {"b": ["1", "2"], "a": []}}}}),
        ),
        (lists, json!({"name": "pods", "verbs": ["get", "list"]})),
    ];
    for (ty, value) in table {
        let whole = crate::codec::from_value(&value, ty).expect("valid").object;
        let bytes = encode(&whole, ty);
        assert_eq!(decode(&bytes, ty), Ok(whole.clone()), "{value}");
        let mut text = Vec::new();
        to_json(&bytes, ty, "", "", None, &mut text).expect("valid");
        assert_eq!(
            String::from_utf8_lossy(&text),
            String::from_utf8_lossy(&json::encode(&whole))
        );
    }
}

/// The tree of a stored message at a revision.
fn tree_at(raw: &[u8], ty: TypeRef, revision: Option<i64>) -> Object {
    let mut tree = decode(raw, ty).expect("valid");
    if let Some(revision) = revision {
        tree.set_resource_version(&revision.to_string());
    }
    tree
}

#[test]
fn resource_version_is_patched_into_stored_bytes() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let envelope = unwrap(&bytes).expect("an envelope");
        for revision in [None, Some(7), Some(i64::MAX)] {
            let revised = WithResourceVersion::new(
                Message {
                    bytes: envelope.raw,
                    ty,
                },
                revision,
            )
            .expect("as Go writes it");
            let tree = tree_at(envelope.raw, ty, revision);
            let want = wrap(envelope.api_version, envelope.kind, &encode(&tree, ty));
            let (mut object, mut item) = (Vec::new(), Vec::new());
            revised.write_object(envelope.api_version, envelope.kind, &mut object);
            assert!(object == want, "{}", stored.key);
            revised.write_item(&mut item);
            assert_eq!(item.len(), revised.item_len(), "{}", stored.key);

            let partial = builtin()
                .get(&Gvk::new("meta.k8s.io", "v1", "PartialObjectMetadata"))
                .expect("a kind");
            let want = encode(
                &Object(
                    [("metadata".to_owned(), tree["metadata"].clone())]
                        .into_iter()
                        .collect(),
                ),
                partial,
            );
            let mut metadata = Vec::new();
            revised.metadata().write_message(&mut metadata);
            assert!(metadata == want, "{}", stored.key);
            assert_eq!(
                revised.metadata().message_len(),
                want.len(),
                "{}",
                stored.key
            );

            let (mut direct, mut want) = (Vec::new(), Vec::new());
            metadata_to_json(envelope.raw, ty, revision, &mut direct).expect("valid");
            json::encode_value(&tree["metadata"], &mut want);
            assert_eq!(
                String::from_utf8(direct),
                String::from_utf8(want),
                "{}",
                stored.key
            );
        }
    }
}

#[test]
fn lists_are_written_item_by_item() {
    let pods: Vec<_> = recorded()
        .into_iter()
        .filter(|stored| stored.key.contains("/pods/"))
        .collect();
    let list = builtin()
        .get(&Gvk::new("", "v1", "PodList"))
        .expect("a kind");
    assert!(!pods.is_empty());
    for count in [0, 1, pods.len(), 40] {
        for remaining_item_count in [None, Some(5)] {
            let opened: Vec<_> = pods.iter().cycle().take(count).map(open).collect();
            let raws = || {
                opened
                    .iter()
                    .map(|(bytes, ty)| (unwrap(bytes).expect("an envelope").raw, *ty))
            };
            let items = || {
                raws().map(|(bytes, ty)| {
                    WithResourceVersion::new(Message { bytes, ty }, Some(7))
                        .expect("as Go writes it")
                })
            };
            let trees: Vec<Value> = raws()
                .map(|(raw, ty)| tree_at(raw, ty, Some(7)).into())
                .collect();
            let mut metadata = json!({"resourceVersion": "9", "continue": "c"});
            if let Some(count) = remaining_item_count {
                metadata["remainingItemCount"] = count.into();
            }
            let tree = Object::from_value(json!({"metadata": metadata, "items": trees}))
                .expect("an object");
            let want = wrap("v1", "PodList", &encode(&tree, list));
            let meta = ListMeta {
                resource_version: "9",
                continue_token: "c",
                remaining_item_count,
            };
            let mut got = Vec::new();
            list_head(
                "v1",
                "PodList",
                meta,
                items().map(|item| item.item_len()).sum(),
                &mut got,
            );
            items().for_each(|item| item.write_item(&mut got));
            list_tail(&mut got);
            assert!(got == want, "{count} items");
        }
    }
}

#[test]
fn read_defaults_need_a_tree() {
    for (kind, filled) in [
        ("Namespace", json!({"phase": "Active"})),
        ("PersistentVolumeClaim", json!({"phase": "Bound"})),
    ] {
        let ty = builtin().get(&Gvk::new("", "v1", kind)).expect("a kind");
        let encoded = |status: Value| {
            let object = json!({"metadata": {"name": "a"}, "status": status});
            encode(&Object::from_value(object).expect("an object"), ty)
        };
        assert!(
            WithResourceVersion::new(
                Message {
                    bytes: &encoded(filled),
                    ty
                },
                Some(7)
            )
            .is_some()
        );
        assert!(
            WithResourceVersion::new(
                Message {
                    bytes: &encoded(json!({})),
                    ty
                },
                Some(7)
            )
            .is_none()
        );
        assert!(WithResourceVersion::new(Message { bytes: b"", ty }, Some(7)).is_none());
        // Fields that do not ascend.
        assert!(
            WithResourceVersion::new(
                Message {
                    bytes: b"\x0a\x04\x32\x00\x0a\x00",
                    ty
                },
                None
            )
            .is_none()
        );
        assert!(
            WithResourceVersion::new(
                Message {
                    bytes: b"\x0a\x04\x1a\x00\x0a\x00",
                    ty
                },
                None
            )
            .is_none()
        );
    }
}

#[test]
fn projection_equals_part_of_the_whole_object() {
    const PATHS: [&str; 6] = [
        "metadata.name",
        "spec.containers.name",
        "spec.containers.resources",
        "status.conditions.type",
        "data",
        "none.of.it",
    ];
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let raw = unwrap(&bytes).expect("an envelope").raw;
        let whole: Value = decode(raw, ty).expect("valid").into();
        let part: Value = decode_part(raw, ty, &Projection::new(ty, PATHS))
            .expect("valid")
            .into();
        let allowed = |path: &str| {
            PATHS
                .iter()
                .any(|one| format!("{path}.").starts_with(&format!("{one}.")))
        };
        assert_eq!(
            part,
            cut(&whole, "", &allowed).unwrap_or(json!({})),
            "{}",
            stored.key
        );
    }
}

/// Reduces a tree to the values at allowed paths and those that lead there.
fn cut(value: &Value, path: &str, allowed: &impl Fn(&str) -> bool) -> Option<Value> {
    const ON_THE_WAY: [&str; 5] = ["", "metadata", "spec", "spec.containers", "status"];
    let join = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    match value {
        value if allowed(path) => Some(value.clone()),
        Value::Object(map) if ON_THE_WAY.contains(&path) || path == "status.conditions" => Some(
            map.iter()
                .filter_map(|(key, value)| Some((key.clone(), cut(value, &join(key), allowed)?)))
                .collect(),
        ),
        Value::Array(items) if ON_THE_WAY.contains(&path) || path == "status.conditions" => Some(
            items
                .iter()
                .filter_map(|item| cut(item, path, allowed))
                .collect(),
        ),
        _ => None,
    }
}

/// The paths of the scalars in a tree, dotted.
fn scalar_paths(value: &Value, path: &str, out: &mut Vec<String>) {
    let join = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| scalar_paths(value, &join(key), out)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| scalar_paths(value, &join(&index.to_string()), out)),
        _ => out.push(path.to_owned()),
    }
}

#[test]
fn scalars_and_labels_are_read_without_decoding() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let raw = unwrap(&bytes).expect("an envelope").raw;
        let tree = decode(raw, ty).expect("valid");
        let text = json::encode(&tree);
        let (message, document) = (Message { bytes: raw, ty }, json::Reader::new(&text));
        let mut paths = Vec::new();
        scalar_paths(&tree.clone().into(), "", &mut paths);
        assert!(paths.len() > 3, "{}", stored.key);
        // Keys of maps may have dots, which paths cannot express; raw JSON has no type.
        for path in paths.iter().filter(|path| {
            !path.contains('/')
                && !path.contains("managedFields")
                && !path.contains("volumeClaimTemplates")
        }) {
            assert_eq!(
                message.text_at(path),
                tree.text_at(path),
                "{} {path}",
                stored.key
            );
            assert_eq!(
                document.text_at(path),
                tree.text_at(path),
                "{} {path} in JSON",
                stored.key
            );
        }
        for path in [
            "spec.none",
            "none",
            "metadata.labels",
            "metadata.name.none",
            "spec.containers.99.name",
        ] {
            assert_eq!(
                (message.text_at(path), document.text_at(path)),
                ("".into(), "".into()),
                "{path}"
            );
        }
        let labels: Vec<_> = tree
            .labels()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
            .collect();
        for (got, want) in message
            .labels()
            .zip(&labels)
            .chain(document.labels().zip(&labels))
        {
            assert_eq!((&*got.0, &*got.1), *want);
        }
        assert_eq!(
            (message.labels().count(), document.labels().count()),
            (labels.len(), labels.len())
        );
        for (key, value) in labels {
            assert_eq!(
                (
                    message.label(key).as_deref(),
                    document.label(key).as_deref()
                ),
                (Some(value), Some(value))
            );
        }
        assert_eq!(
            (message.label("none"), document.label("none")),
            (None, None)
        );
    }
}

#[test]
fn every_stored_kind_has_its_labels_in_the_same_place() {
    for decl in builtin()
        .resources
        .iter()
        .filter(|decl| !decl.storage_prefix.is_empty())
    {
        let ty = builtin()
            .get(&Gvk::new(&decl.group, &decl.version, &decl.kind))
            .expect("a kind");
        let metadata = ty.field("metadata").expect("metadata");
        let Kind::Message(id) = metadata.kind else {
            panic!("{} has no metadata", decl.kind)
        };
        assert_eq!(
            (
                metadata.number,
                ty.to(id).field("labels").map(|field| field.number)
            ),
            (1, Some(11)),
            "{}",
            decl.kind
        );
    }
}

/// Work that is done twice at each level would never end.
#[test]
fn unordered_fields_take_linear_time() {
    const LEVELS: usize = 60;
    let name = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let ty = builtin().named(name).expect("a type");
    let number = |name: &str| ty.field(name).expect("a field").number;
    let mut schema = Vec::new();
    for _ in 0..LEVELS {
        let mut outer = Vec::new();
        for (key, value) in [("b", &schema[..]), ("a", &[])] {
            wire::put_message(number("properties"), &mut outer, |out| {
                wire::put_bytes(1, key.as_bytes(), out);
                wire::put_bytes(2, value, out);
            });
        }
        // Numbers descend.
        wire::put_bytes(number("title"), b"t", &mut outer);
        schema = outer;
    }
    let mut direct = Vec::new();
    to_json(&schema, ty, "", "", None, &mut direct).expect("valid");
    assert!(direct == json::encode(&decode(&schema, ty).expect("valid")));
}

/// The fields of a message in another order, and those of the messages in it.
fn shuffled(bytes: &[u8], ty: TypeRef, seed: usize) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut reader = wire::Reader::new(bytes);
    loop {
        let begun = reader.at;
        let Some(raw) = reader.next().expect("valid") else {
            break;
        };
        let field = ty
            .get()
            .fields
            .iter()
            .find(|field| field.number == raw.number && field.via.is_none());
        let inner = match field.map(|field| &field.kind) {
            Some(Kind::Message(id)) => Some(*id),
            Some(Kind::List(item, _)) => match **item {
                Kind::Message(id) => Some(id),
                _ => None,
            },
            _ => None,
        };
        let mut one = Vec::new();
        match inner {
            Some(id) => wire::put_bytes(
                raw.number,
                &shuffled(raw.value.bytes(), ty.to(id), seed),
                &mut one,
            ),
            None => one.extend_from_slice(&bytes[begun..reader.at]),
        }
        fields.push((raw.number as usize * seed % 31, one));
    }
    // Stable: items of a list keep their order.
    fields.sort_by_key(|(key, _)| *key);
    fields.into_iter().flat_map(|(_, one)| one).collect()
}

#[test]
fn fields_may_come_in_any_order_and_twice() {
    for stored in recorded() {
        let (bytes, ty) = open(&stored);
        let raw = unwrap(&bytes).expect("an envelope").raw;
        for message in [
            shuffled(raw, ty, 7),
            shuffled(raw, ty, 30),
            [raw, raw].concat(),
        ] {
            let tree = tree_at(&message, ty, Some(7));
            let mut direct = Vec::new();
            to_json(&message, ty, "", "", Some(7), &mut direct).expect("valid");
            assert_eq!(
                String::from_utf8_lossy(&direct),
                String::from_utf8_lossy(&json::encode(&tree)),
                "{}",
                stored.key
            );
        }
    }
    let ty = builtin()
        .get(&Gvk::new("", "v1", "ConfigMap"))
        .expect("a kind");
    let mut bytes = Vec::new();
    for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
        wire::put_message(2, &mut bytes, |out| {
            wire::put_bytes(1, key.as_bytes(), out);
            wire::put_bytes(2, value.as_bytes(), out);
        });
    }
    let mut direct = Vec::new();
    to_json(&bytes, ty, "", "", None, &mut direct).expect("valid");
    assert_eq!(
        String::from_utf8_lossy(&direct),
        r#"{"metadata":{},"data":{"a":"2","b":"3"}}"#
    );
    assert_eq!(direct, json::encode(&decode(&bytes, ty).expect("valid")));
}

#[test]
fn any_prefix_of_a_message_is_read_or_refused_without_harm() {
    let stored = recorded()
        .into_iter()
        .find(|stored| stored.key.contains("/pods/"))
        .expect("a pod");
    let (bytes, ty) = open(&stored);
    for end in 0..bytes.len() {
        if let Ok(envelope) = unwrap(&bytes[..end]) {
            let _ = decode(envelope.raw, ty);
            let message = Message {
                bytes: envelope.raw,
                ty,
            };
            let _ = (
                message.text_at("spec.nodeName"),
                message.text_at("status.podIPs.0.ip"),
                message.label("app"),
                message.labels().count(),
            );
        }
        let mut flipped = bytes.clone();
        flipped[end] ^= 0x55;
        if let Ok(envelope) = protobuf::unwrap(&flipped) {
            let tree = decode(envelope.raw, ty).is_ok();
            let direct = to_json(envelope.raw, ty, "", "", None, &mut Vec::new()).is_ok();
            if let Some(revised) = WithResourceVersion::new(
                Message {
                    bytes: envelope.raw,
                    ty,
                },
                Some(7),
            ) {
                let mut out = Vec::new();
                revised.write_item(&mut out);
                assert_eq!(out.len(), revised.item_len());
            }
            let _ = metadata_to_json(envelope.raw, ty, Some(7), &mut Vec::new());
            assert!(!tree || direct, "what becomes a tree becomes JSON: {end}");
        }
    }
}

/// Any JSON for a kind of value, with the zero values, nulls and absences that make a difference.
fn any(kind: &Kind, depth: u32) -> BoxedStrategy<Value> {
    match kind {
        Kind::String => "[a-z<é\"\u{2028}]{0,3}".prop_map(Value::String).boxed(),
        Kind::Bool => any_of(&[json!(true), json!(false)]),
        Kind::Int32 => proptest::num::i32::ANY.prop_map(Value::from).boxed(),
        Kind::Int64 => proptest::num::i64::ANY.prop_map(Value::from).boxed(),
        Kind::Double => any_of(&[json!(0), json!(1.5), json!(-1e300), json!(1e-7)]),
        Kind::Bytes => any_of(&[json!(""), json!("AA=="), json!("AQI=")]),
        Kind::Quantity => any_of(&[
            json!("0"),
            json!("1.5Gi"),
            json!("1000m"),
            json!(0.5),
            json!("1e3"),
            json!("1.500"),
        ]),
        Kind::Time => any_of(&[
            json!("2020-01-02T03:04:05+01:00"),
            json!("1969-01-01T00:00:00Z"),
            json!(null),
        ]),
        Kind::MicroTime => any_of(&[json!("2020-01-02T03:04:05.000001Z"), json!(null)]),
        Kind::IntOrString => any_of(&[json!(0), json!(-5), json!("50%"), json!("")]),
        Kind::Raw | Kind::FieldsV1 | Kind::Any => any_of(&[
            json!({"z": [1, 1.5, null], "a": {}}),
            json!("<x>"),
            json!(null),
        ]),
        Kind::SchemaOr(SchemaAlternative::Bool, _) => {
            any_of(&[json!(true), json!(false), json!({"type": "a"})])
        }
        Kind::SchemaOr(SchemaAlternative::Array, _) => {
            any_of(&[json!({"type": "a"}), json!([{"type": "b"}])])
        }
        Kind::SchemaOr(SchemaAlternative::StringArray, _) => {
            any_of(&[json!({"type": "a"}), json!(["b"])])
        }
        Kind::Message(id) | Kind::Inline(id) => any_message(*id, depth),
        // Never empty: only the tree tells an empty list from none.
        Kind::List(item, _) => proptest::collection::vec(any(item, depth), 1..3)
            .prop_map(Value::Array)
            .boxed(),
        Kind::Map(item, _) => proptest::collection::hash_map("[a-c]{0,2}", any(item, depth), 1..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
    }
}

fn any_of(values: &[Value]) -> BoxedStrategy<Value> {
    proptest::sample::select(values.to_vec()).boxed()
}

/// An object with up to three of its type's fields.
fn any_message(id: TypeId, depth: u32) -> BoxedStrategy<Value> {
    let fields: Vec<_> = TypeRef {
        schema: builtin(),
        id,
    }
    .get()
    .fields
    .iter()
    .filter(|field| field.number > 0)
    .collect();
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|field| !matches!(field.kind, Kind::Inline(_)))
        .collect();
    if depth == 0 || fields.is_empty() {
        return Just(json!({})).boxed();
    }
    let entry = proptest::sample::select(fields)
        .prop_flat_map(move |field| (Just(field.json.clone()), any(&field.kind, depth - 1)));
    proptest::collection::vec(entry, 0..4)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// JSON, the tree, protobuf and the transcoder agree on any object of any type.
    #[test]
    fn json_and_protobuf_of_any_object_agree((id, value) in (0..builtin().types.len() as u32).prop_flat_map(|id| (Just(TypeId(id)), any_message(TypeId(id), 5)))) {
        let ty = TypeRef { schema: builtin(), id };
        let tree = crate::codec::from_value(&value, ty).expect("valid").object;
        let again = crate::codec::from_value(&tree.clone().into(), ty).expect("valid");
        prop_assert_eq!(&again.object, &tree, "normal form is stable");
        prop_assert!(again.issues.is_empty());
        let bytes = encode(&tree, ty);
        let back = decode(&bytes, ty).expect("valid");
        prop_assert_eq!(String::from_utf8(json::encode(&back)), String::from_utf8(json::encode(&tree)));
        let mut direct = Vec::new();
        to_json(&bytes, ty, "", "", None, &mut direct).expect("valid");
        prop_assert_eq!(String::from_utf8(direct), String::from_utf8(json::encode(&tree)));
        let message = Message { bytes: &bytes, ty };
        let mut paths = Vec::new();
        scalar_paths(&tree.clone().into(), "", &mut paths);
        // Raw JSON has no type: its scalars are out of reach.
        for path in paths.iter().filter(|path| tree.text_at(path).is_empty() || super::reader::text_at(&bytes, ty, path).is_some()) {
            prop_assert_eq!(message.text_at(path), tree.text_at(path), "{}", path);
        }
    }
}
