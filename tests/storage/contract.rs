//! The promises of `Storage`, one test each.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use keelson::internals::storage::Compactor;
use keelson::internals::storage::{
    ListRequest, StorageError, Stored, WatchEvent, WriteOutcome, next_key,
};

use super::{Backend, bytes, compacted, done, events, next, revision};

pub async fn create_wants_no_key(b: Backend) {
    let made = b.create("a", "1").await;
    let stands = Stored {
        key: b.key("a"),
        value: bytes("1"),
        create_revision: made,
        mod_revision: made,
    };
    assert_eq!(b.storage.get(&b.key("a")).await, Ok(Some(stands.clone())));
    assert_eq!(
        b.storage.create(&b.key("a"), bytes("2"), None).await,
        Ok(WriteOutcome::Conflict(Some(stands.clone())))
    );
    assert_eq!(b.storage.get(&b.key("a")).await, Ok(Some(stands)));
    assert_eq!(b.storage.get(&b.key("b")).await, Ok(None));
}

pub async fn update_wants_the_expected_revision(b: Backend) {
    assert_eq!(
        b.storage.update(&b.key("a"), bytes("1"), 7, None).await,
        Ok(WriteOutcome::Conflict(None))
    );
    let made = b.create("a", "1").await;
    let written = b.update("a", "2", made).await;
    assert!(written > made);
    let stands = Stored {
        key: b.key("a"),
        value: bytes("2"),
        create_revision: made,
        mod_revision: written,
    };
    assert_eq!(
        b.storage.update(&b.key("a"), bytes("3"), made, None).await,
        Ok(WriteOutcome::Conflict(Some(stands.clone())))
    );
    assert_eq!(b.storage.get(&b.key("a")).await, Ok(Some(stands)));
}

pub async fn delete_wants_the_expected_revision(b: Backend) {
    for expected in [0, 7] {
        assert_eq!(
            b.storage.delete(&b.key("a"), expected).await,
            Ok(WriteOutcome::Conflict(None))
        );
    }
    let made = b.create("a", "1").await;
    let stands = b.storage.get(&b.key("a")).await.unwrap();
    assert_eq!(
        b.storage.delete(&b.key("a"), made - 1).await,
        Ok(WriteOutcome::Conflict(stands))
    );
    assert!(b.delete("a", made).await > made);
    assert_eq!(b.storage.get(&b.key("a")).await, Ok(None));
    assert_eq!(
        b.storage.delete(&b.key("a"), made).await,
        Ok(WriteOutcome::Conflict(None))
    );
}

pub async fn a_key_made_again_has_a_new_create_revision(b: Backend) {
    let first = b.create("a", "1").await;
    b.delete("a", first).await;
    let again = b.create("a", "1").await;
    let written = b.update("a", "2", again).await;
    let stands = b.storage.get(&b.key("a")).await.unwrap().unwrap();
    assert_eq!(
        (stands.create_revision, stands.mod_revision),
        (again, written)
    );
}

pub async fn reads_name_their_revision(b: Backend) {
    let made = b.create("a", "1").await;
    let (stands, at) = b.storage.get_with_revision(&b.key("a")).await.unwrap();
    assert_eq!(stands.unwrap().mod_revision, made);
    assert!(at >= made);
    let (none, later) = b.storage.get_with_revision(&b.key("b")).await.unwrap();
    assert!(none.is_none() && later >= at);
    assert!(b.storage.current_revision().await.unwrap() >= later);
    assert!(b.storage.list(b.all()).await.unwrap().revision >= later);
}

pub async fn revisions_start_at_one_and_grow_by_one(b: Backend) {
    assert_eq!(b.storage.current_revision().await, Ok(1));
    assert_eq!(
        b.storage
            .list(ListRequest {
                revision: Some(1),
                ..b.all()
            })
            .await
            .unwrap()
            .count,
        0
    );
    assert_eq!(b.create("a", "1").await, 2);
    assert_eq!(b.update("a", "2", 2).await, 3);
    // What fails takes no revision.
    assert!(matches!(
        b.storage.create(&b.key("a"), bytes("3"), None).await,
        Ok(WriteOutcome::Conflict(Some(_)))
    ));
    assert_eq!(b.delete("a", 3).await, 4);
    assert_eq!(b.storage.current_revision().await, Ok(4));
}

pub async fn list_pages_in_order(b: Backend) {
    for name in ["d", "a", "e", "c", "b"] {
        b.create(name, name).await;
    }
    // (start, limit) -> the names, whether there is more, how many from start on
    let cases = [
        ("", 0, "abcde", false, 5),
        ("", 2, "ab", true, 5),
        ("", 5, "abcde", false, 5),
        ("", 9, "abcde", false, 5),
        ("c", 2, "cd", true, 3),
        ("cc", 2, "de", false, 2),
        ("e", 1, "e", false, 1),
        ("f", 1, "", false, 0),
    ];
    for (start, limit, names, more, count) in cases {
        let start = if start.is_empty() {
            String::new()
        } else {
            b.key(start)
        };
        let page = b
            .storage
            .list(ListRequest {
                start: start.clone(),
                limit,
                ..b.all()
            })
            .await
            .unwrap();
        let got: String = page
            .items
            .iter()
            .map(|s| s.key.strip_prefix(&b.prefix).unwrap())
            .collect();
        assert_eq!(
            (got.as_str(), page.more, page.count),
            (names, more, count),
            "from {start:?}, limit {limit}"
        );
        assert!(
            page.items
                .iter()
                .all(|s| s.key.ends_with(std::str::from_utf8(&s.value).unwrap()))
        );
    }
}

pub async fn list_keeps_to_its_prefix(b: Backend) {
    for name in [
        "pods/a/x",
        "pods/aa/x",
        "pods/a/y",
        "pods/a0",
        "podsa",
        "pods/b/x",
    ] {
        b.create(name, "").await;
    }
    for (prefix, count) in [
        ("pods/a/", 2),
        ("pods/a", 4),
        ("pods/", 5),
        ("pods", 6),
        ("none", 0),
        ("pods/a/x", 1),
    ] {
        let page = b
            .storage
            .list(ListRequest {
                prefix: b.key(prefix),
                ..ListRequest::default()
            })
            .await
            .unwrap();
        assert_eq!(
            (page.items.len(), page.count),
            (count, count as i64),
            "{prefix}"
        );
        // A start before the prefix changes nothing.
        let early = ListRequest {
            prefix: b.key(prefix),
            start: "/".into(),
            ..ListRequest::default()
        };
        assert_eq!(
            b.storage.list(early).await.unwrap().items,
            page.items,
            "{prefix}"
        );
    }
}

pub async fn list_at_an_old_revision(b: Backend) {
    let a = b.create("a", "1").await;
    b.create("b", "1").await;
    let c = b.create("c", "1").await;
    let at = c;
    b.update("a", "2", a).await;
    b.delete("c", c).await;
    b.create("d", "1").await;
    let c = b.create("c", "2").await;
    let tell = |items: &[Stored]| {
        items
            .iter()
            .map(|s| {
                b.tell(&WatchEvent::Put {
                    current: s.clone(),
                    previous: None,
                })
            })
            .collect::<Vec<_>>()
    };
    let old = b
        .storage
        .list(ListRequest {
            revision: Some(at),
            ..b.all()
        })
        .await
        .unwrap();
    assert_eq!((old.revision, old.count), (at, 3));
    assert_eq!(tell(&old.items), ["put a=1", "put b=1", "put c=1"]);
    // A page of the past, then the next one of the same past.
    let page = b
        .storage
        .list(ListRequest {
            revision: Some(at),
            limit: 2,
            ..b.all()
        })
        .await
        .unwrap();
    assert_eq!((page.more, page.count, page.items.len()), (true, 3, 2));
    let start = next_key(&page.items[1].key);
    let page = b
        .storage
        .list(ListRequest {
            revision: Some(at),
            limit: 2,
            start,
            ..b.all()
        })
        .await
        .unwrap();
    assert_eq!(
        (page.more, page.count, tell(&page.items)),
        (false, 1, vec!["put c=1".to_owned()])
    );
    assert_eq!(page.items[0].mod_revision, at);
    let now = b.storage.list(b.all()).await.unwrap();
    assert_eq!(
        tell(&now.items),
        ["put a=2", "put b=1", "put c=2", "put d=1"]
    );
    assert_eq!(
        (now.items[2].create_revision, now.items[0].create_revision),
        (c, a)
    );
}

pub async fn list_at_a_future_revision_fails(b: Backend) {
    let asked = b.storage.current_revision().await.unwrap() + 1_000_000;
    match b
        .storage
        .list(ListRequest {
            revision: Some(asked),
            ..b.all()
        })
        .await
    {
        Err(StorageError::FutureRevision {
            asked: told,
            current,
        }) => assert!(told == asked && 0 < current && current < asked),
        other => panic!("{other:?}"),
    }
}

pub async fn values_may_be_any_bytes(b: Backend) {
    let all: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    for (name, value) in [
        ("all", all),
        ("none", Bytes::new()),
        ("zero", Bytes::from_static(&[0])),
    ] {
        done(b.storage.create(&b.key(name), value.clone(), None).await);
        assert_eq!(
            b.storage.get(&b.key(name)).await.unwrap().unwrap().value,
            value
        );
        let WatchEvent::Put {
            current,
            previous: None,
        } = &events(&mut stream, 1).await[0]
        else {
            panic!("not made")
        };
        assert_eq!(current.value, value);
    }
}

pub async fn values_may_be_large_but_not_too_large(b: Backend) {
    let large = Bytes::from(vec![7; 1 << 20]);
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    let made = done(b.storage.create(&b.key("a"), large.clone(), None).await);
    done(
        b.storage
            .update(&b.key("a"), large.clone(), made, None)
            .await,
    );
    assert_eq!(b.storage.list(b.all()).await.unwrap().items[0].value, large);
    let WatchEvent::Put {
        current,
        previous: Some(previous),
    } = &events(&mut stream, 2).await[1]
    else {
        panic!("not written")
    };
    assert!(current.value == large && previous.value == large);
    for size in [1_600_000, 4 << 20] {
        let outcome = b
            .storage
            .create(&b.key("b"), vec![7; size].into(), None)
            .await;
        assert!(
            matches!(outcome, Err(StorageError::TooLarge(_))),
            "{size}: {outcome:?}"
        );
    }
    assert_eq!(
        b.storage
            .create(&b.key("b"), vec![7; 1_600_000].into(), None)
            .await,
        Err(StorageError::TooLarge(
            "etcdserver: request is too large".into()
        ))
    );
    assert_eq!(b.storage.get(&b.key("b")).await, Ok(None));
}

pub async fn many_keys_are_listed_whole(b: Backend) {
    const KEYS: usize = 1200;
    let creates = (0..KEYS).map(|i| {
        let b = &b;
        async move { b.create(&format!("{i:05}"), &i.to_string()).await }
    });
    let revisions: BTreeSet<_> = futures::stream::iter(creates)
        .buffer_unordered(64)
        .collect()
        .await;
    assert_eq!(
        revisions.len(),
        KEYS,
        "each write has a revision of its own"
    );
    let all = b.storage.list(b.all()).await.unwrap();
    assert_eq!((all.count, all.more), (KEYS as i64, false));
    let mut paged = Vec::new();
    let mut request = ListRequest {
        limit: 500,
        revision: Some(all.revision),
        ..b.all()
    };
    loop {
        let page = b.storage.list(request.clone()).await.unwrap();
        assert_eq!(page.count, (KEYS - paged.len()) as i64);
        paged.extend(page.items);
        if !page.more {
            break;
        }
        request.start = next_key(&paged.last().unwrap().key);
    }
    assert_eq!(paged, all.items);
    assert!(paged.is_sorted_by(|a, b| a.key < b.key));
}

pub async fn watch_tells_changes_in_order_with_what_was_before(b: Backend) {
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    let a1 = b.create("a", "1").await;
    let a2 = b.update("a", "2", a1).await;
    let b1 = b.create("b", "1").await;
    let a3 = b.delete("a", a2).await;
    let a4 = b.create("a", "4").await;
    let told = events(&mut stream, 5).await;
    let texts: Vec<_> = told.iter().map(|e| b.tell(e)).collect();
    assert_eq!(
        texts,
        [
            "put a=1",
            "put a=2 (was 1)",
            "put b=1",
            "delete a (was 2)",
            "put a=4"
        ]
    );
    assert_eq!(
        told.iter().map(revision).collect::<Vec<_>>(),
        [a1, a2, b1, a3, a4]
    );
    let was = Stored {
        key: b.key("a"),
        value: bytes("2"),
        create_revision: a1,
        mod_revision: a2,
    };
    assert_eq!(
        told[3],
        WatchEvent::Delete {
            key: b.key("a"),
            revision: a3,
            previous: Some(was)
        }
    );
    let WatchEvent::Put { current, .. } = &told[1] else {
        panic!("not written")
    };
    assert_eq!((current.create_revision, current.mod_revision), (a1, a2));
}

pub async fn watch_from_the_past_tells_the_same(b: Backend) {
    let start = b.storage.current_revision().await.unwrap();
    let mut live = b.watch(start).await;
    let mut at = b.create("a", "0").await;
    for i in 1..40 {
        at = b.update("a", &i.to_string(), at).await;
    }
    b.delete("a", at).await;
    let told = events(&mut live, 41).await;
    for (round, skip) in [0, 1, 17, 40].into_iter().enumerate() {
        let from = if skip == 0 {
            start
        } else {
            revision(&told[skip - 1])
        };
        let mut stream = b.watch(from).await;
        assert_eq!(
            events(&mut stream, 41 - skip).await,
            told[skip..],
            "after {skip} events"
        );
        // And it goes on with what happens now.
        let now = b.create(&format!("b{skip}"), "x").await;
        assert_eq!(revision(&events(&mut stream, round + 1).await[round]), now);
    }
}

pub async fn watch_keeps_to_its_prefix(b: Backend) {
    let start = b.storage.current_revision().await.unwrap();
    let mut narrow = b.storage.watch(&b.key("pods/a/"), start).await.unwrap();
    for name in [
        "pods/a",
        "pods/a0",
        "pods/aa/x",
        "pods/a/x",
        "podsa",
        "pods/b/x",
        "pods/a/y",
    ] {
        b.create(name, "").await;
    }
    assert_eq!(
        b.told(&mut narrow, 2).await,
        ["put pods/a/x=", "put pods/a/y="]
    );
    let mut late = b.storage.watch(&b.key("pods/a/"), start).await.unwrap();
    assert_eq!(
        b.told(&mut late, 2).await,
        ["put pods/a/x=", "put pods/a/y="]
    );
}

pub async fn watch_from_the_future_waits(b: Backend) {
    let first = b.create("a", "1").await;
    // Others may write to this store too; so far ahead that this test writes past it itself.
    let ahead = first + 3;
    let mut stream = b.watch(ahead).await;
    let mut at = first;
    while at <= ahead {
        at = b.update("a", "x", at).await;
    }
    assert_eq!(revision(&events(&mut stream, 1).await[0]), at);
}

pub async fn watch_tells_its_progress_when_asked(b: Backend) {
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    let made = b.create("a", "1").await;
    // Outside of the watched prefix: only progress can tell of it.
    let other = done(
        b.storage
            .create(&format!("/other{}", b.prefix), bytes("1"), None)
            .await,
    );
    let (mut told, mut reached) = (0, 0);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while reached < other {
        assert!(
            tokio::time::Instant::now() < deadline,
            "progress to {other}, not just {reached}"
        );
        b.storage.request_progress().await.unwrap();
        match next(&mut stream).await.unwrap() {
            WatchEvent::Progress(revision) => {
                assert!(
                    revision >= reached && (told == 1 || revision < made),
                    "progress behind the events that it covers"
                );
                reached = revision;
            }
            event => {
                told += 1;
                assert_eq!(revision(&event), made);
            }
        }
    }
    assert_eq!(told, 1);
}

pub async fn watchers_are_independent(b: Backend) {
    let start = b.storage.current_revision().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(b.watch(start).await);
    }
    // One that never reads and one that goes away hold up nobody.
    let _idle = b.watch(start).await;
    drop(b.watch(start).await);
    for i in 0..10 {
        b.create(&i.to_string(), "").await;
    }
    let told = join_all(streams.iter_mut().map(|s| b.told(s, 10))).await;
    let want: Vec<_> = (0..10).map(|i| format!("put {i}=")).collect();
    assert!(told.iter().all(|t| *t == want));
}

pub async fn ttl_deletes_and_a_write_without_it_keeps(b: Backend) {
    let second = Some(Duration::from_secs(1));
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    let begin = std::time::Instant::now();
    let kept = done(b.storage.create(&b.key("kept"), bytes("1"), second).await);
    b.update("kept", "2", kept).await;
    let longer = done(b.storage.create(&b.key("longer"), bytes("1"), second).await);
    done(
        b.storage
            .update(
                &b.key("longer"),
                bytes("2"),
                longer,
                Some(Duration::from_secs(3600)),
            )
            .await,
    );
    done(b.storage.create(&b.key("gone"), bytes("1"), second).await);
    let told = b.told(&mut stream, 6).await;
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(told[5], "delete gone (was 1)");
    let left: Vec<_> = b
        .storage
        .list(b.all())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|s| s.key)
        .collect();
    assert_eq!(left, [b.key("kept"), b.key("longer")]);
}

pub async fn concurrent_writers_lose_nothing(b: Backend) {
    const WRITERS: usize = 8;
    const EACH: usize = 20;
    let mut stream = b.watch(b.storage.current_revision().await.unwrap()).await;
    b.create("n", "0").await;
    join_all((0..WRITERS).map(|_| async {
        let mut stands = b.storage.get(&b.key("n")).await.unwrap().unwrap();
        for _ in 0..EACH {
            loop {
                let n: usize = std::str::from_utf8(&stands.value).unwrap().parse().unwrap();
                let next = bytes(&(n + 1).to_string());
                match b
                    .storage
                    .update(&b.key("n"), next.clone(), stands.mod_revision, None)
                    .await
                    .unwrap()
                {
                    WriteOutcome::Committed(revision) => {
                        stands = Stored {
                            value: next,
                            mod_revision: revision,
                            ..stands
                        };
                        break;
                    }
                    WriteOutcome::Conflict(current) => stands = current.unwrap(),
                }
            }
        }
    }))
    .await;
    assert_eq!(
        b.storage.get(&b.key("n")).await.unwrap().unwrap().value,
        bytes(&(WRITERS * EACH).to_string())
    );
    let told = b.told(&mut stream, WRITERS * EACH + 1).await;
    let want = (1..=WRITERS * EACH).map(|n| format!("put n={n} (was {})", n - 1));
    assert!(told.into_iter().skip(1).eq(want));
}

pub async fn compaction_forgets_history_only(b: Backend) {
    let a1 = b.create("a", "1").await;
    let b1 = b.create("b", "1").await;
    let a2 = b.update("a", "2", a1).await;
    let b2 = b.delete("b", b1).await;
    let a3 = b.update("a", "3", a2).await;
    let a4 = b.update("a", "4", a3).await;
    b.storage.compact(a3).await.unwrap();
    for old in [1, a1, a2, b2] {
        compacted(
            b.storage
                .list(ListRequest {
                    revision: Some(old),
                    ..b.all()
                })
                .await,
        );
        let mut stream = b.watch(old - 1).await;
        compacted(next(&mut stream).await);
        assert!(stream.next().await.is_none(), "nothing follows the error");
        compacted(b.storage.compact(old).await);
    }
    compacted(b.storage.compact(a3).await);
    let future = b.storage.compact(a4 + 100).await;
    assert!(
        matches!(future, Err(StorageError::FutureRevision { .. })),
        "{future:?}"
    );
    for (at, value) in [(a3, "3"), (a4, "4")] {
        let page = b
            .storage
            .list(ListRequest {
                revision: Some(at),
                ..b.all()
            })
            .await
            .unwrap();
        assert_eq!(
            (
                page.count,
                page.items[0].value.clone(),
                page.items[0].create_revision
            ),
            (1, bytes(value), a1)
        );
    }
    let mut stream = b.watch(a3).await;
    assert_eq!(b.told(&mut stream, 1).await, ["put a=4 (was 3)"]);
    assert_eq!(
        b.storage
            .get(&b.key("a"))
            .await
            .unwrap()
            .unwrap()
            .mod_revision,
        a4
    );
    let b3 = b.create("b", "2").await;
    assert_eq!(
        b.storage
            .get(&b.key("b"))
            .await
            .unwrap()
            .unwrap()
            .create_revision,
        b3
    );
    assert_eq!(b.told(&mut stream, 1).await, ["put b=2"]);
}

pub async fn health_is_good(b: Backend) {
    assert_eq!(b.storage.check_health().await, Ok(()));
}

pub async fn one_of_several_compactors_keeps_history_for_two_turns(b: Backend) {
    let storage = b.storage.as_ref();
    let (mut ours, mut theirs) = (Compactor::default(), Compactor::default());
    let mut at = b.create("a", "0").await;
    let mut turns = Vec::new();
    for i in 1..=4 {
        at = b.update("a", &i.to_string(), at).await;
        turns.push((
            at,
            ours.compact_once(storage).await.unwrap(),
            theirs.compact_once(storage).await.unwrap(),
        ));
    }
    let done: Vec<_> = turns
        .iter()
        .map(|(_, ours, theirs)| (ours.is_some(), theirs.is_some()))
        .collect();
    // The first turns only look; then the one that writes the common key compacts, and only that
    // one.
    assert_eq!(
        done,
        [(false, false), (true, false), (true, false), (true, false)]
    );
    let (past, forgotten) = (turns[1].0, turns[3].1.unwrap());
    assert!(
        turns[2].0 < forgotten && forgotten < turns[3].0,
        "history reaches back to the last turn"
    );
    compacted(
        storage
            .list(ListRequest {
                revision: Some(past),
                ..b.all()
            })
            .await,
    );
    let kept = storage
        .list(ListRequest {
            revision: Some(forgotten),
            ..b.all()
        })
        .await
        .unwrap();
    assert_eq!(kept.items[0].value, bytes("3"));
    // Where ours is gone, theirs takes over.
    assert!(theirs.compact_once(storage).await.unwrap().is_some());
    assert!(ours.compact_once(storage).await.unwrap().is_none());
}
