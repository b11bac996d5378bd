//! Requests to nodes, pods and services that are handed on: what the other side is asked, what of
//! its answer clients get, and where requests do not go. All of the cluster is one server behind a
//! proxy, as addresses of this machine are not proxied to.

use std::path::Path;

use http_body_util::Full;
use serde_json::{Value, json};

use super::egress::start;
use super::support::connect_proxy::{ConnectProxy, Reply};
use super::support::http::Answer;
use super::support::kubelet::{Act, Seen, say};
use super::{Cluster, PATIENCE, request, status, wire};

const POD: &str = "/api/v1/namespaces/default/pods/https:q:443/proxy";
const NODE: &str = "/api/v1/nodes/far/proxy";
const SERVICE: &str = "/api/v1/namespaces/default/services/https:s:web/proxy";
const POD_IP: &str = "192.0.2.78";

/// A cluster whose node, pod and service are a server that answers as it is told, and the proxy
/// that leads there.
async fn world(
    folder: &Path,
    answer: impl Fn(&Seen) -> Act + Send + Sync + 'static,
) -> (Cluster, ConnectProxy) {
    let (cluster, socket) = start(folder, &["cluster"], answer).await;
    let port = cluster.kubelet.port;
    let proxy = ConnectProxy::at_socket(socket.as_ref(), move |_| Reply::Port(port));
    address(&cluster, POD_IP).await;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    let target = json!({"kind": "Pod", "namespace": "default", "name": "q"});
    let endpoints = json!({"metadata": {"name": "s"}, "subsets": [{
        "addresses": [{"ip": POD_IP, "targetRef": target}], "ports": [{"name": "web", "port": 8443}],
    }]});
    for (kind, object) in [("services", service), ("endpoints", endpoints)] {
        let path = format!("/api/v1/namespaces/default/{kind}");
        let made = cluster.ask("POST", &path, &object).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    (cluster, proxy)
}

/// Gives the pod an address.
async fn address(cluster: &Cluster, ip: &str) {
    let status = json!({"phase": "Running", "podIPs": [{"ip": ip}], "podIP": ip});
    let object = json!({"metadata": {"name": "q"}, "status": status});
    let path = "/api/v1/namespaces/default/pods/q/status";
    let answer = cluster.ask("PUT", path, &object).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn send(cluster: &Cluster, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = request(method, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default()).unwrap();
    let answer = wire::call(cluster.server.port(), request, PATIENCE).await;
    answer.unwrap_or_else(|why| panic!("{method} {path}: {why}"))
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Paths arrive in their shortest form: none leads out of the server's root.
#[tokio::test]
async fn paths_arrive_as_upstream_hands_them_on() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _proxy) = world(folder.path(), |seen| say("200 OK", &seen.uri)).await;
    for front in [POD, NODE, SERVICE] {
        for (asked, want) in [
            ("/", "/"),
            ("/a/", "/a/"),
            ("/a/../b", "/b"),
            ("/a//b/./c", "/a/b/c"),
            ("/%2e%2e/%2e%2e/secret", "/secret"),
            ("/a%2fb", "/a/b"),
            ("/a%252fb", "/a%252fb"),
            ("/a%3fb%23c", "/a%3Fb%23c"),
            ("/a;b=c%3bd", "/a;b=c;d"),
            ("/a%20b%00", "/a%20b%00"),
            ("/a?x=1&y=%20;z", "/a?x=1&y=%20;z"),
            ("/a?path=/other", "/a?path=/other"),
            ("/?", "/"),
        ] {
            let answer = cluster.get(&format!("{front}{asked}")).await;
            assert_eq!(
                (answer.status, text(&answer).as_str()),
                (200, want),
                "{front}{asked}"
            );
        }
        let answer = cluster.get(&format!("{front}?x=1")).await;
        let to = answer.headers["location"].to_str().unwrap();
        assert_eq!((answer.status, to), (301, format!("{front}/?x=1").as_str()));
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"] {
            let answer = send(&cluster, method, &format!("{front}/{method}"), &[]).await;
            assert_eq!(answer.status, 200, "{method} {front}");
            let seen = cluster.kubelet.seen().pop().unwrap();
            assert_eq!(
                (seen.method.as_str(), seen.uri),
                (method, format!("/{method}"))
            );
        }
        let refused = send(&cluster, "TRACE", &format!("{front}/x"), &[]).await;
        assert_eq!(refused.status, 405, "{front}");
    }
}

/// Headers of the client's connection, and its credentials, stay here.
#[tokio::test]
async fn headers_are_handed_on_but_those_of_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _proxy) = world(folder.path(), |_| say("200 OK", "")).await;
    for front in [POD, NODE, SERVICE] {
        let path = format!("{front}/x/");
        let headers = [
            ("Connection", "keep-alive, X-Hop, Authorization, Host"),
            ("X-Hop", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authorization", "Basic secret"),
            ("Proxy-Connection", "keep-alive"),
            ("TE", "gzip, trailers"),
            ("Upgrade", "websocket"),
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "system:masters"),
            ("Cookie", "a=b"),
            ("X-Forwarded-For", "192.0.2.9"),
            ("X-Forwarded-Uri", "/forged"),
        ];
        let answer = send(&cluster, "GET", &path, &headers).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let seen = cluster.kubelet.seen().pop().unwrap();
        let mut names: Vec<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["cookie", "host", "te", "x-forwarded-for", "x-forwarded-uri"],
            "{front}"
        );
        let told =
            ["te", "host", "x-forwarded-for", "x-forwarded-uri"].map(|name| seen.header(name));
        assert_eq!(
            told,
            ["trailers", "localhost", "192.0.2.9, 127.0.0.1", &path]
        );
        // A kubelet alone gets to see the server's certificate.
        assert_eq!(seen.has_certificate, front == NODE);
    }
}

/// Redirects and links lead through this server, or away; the server's rights over pages are its
/// own.
#[tokio::test]
async fn redirects_and_links_lead_through_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, _proxy) = world(folder.path(), |seen| {
        let (path, to) = seen.uri.split_once("?to=").unwrap_or((&seen.uri, ""));
        match path {
            "/page" => say("200 Fine", r#"<a href="/a?b#c">x</a><img src="/i"><a href="//evil/x">"#),
            "/cors" => Act::Say(
                b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n\
                  Connection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nContent-Length: 0\r\n\r\n"
                    .to_vec(),
            ),
            _ => Act::Say(
                format!("HTTP/1.1 302 Away\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes(),
            ),
        }
    })
    .await;
    for (front, host) in [
        (POD, "192.0.2.78:443"),
        (NODE, "192.0.2.77:10250"),
        (SERVICE, "192.0.2.78:8443"),
    ] {
        for (to, want) in [
            ("/x/../y/".to_owned(), format!("{front}/y/")),
            (format!("https://{host}/x"), format!("{front}/x")),
            (
                "http://localhost/x".to_owned(),
                format!("http://localhost{front}/x"),
            ),
            (
                "https://evil.example/x".to_owned(),
                "https://evil.example/x".to_owned(),
            ),
            ("//evil.example/x".to_owned(), "//evil.example/x".to_owned()),
            ("x".to_owned(), "x".to_owned()),
        ] {
            let answer = cluster.get(&format!("{front}/go?to={to}")).await;
            let told = answer.headers["location"].to_str().unwrap();
            assert_eq!((answer.status, told), (302, want.as_str()), "{front} {to}");
        }
        for (to, why) in [
            ("http://[::1/x", "missing ']' in host"),
            ("http://h:port/x", "invalid port \":port\" after host"),
            (":x", "missing protocol scheme"),
        ] {
            let answer = cluster.get(&format!("{front}/go?to={to}")).await;
            let why = format!(
                "Internal error occurred: error trying to parse Location header: parse \"{to}\": {why}"
            );
            assert_eq!(status(&answer), (500, "InternalError".to_owned(), why));
        }
        let page = cluster.get(&format!("{front}/page")).await;
        let want =
            format!(r#"<a href="{front}/a?b#c">x</a><img src="{front}/i"><a href="//evil/x">"#);
        assert_eq!(text(&page), want);
        let answer = cluster.get(&format!("{front}/cors")).await;
        for name in [
            "access-control-allow-origin",
            "access-control-allow-credentials",
            "x-hop",
            "te",
        ] {
            assert!(!answer.headers.contains_key(name), "{front}: {answer:?}");
        }
    }
}

/// Servers that answer with what is no answer, and clients that are told so.
#[tokio::test]
async fn answers_that_are_none_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, proxy) = world(folder.path(), |seen| {
        Act::Say(match &*seen.uri {
            "/closes" => Vec::new(),
            "/garbage" => b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(),
            "/lengths" => {
                b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde".to_vec()
            }
            "/switches" => {
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
                    .to_vec()
            }
            "/headers" => [
                b"HTTP/1.1 200 OK\r\nX: ".to_vec(),
                vec![b'x'; 2 << 20],
                b"\r\n\r\n".to_vec(),
            ]
            .concat(),
            _ => "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(3).into_bytes(),
        })
    })
    .await;
    let broken = "net/http: HTTP/1.x transport connection broken: malformed HTTP response";
    for (path, why) in [
        ("closes", "EOF"),
        ("garbage", broken),
        ("lengths", broken),
        (
            "headers",
            "net/http: server response headers exceeded 1048576 bytes; aborted",
        ),
        ("hints", "EOF"),
    ] {
        for front in [POD, NODE, SERVICE] {
            let answer = cluster.get(&format!("{front}/{path}")).await;
            let why = format!("error trying to reach service: {why}");
            assert_eq!(
                status(&answer),
                (503, "ServiceUnavailable".to_owned(), why),
                "{front}"
            );
        }
    }
    let answer = cluster.get(&format!("{NODE}/switches")).await;
    let why = r#"backend tried to switch protocol "x" when "" was requested"#;
    assert_eq!(status(&answer), (500, String::new(), why.to_owned()));
    drop(proxy);
    let answer = cluster.get(&format!("{NODE}/x")).await;
    assert_eq!(answer.status, 503, "{answer:?}");
}

/// Names that are none, ports that are none, and addresses that are of nobody else than this
/// machine, its neighbours, or everybody.
#[tokio::test]
async fn requests_go_to_no_address_that_is_not_the_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, proxy) = world(folder.path(), |_| say("200 OK", "")).await;
    let refused = async |path: &str| {
        let (code, _, message) = status(&cluster.get(path).await);
        format!("{code} {message}")
    };
    let pods = "/api/v1/namespaces/default/pods";
    let services = "/api/v1/namespaces/default/services";
    for (path, want) in [
        (
            format!("{pods}/ftp:q:21/proxy/x"),
            "400 invalid pod request \"ftp:q:21\"",
        ),
        (
            format!("{pods}/:80/proxy/x"),
            "400 invalid pod request \":80\"",
        ),
        (
            format!("{pods}/q:1:2:3/proxy/x"),
            "400 invalid pod request \"q:1:2:3\"",
        ),
        (
            format!("{pods}/nobody/proxy/x"),
            "404 pods \"nobody\" not found",
        ),
        (
            format!("{services}/s:99/proxy/x"),
            "503 no service port 99 found for service \"s\"",
        ),
        (
            format!("{services}/s:other/proxy/x"),
            "503 no endpoints available for service \"s:other\"",
        ),
        (
            format!("{services}/nobody/proxy/x"),
            "404 services \"nobody\" not found",
        ),
        (
            "/api/v1/nodes/ftp:far:21/proxy/x".to_owned(),
            "400 invalid node request \"ftp:far:21\"",
        ),
        (
            "/api/v1/nodes/nobody/proxy/x".to_owned(),
            "404 nodes \"nobody\" not found",
        ),
        // The test's own node is at an address of this machine.
        (
            "/api/v1/nodes/n/proxy/x".to_owned(),
            "400 address not allowed",
        ),
        (
            "/api/v1/nodes/n:80/proxy/x".to_owned(),
            "400 address not allowed",
        ),
    ] {
        assert_eq!(refused(&path).await, want, "{path}");
    }
    for ip in [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
        "::1",
        "fe80::1",
    ] {
        address(&cluster, ip).await;
        let path = format!("{pods}/q:80/proxy/x");
        assert_eq!(refused(&path).await, "400 address not allowed", "{ip}");
        // Its endpoints are not believed either: the pod has another address now.
        let told = refused(&format!("{SERVICE}/x")).await;
        assert!(told.starts_with("503 no endpoints available"), "{told}");
    }
    assert!(proxy.asked().is_empty(), "{:?}", proxy.asked());
}

/// A kubelet is not followed elsewhere.
#[tokio::test]
async fn redirects_of_kubelets_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, proxy) = world(folder.path(), |_| {
        Act::Say(
            b"HTTP/1.1 307 Away\r\nLocation: https://192.0.2.99/x\r\nContent-Length: 0\r\n\r\n"
                .to_vec(),
        )
    })
    .await;
    let log = "/api/v1/namespaces/default/pods/q/log";
    let (code, _, message) = status(&cluster.get(log).await);
    assert!(
        code == 500 && message.ends_with(": redirects forbidden"),
        "{message}"
    );
    let exec = "/api/v1/namespaces/default/pods/q/exec?command=a&stdout=1";
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")];
    let answer = send(&cluster, "POST", exec, &upgrade).await;
    let why = "invalid upgrade response: status code 307";
    assert_eq!(status(&answer), (500, String::new(), why.to_owned()));
    assert!(
        proxy.asked().iter().all(|to| to == "192.0.2.77:10250"),
        "{:?}",
        proxy.asked()
    );
}

/// Options that cannot be read are refused, not left out.
#[tokio::test]
async fn options_that_cannot_be_read_are_refused() {
    let cluster = Cluster::start(|_| say("200 OK", "")).await;
    let pod = super::POD;
    for (path, want) in [
        (
            format!("{pod}/portforward?ports=80,x"),
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            format!("{pod}/portforward?ports=80&ports=65536"),
            "cannot convert to []int32: strconv.ParseUint: parsing \"65536\": value out of range",
        ),
    ] {
        let answer = cluster.ask("POST", &path, &Value::Null).await;
        assert_eq!(
            status(&answer),
            (400, "BadRequest".to_owned(), want.to_owned()),
            "{path}"
        );
    }
    let logs = cluster.get(&format!("{pod}/log?tailLines=")).await;
    assert_eq!(
        status(&logs).2,
        "strconv.ParseInt: parsing \"\": invalid syntax"
    );
    assert!(cluster.kubelet.seen().is_empty());
}

/// Handshakes that are none are answered as upstream's WebSocket library does.
#[tokio::test]
async fn handshakes_that_are_none_are_told() {
    let cluster = Cluster::start(|_| say("200 OK", "")).await;
    let exec = format!("{}/exec?command=a&stdout=1", super::POD);
    let watch = "/api/v1/namespaces/default/pods?watch=1".to_owned();
    let key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let version = ("Sec-WebSocket-Version", "13");
    for (method, path, headers, code, why) in [
        ("POST", &exec, vec![key, version], 405, "bad method"),
        (
            "GET",
            &exec,
            vec![version],
            400,
            "mismatch challenge/response",
        ),
        (
            "GET",
            &exec,
            vec![key],
            400,
            "missing or bad WebSocket Version",
        ),
        (
            "GET",
            &exec,
            vec![key, ("Sec-WebSocket-Version", "12")],
            400,
            "missing or bad WebSocket Version",
        ),
        (
            "GET",
            &watch,
            vec![version],
            400,
            "mismatch challenge/response",
        ),
    ] {
        let mut all = vec![
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
        ];
        all.extend(headers);
        let answer = send(&cluster, method, path, &all).await;
        assert_eq!(
            (answer.status, text(&answer).as_str()),
            (code, why),
            "{path}"
        );
        let versions = answer.headers.get("sec-websocket-version");
        assert_eq!(versions.is_some(), why.ends_with("Version"));
    }
}
