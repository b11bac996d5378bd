//! Profiles of the process: who may have them, what they hold, and what bounds them.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use prost::Message;

use crate::support::USER;
use crate::{ask, embedded};

/// The parts of pprof's `profile.proto` that are looked at.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<Kind>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Kind {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

fn decode(bytes: &[u8]) -> Profile {
    let mut message = Vec::new();
    GzDecoder::new(bytes)
        .read_to_end(&mut message)
        .expect("gzip");
    Profile::decode(&*message).expect("a profile")
}

impl Profile {
    fn kinds(&self) -> Vec<[&str; 2]> {
        let text = |at: i64| self.string_table[usize::try_from(at).expect("a place")].as_str();
        let kinds = self.sample_type.iter();
        kinds
            .map(|kind| [text(kind.kind), text(kind.unit)])
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_pprofs() {
    let (_folder, server) = embedded(&[]).await;
    let index = ask("GET", "/debug/pprof/").send(&server).await;
    assert_eq!(index.status, 200);
    assert_eq!(index.headers["content-type"], "text/html; charset=utf-8");
    let moved = ask("GET", "/debug/pprof").send(&server).await;
    assert_eq!(
        (moved.status, &moved.headers["location"]),
        (302, &"/debug/pprof/".parse().unwrap())
    );
    // The server is kept busy while it is looked at, and looked at once only.
    let busy = async {
        loop {
            let lists = (0..8).map(|_| ask("GET", "/openapi/v3/api/v1").status(&server));
            futures::future::join_all(lists).await;
        }
    };
    let second = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let again = ask("GET", "/debug/pprof/profile?seconds=1")
            .send(&server)
            .await;
        assert_eq!(
            (again.status, &again.headers["x-go-pprof"]),
            (500, &"1".parse().unwrap())
        );
        let text = String::from_utf8_lossy(&again.body).into_owned();
        assert_eq!(
            text,
            "Could not enable CPU profiling: cpu profiling already in use\n"
        );
    };
    let first = ask("GET", "/debug/pprof/profile?seconds=1").send(&server);
    let (answer, ()) = tokio::select! {
        both = futures::future::join(first, second) => both,
        () = busy => unreachable!(),
    };
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    assert_eq!(
        answer.headers["content-disposition"],
        "attachment; filename=\"profile\""
    );
    let profile = decode(&answer.body);
    assert_eq!(
        profile.kinds(),
        [["samples", "count"], ["cpu", "nanoseconds"]]
    );
    assert_eq!(profile.duration_nanos, 1_000_000_000);
    assert!(
        profile
            .sample
            .iter()
            .any(|sample| sample.location_id.len() > 3)
    );
    for (name, kind) in [("heap", "inuse_space"), ("goroutine", "goroutine")] {
        let path = format!("/debug/pprof/{name}");
        let profile = decode(&ask("GET", &path).send(&server).await.body);
        assert_eq!(profile.kinds()[0][0], kind);
        assert!(profile.sample.iter().all(|sample| sample.value[0] > 0));
        let text = ask("GET", &format!("{path}?debug=1")).send(&server).await;
        assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    }
    let symbols = ask("GET", "/debug/pprof/symbol?0x1+x+0")
        .send(&server)
        .await;
    assert_eq!(symbols.body.as_ref(), b"num_symbols: 1\n");
}

#[tokio::test]
async fn profiles_are_for_those_who_may_have_them() {
    let (_folder, server) = embedded(&[]).await;
    for path in [
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/profile",
        "/debug/pprof/heap",
    ] {
        assert_eq!(
            ask("GET", path).by(USER).status(&server).await,
            403,
            "{path}"
        );
        assert_eq!(ask("GET", path).by("").status(&server).await, 403, "{path}");
    }
    for (path, status, text) in [
        (
            "/debug/pprof/profile?seconds=60",
            400,
            "profile duration exceeds server's WriteTimeout\n",
        ),
        (
            "/debug/pprof/profile?seconds=18446744073709551615",
            400,
            "profile duration exceeds server's WriteTimeout\n",
        ),
        (
            "/debug/pprof/heap?seconds=5",
            400,
            "\"seconds\" parameter is not supported for this profile type\n",
        ),
        ("/debug/pprof/cmdline", 404, "Unknown profile\n"),
        ("/debug/pprof/block", 404, "Unknown profile\n"),
        (
            "/debug/pprof/trace",
            501,
            "there are no execution traces: they are those of Go's scheduler\n",
        ),
    ] {
        let answer = ask("GET", path).send(&server).await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!((answer.status, body.as_str()), (status, text), "{path}");
    }
    let (_folder, server) = embedded(&["--profiling=false"]).await;
    for path in ["/debug/pprof", "/debug/pprof/profile?seconds=1"] {
        assert_eq!(ask("GET", path).status(&server).await, 404, "{path}");
    }
}
