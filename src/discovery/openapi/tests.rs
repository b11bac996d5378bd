//! OpenAPI documents as clients get them, against samples of what kube-apiserver v1.36 serves (less its words).

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};

use super::*;

/// Parts of documents: the document's path, a JSON pointer into it, and what is there. Words are left out.
const SAMPLES: &str = include_str!("../../../tests/vectors/openapi.json");

fn openapi() -> &'static OpenApi {
    static OPENAPI: OnceLock<OpenApi> = OnceLock::new();
    OPENAPI.get_or_init(|| OpenApi::new(crate::schema::builtin()))
}

fn get(path: &str, query: &str, headers: &[(header::HeaderName, &str)]) -> Response<Bytes> {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header value"))).collect();
    openapi().answer(path, query, &headers).expect("a path of ours")
}

/// The value without the descriptions in it.
fn wordless(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| *key != "description" || !value.is_string());
            Value::Object(kept.map(|(key, value)| (key.clone(), wordless(value))).collect())
        }
        Value::Array(list) => list.iter().map(wordless).collect(),
        other => other.clone(),
    }
}

#[test]
fn documents_have_the_structure_that_clients_know() {
    let samples: Vec<(String, String, Value)> = serde_json::from_str(SAMPLES).expect("the samples are JSON");
    assert!(samples.len() > 20);
    let mut documents: BTreeMap<String, Value> = BTreeMap::new();
    for (path, pointer, want) in samples {
        let document = documents
            .entry(path.clone())
            .or_insert_with(|| serde_json::from_slice(get(&path, "", &[]).body()).expect("a document is JSON"));
        let found = document.pointer(&pointer).map(wordless);
        assert_eq!(found.as_ref(), Some(&want), "{path} {pointer}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value {
                Value::String(target) if key == "$ref" => found.push(target),
                value => references(value, found),
            }),
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_slice(get(V2, "", &[]).body()).expect("JSON");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 1000);
    for target in found {
        assert!(document.pointer(&target[1..]).is_some_and(|definition| definition.is_object()), "{target}");
    }
}

#[test]
fn the_index_names_each_document_with_its_hash() {
    let response = get("/openapi/v3", "", &[]);
    assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
    let index: Value = serde_json::from_slice(response.body()).expect("JSON");
    assert_eq!(index["paths"].as_object().map(Map::len), Some(47));
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a URL");
    let (path, query) = url.split_once('?').expect("a hash");
    let document = get(path, query, &[]);
    assert_eq!((document.status(), &document.headers()[header::CACHE_CONTROL]), (StatusCode::OK, &HeaderValue::from_static(KEEP)));
    let moved = get(path, "hash=0", &[]);
    assert_eq!((moved.status(), &moved.headers()[LOCATION]), (StatusCode::MOVED_PERMANENTLY, &HeaderValue::from_str(url).expect("ASCII")));
    let etag = document.headers()[ETAG].to_str().expect("ASCII");
    assert_eq!(get(path, "", &[(IF_NONE_MATCH, etag)]).status(), StatusCode::NOT_MODIFIED);
}

#[test]
fn bodies_are_compressed_for_those_who_can_read_it() {
    let plain = get("/openapi/v3/version", "", &[(ACCEPT_ENCODING, "br, gzip;q=0")]);
    let packed = get("/openapi/v3/version", "", &[(ACCEPT_ENCODING, "br, gzip;q=0.5")]);
    assert_eq!((plain.headers().get(CONTENT_ENCODING), &packed.headers()[CONTENT_ENCODING]), (None, &HeaderValue::from_static("gzip")));
    assert_eq!(decompress(packed.body()), plain.body());
}

#[test]
fn version_2_comes_as_protobuf_too() {
    let json = get(V2, "", &[]);
    for accept in PROTOBUF {
        let response = get(V2, "", &[(ACCEPT, accept)]);
        assert_eq!(response.headers()[CONTENT_TYPE], PROTOBUF[0]);
        assert_ne!(response.headers()[ETAG], json.headers()[ETAG]);
        assert!(response.body().starts_with(b"\x0a\x032.0") && response.body().len() > 500_000);
    }
}

#[test]
fn what_is_not_served_is_refused_without_a_body() {
    for (path, accept, want) in [
        ("/openapi/v3/bogus", "", 404),
        ("/openapi/v3/apis/bogus/v1", "", 404),
        ("/openapi/v3/version", "application/yaml", 406),
        ("/openapi/v2", "text/html", 406),
        ("/openapi/v2", "*/*", 200),
    ] {
        let response = get(path, "", &[(ACCEPT, accept)]);
        assert_eq!((response.status().as_u16(), response.body().is_empty()), (want, want != 200), "{path} {accept}");
    }
    assert!(openapi().answer("/openapi/v3x", "", &HeaderMap::new()).is_none());
}
