//! The cost of the worst bodies that a client may send, at the limit of 3 MB: one benchmark or
//! more for each row of ARCHITECTURE.md's table of what a body may cost, except the size of a body
//! itself and the lists and watches that select little, which need a server. None may take long:
//! while one is worked on, its processor does nothing else.

use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use keelson::internals::admission::{MAX_COMPARED, merge_tolerations};
use keelson::internals::auth::User;
use keelson::internals::auth::{Rule, uncovered};
use keelson::internals::builtin::strategy;
use keelson::internals::codec::{json, protobuf, yaml};
use keelson::internals::extensions::{
    Budget, CustomResourceDefinitions, Definition, JsonPath, resources,
};
use keelson::internals::merge::patch::{json as json_patch, merge, strategic};
use keelson::internals::merge::{OneVersion, Ty, Writer, update};
use keelson::internals::meta::FieldSelector;
use keelson::internals::meta::LabelSelector;
use keelson::internals::meta::{Gvk, Map, Object, Status, Value, json as tree};
use keelson::internals::registry::{
    Context, NameRule, Strategy, Subresource, Warnings, validate_object_meta,
};
use keelson::internals::schema::{self, TypeRef};

/// The largest body that a server takes.
const BODY_BYTES: usize = 3 * 1024 * 1024;

/// Returns as many items as fit into a body, separated by commas. `item` gets their numbers.
fn fill(item: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(BODY_BYTES);
    let mut number = 0;
    loop {
        let next = item(number);
        if text.len() + next.len() + 1024 > BODY_BYTES {
            return text;
        }
        if number > 0 {
            text.push(',');
        }
        text.push_str(&next);
        number += 1;
    }
}

fn ty(api_version: &str, kind: &str) -> TypeRef<'static> {
    schema::builtin()
        .get(&Gvk::from_api_version(api_version, kind))
        .expect("a built-in kind")
}

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("JSON").0
}

fn map(text: &str) -> Map {
    Object::from_value(value(text)).expect("an object").0
}

fn with_context<T>(subresource: Subresource<'_>, work: impl FnOnce(&Context<'_>) -> T) -> T {
    let user = User {
        name: "bench".to_owned(),
        ..User::default()
    };
    work(&Context {
        now: Timestamp::UNIX_EPOCH,
        user: &user,
        allow_privileged: true,
        subresource,
        warnings: &Warnings::default(),
    })
}

fn bodies(c: &mut Criterion) {
    let long = "a".repeat(BODY_BYTES / 2);
    let texts = format!("{{\"x\":[&a \"{long}\"{}]}}", ",*a".repeat(BODY_BYTES / 6));
    c.bench_function("yaml: aliases of a long text", |b| {
        b.iter(|| yaml::to_value(texts.as_bytes()).map(drop))
    });
    let nodes = format!(
        "a: &a [{}]\nb: [{}]\n",
        vec!["x"; 1_000].join(","),
        vec!["*a"; BODY_BYTES / 4].join(",")
    );
    c.bench_function("yaml: aliases of a list", |b| {
        b.iter(|| yaml::to_value(nodes.as_bytes()).map(drop))
    });
    let tags = format!(
        "%TAG !a! {long}\n---\n[{}]",
        "!a!b c,".repeat(BODY_BYTES / 2 / 7)
    );
    c.bench_function("yaml: tags with a long prefix", |b| {
        b.iter(|| yaml::to_value(tags.as_bytes()).map(drop))
    });
    let flow = format!("[{}]", fill(|_| "a".to_owned()));
    c.bench_function("yaml: short items", |b| {
        b.iter(|| yaml::to_value(flow.as_bytes()).map(drop))
    });
    let items = format!("[{}]", fill(|_| "{}".to_owned()));
    c.bench_function("json: empty objects", |b| {
        b.iter(|| json::parse(items.as_bytes()).map(drop))
    });
    let pod = ty("v1", "Pod");
    let containers = format!(
        "{{\"spec\":{{\"containers\":[{}]}}}}",
        fill(|_| "{}".to_owned())
    );
    c.bench_function("json: empty containers", |b| {
        b.iter(|| json::decode(containers.as_bytes(), pod).map(drop))
    });
    let unknown = format!(
        "{{\"spec\":{{{}}}}}",
        fill(|number| format!("\"u{number}\":1"))
    );
    c.bench_function("json: unknown fields", |b| {
        b.iter(|| json::decode(unknown.as_bytes(), pod).map(drop))
    });
    let repeated = format!(
        "{{\"spec\":{{{}}}}}",
        fill(|_| "\"nodeName\":\"n\"".to_owned())
    );
    c.bench_function("json: duplicate fields", |b| {
        b.iter(|| json::decode(repeated.as_bytes(), pod).map(drop))
    });
    let spec = [0x12, 0x00].repeat(BODY_BYTES / 2 - 16);
    let mut raw = vec![0x12];
    let mut length = spec.len();
    while length >= 0x80 {
        raw.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    raw.push(length as u8);
    raw.extend(spec);
    c.bench_function("protobuf: empty containers", |b| {
        b.iter(|| protobuf::decode(&raw, pod).map(drop))
    });
}

fn patches(c: &mut Criterion) {
    let list = fill(|_| "1".to_owned());
    let mut operations = vec![tree!({"op": "add", "path": "/x", "value": []})];
    operations[0]["value"] = value(&format!("[{}]", &list[..(BODY_BYTES / 2) | 1]));
    operations.extend(
        (1..json_patch::MAX_OPERATIONS).map(|_| tree!({"op": "add", "path": "/x/0", "value": 1})),
    );
    let operations = Value::Array(operations);
    let apply =
        |operations: Value| json_patch::apply(&mut tree!({}), json_patch::operations(operations)?);
    c.bench_function("JSON patch: insertions at the start of a list", |b| {
        b.iter_batched(|| operations.clone(), apply, BatchSize::PerIteration);
    });
    let document = value(&format!(
        "{{{}}}",
        fill(|number| format!("\"k{number}\":1"))
    ));
    let nulls = value(&format!(
        "{{{}}}",
        fill(|number| format!("\"k{number}\":null"))
    ));
    c.bench_function("merge patch: nulls", |b| {
        b.iter_batched(
            || (document.clone(), nulls.clone()),
            |(mut document, patch)| merge::apply(&mut document, patch),
            BatchSize::PerIteration,
        );
    });
    let env = |items: &str| {
        map(&format!(
            "{{\"spec\":{{\"containers\":[{{\"name\":\"c\",\"env\":[{items}]}}]}}}}"
        ))
    };
    let live = env(&fill(|number| format!("{{\"name\":\"V{number}\"}}")));
    let deletes = env(&fill(|number| {
        format!("{{\"$patch\":\"delete\",\"name\":\"V{number}\"}}")
    }));
    c.bench_function("strategic merge patch: deleted items", |b| {
        b.iter_batched(
            || (live.clone(), deletes.clone()),
            |(mut live, patch)| strategic::apply(&mut live, patch, ty("v1", "Pod")),
            BatchSize::PerIteration,
        );
    });
}

fn managed_fields(c: &mut Criterion) {
    let writer = Writer {
        manager: "bench",
        api_version: "v1",
        subresource: "",
        now: Timestamp::UNIX_EPOCH,
        reset_fields: &[],
        ty: Ty::from(ty("v1", "ConfigMap")),
        versions: &OneVersion,
    };
    let config = |meta: &str, data: &str| {
        Object(map(&format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"c\"{meta}}},\"data\":{{{data}}}}}"
        )))
    };
    let entries = fill(|at| {
        format!(
            "{{\"manager\":\"m{at}\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:data\":{{\"f:a\":{{}}}}}}}}"
        )
    });
    let crowded = config(&format!(",\"managedFields\":[{entries}]"), "\"a\":\"1\"");
    let mut wide = config("", &fill(|at| format!("\"k{at}\":\"\"")));
    update(None, &mut wide, &writer);
    let cases = [
        ("many managers", crowded, "\"a\":\"2\"".to_owned()),
        (
            "many fields of one manager",
            wide,
            fill(|at| format!("\"k{at}\":\"x\"")),
        ),
    ];
    for (name, live, data) in &cases {
        let new = config("", data);
        c.bench_function(&format!("managed fields: {name}"), |b| {
            b.iter_batched(
                || new.clone(),
                |mut new| update(Some(live), &mut new, &writer),
                BatchSize::PerIteration,
            );
        });
    }
}

/// Defaults and validates an object, makes the Status of its errors, and gathers warnings.
fn check(strategy: &dyn Strategy, object: &Object) -> (Status, usize) {
    let mut object = object.clone();
    strategy.default(&mut object);
    let errors = with_context(Subresource::Main, |context| {
        strategy.validate(context, &object)
    });
    (
        Status::invalid(&Gvk::new("", "v1", "X"), "x", errors),
        strategy.warnings(&object, None).len(),
    )
}

fn validation(c: &mut Criterion) {
    let pods = strategy("", "pods");
    let pod = |spec: &str| {
        let text =
            format!("{{\"metadata\":{{\"name\":\"p\",\"namespace\":\"n\"}},\"spec\":{spec}}}");
        json::decode(text.as_bytes(), ty("v1", "Pod"))
            .expect("a pod")
            .object
    };
    let container = |rest: &str| {
        pod(&format!(
            "{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\",{rest}}}]}}"
        ))
    };
    let cases = [
        (
            "equal ports",
            container(&format!(
                "\"ports\":[{}]",
                fill(|_| "{\"containerPort\":80}".to_owned())
            )),
        ),
        (
            "ports of the host",
            container(&format!(
                "\"ports\":[{}]",
                fill(|at| format!("{{\"containerPort\":80,\"hostPort\":{at}}}"))
            )),
        ),
        (
            "variables",
            container(&format!(
                "\"env\":[{}]",
                fill(|_| "{\"name\":\"A\"}".to_owned())
            )),
        ),
        (
            "mounts",
            container(&format!(
                "\"volumeMounts\":[{}]",
                fill(|at| format!("{{\"name\":\"m{at}\",\"mountPath\":\"/{at}\"}}"))
            )),
        ),
        (
            "claims",
            container(&format!(
                "\"resources\":{{\"claims\":[{}]}}",
                fill(|at| format!("{{\"name\":\"c{at}\"}}"))
            )),
        ),
        (
            "files of a volume",
            pod(&format!(
                "{{\"volumes\":[{{\"name\":\"v\",\"configMap\":{{\"name\":\"c\",\"items\":[{}]}}}}]}}",
                fill(|at| format!("{{\"key\":\"k\",\"path\":\"p{at}\"}}"))
            )),
        ),
        (
            "tolerations",
            pod(&format!(
                "{{\"tolerations\":[{}]}}",
                fill(|at| format!("{{\"key\":\"k{at}\",\"operator\":\"x\"}}"))
            )),
        ),
    ];
    for (name, pod) in &cases {
        c.bench_function(&format!("pod: {name}"), |b| b.iter(|| check(pods, pod)));
    }
    let tolerations = vec![tree!({"key": "a", "operator": "Equal", "value": "v"}); MAX_COMPARED];
    c.bench_function("pod: tolerations beside those of a RuntimeClass", |b| {
        b.iter_batched(
            || tolerations.clone(),
            |pods| merge_tolerations(pods, &[]),
            BatchSize::PerIteration,
        );
    });
}

fn metadata(c: &mut Criterion) {
    let object = |rest: &str| {
        Object(map(&format!(
            "{{\"metadata\":{{\"name\":\"p\",\"namespace\":\"n\",{rest}}}}}"
        )))
    };
    let owner = |at| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"o\",\"uid\":\"{at}\",\"controller\":true}}"
        )
    };
    let cases = [
        (
            "owners",
            object(&format!("\"ownerReferences\":[{}]", fill(owner))),
        ),
        (
            "finalizers",
            object(&format!(
                "\"finalizers\":[{}]",
                fill(|at| format!("\"f{at}\""))
            )),
        ),
    ];
    for (name, object) in &cases {
        c.bench_function(&format!("metadata: {name}"), |b| {
            b.iter(|| validate_object_meta(object, true, NameRule::DnsSubdomain).len())
        });
    }
}

/// Updates of the status, with conditions that no earlier one is like.
fn conditions(c: &mut Criterion) {
    let requests = strategy("certificates.k8s.io", "certificatesigningrequests");
    let request = |conditions: &str| {
        Object(map(&format!(
            "{{\"metadata\":{{\"name\":\"r\"}},\"spec\":{{}},\"status\":{{\"conditions\":[{conditions}]}}}}"
        )))
    };
    let old = request(&fill(|at| {
        format!(
            "{{\"type\":\"a{at}\",\"status\":\"True\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}}"
        )
    }));
    let new = request(&fill(|at| {
        format!("{{\"type\":\"b{at}\",\"status\":\"True\"}}")
    }));
    c.bench_function("certificate signing request: conditions", |b| {
        b.iter_batched(
            || new.clone(),
            |mut new| {
                with_context(Subresource::Status, |context| {
                    requests.prepare_for_update(context, &mut new, &old);
                    requests.validate_update(context, &new, &old).len()
                })
            },
            BatchSize::PerIteration,
        );
    });
}

/// A definition with fields of every kind.
fn widgets() -> Definition {
    let alternatives: Vec<Value> = (1..=64).map(|at| tree!({"maximum": -at})).collect();
    let choices: Vec<String> = (0..10_000).map(|at| format!("choice-{at}")).collect();
    let spec = tree!({"type": "object", "properties": {
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "filled": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": "y".repeat(10_000)}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
        "maps": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
        "either": {"type": "array", "items": {"type": "integer", "anyOf": alternatives}},
        "chosen": {"type": "array", "items": {"type": "string", "enum": choices}},
        "matched": {"type": "array", "items": {"type": "string", "pattern": "^(a+b?)*c$"}},
    }});
    let mut version = tree!({"name": "v1", "served": true, "storage": true});
    let mut definition = tree!({"metadata": {"name": "widgets.example.com", "uid": "u"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}, "versions": []},
        "status": {"conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]}});
    version["schema"] = tree!({"openAPIV3Schema": {"type": "object"}});
    version["schema"]["openAPIV3Schema"]["properties"] = Value::from_iter([("spec", spec)]);
    definition["spec"]["versions"] = Value::Array(vec![version]);
    definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
    Definition::read(&Object::from_value(definition).expect("an object"))
}

fn widget(spec: String) -> Object {
    let text = format!(
        "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{{\"name\":\"w\"}},\"spec\":{spec}}}"
    );
    Object::from_value(value(&text)).expect("an object")
}

fn custom(c: &mut Criterion) {
    let resources = resources(&widgets(), &None);
    let resource = resources.first().expect("a version is served");
    let kind = resource.custom.as_deref().expect("it is custom");
    let half = "k".repeat(BODY_BYTES / 2);
    let below = fill(|_| "{\"b\":1}".to_owned());
    let cases = [
        (
            "unknown fields",
            widget(format!("{{{}}}", fill(|number| format!("\"u{number}\":1")))),
        ),
        (
            "wrong types",
            widget(format!("{{\"numbers\":[{}]}}", fill(|_| "\"\"".to_owned()))),
        ),
        (
            "defaults",
            widget(format!("{{\"filled\":[{}]}}", fill(|_| "{}".to_owned()))),
        ),
        (
            "below a long key",
            widget(format!(
                "{{\"maps\":{{\"{half}\":[{}]}}}}",
                &below[..below.len() / 2 / 8 * 8 + 7]
            )),
        ),
    ];
    let more = [
        (
            "alternatives",
            widget(format!("{{\"either\":[{}]}}", fill(|at| at.to_string()))),
        ),
        (
            "enumerations",
            widget(format!(
                "{{\"chosen\":[{}]}}",
                fill(|at| format!("\"choice-{at}\""))
            )),
        ),
        (
            "patterns",
            widget(format!(
                "{{\"matched\":[\"{}\"]}}",
                "a".repeat(BODY_BYTES - 1024)
            )),
        ),
    ];
    for (name, object) in cases.iter().chain(&more) {
        c.bench_function(&format!("custom object: {name}"), |b| {
            b.iter(|| {
                let mut object = object.clone();
                let lost = kind.read(&mut object).expect("in form").len();
                (lost, check(&*resource.strategy, &object))
            });
        });
    }
}

fn custom_updates(c: &mut Criterion) {
    let resources = resources(&widgets(), &None);
    let resource = resources.first().expect("a version is served");
    let keyed = |value: &str| {
        widget(format!(
            "{{\"keyed\":[{}]}}",
            fill(|at| format!("{{\"k\":\"{at}\",\"v\":\"{value}\"}}"))
        ))
    };
    let set = |letter: char| {
        widget(format!(
            "{{\"set\":[{}]}}",
            fill(|at| format!("\"{letter}{at}\""))
        ))
    };
    for (name, old, new) in [
        ("list map", keyed("xx"), keyed("xxx")),
        ("set", set('a'), set('b')),
    ] {
        c.bench_function(&format!("custom object: update of a {name}"), |b| {
            b.iter(|| {
                with_context(Subresource::Main, |context| {
                    let strategy = &resource.strategy;
                    strategy.validate_update(context, &new, &old).len()
                })
            });
        });
    }
}

/// Definitions as large as a body may be.
fn definitions(c: &mut Criterion) {
    let definition = |versions: String| {
        Object(map(&format!(
            "{{\"metadata\":{{\"name\":\"widgets.example.com\"}},\"spec\":{{\"group\":\"example.com\",\"scope\":\"Namespaced\",\
             \"names\":{{\"plural\":\"widgets\",\"kind\":\"Widget\"}},\"versions\":[{versions}]}}}}"
        )))
    };
    let fields = fill(|at| {
        let pattern = format!("^(a{at}|[b-z]{{2,5}})+$");
        format!("\"f{at}\":{{\"type\":\"string\",\"pattern\":\"{pattern}\"}}")
    });
    let schema =
        format!("{{\"openAPIV3Schema\":{{\"type\":\"object\",\"properties\":{{{fields}}}}}}}");
    let version = |name: &str, schema: &str| {
        format!("{{\"name\":\"{name}\",\"served\":true,\"storage\":true,\"schema\":{schema}}}")
    };
    let cases = [
        ("patterns", definition(version("v1", &schema))),
        (
            "versions",
            definition(fill(|at| version(&format!("v{at}"), "{}"))),
        ),
    ];
    for (name, definition) in &cases {
        c.bench_function(&format!("definition: {name}"), |b| {
            b.iter(|| check(&CustomResourceDefinitions, definition))
        });
    }
    let path = JsonPath::parse(".spec..x..x..x").expect("a path");
    let object = value(&format!(
        "{{\"spec\":[{}]}}",
        fill(|_| "{\"x\":{}}".to_owned())
    ));
    c.bench_function("columns: descents", |b| {
        b.iter(|| path.first(&object, &Budget::default()).is_some())
    });
}

fn queries(c: &mut Criterion) {
    let text = (0..20_000)
        .map(|number| format!("!k{number}"))
        .collect::<Vec<_>>()
        .join(",");
    let selector = LabelSelector::parse(&text).expect("a selector");
    let labels = tree!({"metadata": {"name": "p", "labels": {"app": "web", "tier": "front", "pod-template-hash": "abc"}}});
    let pod = json::decode(labels.to_string().as_bytes(), ty("v1", "Pod"))
        .expect("a pod")
        .object;
    let stored = protobuf::encode(&pod, ty("v1", "Pod"));
    let message = protobuf::Message {
        bytes: &stored,
        ty: ty("v1", "Pod"),
    };
    c.bench_function("selector: read 20000 requirements", |b| {
        b.iter(|| LabelSelector::parse(&text).map(drop))
    });
    c.bench_function("selector: 20000 requirements of one object", |b| {
        b.iter(|| selector.selects(&message))
    });
    let fields = (0..5_000)
        .map(|number| format!("metadata.name!={number}"))
        .collect::<Vec<_>>()
        .join(",");
    let fields = FieldSelector::parse(&fields).expect("a selector");
    c.bench_function("selector: 5000 terms of one object", |b| {
        b.iter(|| fields.matches(|_| "p".into()))
    });
    let names = |letter: char, count: usize| {
        (0..count)
            .map(|number| format!("{letter}{number}"))
            .collect::<Vec<_>>()
    };
    let rule = |count| Rule {
        verbs: names('v', count),
        api_groups: names('g', count),
        resources: names('r', count),
        ..Rule::default()
    };
    let (wide, held) = (rule(2_000), vec![rule(45); 10]);
    c.bench_function("role: too wide to be taken apart", |b| {
        b.iter(|| uncovered(&held, std::slice::from_ref(&wide)))
    });
    let most = rule(46);
    c.bench_function("role: just not too wide", |b| {
        b.iter(|| uncovered(&held, std::slice::from_ref(&most)))
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(5));
    targets = bodies, patches, managed_fields, validation, metadata, conditions, custom, custom_updates, definitions, queries
}
criterion_main!(benches);
