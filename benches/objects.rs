//! The cost of one object, a pod, on its way through the server: decoding, encoding, transcoding
//! and patching it, its row of a Table, and what selectors read of it.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use keelson::internals::builtin::printer;
use keelson::internals::codec::{json, protobuf};
use keelson::internals::merge::patch::strategic;
use keelson::internals::meta::FieldReader;
use keelson::internals::meta::{Gvk, json};
use keelson::internals::registry::{Format, IncludeObject, projection, write_partial_of};
use keelson::internals::schema::{TypeRef, builtin};

const POD: &str = include_str!("pod.json");

fn pod() -> TypeRef<'static> {
    builtin()
        .get(&Gvk::new("", "v1", "Pod"))
        .expect("the type of pods")
}

fn codec(c: &mut Criterion) {
    let ty = pod();
    let object = json::decode(POD.as_bytes(), ty).expect("a pod").object;
    let stored = protobuf::encode(&object, ty);
    c.bench_function("decode json", |b| {
        b.iter(|| json::decode(black_box(POD.as_bytes()), ty))
    });
    c.bench_function("encode json", |b| {
        b.iter(|| json::encode(black_box(&object)))
    });
    c.bench_function("encode protobuf", |b| {
        b.iter(|| protobuf::encode(black_box(&object), ty))
    });
    c.bench_function("decode protobuf", |b| {
        b.iter(|| protobuf::decode(black_box(&stored), ty))
    });
    let mut out = Vec::new();
    c.bench_function("protobuf to json", |b| {
        b.iter(|| {
            out.clear();
            protobuf::to_json(black_box(&stored), ty, "v1", "Pod", Some(7), &mut out)
        })
    });
}

/// Answers from the stored bytes, with and without a tree in between.
fn rendering(c: &mut Criterion) {
    let ty = pod();
    let object = json::decode(POD.as_bytes(), ty).expect("a pod").object;
    let stored = protobuf::encode(&object, ty);
    let mut out = Vec::new();
    c.bench_function("metadata to json", |b| {
        b.iter(|| {
            out.clear();
            protobuf::metadata_to_json(black_box(&stored), ty, Some(7), &mut out)
        })
    });
    let revised = |bytes| {
        protobuf::WithResourceVersion::new(protobuf::Message { bytes, ty }, Some(7))
            .expect("as Go writes it")
    };
    c.bench_function("protobuf item length", |b| {
        b.iter(|| revised(black_box(&stored)).item_len())
    });
    c.bench_function("protobuf item", |b| {
        b.iter(|| {
            out.clear();
            revised(black_box(&stored)).write_item(&mut out);
        })
    });
    c.bench_function("protobuf item by tree", |b| {
        b.iter(|| {
            let mut tree = protobuf::decode(black_box(&stored), ty).expect("valid");
            tree.set_resource_version("7");
            protobuf::encode(&tree, ty)
        })
    });
}

/// Rows of Tables.
fn rows(c: &mut Criterion) {
    let ty = pod();
    let object = json::decode(POD.as_bytes(), ty).expect("a pod").object;
    let stored = protobuf::encode(&object, ty);
    let now = jiff::Timestamp::from_second(1_800_000_000).expect("a time");
    let printer = printer("", "pods");
    let format = Format {
        printer,
        api_version: "meta.k8s.io/v1",
        include: IncludeObject::Metadata,
        now,
    };
    let part = projection(printer.paths(), ty);
    let mut out = Vec::new();
    c.bench_function("table row", |b| {
        b.iter(|| {
            out.clear();
            let message = protobuf::Message {
                bytes: black_box(&stored),
                ty,
            };
            let cells = format.cells(&protobuf::decode_part(&stored, ty, &part)?);
            format.row_with(cells.as_ref(), &mut out, |out| {
                write_partial_of(out, message, Some(7), format.api_version)
            })
        })
    });
    c.bench_function("table row by tree", |b| {
        b.iter(|| {
            out.clear();
            let mut tree = protobuf::decode(black_box(&stored), ty).expect("valid");
            tree.set_resource_version("7");
            format.row(&tree, None, &mut out);
        })
    });
}

/// Fields that selectors read, from the stored bytes and from the same object as JSON.
fn scalars(c: &mut Criterion) {
    let ty = pod();
    let object = json::decode(POD.as_bytes(), ty).expect("a pod").object;
    let stored = protobuf::encode(&object, ty);
    let text = json::encode(&object);
    let message = |bytes| protobuf::Message { bytes, ty };
    c.bench_function("protobuf scalar", |b| {
        b.iter(|| message(black_box(&stored)).text_at("spec.nodeName").len())
    });
    c.bench_function("protobuf label", |b| {
        b.iter(|| {
            message(black_box(&stored))
                .label("tier")
                .map(|value| value.len())
        })
    });
    c.bench_function("json scalar", |b| {
        b.iter(|| {
            json::Reader::new(black_box(&text))
                .text_at("spec.nodeName")
                .len()
        })
    });
    c.bench_function("json label", |b| {
        b.iter(|| {
            json::Reader::new(black_box(&text))
                .label("tier")
                .map(|value| value.len())
        })
    });
}

fn patches(c: &mut Criterion) {
    let ty = pod();
    let object = json::decode(POD.as_bytes(), ty).expect("a pod").object;
    let patch = json!({"spec": {"containers": [{"name": "proxy", "image": "registry.example.org/proxy:2.0.1"}]}});
    let patch = patch.as_object().expect("an object");
    c.bench_function("strategic merge patch", |b| {
        b.iter_batched(
            || (object.0.clone(), patch.clone()),
            |(mut document, patch)| strategic::apply(&mut document, patch, ty).map(|()| document),
            criterion::BatchSize::SmallInput,
        )
    });
}

criterion_group!(benches, codec, rendering, rows, scalars, patches);
criterion_main!(benches);
