//! Tests of the repairs, pass by pass, on a store with a manual clock.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use tempfile::TempDir;

use super::service_cidr::DefaultServiceCidr;
use super::*;
use crate::builtin;
use crate::builtin::core::service::ip_addresses::IpAddresses;
use crate::builtin::events::EventConversion;
use crate::controlplane::bootstrap::ObjectClient;
use crate::meta::{Value, json};
use crate::registry::Resource;
use crate::storage::Storage;
use crate::storage::embedded::Embedded;

/// A store with services for which nothing is allocated.
struct Cluster {
    registry: Arc<Registry>,
    storage: Arc<dyn Storage>,
    clock: Clock,
    _folder: TempDir,
}

impl Cluster {
    async fn new() -> Self {
        let (folder, clock) = (
            tempfile::tempdir().unwrap(),
            Clock::manual(Timestamp::from_second(1_800_000_000).unwrap()),
        );
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).unwrap());
        let kinds = [
            "services",
            "ipaddresses",
            "servicecidrs",
            "events",
            "endpoints",
        ];
        let decls = crate::schema::builtin()
            .resources
            .iter()
            .filter(|decl| kinds.contains(&decl.resource.as_str()));
        let stores = decls.map(|decl| {
            let mut resource =
                Resource::builtin(decl, builtin::strategy(&decl.group, &decl.resource));
            if decl.group == "events.k8s.io" {
                resource.conversion = Some(&EventConversion);
            }
            Store::new(
                Arc::new(resource),
                storage.clone(),
                clock.clone(),
                "/registry",
            )
        });
        let cluster = Self {
            registry: Arc::new(Registry::new(stores, [])),
            storage: storage.clone(),
            clock,
            _folder: folder,
        };
        cluster.cidr("kubernetes", "10.96.0.0/24").await;
        cluster
    }

    fn client(&self) -> LoopbackClient {
        LoopbackClient::new(self.registry.clone())
    }

    fn ports(&self, range: RangeInclusive<u16>) -> Arc<NodePorts> {
        Arc::new(NodePorts::new(self.storage.clone(), "/registry", range))
    }

    fn repairs(&self, ports: &Arc<NodePorts>) -> Repairs {
        Repairs::new(&self.registry, ports.clone(), &self.clock, "host").unwrap()
    }

    async fn make(&self, group: &str, resource: &str, object: Value) -> Object {
        let object = Object::from_value(object).unwrap();
        self.client()
            .create(&Gvr::new(group, "v1", resource), object, "test")
            .await
            .unwrap()
    }

    async fn cidr(&self, name: &str, range: &str) {
        self.make(
            "networking.k8s.io",
            "servicecidrs",
            json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}}),
        )
        .await;
    }

    async fn service(&self, name: &str, ip: &str, node_port: u16) -> Object {
        let spec = json!({
            "type": if node_port == 0 { "ClusterIP" } else { "NodePort" }, "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "nodePort": node_port}],
        });
        self.make(
            "",
            "services",
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}),
        )
        .await
    }

    async fn address(&self, ip: &str, resource: &str, service: &str) {
        let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
        let parent = json!({"resource": resource, "namespace": "default", "name": service});
        self.make(
            "networking.k8s.io",
            "ipaddresses",
            json!({"metadata": {"name": ip, "labels": labels}, "spec": {"parentRef": parent}}),
        )
        .await;
    }

    async fn all(&self, group: &str, resource: &str) -> Vec<Object> {
        self.client()
            .list(&Gvr::new(group, "v1", resource), "")
            .await
            .unwrap()
    }

    /// Each address with its service.
    async fn addresses(&self) -> Vec<String> {
        let text = |one: &Object| format!("{} {}", one.name(), one.str_at("/spec/parentRef/name"));
        self.all("networking.k8s.io", "ipaddresses")
            .await
            .iter()
            .map(text)
            .collect()
    }

    /// The objects and reasons of all events, sorted.
    async fn events(&self) -> Vec<String> {
        let text = |one: &Object| {
            format!(
                "{} {}",
                one.str_at("/involvedObject/name"),
                one.str_at("/reason")
            )
        };
        let mut events: Vec<String> = self.all("", "events").await.iter().map(text).collect();
        events.sort();
        events
    }
}

#[tokio::test]
async fn a_service_gets_its_addresses_back() {
    let cluster = Cluster::new().await;
    let mut repairs = cluster.repairs(&cluster.ports(30000..=30009));
    cluster.service("missing", "10.96.0.1", 0).await;
    cluster.service("wrong", "10.96.0.2", 0).await;
    cluster.address("10.96.0.2", "gateways", "g").await;
    cluster.service("lost", "10.96.0.3", 0).await;
    cluster.address("10.96.0.3", "services", "nobody").await;
    cluster.service("first", "10.96.0.4", 0).await;
    cluster.service("second", "10.96.0.4", 0).await;
    cluster.address("10.96.0.4", "services", "first").await;
    cluster.service("outside", "10.97.0.1", 0).await;
    cluster.service("headless", "None", 0).await;
    let wait = repairs.cluster_ips.run_once().await.unwrap();
    assert_eq!(
        wait,
        Some(Duration::from_secs(61)),
        "somebody may be about to write the service of the third"
    );
    assert_eq!(
        cluster.addresses().await,
        [
            "10.96.0.1 missing",
            "10.96.0.2 wrong",
            "10.96.0.3 nobody",
            "10.96.0.4 first"
        ]
    );
    cluster.clock.advance(Duration::from_secs(61));
    assert_eq!(repairs.cluster_ips.run_once().await.unwrap(), None);
    assert_eq!(
        cluster.addresses().await,
        [
            "10.96.0.1 missing",
            "10.96.0.2 wrong",
            "10.96.0.3 lost",
            "10.96.0.4 first"
        ]
    );
    let want = [
        "lost ClusterIPNotAllocated",
        "missing ClusterIPNotAllocated",
        "outside ClusterIPOutOfRange",
        "second ClusterIPAlreadyAllocated",
        "wrong ClusterIPNotAllocated",
    ];
    assert_eq!(cluster.events().await, want);
    cluster.clock.advance(Duration::from_secs(400));
    repairs.cluster_ips.run_once().await.unwrap();
    assert_eq!(
        cluster.events().await.len(),
        7,
        "what is still wrong is said again after a while"
    );
}

#[tokio::test]
async fn an_address_without_a_service_is_released_after_some_passes() {
    let cluster = Cluster::new().await;
    let mut repairs = cluster.repairs(&cluster.ports(30000..=30009));
    cluster.service("own", "10.96.0.1", 0).await;
    cluster.address("10.96.0.1", "services", "own").await;
    cluster.address("10.96.0.5", "services", "gone").await;
    cluster.clock.advance(Duration::from_secs(30));
    cluster.address("10.96.0.6", "services", "own").await;
    let parent = json!({"resource": "services", "namespace": "default", "name": "gone"});
    let foreign = json!({"metadata": {"name": "10.96.0.7"}, "spec": {"parentRef": parent}});
    cluster
        .make("networking.k8s.io", "ipaddresses", foreign)
        .await;
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    // Ages in seconds: 30 and 0, 36 and 6, 66 and 36, and then a minute more with each pass.
    for (age, next, there) in [
        (0, seconds(6), 4),
        (6, seconds(25), 4),
        (30, seconds(60), 4),
        (60, seconds(60), 4),
        (60, seconds(60), 3),
        (60, None, 2),
    ] {
        cluster.clock.advance(Duration::from_secs(age));
        assert_eq!(repairs.cluster_ips.run_once().await.unwrap(), next);
        assert_eq!(cluster.addresses().await.len(), there);
    }
    assert_eq!(
        cluster.addresses().await,
        ["10.96.0.1 own", "10.96.0.7 gone"],
        "what others made stays"
    );
    assert_eq!(
        cluster.events().await,
        [
            "10.96.0.5 IPAddressNotAllocated",
            "10.96.0.6 IPAddressWrongReference"
        ]
    );
}

#[tokio::test]
async fn an_address_whose_service_is_written_late_is_kept() {
    let cluster = Cluster::new().await;
    let mut repairs = cluster.repairs(&cluster.ports(30000..=30009));
    cluster.address("10.96.0.5", "services", "late").await;
    cluster.clock.advance(Duration::from_secs(100));
    for _ in 0..PASSES_BEFORE_RELEASE {
        repairs.cluster_ips.run_once().await.unwrap();
    }
    cluster.service("late", "10.96.0.5", 0).await;
    for _ in 0..2 {
        repairs.cluster_ips.run_once().await.unwrap();
    }
    assert_eq!(cluster.addresses().await, ["10.96.0.5 late"]);
    assert_eq!(cluster.events().await, [""; 0]);
}

#[tokio::test]
async fn a_claim_that_was_released_is_renewed_by_the_write_that_made_it() {
    let cluster = Cluster::new().await;
    let mut repairs = cluster.repairs(&cluster.ports(30000..=30009));
    let addresses = cluster
        .registry
        .get(&Gvr::new("networking.k8s.io", "v1", "ipaddresses"))
        .unwrap();
    let addresses = IpAddresses::new(addresses);
    let ip = "10.96.0.5".parse().unwrap();
    let claim = addresses
        .claim(ip, "default", "slow")
        .await
        .unwrap()
        .unwrap();
    cluster.clock.advance(Duration::from_secs(100));
    for _ in 0..=PASSES_BEFORE_RELEASE {
        repairs.cluster_ips.run_once().await.unwrap();
    }
    assert_eq!(cluster.addresses().await, [""; 0], "it looks like a leak");
    cluster.service("slow", "10.96.0.5", 0).await;
    addresses.confirm(&claim, "default", "slow").await;
    assert_eq!(cluster.addresses().await, [""; 0], "no time has passed");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(100)).await;
    tokio::time::resume();
    addresses.confirm(&claim, "default", "slow").await;
    assert_eq!(cluster.addresses().await, ["10.96.0.5 slow"]);
}

#[tokio::test]
async fn node_ports_without_a_service_are_free_after_some_passes() {
    let cluster = Cluster::new().await;
    let ports = cluster.ports(30000..=30009);
    let mut repairs = cluster.repairs(&ports);
    cluster.service("first", "10.96.0.1", 30001).await;
    cluster.service("second", "10.96.0.2", 30001).await;
    cluster.service("outside", "10.96.0.3", 31000).await;
    repairs.node_ports.run_once().await.unwrap();
    assert_eq!(ports.allocation().await.unwrap().ports, [30001].into());
    let want = [
        "first PortNotAllocated",
        "outside PortOutOfRange",
        "second PortAlreadyAllocated",
    ];
    assert_eq!(cluster.events().await, want);

    // Two ports whose services are about to be written; one of them is.
    let mut operation = ports.operation(false);
    operation.allocate(30004).await.unwrap();
    operation.allocate(30005).await.unwrap();
    repairs.node_ports.run_once().await.unwrap();
    cluster.service("late", "10.96.0.4", 30004).await;
    for _ in 0..2 {
        repairs.node_ports.run_once().await.unwrap();
        assert_eq!(
            ports.allocation().await.unwrap().ports,
            [30001, 30004, 30005].into()
        );
    }
    repairs.node_ports.run_once().await.unwrap();
    assert_eq!(
        ports.allocation().await.unwrap().ports,
        [30001, 30004].into()
    );
    assert_eq!(
        cluster.events().await.len(),
        3,
        "a leak is no service's fault"
    );
}

#[tokio::test]
async fn the_default_service_cidr_is_made_and_kept() {
    let cluster = Cluster::new().await;
    let gvr = Gvr::new("networking.k8s.io", "v1", "servicecidrs");
    let client = cluster.client();
    let events = || {
        EventRecorder::new(
            cluster.client(),
            service_cidr::CONTROLLER,
            "host",
            cluster.clock.clone(),
        )
    };
    let sync = async |ranges: &[&str]| {
        let ranges: Vec<ipnet::IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let mut default = DefaultServiceCidr::new(&ranges, events(), cluster.clock.clone());
        default.sync(&client).await.unwrap();
        default.sync(&client).await.unwrap();
        client.get(&gvr, "", "kubernetes").await.unwrap().unwrap()
    };
    let present = sync(&["10.96.0.0/24"]).await;
    assert_eq!(present.str_at("/status/conditions/0/status"), "True");
    let present = sync(&["10.96.0.0/24", "fd00::/112"]).await;
    assert_eq!(
        present.array_at("/spec/cidrs"),
        [json!("10.96.0.0/24"), json!("fd00::/112")]
    );
    assert_eq!(cluster.events().await, [""; 0]);
    let present = sync(&["10.99.0.0/24"]).await;
    assert_eq!(
        present.array_at("/spec/cidrs").len(),
        2,
        "what somebody made of it stays"
    );
    assert_eq!(
        cluster.events().await,
        ["kubernetes KubernetesDefaultServiceCIDRInconsistent"]
    );
    client.delete(&gvr, "", "kubernetes").await.unwrap();
    assert_eq!(
        sync(&["10.99.0.0/24"]).await.array_at("/spec/cidrs"),
        [json!("10.99.0.0/24")]
    );
}
