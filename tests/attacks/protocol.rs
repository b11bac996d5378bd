//! Requests that HTTP clients do not make: what Go's server refuses before any handler sees it is
//! refused here, too, and what it reads in one way is not read in another.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{ADMIN, TestServer, http as wire};
use super::{PATIENCE, ask, embedded};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends the bytes on a connection of its own; the status and everything that is answered until
/// the server closes it.
async fn raw(server: &TestServer, bytes: &[u8]) -> (u16, String) {
    let answer = async {
        let mut stream = wire::connect(server.port()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A server that does not say goodbye in TLS is none that said nothing.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.unwrap_or_default(), answer)
}

fn with_headers(path: &str, headers: &[&str]) -> String {
    let authorization = format!("Authorization: Bearer {ADMIN}");
    let headers: String = headers
        .iter()
        .chain(&[authorization.as_str(), "Connection: close"])
        .map(|header| format!("{header}\r\n"))
        .collect();
    format!("GET {path} HTTP/1.1\r\n{headers}\r\n")
}

#[tokio::test]
async fn malformed_heads_reach_no_handler() {
    let (_folder, server) = embedded(&[]).await;
    let host = "Host: localhost";
    let post = |coding: &str| {
        let body = json!({"metadata": {"name": "smuggled"}}).to_string();
        format!(
            "POST {MAPS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: {coding}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        )
    };
    for (request, status, says) in [
        (with_headers("/version", &[host]), 200, "\"major\""),
        (
            with_headers("/version", &[]),
            400,
            "400 Bad Request: missing required Host header",
        ),
        (
            with_headers("/version", &[host, "Host: other"]),
            400,
            "400 Bad Request",
        ),
        (
            with_headers("/version", &["Host: a b"]),
            400,
            "400 Bad Request: malformed Host header",
        ),
        (
            with_headers("/version", &[host, "Expect: a-miracle"]),
            417,
            "",
        ),
        (
            with_headers("/api/v1/namespaces/%zz", &[host]),
            400,
            "400 Bad Request",
        ),
        (with_headers("/healthz%", &[host]), 400, "400 Bad Request"),
        (post("gzip, chunked"), 501, "Unsupported transfer encoding"),
        (post("x, chunked"), 501, "Unsupported transfer encoding"),
    ] {
        let (code, answer) = raw(&server, request.as_bytes()).await;
        assert!(
            code == status && answer.contains(says),
            "{request}\n{answer}"
        );
        assert!(
            answer.to_ascii_lowercase().contains("connection: close"),
            "{answer}"
        );
    }
    let smuggled = ask("GET", &format!("{MAPS}/smuggled"))
        .status(&server)
        .await;
    assert_eq!(smuggled, 404);
}

/// A header that cannot be read is not one that is absent.
#[tokio::test]
async fn unreadable_media_types_are_not_defaults() {
    let (_folder, server) = embedded(&[]).await;
    let map = json!({"metadata": {"name": "a"}}).to_string();
    for media in [
        &b"\x80\xff"[..],
        b"application/json\xff",
        b"application/json;;",
        b"application/json; charset",
    ] {
        for (method, path) in [
            ("POST", MAPS),
            ("PUT", "/api/v1/namespaces/default"),
            ("DELETE", "/api/v1/namespaces/default"),
        ] {
            let request = ask(method, path).header("Content-Type", media);
            let request = request.header("Content-Length", map.len().to_string());
            let request = super::Ask {
                body: map.clone().into(),
                ..request
            };
            assert_eq!(request.status(&server).await, 415, "{method} {media:?}");
        }
    }
    for path in [
        "/api",
        "/apis",
        "/apis/apps",
        "/api/v1",
        "/version",
        "/openapi/v2",
        MAPS,
        "/api/v1/namespaces?watch=1",
    ] {
        let status = ask("GET", path)
            .header("Accept", &b"\x80"[..])
            .status(&server)
            .await;
        assert_eq!(status, 406, "{path}");
    }
    // Of several the first counts.
    let twice = ask("POST", MAPS)
        .body("application/json", map)
        .header("Content-Type", "text/plain");
    assert_eq!(twice.status(&server).await, 201);
}

#[tokio::test]
async fn documents_are_got_by_the_methods_of_their_routes() {
    let (_folder, server) = embedded(&[]).await;
    for method in [
        "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "PROPFIND",
    ] {
        for (path, status) in [
            ("/api", 405),
            ("/api/v1", 405),
            ("/api/v9", 404),
            ("/apis/apps/v1", 405),
            ("/apis/apps/v9", 404),
            ("/apis/apiregistration.k8s.io", 405),
            ("/version", 405),
            ("/.well-known/openid-configuration", 405),
            ("/openid/v1/jwks", 405),
            ("/", 200),
            ("/index.html", 200),
            ("/apis", 200),
            ("/apis/apps", 200),
            ("/openapi/v3", 200),
            ("/healthz", 200),
        ] {
            assert_eq!(
                ask(method, path).status(&server).await,
                status,
                "{method} {path}"
            );
        }
    }
    for path in [
        "/healthz/",
        "/livez/",
        "/readyz/",
        "/livez/ping/",
        "/openapi/v2/",
        "/openapi/v3/",
        "/openapi/v3/api/v1/",
    ] {
        assert_eq!(ask("GET", path).status(&server).await, 404, "{path}");
    }
    for path in [
        "/api/v1/watch",
        "/api/v1/proxy",
        "/apis/apps/v1/watch",
        "/apis/example.com/v1/watch?a=1&b=2",
    ] {
        let answer = ask("GET", path).send(&server).await;
        let escaped = path.replace('&', "&amp;");
        let says = format!(
            "Internal Server Error: \"{escaped}\": failed to create RequestInfo: unable to determine kind and namespace from url, {escaped}\n"
        );
        assert_eq!(
            (
                answer.status,
                String::from_utf8_lossy(&answer.body).into_owned()
            ),
            (500, says)
        );
    }
}

/// Pairs of a query that Go does not read are not there.
#[tokio::test]
async fn malformed_parameters_are_none() {
    let (_folder, server) = embedded(&[]).await;
    for (query, kept) in [
        ("limit=%zz", false),
        ("limit=1%", false),
        ("limit=x;y=1", false),
        ("fieldSelector=%zz", false),
        ("%zz&limit=1", true),
        ("limit=1;&limit=1", true),
    ] {
        let (status, list) = ask("GET", &format!("/api/v1/namespaces?{query}"))
            .answer(&server)
            .await;
        assert_eq!(status, 200, "{query}: {list}");
        let limited = list["metadata"]["continue"] != Value::Null;
        assert_eq!(limited, kept, "{query}: {}", list["metadata"]);
    }
}
