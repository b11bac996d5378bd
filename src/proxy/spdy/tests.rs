//! Tests of the frames.

use std::io::Read;

use super::write::header_block;
use super::*;

async fn written(frames: impl AsyncFnOnce(&mut FrameWriter<&mut Vec<u8>>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames(&mut FrameWriter::new(&mut bytes)).await;
    bytes
}

async fn read(bytes: &[u8]) -> std::io::Result<Vec<Frame>> {
    let (mut reader, mut frames) = (FrameReader::new(bytes), Vec::new());
    while let Some(frame) = reader.next().await? {
        frames.push(frame);
    }
    Ok(frames)
}

#[tokio::test]
async fn frames_are_read_as_they_are_written() {
    let bytes = written(async |writer| {
        writer.reply(1).await.expect("room");
        writer.data(3, b"hello", false).await.expect("room");
        writer.data(3, b"", true).await.expect("room");
        writer.reset(5, 2).await.expect("room");
        writer.ping(7).await.expect("room");
    });
    let frames = read(&bytes.await).await.expect("frames");
    let data = |is_last, bytes: &'static [u8]| Frame::Data {
        stream: 3,
        is_last,
        bytes: bytes.into(),
    };
    let want = [
        Frame::SynReply {
            stream: 1,
            is_last: false,
        },
        data(false, b"hello"),
        data(true, b""),
        Frame::Reset { stream: 5, code: 2 },
        Frame::Ping(7),
    ];
    assert_eq!(frames, want);
}

/// An ordinary zlib reads the header blocks, one after another.
#[tokio::test]
async fn header_blocks_are_zlib() {
    let headers = [("streamtype", "error"), ("port", "80")];
    let bytes = written(async |writer| {
        writer.open(1, &headers).await.expect("room");
        writer.open(3, &headers[1..]).await.expect("room");
    });
    let mut packed = Vec::new();
    for frame in read(&bytes.await).await.expect("frames") {
        match frame {
            Frame::SynStream { headers, .. } => {
                // What Go's zlib needs to hand the block on.
                assert!(headers.ends_with(&[0, 0, 0, 0xff, 0xff]));
                packed.extend_from_slice(&headers);
            }
            other => panic!("{other:?}"),
        }
    }
    let mut unpacked = vec![0; header_block(&headers).len() + header_block(&headers[1..]).len()];
    let mut decoder = flate2::read::ZlibDecoder::new(&packed[..]);
    decoder.read_exact(&mut unpacked).expect("blocks");
    let want = [header_block(&headers), header_block(&headers[1..])].concat();
    assert_eq!(unpacked, want);
}

#[tokio::test]
async fn long_frames_come_in_parts_and_control_frames_have_a_limit() {
    let long = vec![7; 3 * MAX_DATA];
    let bytes = written(async |writer| writer.data(1, &long, true).await.expect("room"));
    let frames = read(&bytes.await).await.expect("frames");
    assert!(frames.len() >= 3);
    let mut joined = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let Frame::Data { is_last, bytes, .. } = frame else {
            panic!("{frame:?}");
        };
        assert_eq!(*is_last, at + 1 == frames.len());
        joined.extend_from_slice(bytes);
    }
    assert!(joined == long);
    for (bytes, why) in [
        (
            &b"\x80\x03\x00\x02\x00\xff\xff\xff"[..],
            "a control frame of 16777215 bytes",
        ),
        (b"\x80\x02\x00\x02\x00\x00\x00\x00", "SPDY of version 2"),
        (
            b"\x80\x03\x00\x03\x00\x00\x00\x02ab",
            "a control frame of type 3 is too short",
        ),
        (b"HTTP/1.1 200", "unexpected end of file"),
        (b"\x80\x03", "early eof"),
    ] {
        let refused = read(bytes).await.expect_err("no SPDY").to_string();
        assert_eq!(refused, why);
    }
}
