//! The same random work on each store, alone and behind the watch cache, from a seed: every answer,
//! every error and every event must be the same.

use futures::StreamExt;
use futures::future::join_all;
use keelson::internals::storage::{
    ListRequest, Result, Revision, Storage, StorageError, WatchEvent,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Backend, bytes, next};

const STEPS: usize = 400;
const NAMES: [&str; 10] = [
    "/a", "/a/1", "/a/2", "/a/22", "/aa/1", "/b", "/b/1", "/b/1/x", "/b/2", "/c",
];
const PREFIXES: [&str; 7] = ["", "/", "/a", "/a/", "/b/", "/b/1", "/z"];

#[tokio::test]
async fn stores_answer_alike() {
    let runs = [1, 2, 3].map(|seed| async move {
        let stores = [
            Backend::embedded().await,
            Backend::fresh_etcd3().await,
            Backend::memory().await,
            Backend::embedded().await.cached().await,
            Backend::fresh_etcd3().await.cached().await,
        ];
        run(seed, &stores.each_ref().map(|store| store.storage.as_ref())).await;
    });
    join_all(runs).await;
}

/// One thing to do to a store.
#[derive(Debug)]
enum Step {
    Create(&'static str, String),
    Update(&'static str, String, Revision),
    Delete(&'static str, Revision),
    Get(&'static str),
    List(ListRequest),
    Watch(&'static str, Revision),
    Compact(Revision),
}

async fn run(seed: u64, stores: &[&dyn Storage]) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut compacted = 0;
    for number in 0..STEPS {
        let step = choose(&mut rng, stores[0], compacted, number).await;
        let answers = join_all(stores.iter().map(|store| apply(&step, *store))).await;
        for (store, answer) in answers.iter().enumerate() {
            assert_eq!(
                *answer, answers[0],
                "seed {seed}, step {number}, store {store}: {step:?}"
            );
        }
        if let (Step::Compact(revision), true) = (&step, answers[0].starts_with("Ok")) {
            compacted = *revision;
        }
    }
    assert!(compacted > 1, "seed {seed} never compacts");
}

async fn choose(
    rng: &mut StdRng,
    storage: &dyn Storage,
    compacted: Revision,
    number: usize,
) -> Step {
    let current = storage.current_revision().await.unwrap();
    let name = NAMES[rng.random_range(0..NAMES.len())];
    let prefix = PREFIXES[rng.random_range(0..PREFIXES.len())];
    let stands = storage
        .get(name)
        .await
        .unwrap()
        .map_or(0, |s| s.mod_revision);
    let expected = if rng.random_bool(0.8) {
        stands
    } else {
        rng.random_range(0..=current)
    };
    let past = rng.random_range(1..=current + 2);
    match rng.random_range(0..100) {
        0..20 => Step::Create(name, number.to_string()),
        20..50 => Step::Update(name, number.to_string(), expected),
        50..65 => Step::Delete(name, expected),
        65..72 => Step::Get(name),
        72..90 => Step::List(ListRequest {
            prefix: prefix.into(),
            start: if rng.random_bool(0.5) {
                name.into()
            } else {
                String::new()
            },
            limit: rng.random_range(0..5),
            revision: rng.random_bool(0.6).then_some(past),
        }),
        // Just before the compacted revision, etcd may still know.
        90..97 if past.min(current) != compacted - 1 => Step::Watch(prefix, past.min(current)),
        _ => Step::Compact(past),
    }
}

/// Applies a step and returns its outcome as text.
async fn apply(step: &Step, storage: &dyn Storage) -> String {
    match step {
        Step::Create(name, value) => tell(storage.create(name, bytes(value), None).await),
        Step::Update(name, value, expected) => {
            tell(storage.update(name, bytes(value), *expected, None).await)
        }
        Step::Delete(name, expected) => tell(storage.delete(name, *expected).await),
        Step::Get(name) => tell(storage.get_with_revision(name).await),
        Step::List(request) => tell(storage.list(request.clone()).await),
        Step::Watch(prefix, after) => tell(watched(storage, prefix, *after).await),
        Step::Compact(revision) => tell(storage.compact(*revision).await),
    }
}

fn tell(outcome: Result<impl std::fmt::Debug>) -> String {
    match outcome {
        // Not everybody knows the oldest.
        Err(StorageError::Compacted { .. }) => "compacted".into(),
        outcome => format!("{outcome:?}"),
    }
}

/// All events up to the present.
async fn watched(storage: &dyn Storage, prefix: &str, after: Revision) -> Result<Vec<WatchEvent>> {
    let current = storage.current_revision().await?;
    if after == current {
        return Ok(Vec::new());
    }
    let mut stream = storage.watch(prefix, after).await?;
    storage.request_progress().await?;
    let mut events = Vec::new();
    loop {
        match next(&mut stream).await {
            Ok(WatchEvent::Progress(revision)) if revision >= current => return Ok(events),
            Ok(WatchEvent::Progress(_)) => storage.request_progress().await?,
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none());
                return Err(error);
            }
        }
    }
}
