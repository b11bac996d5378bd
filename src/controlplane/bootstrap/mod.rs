//! The objects that a server makes itself: which they are, and how they are made and kept right at
//! each start.

mod api_services;
mod cluster;
mod controllers;
mod flowcontrol;
mod rbac;
mod roles;

use std::net::IpAddr;

use async_trait::async_trait;
use futures::future::try_join_all;
use ipnet::IpNet;
use jiff::Timestamp;

pub use api_services::{api_service, remove_unserved};
pub use cluster::{endpoints, identity_lease, service_address};
pub use rbac::node_rules;

use crate::meta::status::Result;
use crate::meta::{Gvr, Map, Object, Status, Value};
use rbac::Repair;

/// What the objects depend on.
#[derive(Clone, Debug)]
pub struct Params {
    pub now: Timestamp,
    pub hostname: String,
    /// A UUID for this process, to tell it from others on the same host.
    pub instance: String,
    pub advertise_address: IpAddr,
    pub secure_port: u16,
    /// The addresses of all living servers of the cluster; `None` where somebody else keeps the
    /// endpoints of their service.
    pub servers: Option<Vec<IpAddr>>,
    /// `--service-cluster-ip-range`.
    pub service_cidrs: Vec<IpNet>,
    /// `--kubernetes-service-node-port`; 0 for none.
    pub service_node_port: u16,
    /// The PEM of `--client-ca-file`.
    pub client_ca: Option<String>,
    pub front_proxy: Option<FrontProxy>,
    /// Group and version of everything served, for APIServices.
    pub group_versions: Vec<(String, String)>,
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

/// What happens to an object that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upkeep {
    /// It is left alone.
    None,
    /// Missing rules and subjects are added.
    Rbac,
    /// Its spec is set back, unless its annotation says that somebody else looks after it.
    FlowControl,
    /// These members are set back.
    Members(&'static [&'static str]),
}

/// One object to make.
#[derive(Clone, Debug)]
pub struct Planned {
    pub gvr: Gvr,
    pub object: Object,
    /// The field manager that makes it.
    pub manager: &'static str,
    /// Who applies which status once it is made.
    pub status: Option<(&'static str, Value)>,
    upkeep: Upkeep,
    stage: u8,
}

const MANAGER: &str = "kube-apiserver";
const FLOW_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const FLOW_STATUS_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// Namespaces come before what is in them.
const STAGES: u8 = 2;

/// Makes and changes objects, through everything that a client's request would go through but
/// authorization.
#[async_trait]
pub trait Creator: Send + Sync {
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
struct Plan(Vec<Planned>);

impl Plan {
    fn add(
        &mut self,
        stage: u8,
        manager: &'static str,
        upkeep: Upkeep,
        (gvr, object): (Gvr, Object),
    ) {
        self.0.push(Planned {
            gvr,
            object,
            manager,
            status: None,
            upkeep,
            stage,
        });
    }

    fn add_with_status(
        &mut self,
        stage: u8,
        upkeep: Upkeep,
        one: (Gvr, Object, Value),
        managers: [&'static str; 2],
    ) {
        let (gvr, object, status) = one;
        self.0.push(Planned {
            gvr,
            object,
            manager: managers[0],
            status: Some((managers[1], status)),
            upkeep,
            stage,
        });
    }
}

/// Everything that a server with these parameters makes when it starts.
pub fn objects(params: &Params) -> Vec<Planned> {
    let now = params.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut plan = Plan(kept(params));
    flowcontrol::priority_levels()
        .into_iter()
        .for_each(|one| plan.add(1, FLOW_MANAGER, Upkeep::FlowControl, one));
    for one in flowcontrol::flow_schemas(&now) {
        plan.add_with_status(
            1,
            Upkeep::FlowControl,
            one,
            [FLOW_MANAGER, FLOW_STATUS_MANAGER],
        );
    }
    rbac::objects()
        .into_iter()
        .for_each(|one| plan.add(1, MANAGER, Upkeep::Rbac, one));
    cluster::priority_classes()
        .into_iter()
        .for_each(|one| plan.add(1, MANAGER, Upkeep::None, one));
    let services = params
        .group_versions
        .iter()
        .filter_map(|(group, version)| api_service(group, version));
    services.for_each(|one| plan.add(1, MANAGER, Upkeep::Members(&["spec"]), one));
    plan.0.extend(authorities_of(params));
    plan.add(1, MANAGER, Upkeep::None, cluster::token_tracking(&now));
    plan.0
}

/// What a server keeps as it should be for as long as it runs: the namespaces, the `kubernetes`
/// service with its endpoints, the identity lease.
pub fn kept(params: &Params) -> Vec<Planned> {
    let mut plan = Plan::default();
    cluster::namespaces()
        .into_iter()
        .for_each(|one| plan.add(0, MANAGER, Upkeep::None, one));
    if let Some(address) = service_address(params) {
        plan.add(1, MANAGER, Upkeep::None, cluster::service(params, address));
    }
    plan.add(
        1,
        MANAGER,
        Upkeep::Members(&["spec"]),
        identity_lease(params),
    );
    plan.0.extend(endpoints_of(params));
    plan.0
}

/// The endpoints of the `kubernetes` service. Loopback addresses cannot be any: a server that is
/// advertised at one has none.
pub fn endpoints_of(params: &Params) -> Vec<Planned> {
    let mut plan = Plan::default();
    if let Some(servers) = params
        .servers
        .as_ref()
        .filter(|servers| !servers.iter().any(IpAddr::is_loopback))
    {
        let [all, slice] = endpoints(servers, params.secure_port);
        plan.add(1, MANAGER, Upkeep::Members(&["subsets"]), all);
        plan.add(1, MANAGER, Upkeep::Members(&["endpoints", "ports"]), slice);
    }
    plan.0
}

/// What tells extension servers which authorities this server trusts.
pub fn authorities_of(params: &Params) -> Vec<Planned> {
    let mut plan = Plan::default();
    plan.add(
        1,
        MANAGER,
        Upkeep::Members(&["data"]),
        cluster::extension_authentication(params),
    );
    plan.0
}

/// Makes every object that is missing and puts right those that exist. All of a stage are under way
/// at once, so that their writes share commits. The first failure ends it.
pub async fn ensure(planned: Vec<Planned>, creator: &dyn Creator) -> Result<()> {
    let mut stages: Vec<Vec<Planned>> = (0..STAGES).map(|_| Vec::new()).collect();
    for one in planned {
        stages[usize::from(one.stage)].push(one);
    }
    for stage in stages {
        try_join_all(stage.into_iter().map(|one| ensure_one(one, creator))).await?;
    }
    Ok(())
}

async fn ensure_one(planned: Planned, creator: &dyn Creator) -> Result<()> {
    let Planned {
        gvr,
        object,
        manager,
        status,
        upkeep,
        ..
    } = planned;
    let Some(existing) = creator.get(&gvr, object.namespace(), object.name()).await? else {
        return make(&gvr, object, manager, status, creator).await;
    };
    match repair(upkeep, &existing, &object) {
        Repair::Nothing => Ok(()),
        Repair::Update(object) => match creator.update(&gvr, object, manager).await {
            // Another server is at it too; it wants the same.
            Err(status) if status.code == 409 || status.code == 404 => Ok(()),
            done => done.map(drop),
        },
        Repair::Recreate => {
            creator
                .delete(&gvr, object.namespace(), object.name())
                .await?;
            make(&gvr, object, manager, status, creator).await
        }
    }
}

async fn make(
    gvr: &Gvr,
    object: Object,
    manager: &str,
    status: Option<(&'static str, Value)>,
    creator: &dyn Creator,
) -> Result<()> {
    let made = match creator.create(gvr, object, manager).await {
        Ok(made) => made,
        Err(Status { code: 409, .. }) => return Ok(()),
        Err(status) => return Err(status),
    };
    match status {
        Some((manager, status)) => creator.apply_status(gvr, &made, status, manager).await,
        None => Ok(()),
    }
}

fn repair(upkeep: Upkeep, existing: &Object, expected: &Object) -> Repair {
    let members: &[&str] = match upkeep {
        Upkeep::None => return Repair::Nothing,
        Upkeep::Rbac => return rbac::reconcile(existing, expected),
        Upkeep::FlowControl => {
            const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
            let auto = existing
                .annotations()
                .and_then(|all| all.get("apf.kubernetes.io/autoupdate-spec"))
                .and_then(Value::as_str);
            if auto != Some("true") && !MANDATORY.contains(&existing.name()) {
                return Repair::Nothing;
            }
            &["spec"]
        }
        Upkeep::Members(members) => members,
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
