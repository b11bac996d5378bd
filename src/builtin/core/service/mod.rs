//! Service: defaults, what a change of type drops, warnings; addresses and ports are in
//! `allocation`.

pub mod allocation;
pub mod columns;
pub mod families;
pub mod ip_addresses;
pub mod ip_family;
pub mod metrics;
pub mod node_ports;
pub mod ports;
pub mod ranges;
pub mod spec;
pub mod validation;
pub mod warnings;

use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::{ErrorList, Map, Object, Value, json};
use crate::registry::validation::Fields;
use crate::registry::{Context, NameRule, Strategy, Subresource};
use spec::{
    externally_accessible, kind, needs_cluster_ip, needs_health_check_port, needs_node_port, spec,
};

/// The entry of `services`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "services",
    traits: ResourceTraits {
        name: NameRule::DnsLabel,
        create_on_update: true,
        returns_deleted: true,
        selectable: &["spec.clusterIP", "spec.type"],
        ..WITH_STATUS
    },
    strategy: &ServiceStrategy,
    printer: &columns::PRINTER,
};

/// The code of the services resource.
#[derive(Clone, Copy, Debug)]
pub struct ServiceStrategy;

/// The default duration of ClientIP affinity, in seconds.
const DEFAULT_AFFINITY_SECONDS: i64 = 10_800;

impl Strategy for ServiceStrategy {
    fn default(&self, object: &mut Object) {
        let externally_accessible = externally_accessible(object);
        default_spec(object.section_mut("spec"), externally_accessible);
        default_ingress_modes(object);
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        drop_internal_traffic(object);
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        drop_internal_traffic(object);
        if ctx.subresource == Subresource::Main {
            drop_type_dependent_fields(object, old);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        validation::validate(object, None)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        match ctx.subresource {
            Subresource::Status => validation::validate_status(object),
            _ => validation::validate_update(object, old),
        }
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warnings::of_service(object)
    }

    fn status_warnings(&self, object: &Object) -> Vec<String> {
        warnings::of_status(object)
    }
}

fn put_default(spec: &mut Map, key: &str, value: &str) {
    if spec.str(key).is_empty() {
        spec.insert(key.to_owned(), value.into());
    }
}

fn default_spec(spec: &mut Map, externally_accessible: bool) {
    put_default(spec, "sessionAffinity", "None");
    match spec.str("sessionAffinity") {
        "None" => {
            spec.shift_remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let told = spec
                .map("sessionAffinityConfig")
                .and_then(|config| config.map("clientIP"))
                .and_then(|ip| ip.int("timeoutSeconds"));
            if told.is_none() {
                let config = json!({ "clientIP": { "timeoutSeconds": DEFAULT_AFFINITY_SECONDS } });
                spec.insert("sessionAffinityConfig", config);
            }
        }
        _ => {}
    }
    put_default(spec, "type", "ClusterIP");
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        ports
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(default_port);
    }
    if externally_accessible {
        put_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if spec.opt_str("internalTrafficPolicy").is_none()
        && matches!(spec.str("type"), "NodePort" | "LoadBalancer" | "ClusterIP")
    {
        spec.insert("internalTrafficPolicy", "Cluster".into());
    }
    if spec.str("type") == "LoadBalancer"
        && spec.opt_flag("allocateLoadBalancerNodePorts").is_none()
    {
        spec.insert("allocateLoadBalancerNodePorts", true.into());
    }
}

fn default_port(port: &mut Map) {
    put_default(port, "protocol", "TCP");
    let unset = match port.field("targetPort") {
        None => true,
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(Value::String(name)) => name.is_empty(),
        Some(_) => false,
    };
    if unset && let Some(number) = port.get("port").cloned() {
        port.insert("targetPort", number);
    }
}

fn default_ingress_modes(service: &mut Object) {
    if kind(service) != "LoadBalancer" {
        return;
    }
    if let Some(Value::Array(ingresses)) = service.at_mut("/status/loadBalancer/ingress") {
        for ingress in ingresses.iter_mut().filter_map(Value::as_object_mut) {
            if !ingress.str("ip").is_empty() && ingress.opt_str("ipMode").is_none() {
                ingress.insert("ipMode", "VIP".into());
            }
        }
    }
}

/// An external name has no policy for traffic inside. It stays managed, as upstream only hides it
/// from those who read.
fn drop_internal_traffic(service: &mut Object) {
    if kind(service) == "ExternalName" {
        service
            .section_mut("spec")
            .shift_remove("internalTrafficPolicy");
    }
}

/// Fields that only made sense for the old type go, unless the update changed them too: then
/// validation has its say.
fn drop_type_dependent_fields(service: &mut Object, old: &Object) {
    let same = |service: &Object, key: &str| spec(service).field(key) == spec(old).field(key);
    let mut gone: Vec<&str> = Vec::new();
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        if same(service, "clusterIP") && same(service, "clusterIPs") {
            gone.extend(["clusterIP", "clusterIPs"]);
        }
        gone.extend(
            ["ipFamilies", "ipFamilyPolicy"]
                .into_iter()
                .filter(|key| same(service, key)),
        );
    }
    if needs_health_check_port(old)
        && !needs_health_check_port(service)
        && same(service, "healthCheckNodePort")
    {
        gone.push("healthCheckNodePort");
    }
    if kind(old) == "LoadBalancer" && kind(service) != "LoadBalancer" {
        gone.extend(
            ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
                .into_iter()
                .filter(|key| same(service, key)),
        );
    }
    if externally_accessible(old)
        && !externally_accessible(service)
        && same(service, "externalTrafficPolicy")
    {
        gone.push("externalTrafficPolicy");
    }
    let drop_ports =
        needs_node_port(old) && !needs_node_port(service) && ports::subset(service, old);
    let spec = service.section_mut("spec");
    for key in gone {
        spec.shift_remove(key);
    }
    if drop_ports && let Some(Value::Array(all)) = spec.get_mut("ports") {
        all.iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|port| {
                port.shift_remove("nodePort");
            });
    }
    if kind(service) != "LoadBalancer" {
        service
            .section_mut("status")
            .insert("loadBalancer", json!({}));
    }
}
