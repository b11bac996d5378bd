//! Tests that cached encodings equal those written for a single request.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::event::{kind_of, protobuf_frame, wrap_json};
use super::*;
use crate::base::clock::Clock;
use crate::builtin;
use crate::builtin::events::EventConversion;
use crate::cacher::{Representation, Retention};
use crate::meta::{Gvk, Value, json};
use crate::registry::store::{Event, EventKind};
use crate::schema::ResourceDecl;
use crate::storage::embedded::Embedded;
use crate::storage::{Storage, Stored};

const KINDS: [EventKind; 3] = [EventKind::Added, EventKind::Modified, EventKind::Deleted];

fn storage() -> (Arc<dyn Storage>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = Embedded::open(folder.path()).expect("a store");
    (Arc::new(storage), folder)
}

fn store(decl: &ResourceDecl, storage: &Arc<dyn Storage>) -> Arc<Store> {
    let strategy = builtin::strategy(&decl.group, &decl.resource);
    let mut resource = Resource::builtin(decl, strategy);
    if decl.group == "events.k8s.io" {
        resource.conversion = Some(&EventConversion);
    }
    Arc::new(Store::new(
        Arc::new(resource),
        storage.clone(),
        Clock::system(),
        "/registry",
    ))
}

/// An encoder without a pause between requests: ages do not differ.
fn encoder(
    store: &Arc<Store>,
    cache: &Arc<EncodingCache>,
    media: MediaType,
    form: Form,
) -> Encoder {
    let output = Output {
        media,
        form,
        pretty: false,
    };
    Encoder::new(
        store.clone(),
        cache.clone(),
        output,
        IncludeObject::Metadata,
        Timestamp::from_second(1_800_000_000).expect("a time"),
    )
}

/// A resource and an object of it as it is stored, for each kind that there is data of.
fn examples() -> impl Iterator<Item = (&'static ResourceDecl, Stored)> {
    include_str!("../../../tests/data/stored.jsonl")
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let object = Object::from_value(line["object"].clone()).expect("an object");
            let gvk = Gvk::from_api_version(object.api_version(), object.kind());
            let schema = crate::schema::builtin();
            let ty = schema.get(&gvk).expect("a kind");
            let decl = schema
                .resources
                .iter()
                .find(|decl| decl.kind == gvk.kind && decl.group == gvk.group)
                .expect("a resource");
            let object = codec::json::decode(&codec::json::encode(&object), ty).expect("valid");
            let raw = protobuf::encode(&object.object, ty);
            let stored = Stored {
                key: format!("/registry/{}/example", decl.resource),
                value: protobuf::wrap(&gvk.api_version(), &gvk.kind, &raw).into(),
                create_revision: 3,
                mod_revision: 7,
            };
            (decl, stored)
        })
}

/// All that clients can see of an object: answers, items, events.
fn everything(encoder: &Encoder, stored: &Arc<CachedObject>) -> Vec<Bytes> {
    let mut all = vec![
        encoder
            .object(Source::Stored(stored.clone()))
            .expect("encoded"),
    ];
    let mut item = Vec::new();
    match (encoder.output.media, encoder.output.form) {
        (MediaType::Json, Form::Object) => encoder.write_item(stored, &mut item),
        (MediaType::Json, Form::Metadata(version)) => {
            encoder.write_partial(stored, meta_version(version), Retention::Scan, &mut item)
        }
        (MediaType::Protobuf, form) if encoder.resource().stored_as_served() => {
            let metadata = matches!(form, Form::Metadata(_));
            encoder.write_protobuf_item(stored, metadata, &mut item)
        }
        _ => Ok(()),
    }
    .expect("encoded");
    all.push(item.into());
    for kind in KINDS {
        for initial in [true, false] {
            let event = Event {
                kind,
                stored: Some(stored.clone()),
                revision: 7,
                initial,
            };
            let mut events = EventEncoder::new(encoder.clone(), Clock::system());
            all.push(events.event(&event).expect("encoded"));
        }
    }
    all
}

#[test]
fn kept_encodings_are_those_of_one_request_alone() {
    let (storage, _folder) = storage();
    let mut kinds = 0;
    for (decl, stored) in examples() {
        let (store, cache) = (
            store(decl, &storage),
            Arc::new(EncodingCache::new(64 << 20)),
        );
        let own: Arc<CachedObject> = stored.clone().into();
        let shared = CachedObject::shared(stored);
        for media in [MediaType::Json, MediaType::Protobuf] {
            for form in [
                Form::Object,
                Form::Metadata("v1"),
                Form::Metadata("v1beta1"),
            ] {
                let encoder = encoder(&store, &cache, media, form);
                let want = everything(&encoder, &own);
                for turn in 0..3 {
                    assert_eq!(
                        everything(&encoder, &shared),
                        want,
                        "{} as {media:?} {form:?}, turn {turn}",
                        decl.kind
                    );
                }
            }
        }
        kinds += 1;
        assert!(cache.bytes() > 0);
        drop(shared);
        assert_eq!(cache.bytes(), 0, "{}", decl.kind);
    }
    assert!(kinds > 20);
}

#[test]
fn rows_of_kept_cells_are_those_of_one_request_alone() {
    let (storage, _folder) = storage();
    for (decl, stored) in examples() {
        let (store, cache) = (
            store(decl, &storage),
            Arc::new(EncodingCache::new(64 << 20)),
        );
        let encoder = encoder(&store, &cache, MediaType::Json, Form::Table("v1"));
        let table = |stored: &Arc<CachedObject>| {
            encoder
                .object(Source::Stored(stored.clone()))
                .expect("encoded")
        };
        let own: Arc<CachedObject> = stored.clone().into();
        let (want, shared) = (table(&own), CachedObject::shared(stored));
        assert_eq!(
            [(); 3].map(|()| table(&shared)),
            [(); 3].map(|()| want.clone())
        );
    }
}

#[test]
fn an_event_is_its_kind_and_the_object() {
    let (storage, _folder) = storage();
    let (decl, stored) = examples().next().expect("an example");
    let (store, cache) = (
        store(decl, &storage),
        Arc::new(EncodingCache::new(64 << 20)),
    );
    let shared = CachedObject::shared(stored);
    assert_eq!(kind_of(&shared), EventKind::Modified);
    assert_eq!(kind_of(&shared.deleted_at(9)), EventKind::Deleted);
    for kind in KINDS {
        let event = |media| {
            let encoder = encoder(&store, &cache, media, Form::Object);
            let object = encoder
                .object(Source::Stored(shared.clone()))
                .expect("encoded");
            let event = Event {
                kind,
                stored: Some(shared.clone()),
                revision: 7,
                initial: false,
            };
            let mut events = EventEncoder::new(encoder, Clock::system());
            (object, events.event(&event).expect("encoded"))
        };
        let (object, frame) = event(MediaType::Json);
        let object = object.strip_suffix(b"\n").expect("a line");
        assert_eq!(frame, wrap_json(kind.name(), object));
        let (object, frame) = event(MediaType::Protobuf);
        assert_eq!(frame, protobuf_frame(kind.name(), &object));
    }
}

#[test]
fn watches_gets_and_lists_in_protobuf_share_one_encoding() {
    let (storage, _folder) = storage();
    let (decl, stored) = examples().next().expect("an example");
    let (store, cache) = (
        store(decl, &storage),
        Arc::new(EncodingCache::new(64 << 20)),
    );
    let (stored, encoder) = (
        CachedObject::shared(stored),
        encoder(&store, &cache, MediaType::Protobuf, Form::Object),
    );
    let event = Event {
        kind: EventKind::Modified,
        stored: Some(stored.clone()),
        revision: 7,
        initial: false,
    };
    let mut events = EventEncoder::new(encoder.clone(), Clock::system());
    let frame = events.event(&event).expect("encoded");
    let object = encoder
        .object(Source::Stored(stored.clone()))
        .expect("encoded");
    let within = frame.as_ptr_range();
    assert!(
        within.contains(&object.as_ptr()),
        "the answer is part of the event"
    );
    assert_eq!(
        events.event(&event).expect("encoded").as_ptr(),
        frame.as_ptr()
    );
    let kept = encoder
        .existing_encoding(&stored, Representation::Protobuf)
        .expect("kept");
    let message = kept.slice(&kept.part);
    assert_eq!(protobuf::unwrap(&object).expect("an envelope").raw, message);
    let mut item = Vec::new();
    encoder
        .write_protobuf_item(&stored, false, &mut item)
        .expect("encoded");
    assert!(item.ends_with(message));
}

#[test]
fn versions_of_the_same_object_are_apart() {
    let (storage, _folder) = storage();
    let cache = Arc::new(EncodingCache::new(64 << 20));
    let decls = &crate::schema::builtin().resources;
    let of = |group: &str, version: &str, resource: &str| {
        decls
            .iter()
            .find(|decl| {
                (&*decl.group, &*decl.version, &*decl.resource) == (group, version, resource)
            })
            .expect("a resource")
    };
    let event = json!({"metadata": {"name": "a", "namespace": "b"}});
    let ty = crate::schema::builtin()
        .get(&Gvk::new("", "v1", "Event"))
        .expect("a kind");
    let object = codec::json::decode(
        &codec::json::encode(&Object::from_value(event).expect("an object")),
        ty,
    )
    .expect("valid");
    let stored = CachedObject::shared(Stored {
        key: "/registry/events/b/a".to_owned(),
        value: protobuf::wrap("v1", "Event", &protobuf::encode(&object.object, ty)).into(),
        create_revision: 3,
        mod_revision: 7,
    });
    for _ in 0..3 {
        for group in ["", "events.k8s.io"] {
            let store = store(of(group, "v1", "events"), &storage);
            for _ in 0..3 {
                let encoder = encoder(&store, &cache, MediaType::Json, Form::Object);
                let body = encoder
                    .object(Source::Stored(stored.clone()))
                    .expect("encoded");
                let object: Value = serde_json::from_slice(&body).expect("JSON");
                let want = Gvk::new(group, "v1", "Event").api_version();
                assert_eq!(object["apiVersion"], want.as_str());
            }
        }
    }
}
