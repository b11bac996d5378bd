//! Tests of the objects that a first start creates, and of those that later starts repair.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::*;
use crate::meta::json;

type Key = (String, String, String);

/// A store in memory that counts writes.
#[derive(Default)]
struct Memory {
    objects: Mutex<BTreeMap<Key, Object>>,
    writes: Mutex<Vec<String>>,
}

impl Memory {
    fn key(gvr: &Gvr, namespace: &str, name: &str) -> Key {
        (gvr.group_resource(), namespace.to_owned(), name.to_owned())
    }

    fn put(&self, verb: &str, gvr: &Gvr, object: Object) -> Object {
        self.writes
            .lock()
            .push(format!("{verb} {} {}", gvr.resource, object.name()));
        self.objects.lock().insert(
            Self::key(gvr, object.namespace(), object.name()),
            object.clone(),
        );
        object
    }

    fn edit(&self, resource: &str, name: &str, change: impl FnOnce(&mut Object)) {
        let mut objects = self.objects.lock();
        let (_, object) = objects
            .iter_mut()
            .find(|((group, _, of), _)| group.starts_with(resource) && of == name)
            .expect("known");
        change(object);
    }

    fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock())
    }
}

#[async_trait]
impl ObjectClient for Memory {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Object>> {
        Ok(self
            .objects
            .lock()
            .get(&Self::key(gvr, namespace, name))
            .cloned())
    }

    async fn create(&self, gvr: &Gvr, object: Object, _manager: &str) -> Result<Object> {
        Ok(self.put("create", gvr, object))
    }

    async fn update(&self, gvr: &Gvr, object: Object, _manager: &str) -> Result<Object> {
        Ok(self.put("update", gvr, object))
    }

    async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<()> {
        self.writes
            .lock()
            .push(format!("delete {} {name}", gvr.resource));
        self.objects.lock().remove(&Self::key(gvr, namespace, name));
        Ok(())
    }

    async fn apply_status(
        &self,
        _gvr: &Gvr,
        _object: &Object,
        _status: Value,
        _manager: &str,
    ) -> Result<()> {
        Ok(())
    }
}

fn params() -> Params {
    Params {
        now: "2026-01-02T03:04:05.678901Z".parse().expect("a time"),
        hostname: "vm".to_owned(),
        instance: "i".to_owned(),
        advertise_address: IpAddr::from([10, 0, 0, 1]),
        secure_port: 6443,
        servers: Some(vec![IpAddr::from([10, 0, 0, 1])]),
        service_cidrs: vec!["10.96.0.0/16".parse().expect("a range")],
        service_node_port: 0,
        client_ca: Some("PEM".to_owned()),
        front_proxy: None,
    }
}

#[test]
fn a_fresh_server_makes_what_kube_apiserver_makes() {
    let mut counts = BTreeMap::new();
    let mut keys = std::collections::BTreeSet::new();
    for wanted in objects(&params()) {
        *counts.entry(wanted.gvr.resource.clone()).or_insert(0) += 1;
        assert!(
            keys.insert((
                wanted.gvr,
                wanted.object.namespace().to_owned(),
                wanted.object.name().to_owned()
            )),
            "made twice"
        );
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(resource, count)| format!("{resource} {count}"))
        .collect();
    let want = "clusterrolebindings 50, clusterroles 69, configmaps 2, endpoints 1, endpointslices 1, flowschemas 11, \
                leases 1, namespaces 4, priorityclasses 2, prioritylevelconfigurations 8, rolebindings 7, roles 7, \
                services 1";
    assert_eq!(counts.join(", "), want);
    assert_eq!(
        cluster::identity("vm"),
        "apiserver-wlv32tlttr4jl3gtroqexyxapa"
    );
    let (_, lease) = identity_lease(&params());
    assert_eq!(
        lease.str_at("/spec/renewTime"),
        "2026-01-02T03:04:05.678901Z"
    );
}

#[tokio::test]
async fn a_second_start_writes_only_what_is_wrong() {
    let memory = Memory::default();
    let start = async || ensure(objects(&params()), &memory).await.expect("made");
    start().await;
    let writes = memory.take_writes();
    assert_eq!(writes.len(), 164);
    let first = |what: &str| {
        writes
            .iter()
            .position(|write| write.starts_with(what))
            .expect("written")
    };
    assert!(first("create namespaces kube-system") < first("create configmaps"));
    start().await;
    assert_eq!(memory.take_writes(), Vec::<String>::new());

    memory.edit("clusterroles", "system:kube-dns", |role| {
        role.insert(
            "rules".to_owned(),
            json!([{"verbs": ["watch"], "apiGroups": [""], "resources": ["endpoints"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]),
        );
    });
    memory.edit("clusterroles", "system:heapster", |role| {
        role.metadata_mut().insert(
            "annotations",
            json!({"rbac.authorization.kubernetes.io/autoupdate": "false"}),
        );
        role.shift_remove("rules");
    });
    memory.edit("clusterrolebindings", "system:discovery", |binding| {
        binding.insert(
            "subjects",
            json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}]),
        );
    });
    memory.edit("clusterrolebindings", "system:basic-user", |binding| {
        binding.section_mut("roleRef").clear()
    });
    memory.edit("flowschemas", "probes", |schema| {
        schema.section_mut("spec").clear()
    });
    memory.edit("endpoints", "kubernetes", |endpoints| {
        drop(endpoints.shift_remove("subsets"))
    });
    let tracking = "kube-apiserver-legacy-service-account-token-tracking";
    memory.edit("configmaps", tracking, |map| {
        map.section_mut("data").insert("since", "yesterday".into());
    });
    memory.edit("services", "kubernetes", |service| {
        service.section_mut("spec").clear()
    });
    start().await;
    let mut writes = memory.take_writes();
    writes.sort();
    let want = [
        "create clusterrolebindings system:basic-user",
        "delete clusterrolebindings system:basic-user",
        "update clusterrolebindings system:discovery",
        "update clusterroles system:kube-dns",
        "update configmaps kube-apiserver-legacy-service-account-token-tracking",
        "update endpoints kubernetes",
        "update flowschemas probes",
    ];
    assert_eq!(writes, want);
    let objects = memory.objects.lock();
    let rbac = |resource: &str, name: &str| {
        &objects[&(
            format!("{resource}.rbac.authorization.k8s.io"),
            String::new(),
            name.to_owned(),
        )]
    };
    assert_eq!(
        rbac("clusterroles", "system:kube-dns")
            .array_at("/rules")
            .len(),
        5,
        "two of its own, three missing atoms"
    );
    assert_eq!(
        rbac("clusterrolebindings", "system:discovery")
            .array_at("/subjects")
            .len(),
        2
    );
}

#[tokio::test]
async fn the_endpoints_follow_the_servers() {
    let memory = Memory::default();
    let addresses = |params: &Params| {
        let params = params.clone();
        let memory = &memory;
        async move {
            ensure(endpoint_objects(&params), memory)
                .await
                .expect("made");
            let objects = memory.objects.lock();
            let one = |resource: &str| {
                &objects[&(
                    resource.to_owned(),
                    "default".to_owned(),
                    "kubernetes".to_owned(),
                )]
            };
            let text = |values: &[Value], path: &str| {
                values
                    .iter()
                    .map(|v| v.pointer(path).cloned().unwrap_or_default())
                    .collect::<Vec<_>>()
            };
            (
                text(one("endpoints").array_at("/subsets/0/addresses"), "/ip"),
                text(
                    one("endpointslices.discovery.k8s.io").array_at("/endpoints"),
                    "/addresses/0",
                ),
            )
        }
    };
    let mut params = params();
    assert_eq!(addresses(&params).await.0, [json!("10.0.0.1")]);
    params.servers = Some(vec![
        IpAddr::from([10, 0, 0, 3]),
        IpAddr::from([10, 0, 0, 1]),
    ]);
    let both = vec![json!("10.0.0.1"), json!("10.0.0.3")];
    assert_eq!(addresses(&params).await, (both.clone(), both));
    params.servers = Some(vec![]);
    assert_eq!(addresses(&params).await, (vec![], vec![]));
    params.servers = None;
    memory.take_writes();
    ensure(endpoint_objects(&params), &memory)
        .await
        .expect("nothing to do");
    assert_eq!(memory.take_writes(), [""; 0]);
}
