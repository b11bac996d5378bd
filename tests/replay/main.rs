//! Replays recorded scenarios against a spawned server and compares every answer strictly.
//!
//! `vectors/**/*.json` hold lists of scenarios `{"name", "about", "steps"}`; `scenario.rs`
//! describes a step. What a real kube-apiserver v1.36 answered is each step's `want`. Run one with
//! `REPLAY=name cargo test --test replay`; `REPLAY_PORT=6443` asks a server that runs already, with
//! the tokens of `tests/support`, instead of a new one.

mod normalize;
mod scenario;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use futures::StreamExt;
use scenario::Scenario;
use support::TestServer;

/// Scenarios that run at a time; each has a namespace of its own.
const AT_ONCE: usize = 8;
/// Differences shown of one step.
const SHOWN: usize = 5;

/// All scenarios below `vectors`, or those whose name contains `$REPLAY`.
fn scenarios() -> Vec<Scenario> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay/vectors");
    let wanted = std::env::var("REPLAY").unwrap_or_default();
    let (mut found, mut folders) = (Vec::new(), vec![root]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of vectors") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = fs::read_to_string(&path).expect("a readable vector");
                let scenarios: Vec<Scenario> = serde_json::from_str(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.extend(
                    scenarios
                        .into_iter()
                        .filter(|scenario| scenario.name.contains(&wanted)),
                );
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_answer_is_given_again() {
    let scenarios = scenarios();
    assert!(!scenarios.is_empty(), "no scenario is called that");
    let running = std::env::var("REPLAY_PORT")
        .ok()
        .and_then(|port| port.parse().ok());
    let server = if running.is_none() {
        Some(TestServer::start().await)
    } else {
        None
    };
    let port = running
        .or(server.as_ref().map(TestServer::port))
        .expect("a port");
    let runs = scenarios
        .iter()
        .map(|scenario| async move { (scenario, scenario.run(port).await) });
    let results: Vec<_> = futures::stream::iter(runs)
        .buffered(AT_ONCE)
        .collect()
        .await;

    let (mut report, mut steps, mut failed) = (String::new(), 0, 0);
    for (scenario, outcomes) in &results {
        steps += outcomes.len();
        for outcome in outcomes
            .iter()
            .filter(|outcome| !outcome.differences.is_empty())
        {
            failed += 1;
            let _ = writeln!(
                report,
                "{} step {} {}",
                scenario.name, outcome.step, outcome.request
            );
            for difference in outcome.differences.iter().take(SHOWN) {
                let _ = writeln!(
                    report,
                    "    {}\n      want {}\n      got  {}",
                    difference.path, difference.want, difference.got
                );
            }
            let _ = writeln!(report, "    ({} differences)", outcome.differences.len());
        }
    }
    println!(
        "{} of {steps} steps of {} scenarios match",
        steps - failed,
        results.len()
    );
    assert!(failed == 0, "{failed} of {steps} steps differ:\n{report}");
}
