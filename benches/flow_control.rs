//! The cost of priority and fairness: a request that finds a seat, and many that wait for one.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use keelson::internals::auth::User;
use keelson::internals::flowcontrol::{
    Controller, FlowSchema, PriorityLevelConfiguration, RequestDetails, RequestDigest,
};
use keelson::internals::meta::{Object, Query, json};
use tokio::runtime::{Builder, Runtime};

struct Request(User);

impl RequestDetails for Request {
    fn digest(&self) -> RequestDigest<'_> {
        RequestDigest {
            user: &self.0,
            is_resource: true,
            verb: "get",
            group: "",
            version: "v1",
            resource: "pods",
            subresource: "",
            namespace: "default",
            name: "web-0",
            path: "/api/v1/namespaces/default/pods/web-0",
        }
    }
}

fn request(user: &str) -> Arc<dyn RequestDetails> {
    Arc::new(Request(User {
        name: user.to_owned(),
        groups: ["devs", "system:authenticated"].map(str::to_owned).to_vec(),
        ..User::default()
    }))
}

/// A controller with as many flow schemas as a cluster has, of which the last matches.
fn controller() -> Arc<Controller> {
    let level = json!({"metadata": {"name": "low", "uid": "b6a2"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 100, "lendablePercent": 90, "limitResponse": {"type": "Queue",
            "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}}}}});
    let level = Object::from_value(level).expect("an object");
    let level = PriorityLevelConfiguration::from_object(&level).expect("a level");
    let any = json!(["*"]);
    let schema = |at: i64, group: &str| {
        let subject = json!({"kind": "Group", "group": {"name": group}});
        let rule = json!({"subjects": [subject], "resourceRules": [{"verbs": any, "apiGroups": any,
            "resources": any, "clusterScope": true, "namespaces": any}]});
        let schema = json!({"metadata": {"name": format!("schema-{at}"), "uid": "77fe"}, "spec": {
            "priorityLevelConfiguration": {"name": "low"}, "matchingPrecedence": at,
            "distinguisherMethod": {"type": "ByUser"}, "rules": [rule]}});
        FlowSchema::from_object(&Object::from_value(schema).expect("an object"))
    };
    let mut schemas: Vec<_> = (2..13)
        .map(|at| schema(at, &format!("group-{at}")))
        .collect();
    schemas.push(schema(100, "system:authenticated"));
    let controller = Controller::new(600, true);
    controller.configure(vec![level], schemas);
    Arc::new(controller)
}

async fn pass(controller: &Controller, details: Arc<dyn RequestDetails>, query: &Query) {
    let flow = controller.classify(&details.digest()).expect("a flow");
    let deadline = Instant::now() + Duration::from_secs(15);
    let seat = controller.admit(&flow, details, query, deadline).await;
    black_box(&seat);
}

fn uncontended(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime: Runtime = runtime.expect("a runtime");
    let (controller, query) = (runtime.block_on(async { controller() }), Query::default());
    let alice = request("alice");
    c.bench_function("flow control: classification", |b| {
        b.iter(|| black_box(controller.classify(&alice.digest())));
    });
    c.bench_function("flow control: a request that finds a seat", |b| {
        b.iter(|| runtime.block_on(pass(&controller, alice.clone(), &query)));
    });
}

/// So many requests of 20 users at the same time, on as many threads.
fn contended(c: &mut Criterion) {
    for threads in [1, 2, 4, 8] {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        let runtime: Runtime = runtime.expect("a runtime");
        let controller = runtime.block_on(async { controller() });
        c.bench_function(
            &format!("flow control: 2000 requests on {threads} threads"),
            |b| {
                b.iter(|| {
                    runtime.block_on(async {
                        let tasks = (0..2000).map(|at| {
                            let controller = controller.clone();
                            let details = request(&format!("user-{}", at % 20));
                            tokio::spawn(async move {
                                pass(&controller, details, &Query::default()).await;
                            })
                        });
                        for task in tasks.collect::<Vec<_>>() {
                            task.await.expect("no panic");
                        }
                    });
                });
            },
        );
    }
}

criterion_group!(benches, uncontended, contended);
criterion_main!(benches);
