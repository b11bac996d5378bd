//! Reads of the past: each revision that is asked for is shown as it was, however many are asked
//! for at the same time, and whatever is written meanwhile.

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::{Value, json};

use super::support::TestServer;
use super::{ask, both};

const MAPS: &str = "/api/v1/namespaces/past/configmaps";
/// The writes whose outcomes are read again.
const WRITES: usize = 45;
/// The names that they are about.
const NAMES: usize = 7;
/// The readers, each of which asks for other revisions than the others.
const READERS: usize = 4;

/// Names and values of all objects.
type State = BTreeMap<String, String>;

/// The objects of a list.
fn state(items: &[Value]) -> State {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pair = |item: &Value| (text(&item["metadata"]["name"]), text(&item["data"]["at"]));
    items.iter().map(pair).collect()
}

/// Creates, replaces or deletes one object, as the number of the write has it.
async fn write(server: &TestServer, at: usize) {
    let name = format!("m{}", at % NAMES);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"at": at.to_string()}});
    let path = format!("{MAPS}/{name}");
    let status = match at / NAMES % 3 {
        0 => ask("POST", MAPS).json(&map).status(server).await,
        1 => ask("PUT", &path).json(&map).status(server).await,
        _ => ask("DELETE", &path).status(server).await,
    };
    assert!(matches!(status, 200 | 201), "{at}: {status}");
}

/// Reads a revision page by page.
async fn read(server: &TestServer, revision: &str) -> State {
    let first = format!("{MAPS}?limit=2&resourceVersionMatch=Exact&resourceVersion={revision}");
    let (mut path, mut items) = (first, Vec::new());
    loop {
        let (status, mut page) = ask("GET", &path).answer(server).await;
        assert_eq!(status, 200, "{path}: {page}");
        assert_eq!(page["metadata"]["resourceVersion"], revision, "{path}");
        items.append(page["items"].as_array_mut().unwrap());
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => path = format!("{MAPS}?limit=2&continue={next}"),
            _ => return state(&items),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_read_as_it_was_while_others_write() {
    both(&[], async |server| {
        let namespace = json!({"metadata": {"name": "past"}});
        let made = ask("POST", "/api/v1/namespaces").json(&namespace);
        assert_eq!(made.status(server).await, 201);
        let (mut now, mut history) = (State::new(), Vec::new());
        for at in 0..WRITES {
            write(server, at).await;
            let name = format!("m{}", at % NAMES);
            match at / NAMES % 3 {
                2 => drop(now.remove(&name)),
                _ => drop(now.insert(name, at.to_string())),
            }
            let (_, list) = ask("GET", MAPS).answer(server).await;
            assert_eq!(state(list["items"].as_array().unwrap()), now);
            let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
            history.push((revision.to_owned(), now.clone()));
        }
        let readers = (0..READERS).map(async |reader| {
            // In an order of its own, so that no two ask for the same.
            for at in 0..WRITES {
                let (revision, then) = &history[(at * 37 + reader * 13) % WRITES];
                assert_eq!(read(server, revision).await, *then, "at {revision}");
            }
        });
        let writer = async {
            for at in WRITES..2 * WRITES {
                write(server, at).await;
            }
        };
        futures::join!(join_all(readers), writer);
    })
    .await;
}
