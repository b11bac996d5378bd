//! Frames that break the rules of WebSocket and SPDY, to the byte: the stream ends, its client is
//! told as far as it listens, and nobody else notices.

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::commands::{Socket, open};
use super::hostile::{freed, memory};
use super::support::kubelet::{Act, switched};
use super::{Cluster, PATIENCE, POD};

const V5: &str = "v5.channel.k8s.io";
const PORTS: &str = "SPDY/3.1+portforward.k8s.io";
/// The memory that frames take at most that are begun and not ended.
const MAX_HELD: usize = 16 << 20;

fn exec(command: &str) -> String {
    format!("{POD}/exec?command={command}&stdin=1&stdout=1")
}

/// A frame with a mask of zeros: the first byte, the length as it is written, and the bytes.
fn masked(first: u8, length: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, length[0] | 0x80];
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(bytes);
    frame
}

/// The bytes that come until the server ends the connection.
async fn rest(socket: &mut Socket) -> Vec<u8> {
    let mut rest = Vec::new();
    let read = socket.get_mut().read_to_end(&mut rest);
    let ended = timeout(PATIENCE, read).await;
    // It may be cut off without a word.
    let _ = ended.expect("the connection ends");
    rest
}

/// The first byte of a frame: its last part, and its kind.
const BINARY: u8 = 0x82;
const PING: u8 = 0x89;
const CLOSE: u8 = 0x88;

#[tokio::test]
async fn clients_that_break_the_rules_of_websocket_are_cut_off() {
    let cluster = Cluster::start(|seen| match seen.uri.starts_with("/portForward") {
        true => Act::Echo(switched("portforward.k8s.io").into()),
        false => Act::Command,
    })
    .await;
    let long = [126, 0xff, 0xff];
    let beyond = [127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let begun = masked(0x02, &[2], b"\0x");
    for (what, frame) in [
        (
            "a frame without a mask",
            [&[BINARY, 2], &b"\0x"[..]].concat(),
        ),
        ("a frame of 2^64 - 1 bytes", masked(BINARY, &beyond, b"\0x")),
        ("a reserved bit", masked(BINARY | 0x40, &[2], b"\0x")),
        ("all reserved bits", masked(BINARY | 0x70, &[2], b"\0x")),
        ("a reserved kind", masked(0x83, &[2], b"\0x")),
        ("a reserved kind of control", masked(0x8b, &[0], b"")),
        ("a ping in parts", masked(0x09, &[2], b"hi")),
        ("a long ping", masked(PING, &long, &[0; 0xffff])),
        ("a close of one byte", masked(CLOSE, &[1], b"\x03")),
        ("a part of nothing", masked(0x80, &[2], b"\0x")),
        (
            "a message within a message",
            [&begun[..], &masked(BINARY, &[2], b"\0y")].concat(),
        ),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        for (path, protocol) in [(exec("cat"), V5), (format!("{POD}/portforward"), PORTS)] {
            let mut socket = open(&cluster, &path, protocol).await.unwrap();
            // It may be cut off before all is written.
            let _ = socket.get_mut().write_all(&frame).await;
            let said = rest(&mut socket).await;
            // Nothing of it was taken for input.
            assert!(
                !said.windows(2).any(|part| part == b"\x01x"),
                "{what}: {said:?}"
            );
        }
    }
    freed(&cluster).await;
    assert_eq!(cluster.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn frames_in_parts_and_pings_are_understood() {
    let cluster = Cluster::start(|_| Act::Command).await;
    let mut socket = open(&cluster, &exec("cat"), V5).await.unwrap();
    // A message in parts, with a ping between them.
    for frame in [
        masked(0x02, &[3], b"\0ab"),
        masked(PING, &[4], b"here"),
        masked(0x00, &[2], b"cd"),
        masked(0x80, &[0], b""),
    ] {
        socket.get_mut().write_all(&frame).await.unwrap();
    }
    let (mut echoed, mut pong) = (Vec::new(), None);
    while echoed.len() < 4 || pong.is_none() {
        match timeout(PATIENCE, socket.next()).await.unwrap() {
            Some(Ok(Message::Binary(bytes))) => echoed.extend_from_slice(&bytes[1..]),
            Some(Ok(Message::Pong(bytes))) => pong = Some(bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (&echoed[..], &pong.unwrap()[..]),
        (&b"abcd"[..], &b"here"[..])
    );
    socket
        .send(Message::Binary(vec![255, 0].into()))
        .await
        .unwrap();
    let mut last = Vec::new();
    while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
        if let Message::Binary(bytes) = message {
            last = bytes.to_vec();
        }
    }
    assert_eq!(last, b"\x03{\"metadata\":{},\"status\":\"Success\"}");
}

/// Messages may be of any length, as nothing waits for their end.
#[tokio::test]
async fn long_messages_pass_and_none_is_held() {
    const LONG: usize = 5 << 20;
    let cluster = Cluster::start(|_| Act::Command).await;
    let socket = open(&cluster, &exec("cat"), V5).await.unwrap();
    let (mut sink, mut messages) = socket.split();
    let send = sink.send(Message::Binary(vec![0; 1 + LONG].into()));
    let hear = async {
        let mut heard = 0;
        while heard < LONG {
            if let Some(Ok(Message::Binary(bytes))) = messages.next().await {
                heard += bytes.len() - 1;
            }
        }
    };
    let both = async { tokio::join!(send, hear) };
    timeout(PATIENCE, both).await.unwrap().0.unwrap();
    drop((sink, messages));
    let before = memory(&cluster);
    let mut sockets = Vec::new();
    // Most of messages whose end does not come, one of them of 2^63 - 1 bytes.
    for length in [
        [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        [0, 0, 0, 0, 0, 0x3f, 0xff, 0xff],
    ] {
        for _ in 0..5 {
            let mut socket = open(&cluster, &exec("stay"), V5).await.unwrap();
            let frame = masked(BINARY, &[&[127], &length[..]].concat(), &vec![0; 3 << 20]);
            let sent = socket.get_mut().write_all(&frame);
            timeout(PATIENCE, sent).await.unwrap().unwrap();
            sockets.push(socket);
        }
    }
    let held = memory(&cluster).saturating_sub(before);
    assert!(held < MAX_HELD, "{held} bytes");
    drop(sockets);
    freed(&cluster).await;
}

#[tokio::test]
async fn kubelets_that_break_the_rules_of_spdy_are_told_of() {
    let frames = |command: &str| match command {
        // 16 MB of control, of which nothing comes.
        "long" => &b"\x80\x03\x00\x04\x00\xff\xff\xff"[..],
        "version" => b"\x80\x02\x00\x02\x00\x00\x00\x04\x00\x00\x00\x01",
        "short" => b"\x80\x03\x00\x03\x00\x00\x00\x02\x00\x00",
        "reset" => b"\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x05\x00\x00\x00\x01",
        other => panic!("{other}"),
    };
    let cluster = Cluster::start(move |seen| {
        let command = seen.uri.split("command=").nth(1).unwrap_or_default();
        let command = command.split('&').next().unwrap_or_default();
        Act::Hold([switched(V5).as_bytes(), frames(command)].concat())
    })
    .await;
    for (command, why) in [
        ("long", "a control frame of 16777215 bytes"),
        ("version", "SPDY of version 2"),
        ("short", "a control frame of type 3 is too short"),
        ("reset", "Stream reset"),
    ] {
        let mut socket = open(&cluster, &exec(command), V5).await.unwrap();
        let mut told = String::new();
        while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
            told.push_str(&String::from_utf8_lossy(&message.into_data()));
        }
        let fails = told.contains("\"status\":\"Failure\"");
        assert!(fails && told.contains(why), "{command}: {told}");
        drop(socket);
        freed(&cluster).await;
    }
}

/// A client is told of a failure, and of nothing else, wherever its kubelet breaks off.
#[tokio::test]
async fn kubelets_may_break_off_anywhere() {
    let mut whole = switched(V5).into_bytes();
    // An answer to the stream of stdout, what it says, and a last message that is not complete.
    whole.extend_from_slice(b"\x80\x03\x00\x02\x00\x00\x00\x04\x00\x00\x00\x05");
    whole.extend_from_slice(b"\x00\x00\x00\x05\x01\x00\x00\x02ok");
    whole.extend_from_slice(b"\x00\x00\x00\x01\x00\x00\x00\x14{\"status\":\"Success\"");
    let count = whole.len();
    let cluster = Cluster::start(move |seen| {
        let at = seen
            .uri
            .split("command=")
            .nth(1)
            .and_then(|rest| rest.split('&').next());
        let at: usize = at.and_then(|at| at.parse().ok()).unwrap_or_default();
        Act::Say(whole[..at].to_vec())
    })
    .await;
    let ends = (0..=count).map(async |at| {
        let mut socket = open(&cluster, &exec(&at.to_string()), V5).await.unwrap();
        let mut told = String::new();
        while let Some(Ok(message)) = timeout(PATIENCE, socket.next()).await.unwrap() {
            told.push_str(&String::from_utf8_lossy(&message.into_data()));
        }
        let fails = told.matches("\"status\":\"Failure\"").count();
        assert!(fails == 1 && !told.contains("Success"), "{at}: {told}");
    });
    // Some at a time.
    futures::stream::iter(ends)
        .buffer_unordered(16)
        .collect::<()>()
        .await;
    freed(&cluster).await;
}

/// A stream is given back wherever its client breaks off.
#[tokio::test]
async fn clients_may_break_off_anywhere() {
    let cluster = Cluster::start(|seen| match seen.uri.starts_with("/portForward") {
        true => Act::Echo(switched("portforward.k8s.io").into()),
        false => Act::Command,
    })
    .await;
    let frames = [
        masked(0x02, &[3], b"\0ab"),
        masked(PING, &[4], b"here"),
        masked(0x80, &[126, 0, 5], b"cdefg"),
        masked(CLOSE, &[2], b"\x03\xe8"),
    ]
    .concat();
    for (path, protocol) in [(exec("cat"), V5), (format!("{POD}/portforward"), PORTS)] {
        let leaves = (0..=frames.len()).map(async |at| {
            let mut socket = open(&cluster, &path, protocol).await.unwrap();
            socket.get_mut().write_all(&frames[..at]).await.unwrap();
        });
        futures::stream::iter(leaves)
            .buffer_unordered(16)
            .collect::<()>()
            .await;
        freed(&cluster).await;
    }
    assert_eq!(cluster.get("/readyz").await.status, 200);
}
