//! The IP families of a service and how its singular and plural cluster IP go together
//! (`pkg/registry/core/service/storage`).

use super::ip_family::{IPV4, IPV6, family_of};
use super::spec::{kind, needs_cluster_ip, needs_health_check_port, set_strings, spec, strings};
use super::{ports, validation};
use crate::meta::{ErrorList, FieldError, Gvk, Map, Object, Path, Status, json, names};
use crate::registry::validation::Fields;

const SINGLE: &str = "SingleStack";

fn other(family: &str) -> &'static str {
    if family == IPV4 { IPV6 } else { IPV4 }
}

fn same(service: &Object, old: &Object, key: &str) -> bool {
    spec(service).field(key) == spec(old).field(key)
}

/// Fills `clusterIPs` from `clusterIP` (new clients know both, old ones only the singular).
pub fn normalise(service: &mut Object, old: Option<&Object>) {
    let single = spec(service).str("clusterIP").to_owned();
    let Some(old) = old else {
        if !single.is_empty() && spec(service).list("clusterIPs").is_empty() {
            set_strings(service, "clusterIPs", &[single]);
        }
        return;
    };
    let was = spec(old).str("clusterIP").to_owned();
    if !spec(old).list("clusterIPs").is_empty()
        && spec(service).list("clusterIPs").is_empty()
        && was == single
    {
        set_strings(service, "clusterIPs", &strings(old, "clusterIPs"));
    }
    if was != single && same(service, old, "clusterIPs") {
        let plural: &[String] = if single.is_empty() { &[] } else { &[single] };
        set_strings(service, "clusterIPs", plural);
    }
}

/// Keeps what the server allocated where an update does not mention it.
pub fn keep_allocated(service: &mut Object, old: &Object) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        if spec(service).str("clusterIP").is_empty() {
            copy(service, old, "clusterIP");
        }
        if spec(service).list("clusterIPs").is_empty() {
            copy(service, old, "clusterIPs");
        }
    }
    ports::keep(service, old);
    if needs_health_check_port(old)
        && needs_health_check_port(service)
        && spec(service).int("healthCheckNodePort").unwrap_or(0) == 0
    {
        copy(service, old, "healthCheckNodePort");
    }
}

fn copy(service: &mut Object, old: &Object, key: &str) {
    if let Some(value) = spec(old).field(key).cloned() {
        service.section_mut("spec").insert(key.to_owned(), value);
    }
}

/// Reports whether the service preferred two families before and after, and has the same. It gets
/// or loses none because the cluster did (`isMatchingPreferDualStackClusterIPFields`).
fn prefers_the_same(service: &Object, old: &Object) -> bool {
    let prefers =
        |service: &Object| spec(service).opt_str("ipFamilyPolicy") == Some("PreferDualStack");
    let kept = kind(service) == kind(old)
        && ["clusterIPs", "ipFamilies"]
            .iter()
            .all(|key| strings(service, key) == strings(old, key));
    prefers(service) && prefers(old) && kept
}

/// Settles `ipFamilyPolicy` and `ipFamilies` for a cluster that has these families, the first by
/// default.
///
/// # Errors
/// 422 if the families do not fit the cluster or the service.
pub fn settle(
    service: &mut Object,
    old: Option<&Object>,
    configured: &[&'static str],
) -> Result<(), Status> {
    if !needs_cluster_ip(service) || old.is_some_and(|old| prefers_the_same(service, old)) {
        return Ok(());
    }
    let selectorless = spec(service).map("selector").is_none_or(Map::is_empty);
    let headless = spec(service).str("clusterIP") == "None";
    if spec(service).opt_str("ipFamilyPolicy").is_none() {
        let inherited = old.and_then(|old| spec(old).opt_str("ipFamilyPolicy").map(str::to_owned));
        let policy = inherited.unwrap_or_else(|| {
            if headless && selectorless {
                "RequireDualStack"
            } else {
                SINGLE
            }
            .to_owned()
        });
        service
            .section_mut("spec")
            .insert("ipFamilyPolicy", policy.into());
    }
    refuse(service, validation::cluster_ips(service, old))?;
    if let Some(old) = old {
        shrink(service, old)?;
    }
    refuse(service, too_many(service))?;
    let unconfigured = add_families_of_ips(service, configured);
    refuse(service, unconfigured)?;
    let mut families = strings(service, "ipFamilies");
    let single = spec(service).str("ipFamilyPolicy") == SINGLE;
    if headless && selectorless {
        complete(&mut families, configured[0], !single);
    } else {
        refuse(service, missing_families(service, configured))?;
        complete(
            &mut families,
            configured[0],
            !single && configured.len() == 2,
        );
    }
    set_strings(service, "ipFamilies", &families);
    Ok(())
}

fn complete(families: &mut Vec<String>, default: &str, dual: bool) {
    if families.is_empty() {
        families.push(default.to_owned());
    }
    if dual && families.len() == 1 {
        families.push(other(&families[0]).to_owned());
    }
}

fn refuse(service: &Object, errors: ErrorList) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(invalid(service, errors))
    }
}

/// 422 for the service.
pub fn invalid(service: &Object, errors: ErrorList) -> Status {
    Status::invalid(&Gvk::new("", "v1", "Service"), service.name(), errors)
}

fn policy_error(service: &Object, why: &str) -> FieldError {
    let policy = spec(service)
        .field("ipFamilyPolicy")
        .cloned()
        .unwrap_or_default();
    FieldError::invalid(&Path::new("spec.ipFamilyPolicy"), policy, why)
}

/// A service that becomes single-stack lets its second address and family go; others must say so.
fn shrink(service: &mut Object, old: &Object) -> Result<(), Status> {
    let (ips, families) = (
        strings(service, "clusterIPs"),
        strings(service, "ipFamilies"),
    );
    if spec(service).str("ipFamilyPolicy") == SINGLE {
        if ips.len() > 1 && same(service, old, "clusterIPs") && same(service, old, "clusterIP") {
            set_strings(service, "clusterIPs", &ips[..1]);
        }
        if families.len() > 1 && same(service, old, "ipFamilies") {
            set_strings(service, "ipFamilies", &families[..1]);
        }
        return Ok(());
    }
    let reduced = |key: &str, now: &[String]| {
        let was = strings(old, key);
        !now.is_empty() && now.len() < was.len()
    };
    let mut errors = ErrorList::new();
    if reduced("clusterIPs", &ips) {
        errors.push(policy_error(
            service,
            "must be 'SingleStack' to release the secondary cluster IP",
        ));
    }
    if reduced("ipFamilies", &families) {
        errors.push(policy_error(
            service,
            "must be 'SingleStack' to release the secondary IP family",
        ));
    }
    refuse(service, errors)
}

fn too_many(service: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    if spec(service).str("ipFamilyPolicy") == SINGLE {
        for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if spec(service).list(key).len() == 2 {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.push(policy_error(service, &why));
            }
        }
    }
    errors
}

/// Families follow from given addresses.
fn add_families_of_ips(service: &mut Object, configured: &[&'static str]) -> ErrorList {
    let ips = strings(service, "clusterIPs");
    let mut families = strings(service, "ipFamilies");
    let mut errors = ErrorList::new();
    for (index, text) in ips.iter().enumerate() {
        let Some(ip) = names::parse_ip_sloppy(text) else {
            break;
        };
        if index >= families.len() {
            let family = family_of(ip);
            if configured.contains(&family) {
                families.push(family.to_owned());
            } else {
                let path = Path::new("spec.clusterIPs").index(index);
                errors.invalid(
                    &path,
                    json!(ips),
                    format!("{family} is not configured on this cluster"),
                );
            }
        }
    }
    set_strings(service, "ipFamilies", &families);
    errors
}

fn missing_families(service: &Object, configured: &[&'static str]) -> ErrorList {
    let mut errors = ErrorList::new();
    if spec(service).str("ipFamilyPolicy") == "RequireDualStack" && configured.len() < 2 {
        errors.push(policy_error(
            service,
            "this cluster is not configured for dual-stack services",
        ));
    }
    for (index, family) in strings(service, "ipFamilies").into_iter().enumerate() {
        if !configured.contains(&family.as_str()) {
            let path = Path::new("spec.ipFamilies").index(index);
            errors.invalid(&path, family, "not configured on this cluster");
        }
    }
    errors
}
