//! Commands in containers: over SPDY, which is passed through, and over WebSocket, which is
//! translated for kubelets that do not know it.

use futures::{SinkExt, StreamExt};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use keelson::internals::proxy::spdy::{Frame, FrameReader, FrameWriter};
use kube::Api;
use kube::api::{AttachParams, TerminalSize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::support::kubelet::{Act, Pki, say, switched};
use super::support::{ADMIN, USER, http as wire};
use super::{Cluster, PATIENCE, POD, request, status};

const V5: &str = "v5.channel.k8s.io";

pub type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Opens a WebSocket; the answer where the server does not switch protocols.
pub async fn open(cluster: &Cluster, path: &str, protocol: &str) -> Result<Socket, String> {
    let mut stream = wire::connect(cluster.server.port()).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.map_err(|why| why.to_string())?);
    }
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    if !answer.starts_with("http/1.1 101 ") {
        return Err(answer);
    }
    assert!(
        answer.contains(&format!(
            "sec-websocket-protocol: {}\r\n",
            protocol.to_lowercase()
        )),
        "{answer}"
    );
    Ok(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
}

/// The messages of a channel until the connection ends, joined.
async fn rest(socket: &mut Socket) -> Vec<(u8, String)> {
    let mut channels: Vec<(u8, String)> = Vec::new();
    let reading = async {
        while let Some(Ok(message)) = socket.next().await {
            let Message::Binary(bytes) = message else {
                continue;
            };
            let (channel, text) = (bytes[0], String::from_utf8_lossy(&bytes[1..]));
            match channels.iter_mut().find(|(one, _)| *one == channel) {
                Some((_, all)) => all.push_str(&text),
                None => channels.push((channel, text.into_owned())),
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
    channels
}

fn exec(query: &str) -> String {
    format!("{POD}/exec?{query}")
}

const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

#[tokio::test]
async fn commands_over_websocket_are_translated() {
    let cluster = Cluster::start(|_| Act::Command).await;
    // Input, its end, and output.
    let mut socket = open(&cluster, &exec("command=cat&stdin=1&stdout=1"), V5)
        .await
        .unwrap();
    let first = socket.next().await.unwrap().unwrap().into_data();
    assert_eq!(&first[..], [1]);
    for message in [&b"\x00hello "[..], b"\x00world", b"\xff\x00"] {
        socket
            .send(Message::Binary(message.to_vec().into()))
            .await
            .unwrap();
    }
    assert_eq!(
        rest(&mut socket).await,
        [(1, "hello world".to_owned()), (3, SUCCESS.to_owned())]
    );
    let seen = &cluster.kubelet.seen()[0];
    assert_eq!(
        (seen.method.as_str(), seen.uri.as_str()),
        ("POST", "/exec/default/p/c?command=cat&input=1&output=1")
    );
    assert_eq!(seen.header("upgrade"), "SPDY/3.1");
    assert_eq!(seen.header("x-stream-protocol-version"), V5);
    assert!(seen.has_certificate && !seen.headers.contains_key("authorization"));
    // The code of a command that fails.
    let mut socket = open(&cluster, &exec("command=both&stdout=1&stderr=1"), V5)
        .await
        .unwrap();
    let exit = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    let told = rest(&mut socket).await;
    assert_eq!(told[0], (1, "out".to_owned()));
    assert_eq!(told[1], (2, "err".to_owned()));
    assert_eq!(told[2], (3, exit.to_owned()));
    // One whose end nobody knows.
    let mut socket = open(&cluster, &exec("command=break&stdout=1"), V5)
        .await
        .unwrap();
    let told = rest(&mut socket).await;
    assert_eq!(told[0], (1, "half of it".to_owned()));
    let error: Value = serde_json::from_str(&told[1].1).unwrap();
    assert_eq!((told[1].0, &error["status"]), (3, &json!("Failure")));
}

/// The event of a command begins with the switch of protocols, and ends with the stream.
#[tokio::test]
async fn commands_are_audited_from_their_beginning_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
    let rules = "rules: [{level: RequestResponse, resources: [{resources: [pods/exec]}]}]";
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n");
    std::fs::write(&policy, text).unwrap();
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let pki = Pki::new("127.0.0.1");
    let cluster = Cluster::start_with(&pki, &flags, |_| Act::Command).await;
    let told = || -> Vec<String> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let events = text.lines().map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["objectRef"]["subresource"], "exec");
            assert!(event.get("responseObject").is_none());
            let code = &event["responseStatus"]["code"];
            format!("{} {code}", event["stage"].as_str().unwrap())
        });
        events.collect()
    };
    let path = exec("command=cat&stdin=1&stdout=1");
    let socket = open(&cluster, &path, V5).await.unwrap();
    assert_eq!(told(), ["RequestReceived null", "ResponseStarted 101"]);
    drop(socket);
    timeout(PATIENCE, async {
        while told().len() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(told()[2], "ResponseComplete 101");
}

#[tokio::test]
async fn kube_rs_runs_commands() {
    let cluster = Cluster::start(|_| Act::Command).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.server.client(ADMIN));
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut command = pods.exec("p", ["cat"], &params).await.unwrap();
    let (mut stdin, mut stdout) = (command.stdin().unwrap(), command.stdout().unwrap());
    let sent: Vec<u8> = (0..500_000).map(|at| at as u8).collect();
    let write = async {
        stdin.write_all(&sent).await.unwrap();
        stdin.shutdown().await.unwrap();
        drop(stdin);
    };
    let mut heard = Vec::new();
    let ((), read) = timeout(PATIENCE, async {
        tokio::join!(write, stdout.read_to_end(&mut heard))
    })
    .await
    .unwrap();
    read.unwrap();
    assert!(heard == sent, "{} bytes", heard.len());
    let status = command.take_status().unwrap().await.unwrap();
    assert_eq!(status.status.as_deref(), Some("Success"));
    // A terminal of a size.
    let params = AttachParams::interactive_tty();
    let mut command = pods.exec("p", ["size"], &params).await.unwrap();
    let mut sizes = command.terminal_size().unwrap();
    let size = TerminalSize {
        width: 80,
        height: 24,
    };
    sizes.send(size).await.unwrap();
    let mut told = String::new();
    command
        .stdout()
        .unwrap()
        .read_to_string(&mut told)
        .await
        .unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, json!({"Width": 80, "Height": 24}));
}

/// The reasons of kubelets that run no command are told on the channel of errors.
#[tokio::test]
async fn kubelets_that_run_no_command_are_told() {
    let cluster = Cluster::start(|seen| match seen.uri.as_str() {
        uri if uri.contains("status") => say("403 Forbidden", r#"{"message":"no exec here"}"#),
        uri if uri.contains("redirect") => {
            Act::Say(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n".to_vec())
        }
        uri if uri.contains("garbage") => Act::Say(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()),
        uri if uri.contains("spdy") => {
            let mut bytes = switched(V5).into_bytes();
            bytes.extend_from_slice(b"\x80\x02\x00\x01\x00\x00\x00\x00");
            Act::Echo(bytes)
        }
        _ => Act::Say(Vec::new()),
    })
    .await;
    let port = cluster.kubelet.port;
    for (command, why) in [
        (
            "status",
            "unable to upgrade connection: no exec here".to_owned(),
        ),
        ("redirect", "redirect not allowed".to_owned()),
        ("garbage", "malformed HTTP response".to_owned()),
        ("close", "unexpected EOF".to_owned()),
        ("spdy", "SPDY of version ".to_owned()),
    ] {
        let path = exec(&format!("command={command}&stdout=1"));
        let mut socket = open(&cluster, &path, V5).await.unwrap();
        let told = rest(&mut socket).await;
        let (channel, error) = told.last().unwrap();
        let error: Value = serde_json::from_str(error).unwrap();
        let message = error["message"].as_str().unwrap();
        assert_eq!((*channel, &error["code"]), (3, &json!(500)));
        assert!(
            message.starts_with("Internal error occurred: "),
            "{message}"
        );
        assert!(message.contains(&why), "{message}");
        if ["redirect", "garbage", "close"].contains(&command) {
            let sending = format!("error sending request: Post \"https://127.0.0.1:{port}/exec/");
            assert!(message.contains(&sending), "{message}");
        }
    }
}

/// Clients of SPDY and kubelets talk to each other, through the server.
#[tokio::test]
async fn spdy_is_passed_through() {
    let cluster = Cluster::start(|_| Act::Command).await;
    let request = request("POST", &exec("command=cat&stdin=1&stdout=1"))
        .header("Connection", "Upgrade")
        .header("Upgrade", "SPDY/3.1")
        .header("X-Stream-Protocol-Version", V5)
        .body(Full::<bytes::Bytes>::default())
        .unwrap();
    let stream = wire::connect(cluster.server.port()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    let mut answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.headers()["upgrade"], "SPDY/3.1");
    assert_eq!(answer.headers()["x-stream-protocol-version"], V5);
    let upgraded = hyper::upgrade::on(&mut answer).await.unwrap();
    let (reader, writer) = split(TokioIo::new(upgraded));
    let (mut reader, mut writer) = (FrameReader::new(reader), FrameWriter::new(writer));
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        writer.open(stream, &[("streamtype", kind)]).await.unwrap();
    }
    let sent = vec![7; 200_000];
    writer.data(3, &sent, true).await.unwrap();
    let (mut heard, mut told) = (Vec::new(), Vec::new());
    let reading = async {
        while let Some(frame) = reader.next().await.unwrap() {
            match frame {
                Frame::Data {
                    stream: 5, bytes, ..
                } => heard.extend_from_slice(&bytes),
                Frame::Data {
                    stream: 1,
                    bytes,
                    is_last,
                } => {
                    told.extend_from_slice(&bytes);
                    if is_last {
                        break;
                    }
                }
                _ => {}
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
    assert!(heard == sent, "{} bytes", heard.len());
    assert_eq!(told, br#"{"status":"Success"}"#);
    let seen = &cluster.kubelet.seen()[0];
    assert_eq!(seen.header("x-forwarded-for"), "127.0.0.1");
    assert!(seen.has_certificate && !seen.headers.contains_key("authorization"));
}

/// Kubelets that declare it get WebSocket as it is, and others the older protocols.
#[tokio::test]
async fn websockets_are_passed_through_to_kubelets_that_know_them() {
    let accept = |protocol: &str| {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        )
    };
    let cluster = Cluster::start(move |seen| {
        Act::Echo(accept(seen.header("sec-websocket-protocol")).into_bytes())
    })
    .await;
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    let port = cluster.kubelet.port;
    let features = ["ExtendWebSocketsToKubelet"];
    cluster.add_node("new", &addresses, port, &features).await;
    cluster.add_pod("q", "new").await;
    let q = "/api/v1/namespaces/default/pods/q";
    for (path, protocol) in [
        (format!("{q}/exec?command=x&stdout=1"), V5),
        (format!("{q}/attach?stdout=1"), V5),
        (format!("{q}/portforward"), "SPDY/3.1+portforward.k8s.io"),
        (exec("command=x&stdout=1"), "v4.channel.k8s.io"),
        (format!("{POD}/portforward?ports=80"), "portforward.k8s.io"),
    ] {
        let _socket = open(&cluster, &path, protocol).await.unwrap();
        let seen = cluster.kubelet.seen();
        let seen = seen.last().unwrap();
        assert_eq!(
            (seen.method.as_str(), seen.header("upgrade")),
            ("GET", "websocket")
        );
    }
}

/// Requests for no upgrade are refused, and a kubelet's refusal is the client's answer.
#[tokio::test]
async fn refusals_of_upgrades_are_told() {
    let cluster = Cluster::start(|seen| match seen.uri.contains("fine") {
        true => say("200 OK", "hello"),
        false => say("403 Forbidden", "not you"),
    })
    .await;
    let plain = cluster
        .ask("POST", &exec("command=x&stdout=1"), &Value::Null)
        .await;
    let want = (
        400,
        "BadRequest".to_owned(),
        "Upgrade request required".to_owned(),
    );
    assert_eq!(status(&plain), want);
    let dry = cluster
        .ask("POST", &exec("command=x&dryRun=All"), &Value::Null)
        .await;
    assert_eq!(status(&dry).2, "dryRun is not supported");
    let upgrade = async |query: &str, token: &str| {
        let request = http::Request::post(exec(query))
            .header("Host", "localhost")
            .header("Authorization", format!("Bearer {token}"))
            .header("Connection", "Upgrade")
            .header("Upgrade", "SPDY/3.1")
            .body(Full::default())
            .unwrap();
        wire::call(cluster.server.port(), request, PATIENCE)
            .await
            .unwrap()
    };
    let refused = upgrade("command=x&stdout=1", ADMIN).await;
    assert_eq!((refused.status, &refused.body[..]), (403, &b"not you"[..]));
    let fine = upgrade("command=fine&stdout=1", ADMIN).await;
    let why = "invalid upgrade response: status code 200".to_owned();
    assert_eq!(status(&fine), (500, String::new(), why));
    assert_eq!(upgrade("command=x", USER).await.status, 403);
    let none = open(&cluster, &format!("{POD}/exec?command=x&container=d"), V5).await;
    assert!(none.unwrap_err().starts_with("http/1.1 400 "));
}

/// Streams end with their clients and with the server, and are counted until then.
#[tokio::test]
async fn streams_end_with_their_client_and_with_the_server() {
    let mut cluster = Cluster::start(|_| Act::Command).await;
    let path = exec("command=stay&stdin=1&stdout=1");
    let open_streams = async |cluster: &Cluster| {
        let metrics = cluster.get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let line = text.lines().find(|line| {
            line.starts_with("apiserver_longrunning_requests{") && line.contains("\"exec\"")
        });
        line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    let mut sockets = Vec::new();
    for _ in 0..100 {
        sockets.push(open(&cluster, &path, V5).await.unwrap());
    }
    while cluster.kubelet.seen().len() < 100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(open_streams(&cluster).await, 100);
    // Some vanish without a word.
    sockets.truncate(10);
    timeout(PATIENCE, async {
        while open_streams(&cluster).await != 10 {
            cluster.kubelet.left().await;
        }
    })
    .await
    .unwrap();
    cluster.server.terminate().await;
    for mut socket in sockets {
        while let Some(Ok(_)) = timeout(PATIENCE, socket.next()).await.unwrap() {}
    }
}
