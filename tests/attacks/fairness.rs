//! Priority and fairness: users who want more than there is, beside others who want little.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::connections::Http2;
use crate::overload::{MAPS, fill, let_users, metric};
use crate::support::http::Answer;
use crate::support::{ADMIN, TestServer, USER, until};
use crate::{ask, both, embedded};

const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
/// Flags by which a level of one share has one seat.
const FEW_SEATS: [&str; 2] = [
    "--max-requests-inflight=10",
    "--max-mutating-requests-inflight=10",
];

/// Makes a level with one seat that it neither lends nor borrows, and a flow schema of alice and
/// bob for it; returns their UIDs once they are in effect.
pub async fn one_seat(server: &TestServer, response: Value) -> (String, String) {
    let limited = json!({"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response});
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": limited}});
    let (status, level) = ask("POST", LEVELS).json(&level).answer(server).await;
    assert_eq!(status, 201, "{level}");
    let any = json!(["*"]);
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let rule = json!({"subjects": [user("alice"), user("bob")],
        "resourceRules": [{"verbs": any, "apiGroups": any, "resources": any, "clusterScope": true, "namespaces": any}],
        "nonResourceRules": [{"verbs": any, "nonResourceURLs": ["/version"]}]});
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "narrow"},
        "spec": {"priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 5,
            "distinguisherMethod": {"type": "ByUser"}, "rules": [rule]}});
    let (status, schema) = ask("POST", SCHEMAS).json(&schema).answer(server).await;
    assert_eq!(status, 201, "{schema}");
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let uids = (uid(&level), uid(&schema));
    until("it comes", async || {
        header(&version(server).await, LEVEL_UID) == uids.0
    })
    .await;
    uids
}

const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";
const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";

fn header(answer: &Answer, name: &str) -> String {
    let value = answer
        .headers
        .get(name)
        .map(|value| value.to_str().unwrap());
    value.unwrap_or("none").to_owned()
}

async fn version(server: &TestServer) -> Answer {
    ask("GET", "/version").by(USER).send(server).await
}

fn queues(count: u32, length: u32) -> Value {
    let queuing = json!({"queues": count, "handSize": 1, "queueLengthLimit": length});
    json!({"type": "Queue", "queuing": queuing})
}

/// The requests of a flow schema that wait in queues.
async fn waiting(server: &TestServer) -> f64 {
    let name = "apiserver_flowcontrol_current_inqueue_requests";
    metric(server, name, &["flow_schema=\"narrow\""]).await
}

async fn rejected(server: &TestServer, reason: &str) -> f64 {
    let name = "apiserver_flowcontrol_rejected_requests_total";
    let reason = format!("reason=\"{reason}\"");
    metric(server, name, &["priority_level=\"narrow\"", &reason]).await
}

#[tokio::test]
async fn an_abuser_does_not_starve_others() {
    both(&FEW_SEATS, async |server| {
        let_users(server).await;
        fill(server, 4).await;
        one_seat(server, queues(64, 50)).await;
        // An answer that is not read keeps the only seat, and so would the next.
        let mut abuser = Http2::to(server).await;
        let first = abuser.get(MAPS, USER).await.unwrap();
        assert_eq!(first.status(), 200);
        let mut others = Vec::new();
        for _ in 0..5 {
            let mut client = Http2::to(server).await;
            others.push(tokio::spawn(async move {
                let answer = client.get(MAPS, USER).await.unwrap();
                (client, answer)
            }));
        }
        until("it comes", async || waiting(server).await == 5.0).await;
        let bob = ask("GET", "/version").header("Impersonate-User", "bob");
        let release = async {
            until("it comes", async || waiting(server).await == 6.0).await;
            assert_exempt_requests_pass(server).await;
            assert_bob_waits(server).await;
            drop(first);
        };
        let (bob, ()) = futures::join!(bob.status(server), release);
        assert_eq!(bob, 200, "he is not behind all that came before");
        until("it comes", async || waiting(server).await == 4.0).await;
        for other in others {
            other.abort();
        }
        until("it comes", async || waiting(server).await == 0.0).await;
    })
    .await;
}

async fn assert_exempt_requests_pass(server: &TestServer) {
    assert_eq!(ask("GET", MAPS).status(server).await, 200);
    assert_eq!(ask("GET", "/readyz").by(USER).status(server).await, 200);
}

async fn assert_bob_waits(server: &TestServer) {
    let page = "/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1";
    let page = ask("GET", page).send(server).await.body.to_vec();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("FlowDistingsher"), "{page}");
    let line = page.lines().find(|line| line.contains(" bob,")).unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    assert_eq!(cells[..2], ["narrow", "narrow"], "{line}");
    assert_eq!(cells[4], "bob", "{line}");
    let work = ["1", "0", "0s", "0001-01-01T00:00:00Z"];
    assert_eq!(cells[6..10], work, "{line}");
    assert_eq!(cells[10..13], ["bob", "get", "/version"], "{line}");
}

#[tokio::test]
async fn requests_beyond_the_seats_are_rejected_with_the_uids_of_their_level() {
    both(&FEW_SEATS, async |server| {
        let_users(server).await;
        fill(server, 4).await;
        let (level, schema) = one_seat(server, json!({"type": "Reject"})).await;
        let mut client = Http2::to(server).await;
        let list = client.get(MAPS, USER).await.unwrap();
        assert_eq!(list.status(), 200);
        assert_eq!(list.headers()[LEVEL_UID], level.as_str());
        let refused = version(server).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.body, "Too many requests, please try again later.\n");
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("retry-after", "1"),
            (LEVEL_UID, &level),
            (SCHEMA_UID, &schema),
        ] {
            assert_eq!(header(&refused, name), value, "{name}");
        }
        assert_eq!(rejected(server, "concurrency-limit").await, 1.0);
        for name in [
            "apiserver_request_terminations_total",
            "apiserver_request_total",
        ] {
            assert_eq!(metric(server, name, &["code=\"429\""]).await, 1.0, "{name}");
        }
        // The seat is free again when the answer has been read.
        list.into_body().collect().await.unwrap();
        until("it comes", async || version(server).await.status == 200).await;
    })
    .await;
}

#[tokio::test]
async fn a_full_queue_and_a_long_wait_are_rejected() {
    let flags = [FEW_SEATS[0], FEW_SEATS[1], "--request-timeout=8s"];
    let (_folder, server) = embedded(&flags).await;
    let_users(&server).await;
    fill(&server, 4).await;
    one_seat(&server, queues(1, 1)).await;
    let mut client = Http2::to(&server).await;
    let list = client.get(MAPS, USER).await.unwrap();
    assert_eq!(list.status(), 200);
    let begun = std::time::Instant::now();
    let second = async {
        let answer = version(&server).await;
        // A quarter of the time that the request has.
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(7));
        answer.status
    };
    let third = async {
        until("it comes", async || waiting(&server).await == 1.0).await;
        version(&server).await.status
    };
    assert_eq!(futures::join!(second, third), (429, 429));
    assert_eq!(rejected(&server, "queue-full").await, 1.0);
    assert_eq!(rejected(&server, "time-out").await, 1.0);
    let page = ask(
        "GET",
        "/debug/api_priority_and_fairness/dump_priority_levels",
    );
    let page = String::from_utf8(page.send(&server).await.body.to_vec()).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("narrow,"))
        .unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let (states, counts) = (&cells[1..6], &cells[7..]);
    assert_eq!(states, ["0", "false", "false", "0", "1"], "{page}");
    assert_eq!(counts, ["2", "0", "1"], "{page}");
    drop(list);
}

/// A client that goes while its request waits gives its place back.
#[tokio::test]
async fn a_request_that_is_given_up_leaves_its_queue() {
    let (_folder, server) = embedded(&FEW_SEATS).await;
    let_users(&server).await;
    fill(&server, 4).await;
    one_seat(&server, queues(1, 10)).await;
    let mut client = Http2::to(&server).await;
    let list = client.get(MAPS, USER).await.unwrap();
    let (mut second, mut third) = (Http2::to(&server).await, Http2::to(&server).await);
    let given_up = tokio::spawn(async move { second.status("/version", USER).await });
    let kept = tokio::spawn(async move { third.status("/version", USER).await });
    until("it comes", async || waiting(&server).await == 2.0).await;
    given_up.abort();
    until("it comes", async || waiting(&server).await == 1.0).await;
    drop(list);
    assert_eq!(kept.await.unwrap(), 200);
    until("it comes", async || {
        let name = "apiserver_flowcontrol_current_executing_seats";
        metric(&server, name, &["flow_schema=\"narrow\""]).await == 0.0
    })
    .await;
}

/// A watch takes seats only until it has sent what there is, and counts for those who write.
#[tokio::test]
async fn watches_keep_no_seats() {
    let (_folder, server) = embedded(&FEW_SEATS).await;
    let_users(&server).await;
    one_seat(&server, json!({"type": "Reject"})).await;
    let mut client = Http2::to(&server).await;
    let mut watches = Vec::new();
    for _ in 0..12 {
        let watch = client.get(&format!("{MAPS}?watch=1"), USER).await.unwrap();
        if watch.status() == 429 {
            // The one before has not begun yet.
            tokio::task::yield_now().await;
            continue;
        }
        assert_eq!(watch.status(), 200);
        watches.push(watch);
        until("it comes", async || version(&server).await.status == 200).await;
    }
    assert!(watches.len() > 10);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    until("it comes", async || {
        ask("POST", MAPS).by(USER).json(&map).status(&server).await != 429
    })
    .await;
    let name = "apiserver_flowcontrol_watch_count_samples_sum";
    let seen = metric(&server, name, &["flow_schema=\"narrow\""]).await;
    assert!(seen >= watches.len() as f64, "{seen}");
    // A write that wakes many keeps a second seat for a while.
    let name = "apiserver_flowcontrol_work_estimated_seats_bucket";
    let one = metric(&server, name, &["flow_schema=\"narrow\"", "le=\"1\""]).await;
    let all = metric(&server, name, &["flow_schema=\"narrow\"", "le=\"2\""]).await;
    assert!(all > one, "{all} {one}");
}

#[tokio::test]
async fn changes_of_the_objects_take_effect() {
    both(&FEW_SEATS, async |server| {
        let_users(server).await;
        let (level, schema) = one_seat(server, json!({"type": "Reject"})).await;
        let limit = async |name: &str| {
            let name = format!("apiserver_flowcontrol_{name}_seats");
            metric(server, &name, &["priority_level=\"narrow\""]).await
        };
        for name in [
            "nominal_limit",
            "lower_limit",
            "upper_limit",
            "current_limit",
        ] {
            assert_eq!(limit(name).await, 1.0, "{name}");
        }
        let patch =
            json!({"spec": {"limited": {"nominalConcurrencyShares": 245, "lendablePercent": 50}}});
        let media = "application/merge-patch+json";
        let path = format!("{LEVELS}/narrow");
        let changed = ask("PATCH", &path).body(media, patch.to_string());
        assert_eq!(changed.status(server).await, 200);
        until("it comes", async || limit("nominal_limit").await == 10.0).await;
        assert_eq!(
            (limit("lower_limit").await, limit("upper_limit").await),
            (5.0, 10.0)
        );

        // Without the level, the flow schema counts no more and says so.
        assert_eq!(ask("DELETE", &path).status(server).await, 200);
        until("it comes", async || {
            ![level.as_str(), "none"].contains(&header(&version(server).await, LEVEL_UID).as_str())
        })
        .await;
        assert_ne!(header(&version(server).await, SCHEMA_UID), schema);
        let path = format!("{SCHEMAS}/narrow");
        until("it comes", async || {
            let (_, schema) = ask("GET", &path).answer(server).await;
            schema["status"]["conditions"][0]["status"] == "True"
        })
        .await;
        // Those that are always there need no objects.
        for name in ["catch-all", "global-default", "service-accounts"] {
            let path = format!("{SCHEMAS}/{name}");
            assert_eq!(ask("DELETE", &path).status(server).await, 200, "{name}");
        }
        assert_eq!(
            ask("DELETE", &format!("{LEVELS}/catch-all"))
                .status(server)
                .await,
            200
        );
        until("it comes", async || {
            header(&version(server).await, SCHEMA_UID).is_empty()
        })
        .await;
        assert_eq!(version(server).await.status, 200);
        assert_eq!(ask("GET", "/version").by(ADMIN).status(server).await, 200);
    })
    .await;
}

#[tokio::test]
async fn each_level_has_its_share_of_the_seats() {
    let (_folder, server) = embedded(&[]).await;
    let limit = async |kind: &str, level: &str| {
        let name = format!("apiserver_flowcontrol_{kind}_limit_seats");
        metric(&server, &name, &[&format!("priority_level=\"{level}\"")]).await
    };
    // 600 seats for 245 shares.
    for (level, nominal, lower) in [
        ("exempt", 0.0, 0.0),
        ("leader-election", 25.0, 25.0),
        ("node-high", 98.0, 73.0),
        ("system", 74.0, 50.0),
        ("workload-high", 98.0, 49.0),
        ("workload-low", 245.0, 24.0),
        ("global-default", 49.0, 24.0),
        ("catch-all", 13.0, 13.0),
    ] {
        assert_eq!(limit("nominal", level).await, nominal, "{level}");
        assert_eq!(limit("lower", level).await, lower, "{level}");
        assert_eq!(limit("upper", level).await, nominal + 600.0, "{level}");
    }
    let page = ask("GET", "/debug/api_priority_and_fairness/dump_queues");
    let answer = page.send(&server).await;
    assert_eq!(header(&answer, "content-type"), "text/plain; charset=utf-8");
    let page = String::from_utf8(answer.body.to_vec()).unwrap();
    let count = |level: &str| page.lines().filter(|line| line.starts_with(level)).count();
    let head = page.lines().next().unwrap();
    assert!(head.starts_with("PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, "), "{head}");
    assert_eq!(
        (
            count("workload-low,"),
            count("leader-election,"),
            count("catch-all,")
        ),
        (128, 16, 0)
    );
    let refused = ask("GET", "/debug/api_priority_and_fairness/dump_queues").by(USER);
    assert_eq!(refused.status(&server).await, 403);
    let unknown = ask("GET", "/debug/api_priority_and_fairness/dump_everything");
    assert_eq!(unknown.status(&server).await, 404);
}

#[tokio::test]
async fn the_flag_turns_priority_and_fairness_off() {
    let (_folder, server) = embedded(&["--enable-priority-and-fairness=false"]).await;
    let answer = version(&server).await;
    assert_eq!(answer.status, 200);
    for name in [LEVEL_UID, SCHEMA_UID] {
        assert_eq!(header(&answer, name), "none");
    }
    let page = ask(
        "GET",
        "/debug/api_priority_and_fairness/dump_priority_levels",
    );
    assert_eq!(page.status(&server).await, 404);
    // The objects are there all the same.
    assert_eq!(
        ask("GET", &format!("{LEVELS}/exempt"))
            .status(&server)
            .await,
        200
    );
}
