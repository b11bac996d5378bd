//! Tests as stories: operations on an object, with the expected object and owners after each.

mod seeds;

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::managers::{Managed, OneVersion, Writer, keep_times};
use super::{Ty, apply, patch, update};
use crate::meta::{Gvk, Map, Object, Value, json};
use crate::schema::{self, Field, Kind, ListType, MapType, Schema, Type, TypeId, TypeRef};

/// One write.
#[derive(Clone, Debug)]
struct Op {
    verb: Verb,
    manager: &'static str,
    subresource: &'static str,
    body: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Create,
    Put,
    /// JSON merge patch.
    Merge,
    Apply,
    Force,
}

fn op(verb: Verb, manager: &'static str, body: Value) -> Op {
    Op {
        verb,
        manager,
        subresource: "",
        body,
    }
}

/// A kind to tell stories about: a built-in one, or a custom one.
#[derive(Clone, Copy)]
struct Subject<'a> {
    ty: TypeRef<'a>,
    api_version: &'a str,
    kind: &'a str,
}

fn builtin<'a>(api_version: &'a str, kind: &'a str) -> Subject<'a> {
    let ty = schema::builtin()
        .get(&Gvk::from_api_version(api_version, kind))
        .expect("a built-in kind");
    Subject {
        ty,
        api_version,
        kind,
    }
}

impl Subject<'_> {
    /// Writes `op` at `second` and returns the object after it, or the error.
    fn write(&self, live: Option<&Object>, op: &Op, second: i64) -> Result<Object, String> {
        let reset: &[&str] = if op.subresource == "status" {
            &["/spec", "/metadata"]
        } else {
            &["/status"]
        };
        let writer = Writer {
            manager: op.manager,
            api_version: self.api_version,
            subresource: op.subresource,
            now: Timestamp::from_second(second).expect("a time"),
            reset_fields: reset,
            ty: Ty::from(self.ty),
            versions: &OneVersion,
        };
        let Value::Object(mut body) = op.body.clone() else {
            panic!("bodies are objects")
        };
        let mut object = match op.verb {
            Verb::Create | Verb::Put => {
                let mut new = self.named(&mut body);
                update(live, &mut new, &writer);
                new
            }
            Verb::Merge => {
                let mut new = Value::from(live.expect("something to patch").clone());
                patch::merge::apply(&mut new, Value::Object(body)).expect("a patch");
                let mut new = Object::from_value(new).expect("an object");
                update(live, &mut new, &writer);
                new
            }
            Verb::Apply | Verb::Force => {
                let config = self.named(&mut body);
                let gvk = Gvk::from_api_version(self.api_version, self.kind);
                apply(live, &config, &gvk, &writer, op.verb == Verb::Force)
                    .map_err(|error| error.to_string())?
            }
        };
        object.set_meta_str("uid", "1");
        if let Some(live) = live {
            keep_times(live, &mut object);
        }
        Ok(object)
    }

    fn named(&self, body: &mut Map) -> Object {
        let mut object = Object(Map::new());
        object.insert("apiVersion", self.api_version.into());
        object.insert("kind", self.kind.into());
        object.insert("metadata", json!({"name": "x"}));
        if let Some(Value::Object(metadata)) = body.shift_remove("metadata") {
            object.metadata_mut().extend(metadata);
        }
        object.extend(std::mem::take(body));
        object
    }

    /// Runs `ops`, a second apart.
    fn check(&self, ops: &[Op], want: Expect) {
        let mut live: Option<Object> = None;
        let mut story = String::new();
        for (second, op) in ops.iter().enumerate() {
            match self.write(live.as_ref(), op, second as i64) {
                Ok(object) => {
                    writeln!(story, "{}", describe(&object)).expect("a string takes it");
                    live = Some(object);
                }
                Err(error) => writeln!(story, "! {error}").expect("a string takes it"),
            }
        }
        want.assert_eq(&story);
    }
}

/// An object in one line without what never changes, then a line for each owner.
fn describe(object: &Object) -> String {
    let mut shown = object.clone();
    for key in ["apiVersion", "kind"] {
        shown.shift_remove(key);
    }
    let metadata = shown.metadata_mut();
    let fields = metadata.shift_remove("managedFields");
    metadata.shift_remove("name");
    metadata.shift_remove("uid");
    if metadata.is_empty() {
        shown.shift_remove("metadata");
    }
    let mut out = Value::from(shown).to_string();
    for entry in Managed::decode(fields.as_ref())
        .expect("sound managed fields")
        .entries
    {
        let second = entry.time.as_deref().map_or("-", |time| &time[17..19]);
        let subresource = if entry.id.subresource.is_empty() {
            String::new()
        } else {
            format!(" /{}", entry.id.subresource)
        };
        let paths: Vec<String> = entry.set.paths().iter().map(ToString::to_string).collect();
        write!(
            out,
            "\n  {} {}{subresource} {second}: {}",
            entry.id.name,
            entry.id.operation.as_str(),
            paths.join(" ")
        )
        .expect("a string");
    }
    out
}

fn field(json: &'static str, kind: Kind) -> Field {
    Field::new(json, kind)
}

fn add(schema: &mut Schema, fields: Vec<Field>, map_type: MapType) -> TypeId {
    let by_json = fields
        .iter()
        .enumerate()
        .map(|(index, field)| (field.json.clone(), index))
        .collect();
    schema.types.push(Type {
        fields,
        by_json,
        map_type,
        ..Type::default()
    });
    TypeId(schema.types.len() as u32 - 1)
}

/// A custom kind with every topology. With `whole`, its map, struct and list are atomic.
fn widget_schema(whole: bool) -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let map_type = if whole {
        MapType::Atomic
    } else {
        MapType::Granular
    };
    let text = || Box::new(Kind::String);
    let metadata = vec![
        field("name", Kind::String),
        field("uid", Kind::String),
        field("labels", Kind::Map(text(), MapType::Granular)),
        field(
            "managedFields",
            Kind::List(Box::new(Kind::Any), ListType::Atomic),
        ),
    ];
    let metadata = add(&mut schema, metadata, MapType::Granular);
    let mut protocol = field("protocol", Kind::String);
    protocol.default = Some("TCP".into());
    let port = add(
        &mut schema,
        vec![
            field("port", Kind::Int64),
            protocol,
            field("name", Kind::String),
        ],
        MapType::Granular,
    );
    let item = add(
        &mut schema,
        vec![field("name", Kind::String), field("value", Kind::String)],
        MapType::Granular,
    );
    let inner = add(
        &mut schema,
        vec![field("a", Kind::String), field("b", Kind::String)],
        map_type,
    );
    let items = if whole {
        ListType::Atomic
    } else {
        ListType::Map(vec!["name".to_owned()])
    };
    let spec = vec![
        field("size", Kind::Int64),
        field("tags", Kind::List(text(), ListType::Set)),
        field(
            "ports",
            Kind::List(
                Box::new(Kind::Message(port)),
                ListType::Map(vec!["port".to_owned(), "protocol".to_owned()]),
            ),
        ),
        field("items", Kind::List(Box::new(Kind::Message(item)), items)),
        field("map", Kind::Map(text(), map_type)),
        field("struct", Kind::Message(inner)),
        field("any", Kind::Any),
    ];
    let spec = add(&mut schema, spec, MapType::Granular);
    let status = add(
        &mut schema,
        vec![field("ready", Kind::Bool)],
        MapType::Granular,
    );
    let root = vec![
        field("apiVersion", Kind::String),
        field("kind", Kind::String),
        field("metadata", Kind::Message(metadata)),
        field("spec", Kind::Message(spec)),
        field("status", Kind::Message(status)),
    ];
    let root = add(&mut schema, root, MapType::Granular);
    (schema, root)
}

fn widget((schema, id): &(Schema, TypeId)) -> Subject<'_> {
    Subject {
        ty: TypeRef { schema, id: *id },
        api_version: "example.com/v1",
        kind: "Widget",
    }
}

use Verb::*;

#[test]
fn updates_own_what_they_change() {
    let ops = [
        op(Create, "a", json!({"data": {"k": "1", "l": "1"}})),
        op(Put, "b", json!({"data": {"k": "2", "l": "1", "m": "1"}})),
        op(Put, "b", json!({"data": {"k": "2", "l": "1", "m": "1"}})),
        op(
            Merge,
            "a",
            json!({"data": {"m": null}, "metadata": {"labels": {"x": "y"}}}),
        ),
        op(Merge, "c", json!({"data": null})),
        op(Merge, "", json!({"data": {}})),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"data":{"k":"1","l":"1"}}
          a Update 00: .data .data.k .data.l
        {"data":{"k":"2","l":"1","m":"1"}}
          a Update 00: .data .data.l
          b Update 01: .data.k .data.m
        {"data":{"k":"2","l":"1","m":"1"}}
          a Update 00: .data .data.l
          b Update 01: .data.k .data.m
        {"data":{"k":"2","l":"1"},"metadata":{"labels":{"x":"y"}}}
          b Update 01: .data.k
          a Update 03: .data .data.l .metadata.labels .metadata.labels.x
        {"metadata":{"labels":{"x":"y"}}}
          a Update 03: .metadata.labels .metadata.labels.x
        {"data":{},"metadata":{"labels":{"x":"y"}}}
          a Update 03: .metadata.labels .metadata.labels.x
          unknown Update 05: .data
    "#]],
    );
}

#[test]
fn resets_and_broken_fields() {
    let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}});
    let mut broken = entry.clone();
    broken["fieldsV1"] = json!({"f:data": {"nonsense": {}}});
    let mut gone = entry.clone();
    gone["apiVersion"] = "v0".into();
    let ops = [
        op(Create, "a", json!({"data": {"k": "1"}})),
        op(
            Put,
            "b",
            json!({"metadata": {"managedFields": [broken]}, "data": {"k": "1", "l": "1"}}),
        ),
        op(
            Put,
            "b",
            json!({"metadata": {"managedFields": [entry, gone]}, "data": {"k": "1", "l": "2"}}),
        ),
        op(
            Put,
            "b",
            json!({"metadata": {"managedFields": [{}]}, "data": {"k": "1", "l": "2"}}),
        ),
        op(Put, "b", json!({"data": {"k": "1", "l": "3"}})),
        op(Apply, "c", json!({"data": {"k": "1"}})),
        op(
            Put,
            "d",
            json!({"metadata": {"managedFields": []}, "data": {"k": "4"}}),
        ),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"data":{"k":"1"}}
          a Update 00: .data .data.k
        {"data":{"k":"1","l":"1"}}
          a Update 00: .data .data.k
          b Update 01: .data.l
        {"data":{"k":"1","l":"2"}}
          m Update -: .data.k
          b Update 02: .data.l
        {"data":{"k":"1","l":"2"}}
        {"data":{"k":"1","l":"3"}}
        {"data":{"k":"1","l":"3"}}
          c Apply -: .data.k
          before-first-apply Update 05: .data .data.k .data.l
        {"data":{"k":"4"}}
    "#]],
    );
}

#[test]
fn subresources_own_their_part() {
    let status = |verb, manager, body| Op {
        subresource: "status",
        ..op(verb, manager, body)
    };
    let ops = [
        op(
            Create,
            "a",
            json!({"spec": {"size": 1}, "status": {"ready": true}}),
        ),
        status(
            Merge,
            "b",
            json!({"status": {"ready": false}, "metadata": {"labels": {"x": "y"}}}),
        ),
        status(
            Apply,
            "c",
            json!({"spec": {"size": 1}, "status": {"ready": false}}),
        ),
        op(Merge, "b", json!({"spec": {"size": 2}})),
    ];
    widget(&widget_schema(false)).check(
        &ops,
        expect![[r#"
            {"spec":{"size":1},"status":{"ready":true}}
              a Update 00: .spec .spec.size
            {"metadata":{"labels":{"x":"y"}},"spec":{"size":1},"status":{"ready":false}}
              a Update 00: .spec .spec.size
              b Update /status 01: .status.ready
            {"metadata":{"labels":{"x":"y"}},"spec":{"size":1},"status":{"ready":false}}
              c Apply /status -: .status.ready
              a Update 00: .spec .spec.size
              b Update /status 01: .status.ready
            {"metadata":{"labels":{"x":"y"}},"spec":{"size":2},"status":{"ready":false}}
              c Apply /status -: .status.ready
              a Update 00: .spec
              b Update /status 01: .status.ready
              b Update 03: .spec.size
        "#]],
    );
}

#[test]
fn too_many_updaters_are_merged() {
    let managers = [
        "m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11",
    ];
    let subject = builtin("v1", "ConfigMap");
    let mut live = subject
        .write(None, &op(Create, "m00", json!({"data": {"m00": "1"}})), 0)
        .expect("made");
    for (second, manager) in managers.into_iter().enumerate().skip(1) {
        live = subject
            .write(
                Some(&live),
                &op(Merge, manager, json!({"data": {manager: "1"}})),
                second as i64,
            )
            .expect("patched");
    }
    let text = describe(&live);
    let owners: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert_eq!(
        owners,
        [
            "  ancient-changes Update 02: .data .data.m00 .data.m01 .data.m02",
            "  m03 Update 03: .data.m03"
        ]
    );
    assert_eq!(text.lines().count(), 11);
}

#[test]
fn appliers_share_conflict_and_give_up() {
    let ops = [
        op(Apply, "a", json!({"data": {"k": "1", "l": "1"}})),
        op(Apply, "b", json!({"data": {"k": "1", "m": "1"}})),
        op(Apply, "b", json!({"data": {"k": "2", "l": "2", "m": "2"}})),
        op(Force, "b", json!({"data": {"k": "2", "m": "1"}})),
        op(Apply, "a", json!({"data": {"l": "1"}})),
        op(Apply, "b", json!({"data": {}})),
        op(Merge, "u", json!({"data": {"l": "3"}})),
        op(Apply, "a", json!({"data": {"l": "4"}})),
        op(Force, "a", json!({})),
    ];
    builtin("v1", "ConfigMap").check(
        &ops,
        expect![[r#"
        {"data":{"k":"1","l":"1"}}
          a Apply 00: .data.k .data.l
        {"data":{"k":"1","l":"1","m":"1"}}
          a Apply 00: .data.k .data.l
          b Apply 01: .data.k .data.m
        ! Apply failed with 2 conflicts: conflicts with "a":
        - .data.k
        - .data.l
        {"data":{"k":"2","l":"1","m":"1"}}
          a Apply 00: .data.l
          b Apply 03: .data.k .data.m
        {"data":{"k":"2","l":"1","m":"1"}}
          a Apply 00: .data.l
          b Apply 03: .data.k .data.m
        {"data":{"l":"1"}}
          a Apply 00: .data.l
          b Apply 05: .data
        {"data":{"l":"3"}}
          b Apply 05: .data
          u Update 06: .data.l
        ! Apply failed with 1 conflict: conflict with "u" using v1: .data.l
        {"data":{"l":"3"}}
          b Apply 05: .data
          u Update 06: .data.l
    "#]],
    );
}

#[test]
fn lists_merge_by_their_topology() {
    let ops = [
        op(
            Apply,
            "a",
            json!({"spec": {"tags": ["x", "y"], "ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}], "items": [{"name": "i"}]}}),
        ),
        op(
            Apply,
            "b",
            json!({"spec": {"tags": ["z", "x"], "ports": [{"port": 81}, {"port": 80, "protocol": "TCP", "name": "web"}]}}),
        ),
        op(
            Apply,
            "b",
            json!({"spec": {"tags": ["z"], "items": [{"name": "i", "value": "v"}, {"name": "j"}]}}),
        ),
        op(
            Apply,
            "a",
            json!({"spec": {"items": [{"name": "j"}, {"name": "i"}]}}),
        ),
        op(
            Apply,
            "a",
            json!({"spec": {"items": [{"name": "j"}, {"name": "j"}]}}),
        ),
        op(
            Apply,
            "a",
            json!({"spec": {"ports": [{"name": "no-port"}], "items": [{"value": "no name"}]}}),
        ),
        op(Apply, "a", json!({"spec": {"tags": [{"name": "x"}]}})),
    ];
    widget(&widget_schema(false)).check(&ops, expect![[r#"
        {"spec":{"tags":["x","y"],"ports":[{"port":80},{"port":80,"protocol":"UDP"}],"items":[{"name":"i"}]}}
          a Apply 00: .spec.items[name="i"] .spec.items[name="i"].name .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol .spec.tags[="x"] .spec.tags[="y"]
        {"spec":{"tags":["z","x","y"],"ports":[{"port":81},{"port":80,"protocol":"TCP","name":"web"},{"port":80,"protocol":"UDP"}],"items":[{"name":"i"}]}}
          a Apply 00: .spec.items[name="i"] .spec.items[name="i"].name .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol .spec.tags[="x"] .spec.tags[="y"]
          b Apply 01: .spec.ports[port=80,protocol="TCP"] .spec.ports[port=81,protocol="TCP"] .spec.ports[port=80,protocol="TCP"].name .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="TCP"].protocol .spec.ports[port=81,protocol="TCP"].port .spec.tags[="x"] .spec.tags[="z"]
        {"spec":{"tags":["z","x","y"],"ports":[{"port":80},{"port":80,"protocol":"UDP"}],"items":[{"name":"i","value":"v"},{"name":"j"}]}}
          a Apply 00: .spec.items[name="i"] .spec.items[name="i"].name .spec.ports[port=80,protocol="TCP"] .spec.ports[port=80,protocol="UDP"] .spec.ports[port=80,protocol="TCP"].port .spec.ports[port=80,protocol="UDP"].port .spec.ports[port=80,protocol="UDP"].protocol .spec.tags[="x"] .spec.tags[="y"]
          b Apply 02: .spec.items[name="i"] .spec.items[name="j"] .spec.items[name="i"].name .spec.items[name="i"].value .spec.items[name="j"].name .spec.tags[="z"]
        {"spec":{"tags":["z"],"items":[{"name":"j"},{"name":"i","value":"v"}]}}
          b Apply 02: .spec.items[name="i"] .spec.items[name="j"] .spec.items[name="i"].name .spec.items[name="i"].value .spec.items[name="j"].name .spec.tags[="z"]
          a Apply 03: .spec.items[name="i"] .spec.items[name="j"] .spec.items[name="i"].name .spec.items[name="j"].name
        ! failed to create typed patch object (/x; example.com/v1, Kind=Widget): .spec.items: duplicate entries for key [name="j"]
        ! failed to create typed patch object (/x; example.com/v1, Kind=Widget): .spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)
        ! failed to create typed patch object (/x; example.com/v1, Kind=Widget): .spec.tags: element 0: associative list without keys has an element that's a map type
    "#]]);
}

#[test]
fn maps_structs_and_the_untyped() {
    let ops = [
        op(
            Apply,
            "a",
            json!({"spec": {"map": {"a": "1"}, "struct": {"a": "1"}, "any": {"x": {"y": 1}, "l": [1]}}}),
        ),
        op(
            Apply,
            "b",
            json!({"spec": {"map": {"b": "1"}, "struct": {"b": "1"}, "any": {"x": {"z": 1}}}}),
        ),
        op(
            Apply,
            "a",
            json!({"spec": {"map": {}, "struct": null, "any": "scalar"}}),
        ),
        op(
            Force,
            "a",
            json!({"spec": {"map": {}, "struct": {}, "any": "scalar"}}),
        ),
        op(
            Apply,
            "b",
            json!({"spec": {"map": [], "size": "1", "bogus": 1}}),
        ),
    ];
    widget(&widget_schema(false)).check(
        &ops,
        expect![[r#"
        {"spec":{"map":{"a":"1"},"struct":{"a":"1"},"any":{"x":{"y":1},"l":[1]}}}
          a Apply 00: .spec.any.l .spec.any.x .spec.any.x.y .spec.map.a .spec.struct.a
        {"spec":{"map":{"a":"1","b":"1"},"struct":{"a":"1","b":"1"},"any":{"x":{"y":1,"z":1},"l":[1]}}}
          a Apply 00: .spec.any.l .spec.any.x .spec.any.x.y .spec.map.a .spec.struct.a
          b Apply 01: .spec.any.x .spec.any.x.z .spec.map.b .spec.struct.b
        {"spec":{"map":{"b":"1"},"struct":{"b":"1"},"any":"scalar"}}
          b Apply 01: .spec.map.b .spec.struct.b
          a Apply 02: .spec.any .spec.map .spec.struct
        {"spec":{"map":{"b":"1"},"struct":{"b":"1"},"any":"scalar"}}
          b Apply 01: .spec.map.b .spec.struct.b
          a Apply 02: .spec.any .spec.map .spec.struct
        ! failed to create typed patch object (/x; example.com/v1, Kind=Widget): errors:
          .spec.map: expected map, got &{[]}
          .spec.size: expected numeric (int or float), got string
          .spec.bogus: field not declared in schema
    "#]],
    );
}

#[test]
fn topology_changes_are_reconciled() {
    let config = |value: &str| json!({"spec": {"map": {"a": value, "b": "1"}, "struct": {"a": value}, "items": [{"name": "i", "value": value}]}});
    let (granular, atomic) = (widget_schema(false), widget_schema(true));
    let (granular, atomic) = (widget(&granular), widget(&atomic));
    let mut story = String::new();
    for (first, then) in [(granular, atomic), (atomic, granular)] {
        let live = first
            .write(None, &op(Apply, "a", config("1")), 0)
            .expect("applied");
        let after = then.write(
            Some(&live),
            &op(Apply, "b", json!({"spec": {"map": {"a": "1"}}})),
            1,
        );
        writeln!(
            story,
            "{}",
            after.as_ref().map_or_else(Clone::clone, describe)
        )
        .expect("a string");
        let live = then
            .write(
                Some(&live),
                &op(Merge, "u", json!({"spec": {"struct": {"b": "2"}}})),
                1,
            )
            .expect("patched");
        writeln!(story, "{}", describe(&live)).expect("a string");
    }
    expect![[r#"
        Apply failed with 1 conflict: conflict with "a": .spec.map
        {"spec":{"items":[{"name":"i","value":"1"}],"map":{"a":"1","b":"1"},"struct":{"a":"1","b":"2"}}}
          a Apply 00: .spec.items .spec.map
          u Update 01: .spec.struct
        {"spec":{"map":{"a":"1","b":"1"},"struct":{"a":"1"},"items":[{"name":"i","value":"1"}]}}
          a Apply 00: .spec.items .spec.map .spec.struct
          b Apply -: .spec.map.a
        {"spec":{"items":[{"name":"i","value":"1"}],"map":{"a":"1","b":"1"},"struct":{"a":"1","b":"2"}}}
          a Apply 00: .spec.items .spec.map .spec.struct
          u Update 01: .spec.struct.b
    "#]]
    .assert_eq(&story);
}

#[test]
fn kubectl_goes_on_from_client_side_apply() {
    let last = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": value}}).to_string()
    };
    let annotated = |value: &str| json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last(value)}}, "data": {"k": value}});
    let ops = [
        op(Create, "kubectl-client-side-apply", annotated("1")),
        op(Apply, "other", json!({"data": {"k": "2"}})),
        op(Apply, "kubectl", json!({"data": {"k": "2"}})),
        op(Merge, "u", json!({"data": {"k": "3"}})),
        op(Apply, "kubectl", json!({"data": {"k": "4"}})),
    ];
    builtin("v1", "ConfigMap").check(&ops, expect![[r#"
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"},\"data\":{\"k\":\"1\"}}"}},"data":{"k":"1"}}
          kubectl-client-side-apply Update 00: .data .data.k .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration
        ! Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.k
        {"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n"}},"data":{"k":"2"}}
          kubectl Apply 02: .data.k
          kubectl-client-side-apply Update 00: .data .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration
        {"data":{"k":"3"},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}\n"}}}
          kubectl-client-side-apply Update 00: .data .metadata.annotations .metadata.annotations.kubectl.kubernetes.io/last-applied-configuration
          u Update 03: .data.k
        ! Apply failed with 1 conflict: conflict with "u" using v1: .data.k
    "#]]);
}

#[test]
fn workloads() {
    let template = |image: &str| json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}]}]}});
    let ops = [
        op(
            Apply,
            "a",
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template("i:1"), "replicas": 1}}),
        ),
        op(Apply, "scaler", json!({"spec": {"replicas": 1}})),
        op(
            Apply,
            "a",
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template("i:2")}}),
        ),
        op(Apply, "scaler", json!({"spec": {"replicas": 3}})),
        op(
            Apply,
            "sidecar",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "s", "image": "s:1"}, {"name": "c", "image": "i:3"}]}}}}),
        ),
        op(
            Force,
            "sidecar",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "s", "image": "s:1"}, {"name": "c", "image": "i:3"}]}}}}),
        ),
    ];
    builtin("apps/v1", "Deployment").check(&ops, expect![[r#"
        {"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}]}]}},"strategy":{},"replicas":1},"status":{}}
          a Apply 00: .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"] .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort
        {"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i:1","ports":[{"containerPort":80}]}]}},"strategy":{},"replicas":1},"status":{}}
          a Apply 00: .spec.replicas .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"] .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort
          scaler Apply -: .spec.replicas
        {"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i:2","ports":[{"containerPort":80}]}]}},"strategy":{},"replicas":1},"status":{}}
          scaler Apply -: .spec.replicas
          a Apply 02: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"] .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort
        {"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i:2","ports":[{"containerPort":80}]}]}},"strategy":{},"replicas":3},"status":{}}
          a Apply 02: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"] .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort
          scaler Apply 03: .spec.replicas
        ! Apply failed with 1 conflict: conflict with "a": .spec.template.spec.containers[name="c"].image
        {"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"s","image":"s:1"},{"name":"c","image":"i:3","ports":[{"containerPort":80}]}]}},"strategy":{},"replicas":3},"status":{}}
          a Apply 02: .spec.selector .spec.template.metadata.labels.app .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"] .spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort
          scaler Apply 03: .spec.replicas
          sidecar Apply 05: .spec.template.spec.containers[name="c"] .spec.template.spec.containers[name="s"] .spec.template.spec.containers[name="c"].image .spec.template.spec.containers[name="c"].name .spec.template.spec.containers[name="s"].image .spec.template.spec.containers[name="s"].name
    "#]]);
}

#[test]
fn empty_values_that_json_always_shows_have_no_owner() {
    let spec = json!({"replicas": 0, "template": {"metadata": {}, "spec": {"containers": null}}, "strategy": {}});
    builtin("apps/v1", "Deployment").check(
        &[op(Create, "a", json!({"spec": spec, "status": {}}))],
        expect![[r#"
        {"spec":{"replicas":0,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}
          a Update 00: .spec.replicas
    "#]],
    );
}

#[test]
fn refused_configurations() {
    let subject = builtin("v1", "ConfigMap");
    let ty = Ty::from(subject.ty);
    let writer = Writer {
        manager: "a",
        api_version: "v1",
        subresource: "",
        now: Timestamp::UNIX_EPOCH,
        reset_fields: &[],
        ty,
        versions: &OneVersion,
    };
    let gvk = Gvk::new("", "v1", "ConfigMap");
    for (config, want) in [
        (json!({}), "invalid object type: /, Kind="),
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            json!({"apiVersion": "a/b/c", "kind": "ConfigMap"}),
            "invalid object type: /, Kind=",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": 1}}),
            "failed to create typed patch object (n/c; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": 5, "bogus": 1}}),
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): errors:\n  .metadata.name: expected string, got &value.valueUnstructured{Value:5}\n  .metadata.bogus: field not declared in schema",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": ["x"]}),
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .data: expected map, got &{[x]}",
        ),
    ] {
        let Value::Object(config) = config else {
            panic!("an object")
        };
        assert_eq!(
            apply(None, &config, &gvk, &writer, false)
                .expect_err("refused")
                .to_string(),
            want
        );
    }
}

fn config() -> impl Strategy<Value = Value> {
    let entries = |values: &'static str| prop::collection::btree_map("[a-c]", values, 0..3);
    let tags = prop::sample::subsequence(vec!["x", "y", "z"], 0..=3).prop_shuffle();
    let items = prop::sample::subsequence(vec!["i", "j", "k"], 0..=3).prop_shuffle();
    (
        entries("[12]"),
        tags,
        items,
        "[12]",
        prop::option::of(1..3i64),
    )
        .prop_map(|(map, tags, items, value, size)| {
            let items: Vec<Value> = items
                .into_iter()
                .map(|name| json!({"name": name, "value": value}))
                .collect();
            let mut spec = json!({"map": map});
            if !tags.is_empty() {
                spec["tags"] = json!(tags);
            }
            if !items.is_empty() {
                spec["items"] = json!(items);
            }
            if let Some(size) = size {
                spec["size"] = size.into();
            }
            json!({"spec": spec})
        })
}

fn history() -> impl Strategy<Value = Vec<Op>> {
    let verb = prop::sample::select(vec![Put, Merge, Apply, Force]);
    let manager = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(
        (verb, manager, config()).prop_map(|(verb, manager, body)| op(verb, manager, body)),
        1..8,
    )
}

/// Any JSON, with names that mean something to a Deployment or to a patch.
fn anything() -> impl Strategy<Value = Value> {
    let names = [
        "spec",
        "template",
        "containers",
        "name",
        "metadata",
        "finalizers",
        "ports",
        "containerPort",
        "labels",
        "strategy",
        "apiVersion",
        "kind",
        "managedFields",
        "fieldsV1",
        "f:spec",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "op",
        "path",
        "value",
        "/spec/template",
        "/metadata/finalizers/0",
        "replace",
        "delete",
        "add",
        "copy",
        "from",
        "a",
    ];
    let name = prop::sample::select(names.to_vec());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|entries| Value::Object(
                entries
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            )),
        ]
    })
}

fn run(subject: &Subject, ops: &[Op]) -> Object {
    let mut live = subject
        .write(None, &op(Create, "a", json!({"spec": {}})), 0)
        .expect("made");
    for (second, op) in ops.iter().enumerate() {
        if let Ok(object) = subject.write(Some(&live), op, second as i64 % 60) {
            live = object;
        }
    }
    live
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(6902), ..ProptestConfig::default() })]

    #[test]
    fn writing_the_same_twice_changes_nothing(ops in history()) {
        let schema = widget_schema(false);
        let subject = widget(&schema);
        let last = Op { verb: if ops[ops.len() - 1].verb == Apply { Force } else { ops[ops.len() - 1].verb }, ..ops[ops.len() - 1].clone() };
        let once = subject.write(Some(&run(&subject, &ops[..ops.len() - 1])), &last, 58).expect("written");
        let twice = subject.write(Some(&once), &last, 59).expect("written");
        prop_assert_eq!(describe(&once), describe(&twice));
    }

    #[test]
    fn force_always_wins_and_owns(ops in history(), config in config()) {
        let schema = widget_schema(false);
        let subject = widget(&schema);
        let live = subject.write(Some(&run(&subject, &ops)), &op(Force, "z", config.clone()), 59);
        let live = live.expect("forced applies do not fail");
        for (name, value) in config["spec"]["map"].as_object().expect("a map") {
            prop_assert_eq!(live.at(&format!("/spec/map/{name}")), Some(value));
        }
        prop_assert!(describe(&live).contains("  z Apply"));
    }

    #[test]
    fn fields_without_owner_are_removed_by_an_apply(ops in history()) {
        let schema = widget_schema(false);
        let subject = widget(&schema);
        let applies: Vec<Op> = ops.into_iter().map(|op| Op { verb: Force, ..op }).collect();
        let mut live = run(&subject, &applies);
        for manager in ["a", "b", "c"] {
            live = subject.write(Some(&live), &op(Force, manager, json!({"spec": {}})), 59).expect("applied");
        }
        prop_assert_eq!(live.at("/spec/size"), None);
        prop_assert!(live.at("/spec/map").and_then(Value::as_object).is_none_or(Map::is_empty));
        prop_assert!(live.at("/spec/items").and_then(Value::as_array).is_none_or(Vec::is_empty));
    }

    #[test]
    fn the_order_of_independent_managers_does_not_matter(a in config(), b in config()) {
        let schema = widget_schema(false);
        let subject = widget(&schema);
        let a = op(Apply, "a", json!({"spec": {"map": a["spec"]["map"], "size": 1}}));
        let b = op(Apply, "b", json!({"spec": {"items": b["spec"]["items"], "tags": b["spec"]["tags"], "struct": {"a": "1"}}}));
        let story = |first: &Op, second: &Op| {
            let live = subject.write(None, first, 0).expect("applied");
            Value::from(subject.write(Some(&live), second, 0).expect("applied"))
        };
        prop_assert!(super::path::equal_values(&story(&a, &b), &story(&b, &a)));
    }

    #[test]
    fn anything_is_answered(live in anything(), input in anything()) {
        let subject = builtin("apps/v1", "Deployment");
        let gvk = Gvk::new("apps", "v1", "Deployment");
        let now = Timestamp::UNIX_EPOCH;
        let ty = Ty::from(subject.ty);
        let writer = Writer { manager: "a", api_version: "apps/v1", subresource: "", now, reset_fields: &[], ty, versions: &OneVersion };
        let mut document = live.clone();
        if let Ok(operations) = patch::json::operations(input.clone()) {
            let _ = patch::json::apply(&mut document, operations);
        }
        let _ = patch::merge::apply(&mut live.clone(), input.clone());
        let (Value::Object(live), Value::Object(mut input)) = (live, input) else { return Ok(()) };
        let _ = patch::strategic::apply(&mut live.clone(), input.clone(), subject.ty);
        update(Some(&Object(live.clone())), &mut Object(input.clone()), &writer);
        input.insert("apiVersion", "apps/v1".into());
        input.insert("kind", "Deployment".into());
        let _ = apply(Some(&Object(live)), &input, &gvk, &writer, true);
    }
}
