//! Cluster IPs (IPAddress objects) and node ports (a bitmap in storage), as kube-apiserver keeps them
//! (`pkg/registry/core/service/{storage,ipallocator,portallocator}`).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::IpNet;
use rand::RngExt;

use super::families::{self, IPV4, family_of, set_strings, strings};
use super::{headless, kind, needs_health_check_port, needs_node_port, node_ports::NodePorts, ports, spec};
use crate::auth::User;
use crate::meta::options::DeleteOptions;
use crate::meta::status::Result;
use crate::meta::{FieldError, Object, Path, Status, Value, json, names};
use crate::registry::Store;
use crate::registry::Subresource;
use crate::registry::resource::Hooks;
use crate::registry::store::{OpenGate, Warnings, WriteContext};
use crate::registry::validation::Fields;
use crate::storage::Storage;

/// The manager of IPAddress objects.
const MANAGER: &str = "kube-apiserver";
/// How many taken addresses are passed over before the range counts as full.
const MAX_PROBES: u128 = 1 << 16;

/// Gives services their addresses and ports, and takes them back.
pub struct ServiceAllocator {
    /// `networking.k8s.io/v1` ipaddresses.
    addresses: Arc<Store>,
    /// Core endpoints, which go with their service.
    endpoints: Arc<Store>,
    /// The primary range first.
    ranges: Vec<IpNet>,
    node_ports: NodePorts,
    user: User,
    warnings: Warnings,
}

/// What a reservation took, to be given back if it goes no further.
#[derive(Default)]
struct Taken {
    ips: Vec<IpAddr>,
    ports: BTreeSet<u16>,
}

impl ServiceAllocator {
    /// `root` is the root of all keys.
    pub fn new(
        addresses: Arc<Store>,
        endpoints: Arc<Store>,
        storage: Arc<dyn Storage>,
        root: &str,
        ranges: Vec<IpNet>,
        node_ports: RangeInclusive<u16>,
    ) -> Self {
        let user = User { name: "system:apiserver".to_owned(), groups: vec![crate::auth::MASTERS.to_owned()], ..User::default() };
        let node_ports = NodePorts::new(storage, root, node_ports);
        Self { addresses, endpoints, ranges, node_ports, user, warnings: Warnings::default() }
    }

    fn configured(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| family_of(range.addr())).collect()
    }

    async fn take(&self, ctx: &WriteContext<'_>, service: &mut Object, old: Option<&Object>, taken: &mut Taken) -> Result<()> {
        self.take_ips(ctx, service, old, taken).await?;
        let had = old.map(ports::all).unwrap_or_default();
        if needs_node_port(service) {
            self.take_node_ports(ctx, service, &had, taken).await?;
        }
        if needs_health_check_port(service) {
            self.take_health_check_port(ctx, service, &had, taken).await?;
        }
        Ok(())
    }

    /// Fills in every cluster IP that the families call for and that is not there yet.
    async fn take_ips(&self, ctx: &WriteContext<'_>, service: &mut Object, old: Option<&Object>, taken: &mut Taken) -> Result<()> {
        if kind(service) == "ExternalName" || headless(service) {
            return Ok(());
        }
        let had = old.filter(|old| !headless(old)).map(|old| strings(old, "clusterIPs")).unwrap_or_default();
        let mut ips = strings(service, "clusterIPs");
        for (index, family) in strings(service, "ipFamilies").iter().enumerate() {
            match ips.get(index).cloned() {
                Some(ip) if had.contains(&ip) => {}
                Some(text) if old.is_none() || index >= had.len() => {
                    let ip = self
                        .take_ip(ctx, service, &text)
                        .await
                        .map_err(|why| ip_error(service, &ips, &format!("failed to allocate IP {text}: {why}")))?;
                    taken.ips.push(ip);
                }
                Some(_) => {}
                None => {
                    let ip = self.take_any_ip(ctx, service, family).await?;
                    taken.ips.push(ip);
                    ips.push(ip.to_string());
                }
            }
        }
        if let Some(first) = ips.first().cloned() {
            service.section_mut("spec").insert("clusterIP", first.into());
        }
        set_strings(service, "clusterIPs", &ips);
        Ok(())
    }

    /// One address that the client chose. The error is the end of upstream's message.
    async fn take_ip(&self, ctx: &WriteContext<'_>, service: &Object, text: &str) -> std::result::Result<IpAddr, String> {
        let ip = names::parse_ip_sloppy(text).ok_or_else(|| format!("failed to parse service IP {text:?}"))?;
        let in_range =
            self.ranges.iter().any(|range| first_host(range) <= number(ip) && number(ip) <= last_host(range) && range.contains(&ip));
        if !in_range {
            return Err("the provided network does not match the current range".to_owned());
        }
        match self.claim(ctx, service, ip).await {
            Ok(true) => Ok(ip),
            Ok(false) => Err("provided IP is already allocated".to_owned()),
            Err(status) => Err(status.message),
        }
    }

    /// A free address of the family, from the upper part of the range while there is one: the lower part is where people
    /// choose theirs (KEP 3070).
    async fn take_any_ip(&self, ctx: &WriteContext<'_>, service: &Object, family: &str) -> Result<IpAddr> {
        let range = self.ranges.iter().find(|range| family_of(range.addr()) == family);
        let Some(range) = range else { return Err(Status::internal(format!("{family} is not configured on this cluster"))) };
        let (first, last) = (first_host(range), last_host(range));
        let offset = first + reserved(last - first + 1);
        for (low, high) in [(offset, last), (first, offset.saturating_sub(1))] {
            if low > high {
                continue;
            }
            let size = high - low + 1;
            let start = rand::rng().random_range(0..size);
            for step in 0..size.min(MAX_PROBES) {
                let ip = address(low + (start + step) % size, range.addr());
                if self.claim(ctx, service, ip).await? {
                    return Ok(ip);
                }
            }
        }
        Err(Status::internal(format!("failed to allocate a serviceIP for Service {:?}: range is full", service.name())))
    }

    /// Makes the IPAddress object, which is what owns an address; false where it exists.
    async fn claim(&self, ctx: &WriteContext<'_>, service: &Object, ip: IpAddr) -> Result<bool> {
        let name = ip.to_string();
        if ctx.dry_run {
            return Ok(self.addresses.find("", &name).await?.is_none());
        }
        let (family, namespace) = (family_of(ip), service.namespace());
        let labels = json!({"ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
        let parent = json!({"resource": "services", "namespace": namespace, "name": service.name()});
        let mut object =
            Object::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}})).unwrap_or_default();
        self.addresses.to_storage(&mut object);
        self.addresses.track(None, &mut object, Subresource::Main, MANAGER);
        match self.addresses.create(&self.context(""), object, &OpenGate).await {
            Ok(_) => Ok(true),
            Err(status) if status.reason == "AlreadyExists" => Ok(false),
            Err(status) => Err(status),
        }
    }

    fn context<'a>(&'a self, namespace: &'a str) -> WriteContext<'a> {
        WriteContext { user: &self.user, namespace, dry_run: false, warnings: &self.warnings }
    }

    /// Ports of the same number (TCP and UDP) share a node port.
    async fn take_node_ports(&self, ctx: &WriteContext<'_>, service: &mut Object, had: &BTreeSet<u16>, taken: &mut Taken) -> Result<()> {
        let allocate = kind(service) != "LoadBalancer" || spec(service).opt_flag("allocateLoadBalancerNodePorts") != Some(false);
        let mut all = spec(service).list("ports").to_vec();
        let mut by_port: Vec<(i64, u16)> = Vec::new();
        for index in 0..all.len() {
            let (number, asked) = (all[index].int("port").unwrap_or(0), all[index].int("nodePort").unwrap_or(0));
            let shared = by_port.iter().find(|(port, _)| *port == number).map(|(_, node)| *node);
            let node = match (asked, shared) {
                (0, _) if !allocate => continue,
                (0, Some(node)) => node,
                (0, None) => match requested(&all, number) {
                    Some(node) => self.take_port(ctx, service, index, node.into(), had, taken).await?,
                    None => self.take_any_port(ctx, taken).await?,
                },
                (asked, Some(node)) if asked == i64::from(node) => node,
                (asked, _) => self.take_port(ctx, service, index, asked, had, taken).await?,
            };
            if shared.is_none() {
                by_port.push((number, node));
            }
            if let Some(port) = all[index].as_object_mut() {
                port.insert("nodePort", node.into());
            }
        }
        service.section_mut("spec").insert("ports", Value::Array(all));
        Ok(())
    }

    async fn take_port(
        &self,
        ctx: &WriteContext<'_>,
        service: &Object,
        index: usize,
        asked: i64,
        had: &BTreeSet<u16>,
        taken: &mut Taken,
    ) -> Result<u16> {
        let refuse = |why: String| {
            let path = Path::new("spec.ports").index(index).child("nodePort");
            families::invalid(service, [FieldError::invalid(&path, asked, why)].into())
        };
        let Some(port) = ports::number(asked).filter(|port| self.node_ports.contains(*port)) else {
            return Err(refuse(self.node_ports.out_of_range()));
        };
        if had.contains(&port) {
            return Ok(port);
        }
        if !taken.ports.contains(&port) && self.node_ports.take(port, ctx.dry_run).await? {
            taken.ports.insert(port);
            return Ok(port);
        }
        Err(refuse("provided port is already allocated".to_owned()))
    }

    async fn take_any_port(&self, ctx: &WriteContext<'_>, taken: &mut Taken) -> Result<u16> {
        let port = self.node_ports.take_any(&taken.ports, ctx.dry_run).await?;
        let port = port.ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))?;
        taken.ports.insert(port);
        Ok(port)
    }

    async fn take_health_check_port(
        &self,
        ctx: &WriteContext<'_>,
        service: &mut Object,
        had: &BTreeSet<u16>,
        taken: &mut Taken,
    ) -> Result<()> {
        let asked = spec(service).int("healthCheckNodePort").unwrap_or(0);
        let port = match ports::number(asked) {
            Some(port) if had.contains(&port) => port,
            None if asked == 0 => self.take_any_port(ctx, taken).await?,
            asked_port => {
                let failed = |why: &str| Status::internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {why}"));
                let port =
                    asked_port.filter(|port| self.node_ports.contains(*port)).ok_or_else(|| failed(&self.node_ports.out_of_range()))?;
                if taken.ports.contains(&port) || !self.node_ports.take(port, ctx.dry_run).await? {
                    return Err(failed("provided port is already allocated"));
                }
                taken.ports.insert(port);
                port
            }
        };
        service.section_mut("spec").insert("healthCheckNodePort", port.into());
        Ok(())
    }

    /// Gives back what is in `from` and not in `keep`. What cannot be given back is left for the repair of a later start.
    async fn give_back(&self, from: &Object, keep: Option<&Object>) {
        let kept = keep.map(|keep| strings(keep, "clusterIPs")).unwrap_or_default();
        let ips = strings(from, "clusterIPs").into_iter().filter(|ip| !kept.contains(ip));
        let taken = Taken {
            ips: ips.filter_map(|ip| names::parse_ip_sloppy(&ip)).collect(),
            ports: ports::all(from).difference(&keep.map(ports::all).unwrap_or_default()).copied().collect(),
        };
        self.undo(taken).await;
    }

    async fn undo(&self, taken: Taken) {
        let options = DeleteOptions::default();
        for ip in taken.ips {
            if let Err(status) = self.addresses.delete(&self.context(""), &ip.to_string(), &options, &OpenGate).await
                && status.code != 404
            {
                tracing::warn!(%ip, reason = status.message, "cannot release a cluster IP");
            }
        }
        if let Err(status) = self.node_ports.release(&taken.ports).await {
            tracing::warn!(reason = status.message, "cannot release node ports");
        }
    }
}

#[async_trait]
impl Hooks for ServiceAllocator {
    async fn reserve(&self, ctx: &WriteContext<'_>, object: &mut Object, old: Option<&Object>) -> Result<()> {
        if let Some(old) = old {
            families::keep_allocated(object, old);
        }
        families::normalise(object, old);
        families::settle(object, old, &self.configured())?;
        let mut taken = Taken::default();
        let result = self.take(ctx, object, old, &mut taken).await;
        if result.is_err() && !ctx.dry_run {
            self.undo(taken).await;
        }
        result
    }

    async fn release(&self, object: &Object, old: Option<&Object>) {
        self.give_back(object, old).await;
    }

    async fn written(&self, object: &Object, old: Option<&Object>) {
        if let Some(old) = old {
            self.give_back(old, Some(object)).await;
        }
    }

    async fn deleted(&self, object: &Object) {
        let context = self.context(object.namespace());
        if let Err(status) = self.endpoints.delete(&context, object.name(), &DeleteOptions::default(), &OpenGate).await
            && status.code != 404
        {
            tracing::warn!(reason = status.message, "cannot delete the endpoints of a service");
        }
        self.give_back(object, None).await;
    }
}

fn ip_error(service: &Object, ips: &[String], why: &str) -> Status {
    families::invalid(service, [FieldError::invalid(&Path::new("spec.clusterIPs"), json!(ips), why)].into())
}

/// The node port that another port of the same number asks for.
fn requested(all: &[Value], number: i64) -> Option<u16> {
    let same = all.iter().filter(|port| port.int("port") == Some(number));
    same.filter_map(|port| ports::number(port.int("nodePort")?)).next()
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

/// Neither the network's own address nor (for IPv4) its broadcast address is handed out.
fn first_host(range: &IpNet) -> u128 {
    number(range.network()) + 1
}

fn last_host(range: &IpNet) -> u128 {
    number(range.broadcast()) - u128::from(family_of(range.addr()) == IPV4)
}

/// How many of the lowest addresses are left to people: a sixteenth, between 16 and 256 (`calculateRangeOffset`).
fn reserved(size: u128) -> u128 {
    if size < 16 { 0 } else { (size / 16).clamp(16, 256).min(size) }
}
