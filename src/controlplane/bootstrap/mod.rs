//! The objects that a server creates itself, and their reconciliation at each start.

mod cluster;
mod controllers;
mod extension_authentication;
pub mod flowcontrol;
mod rbac;
mod roles;

use std::net::IpAddr;

use async_trait::async_trait;
use futures::future::try_join_all;
use ipnet::IpNet;
use jiff::Timestamp;

pub use cluster::{endpoints, identity, identity_lease, service_address};
pub use rbac::node_rules;

use crate::merge::APISERVER_MANAGER;
use crate::meta::status::Result;
use crate::meta::{Gvr, Map, Object, Status, Value};
use rbac::Repair;

/// The parameters of the objects.
#[derive(Clone, Debug)]
pub struct Params {
    pub now: Timestamp,
    pub hostname: String,
    /// A UUID that distinguishes this process from others on the same host.
    pub instance: String,
    pub advertise_address: IpAddr,
    pub secure_port: u16,
    /// The addresses of all living servers of the cluster; `None` if another component keeps the
    /// endpoints of their service.
    pub servers: Option<Vec<IpAddr>>,
    /// `--service-cluster-ip-range`.
    pub service_cidrs: Vec<IpNet>,
    /// `--kubernetes-service-node-port`; 0 for none.
    pub service_node_port: u16,
    /// The PEM of `--client-ca-file`.
    pub client_ca: Option<String>,
    pub front_proxy: Option<FrontProxy>,
}

/// The `--requestheader-*` flags.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// The PEM of `--requestheader-client-ca-file`.
    pub client_ca: String,
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

/// The policy for an object that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReconcilePolicy {
    /// It is left alone.
    None,
    /// Missing rules and subjects are added.
    Rbac,
    /// Its spec is restored, unless its annotation says that it is managed by users.
    FlowControl,
    /// These members are set back.
    Members(&'static [&'static str]),
    /// The day that it holds is set back if it is none.
    Since,
    /// Its authorities are completed, and those that have expired at this time taken out.
    Authorities(Timestamp),
}

/// One object to make.
#[derive(Clone, Debug)]
pub struct BootstrapObject {
    pub gvr: Gvr,
    pub object: Object,
    /// The field manager that makes it.
    pub manager: &'static str,
    /// The field manager that applies a status once the object is created, and that status.
    pub status: Option<(&'static str, Value)>,
    policy: ReconcilePolicy,
    stage: u8,
}

const FLOW_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
/// The field manager of the status of FlowSchemas.
pub const FLOW_STATUS_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Namespaces come before what is in them.
const STAGES: u8 = 2;

/// Makes and changes objects, through everything that a client's request would go through but
/// authorization.
#[async_trait]
pub trait ObjectClient: Send + Sync {
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Object>>;
    async fn create(&self, gvr: &Gvr, object: Object, manager: &str) -> Result<Object>;
    async fn update(&self, gvr: &Gvr, object: Object, manager: &str) -> Result<Object>;
    async fn delete(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<()>;
    /// Applies a status to an object, as a server-side apply of the status subresource would.
    async fn apply_status(
        &self,
        gvr: &Gvr,
        object: &Object,
        status: Value,
        manager: &str,
    ) -> Result<()>;
}

/// An object with apiVersion, kind, name and namespace (where not empty).
fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Object {
    let mut object = Object(Map::new());
    object.insert("kind", kind.into());
    object.insert("apiVersion", api_version.into());
    object.set_meta_str("name", name);
    object.set_meta_str("namespace", namespace);
    object
}

/// Gathers what is to be made.
#[derive(Default)]
struct Plan(Vec<BootstrapObject>);

impl Plan {
    fn add(
        &mut self,
        stage: u8,
        manager: &'static str,
        policy: ReconcilePolicy,
        (gvr, object): (Gvr, Object),
    ) {
        self.0.push(BootstrapObject {
            gvr,
            object,
            manager,
            status: None,
            policy,
            stage,
        });
    }

    fn add_with_status(
        &mut self,
        stage: u8,
        policy: ReconcilePolicy,
        one: (Gvr, Object, Value),
        managers: [&'static str; 2],
    ) {
        let (gvr, object, status) = one;
        self.0.push(BootstrapObject {
            gvr,
            object,
            manager: managers[0],
            status: Some((managers[1], status)),
            policy,
            stage,
        });
    }
}

/// Returns every object that a server with these parameters makes when it starts.
pub fn objects(params: &Params) -> Vec<BootstrapObject> {
    let mut plan = Plan(reconciled_objects(params));
    plan.0.extend(flow_control_objects(params.now));
    rbac::objects()
        .into_iter()
        .for_each(|one| plan.add(1, APISERVER_MANAGER, ReconcilePolicy::Rbac, one));
    cluster::priority_classes()
        .into_iter()
        .for_each(|one| plan.add(1, APISERVER_MANAGER, ReconcilePolicy::None, one));
    plan.0.extend(authentication_objects(params));
    plan.0
}

/// Returns the flow schemas and priority levels.
pub fn flow_control_objects(now: Timestamp) -> Vec<BootstrapObject> {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut plan = Plan::default();
    flowcontrol::priority_levels()
        .into_iter()
        .for_each(|one| plan.add(1, FLOW_MANAGER, ReconcilePolicy::FlowControl, one));
    for one in flowcontrol::flow_schemas(&now) {
        plan.add_with_status(
            1,
            ReconcilePolicy::FlowControl,
            one,
            [FLOW_MANAGER, FLOW_STATUS_MANAGER],
        );
    }
    plan.0
}

/// Returns the objects that a server reconciles for as long as it runs: the namespaces, the
/// `kubernetes` service with its endpoints, the identity lease, and since when the use of legacy
/// service account tokens is tracked.
pub fn reconciled_objects(params: &Params) -> Vec<BootstrapObject> {
    let mut plan = Plan::default();
    cluster::namespaces()
        .into_iter()
        .for_each(|one| plan.add(0, APISERVER_MANAGER, ReconcilePolicy::None, one));
    if let Some(address) = service_address(params) {
        plan.add(
            1,
            APISERVER_MANAGER,
            ReconcilePolicy::None,
            cluster::service(params, address),
        );
    }
    plan.add(
        1,
        APISERVER_MANAGER,
        ReconcilePolicy::Members(&["spec"]),
        identity_lease(params),
    );
    plan.add(
        1,
        APISERVER_MANAGER,
        ReconcilePolicy::Since,
        cluster::token_tracking(params.now),
    );
    plan.0.extend(endpoint_objects(params));
    plan.0
}

/// The endpoints of the `kubernetes` service. Loopback addresses cannot be any: a server that is
/// advertised at one has none.
pub fn endpoint_objects(params: &Params) -> Vec<BootstrapObject> {
    let mut plan = Plan::default();
    if let Some(servers) = params
        .servers
        .as_ref()
        .filter(|servers| !servers.iter().any(IpAddr::is_loopback))
    {
        let [all, slice] = endpoints(servers, params.secure_port);
        plan.add(
            1,
            APISERVER_MANAGER,
            ReconcilePolicy::Members(&["subsets"]),
            all,
        );
        plan.add(
            1,
            APISERVER_MANAGER,
            ReconcilePolicy::Members(&["endpoints", "ports"]),
            slice,
        );
    }
    plan.0
}

/// Returns the object from which extension servers read the authorities that this server trusts.
pub fn authentication_objects(params: &Params) -> Vec<BootstrapObject> {
    let (gvr, mut object) = cluster::extension_authentication(params);
    // In the form in which it is compared.
    let data = extension_authentication::combined(&Object::default(), &object, params.now);
    object.insert("data", data);
    let (mut plan, policy) = (Plan::default(), ReconcilePolicy::Authorities(params.now));
    plan.add(1, APISERVER_MANAGER, policy, (gvr, object));
    plan.0
}

/// Makes every object that is missing and puts right those that exist. All of a stage are under way
/// at once, so that their writes share commits. The first failure ends it.
///
/// # Errors
/// The first failure to read or write an object.
pub async fn ensure(wanted: Vec<BootstrapObject>, client: &dyn ObjectClient) -> Result<()> {
    let mut stages: Vec<Vec<BootstrapObject>> = (0..STAGES).map(|_| Vec::new()).collect();
    for one in wanted {
        stages[usize::from(one.stage)].push(one);
    }
    for stage in stages {
        try_join_all(stage.into_iter().map(|one| ensure_one(one, client))).await?;
    }
    Ok(())
}

async fn ensure_one(wanted: BootstrapObject, client: &dyn ObjectClient) -> Result<()> {
    let BootstrapObject {
        gvr,
        object,
        manager,
        status,
        policy,
        ..
    } = wanted;
    let Some(existing) = client.get(&gvr, object.namespace(), object.name()).await? else {
        return make(&gvr, object, manager, status, client).await;
    };
    match repair(policy, &existing, &object) {
        Repair::Nothing => Ok(()),
        Repair::Update(object) => match client.update(&gvr, object, manager).await {
            // Another server is at it too; it wants the same.
            Err(status) if status.code == 409 || status.code == 404 => Ok(()),
            done => done.map(drop),
        },
        Repair::Recreate => {
            client
                .delete(&gvr, object.namespace(), object.name())
                .await?;
            make(&gvr, object, manager, status, client).await
        }
    }
}

async fn make(
    gvr: &Gvr,
    object: Object,
    manager: &str,
    status: Option<(&'static str, Value)>,
    client: &dyn ObjectClient,
) -> Result<()> {
    let made = match client.create(gvr, object, manager).await {
        Ok(made) => made,
        Err(Status { code: 409, .. }) => return Ok(()),
        Err(status) => return Err(status),
    };
    match status {
        Some((manager, status)) => client.apply_status(gvr, &made, status, manager).await,
        None => Ok(()),
    }
}

fn repair(policy: ReconcilePolicy, existing: &Object, expected: &Object) -> Repair {
    let members: &[&str] = match policy {
        ReconcilePolicy::None => return Repair::Nothing,
        ReconcilePolicy::Rbac => return rbac::reconcile(existing, expected),
        ReconcilePolicy::FlowControl => return flowcontrol::revise(existing, expected),
        ReconcilePolicy::Members(members) => members,
        ReconcilePolicy::Since if cluster::has_day(existing) => return Repair::Nothing,
        ReconcilePolicy::Since => &["data"],
        ReconcilePolicy::Authorities(now) => {
            let data = extension_authentication::combined(existing, expected, now);
            if existing.get("data") == Some(&data) {
                return Repair::Nothing;
            }
            let mut object = existing.clone();
            object.insert("data", data);
            return Repair::Update(object);
        }
    };
    let wrong = |member: &&&str| existing.get(member) != expected.get(member);
    if members.iter().find(wrong).is_none() {
        return Repair::Nothing;
    }
    let mut object = existing.clone();
    for member in members {
        match expected.get(member) {
            Some(value) => drop(object.insert((*member).to_owned(), value.clone())),
            None => drop(object.shift_remove(member)),
        }
    }
    Repair::Update(object)
}

#[cfg(test)]
mod tests;
