//! Discovery as clients see it, against answers recorded from kube-apiserver v1.36.

use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, USER_AGENT};

use super::*;
use crate::meta::Gvk;
use crate::schema::SubresourceDecl;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn resource(group: &str, version: &str, resource: &str, kind: &str) -> ResourceDecl {
    ResourceDecl {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        namespaced: true,
        verbs: vec!["get".to_owned(), "list".to_owned()],
        storage_prefix: format!("/registry/{resource}"),
        ..ResourceDecl::default()
    }
}

fn documents() -> Documents {
    documents_with(Vec::new())
}

/// The documents of a few resources, and of other servers.
fn documents_with(remote: Vec<RemoteVersion>) -> Documents {
    let binding = ResourceDecl {
        storage_prefix: String::new(),
        verbs: vec!["create".to_owned()],
        ..resource("", "v1", "bindings", "Binding")
    };
    let deployment = ResourceDecl {
        short_names: vec!["deploy".to_owned()],
        categories: vec!["all".to_owned()],
        subresources: vec![
            SubresourceDecl {
                name: "scale".to_owned(),
                kind: Gvk::new("autoscaling", "v1", "Scale"),
                verbs: vec!["get".to_owned()],
            },
            SubresourceDecl {
                name: "status".to_owned(),
                kind: Gvk::new("", "", "Deployment"),
                verbs: vec!["get".to_owned()],
            },
        ],
        ..resource("apps", "v1", "deployments", "Deployment")
    };
    let hpa = |version| ResourceDecl {
        storage_gvk: Some(Gvk::new("autoscaling", "v2", "HorizontalPodAutoscaler")),
        ..resource(
            "autoscaling",
            version,
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
        )
    };
    let about = ServerInfo {
        server_address: "10.0.0.1:6444".to_owned(),
        paths: vec!["/healthz".to_owned()],
    };
    let listed = |group: &str, version: &str| ListedVersion {
        group: group.to_owned(),
        version: version.to_owned(),
        rank: ranks::local(group, version),
    };
    let services = ApiServices {
        listed: vec![
            listed("autoscaling", "v1"),
            listed("autoscaling", "v2"),
            listed("apps", "v1"),
            listed("", "v1"),
        ],
        remote,
    };
    Documents::new(
        &[binding, deployment, hpa("v2"), hpa("v1")],
        &services,
        &about,
    )
}

fn headers(accept: &str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, accept.parse().expect("a header value"))])
}

/// The body of the answer as JSON, or the error's code and message.
fn get(path: &str, accept: &str) -> Value {
    match documents().answer(&Method::GET, path, "", &headers(accept)) {
        None => Value::Null,
        Some(Err(status)) => json!([status.code, status.message, status.details.is_some()]),
        Some(Ok(response)) => serde_json::from_slice(response.body()).expect("JSON"),
    }
}

#[test]
fn legacy_documents_are_as_recorded() {
    let hpa = json!({"name": "autoscaling", "versions": [
        {"groupVersion": "autoscaling/v2", "version": "v2"}, {"groupVersion": "autoscaling/v1", "version": "v1"},
    ], "preferredVersion": {"groupVersion": "autoscaling/v2", "version": "v2"}});
    let checks = [
        (
            "/api/",
            json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6444"}]}),
        ),
        (
            "/api/v1",
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"]}]}),
        ),
        (
            "/apis/apps/v1",
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
                {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment", "verbs": ["get", "list"],
                 "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": "8aSe+NMegvE="},
                {"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1",
                 "kind": "Scale", "verbs": ["get"]},
                {"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment", "verbs": ["get"]}]}),
        ),
        (
            "/",
            json!({"paths": ["/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/apis/autoscaling",
            "/apis/autoscaling/v1", "/apis/autoscaling/v2", "/healthz", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"]}),
        ),
    ];
    for (path, want) in checks {
        assert_eq!(get(path, "application/json"), want, "{path}");
    }
    assert_eq!(
        get("/apis", "")["groups"][1],
        hpa,
        "the preferred version comes first"
    );
    assert_eq!(
        get("/apis/autoscaling", "")["preferredVersion"]["version"],
        "v2"
    );
    assert_eq!(
        get("/apis/autoscaling/v1", "")["resources"][0]["storageVersionHash"],
        "qwQve8ut294=",
        "the hash is of what is stored"
    );
}

#[test]
fn aggregated_documents_are_as_recorded() {
    let core = get("/api", AGGREGATED);
    let binding = json!({"resource": "bindings", "responseKind": {"group": "", "version": "", "kind": "Binding"}, "scope": "Namespaced",
        "singularResource": "binding", "verbs": ["create"]});
    let items = json!([{"metadata": {}, "versions": [{"version": "v1", "resources": [binding], "freshness": "Current"}]}]);
    assert_eq!(
        core,
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
    );
    let scale = json!({"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]});
    assert_eq!(
        get("/apis", AGGREGATED)["items"][0]["versions"][0]["resources"][0]["subresources"][0],
        scale
    );
}

#[test]
fn accept_header_chooses_the_format() {
    let kind = |path, accept: &str| get(path, accept)["kind"].clone();
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    let both = format!("application/json,{beta},{AGGREGATED}");
    assert_eq!(
        kind("/api", &both),
        "APIGroupDiscoveryList",
        "the aggregated form wins wherever it is asked for"
    );
    assert_eq!(
        kind("/api", &format!("{AGGREGATED};profile=nopeer")),
        "APIGroupDiscoveryList"
    );
    assert_eq!(
        kind("/apis", &format!("{beta}, application/json")),
        "APIGroupList"
    );
    let refused = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    for (path, accept) in [
        ("/api", beta.as_str()),
        ("/api/v1", AGGREGATED),
        ("/apis/apps", AGGREGATED),
        ("/apis", "text/html"),
    ] {
        assert_eq!(
            get(path, accept),
            json!([406, refused, false]),
            "{path} {accept}"
        );
    }
    let routed = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(
        get("/apis/apps/v1", "text/html"),
        json!([406, routed, true])
    );
    assert_eq!(get("/version", "*/*")["gitVersion"], version::GIT_VERSION);
    assert_eq!(get("/", "text/html")["paths"][0], "/api");
}

#[test]
fn documents_come_as_yaml_and_protobuf_too() {
    let documents = documents();
    let answer = |accept| {
        documents
            .answer(&Method::GET, "/api/v1", "", &headers(accept))
            .expect("a document")
            .expect("an answer")
    };
    let yaml = answer("application/yaml");
    let want = "groupVersion: v1\nkind: APIResourceList\nresources:\n- kind: Binding\n  name: bindings\n  namespaced: true\n  \
        singularName: binding\n  verbs:\n  - create\n";
    assert_eq!(
        (&yaml.headers()[CONTENT_TYPE], &yaml.body()[..]),
        (
            &HeaderValue::from_static("application/yaml"),
            want.as_bytes()
        )
    );
    let protobuf = answer("application/vnd.kubernetes.protobuf");
    assert_eq!(
        protobuf.headers()[CONTENT_TYPE],
        "application/vnd.kubernetes.protobuf"
    );
    assert!(protobuf.body().starts_with(b"k8s\0"));
    assert_eq!(
        answer("application/yaml;stream=watch, application/json;q=0.1").headers()[CONTENT_TYPE],
        JSON
    );
}

#[test]
fn unknown_versions_are_errors_and_unknown_groups_are_not() {
    let missing = json!([
        404,
        "the server could not find the requested resource",
        true
    ]);
    for (path, want) in [
        ("/api/v2", &missing),
        ("/apis/apps/v2", &missing),
        ("/apis/nothing.example.com", &Value::Null),
        ("/apis/nothing.example.com/v1", &Value::Null),
        ("/apis/apps/v1/nothings", &Value::Null),
        ("/api/v1/nothings", &Value::Null),
        ("/nothing", &Value::Null),
        ("//api//v1", &Value::Null),
    ] {
        assert_eq!(&get(path, ""), want, "{path}");
    }
}

#[test]
fn an_unchanged_aggregated_document_is_not_sent_again() {
    let documents = documents();
    let answer = |headers: &HeaderMap| {
        documents
            .answer(&Method::GET, "/apis", "", headers)
            .expect("a document")
            .expect("an answer")
    };
    let mut headers = headers(AGGREGATED);
    let first = answer(&headers);
    assert_eq!(first.headers()[CONTENT_TYPE], AGGREGATED);
    headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
    let second = answer(&headers);
    assert_eq!(
        (second.status(), second.body().len()),
        (StatusCode::NOT_MODIFIED, 0)
    );
    headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"0\""));
    assert_eq!(answer(&headers).status(), StatusCode::OK);
}

#[test]
fn browsers_and_curl_get_indented_json() {
    let documents = documents();
    let lines = |query: &str, agent: &'static str| {
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
        let answer = documents
            .answer(&Method::GET, "/apis", query, &headers)
            .expect("a document")
            .expect("an answer");
        answer.body().iter().filter(|byte| **byte == b'\n').count()
    };
    assert_eq!(lines("", "kubectl/v1.36"), 1);
    assert_eq!(lines("pretty=false", "curl/8"), 1);
    assert!(lines("pretty=1", "kubectl/v1.36") > 10 && lines("", "curl/8") > 10);
}

#[test]
fn other_servers_have_their_place_in_the_aggregated_document() {
    let remote = |group: &str, version: &str, rank: [i64; 2], is_current| RemoteVersion {
        group: group.to_owned(),
        version: version.to_owned(),
        rank: Rank {
            group: rank[0],
            version: rank[1],
        },
        resources: match is_current {
            true => json!([{"resource": "metrics"}]),
            false => json!([]),
        },
        is_current,
    };
    let documents = documents_with(vec![
        remote("metrics.k8s.io", "v1beta1", [100, 100], true),
        remote("first.example.com", "v1", [20_000, 1], false),
        // Another server in the place of this one, and above its other version.
        remote("autoscaling", "v1", [100, 40], true),
    ]);
    let answer = documents.answer(&Method::GET, "/apis", "", &headers(AGGREGATED));
    let answer = answer.expect("a document").expect("an answer");
    let list: Value = serde_json::from_slice(answer.body()).expect("JSON");
    let shown: Vec<String> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .flat_map(|group| {
            let versions = group["versions"].as_array().expect("versions").iter();
            versions.map(|version| {
                let first = version["resources"][0]["resource"].as_str();
                format!(
                    "{}/{} {} {}",
                    group["metadata"]["name"].as_str().unwrap_or_default(),
                    version["version"].as_str().unwrap_or_default(),
                    first.unwrap_or("none"),
                    version["freshness"].as_str().unwrap_or_default(),
                )
            })
        })
        .collect();
    assert_eq!(
        shown,
        [
            "first.example.com/v1 none Stale",
            "apps/v1 deployments Current",
            "autoscaling/v1 metrics Current",
            "autoscaling/v2 horizontalpodautoscalers Current",
            "metrics.k8s.io/v1beta1 metrics Current",
        ]
    );
}
