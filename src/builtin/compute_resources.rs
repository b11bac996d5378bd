//! Names and amounts of resources (CPU, memory, storage, ...), as pods, quotas, ranges and claims
//! have them.

use std::collections::{BTreeSet, HashSet};

use crate::builtin::quantities::quantity;
use crate::meta::go::quantity::Quantity;
use crate::meta::names::Problems;
use crate::meta::{ErrorList, FieldError, Map, Path, Value, names};
use crate::registry::validation::{Fields, NOT_NEGATIVE, invalid_each};

/// Countable resources of a quota: they come in whole numbers.
const COUNTS: [&str; 9] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// Measured resources, as quotas name them.
const AMOUNTS: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
];

/// The text of a quantity, as errors show it.
pub fn shown(amount: &Value) -> Value {
    match amount {
        Value::String(_) => amount.clone(),
        other => other.to_string().into(),
    }
}

fn text(amount: &Value) -> String {
    amount
        .as_str()
        .map_or_else(|| amount.to_string(), str::to_owned)
}

/// Reports whether a resource belongs to Kubernetes itself: no domain, or one of its own.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Reports whether requests may be less than limits.
pub fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// A resource of a quota that needs no domain.
pub fn is_standard_quota(name: &str) -> bool {
    COUNTS.contains(&name) || AMOUNTS[..10].contains(&name) || is_quota_huge_page(name)
}

/// A resource of a domain that is not Kubernetes' own.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Refuses negative amounts, and fractions of what comes in whole numbers.
pub fn check_quantity(errors: &mut ErrorList, path: &Path, resource: &str, amount: &Value) {
    let number = quantity(amount);
    if number.sign() < 0 {
        errors.invalid(path, shown(amount), NOT_NEGATIVE);
    }
    if (COUNTS.contains(&resource) || is_extended(resource)) && number.milli_value() % 1000 != 0 {
        errors.invalid(path, shown(amount), "must be an integer");
    }
}

/// Refuses amounts of zero and less.
pub fn check_positive(errors: &mut ErrorList, path: &Path, amount: &Value) {
    if quantity(amount).sign() <= 0 {
        errors.invalid(path, shown(amount), "must be greater than zero");
    }
}

/// The name of any resource: standard, or with a domain.
fn name_problems(name: &str) -> Problems {
    let mut problems = names::qualified_name(name);
    let standard = COUNTS.contains(&name) || AMOUNTS.contains(&name) || is_quota_huge_page(name);
    if problems.is_empty() && !name.contains('/') && !standard {
        problems.push("must be a standard resource type or fully qualified".to_owned());
    }
    problems
}

/// The name of a resource of a quota.
pub fn check_quota_name(errors: &mut ErrorList, path: &Path, name: &str) {
    invalid_each(errors, path, name, name_problems(name));
    if !name.contains('/') && !is_standard_quota(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

/// The name of a resource of any kind of limit.
pub fn check_name(errors: &mut ErrorList, path: &Path, name: &str) {
    invalid_each(errors, path, name, name_problems(name));
}

/// The name of a resource of a container.
pub fn check_container_name(errors: &mut ErrorList, path: &Path, name: &str) {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        return;
    }
    invalid_each(errors, path, name, name_problems(name));
    if !name.contains('/') {
        if !is_huge_page(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// The name of a resource of a pod as a whole.
pub fn check_pod_name(errors: &mut ErrorList, path: &Path, name: &str) {
    let problems = name_problems(name);
    if problems.is_empty() && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
    invalid_each(errors, path, name, problems);
}

/// Rules for requests and limits: by whose names, with which claims of the pod, and how strictly.
pub struct Requirements<'a> {
    pub check_name: fn(&mut ErrorList, &Path, &str),
    pub claims: &'a [&'a str],
    pub allow_indivisible_huge_pages: bool,
}

impl Requirements<'_> {
    /// Checks requests, limits and claims.
    pub fn check(&self, errors: &mut ErrorList, path: &Path, resources: &Map) {
        let mut compute = false;
        let mut huge = false;
        for (name, amount) in resources.entries("limits") {
            self.check_amount(errors, &path.child("limits").key(name), name, amount);
            compute |= matches!(name.as_str(), "cpu" | "memory");
            huge |= is_huge_page(name);
        }
        for (name, amount) in resources.entries("requests") {
            let requests = path.child("requests");
            self.check_amount(errors, &requests.key(name), name, amount);
            match resources
                .map("limits")
                .and_then(|limits| limits.field(name))
            {
                Some(limit) => check_against_limit(errors, &requests, name, amount, limit),
                None if !allows_overcommit(name) => {
                    errors.required(
                        &path.child("limits"),
                        "Limit must be set for non overcommitable resources",
                    );
                }
                None => {}
            }
            compute |= matches!(name.as_str(), "cpu" | "memory");
            huge |= is_huge_page(name);
        }
        if huge && !compute {
            errors.forbidden(path, "HugePages require cpu or memory");
        }
        if resources.field("claims").is_some() {
            self.check_claims(errors, &path.child("claims"), resources.list("claims"));
        }
    }

    fn check_amount(&self, errors: &mut ErrorList, path: &Path, name: &str, amount: &Value) {
        (self.check_name)(errors, path, name);
        check_quantity(errors, path, name, amount);
        if is_huge_page(name) && !self.allow_indivisible_huge_pages && !is_divisible(name, amount) {
            let detail = format!(
                "{} is not positive integer multiple of {name}",
                text(amount)
            );
            errors.invalid(path, shown(amount), detail);
        }
    }

    fn check_claims(&self, errors: &mut ErrorList, path: &Path, claims: &[Value]) {
        let known: HashSet<&str> = self.claims.iter().copied().collect();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for (index, claim) in claims.iter().enumerate() {
            if errors.is_full() {
                return;
            }
            let path = path.index(index);
            let (name, request) = (claim.str("name"), claim.str("request"));
            if name.is_empty() {
                errors.required(&path, "");
                continue;
            }
            if seen.contains(name) {
                errors.duplicate(&path, name);
            } else {
                let key = if request.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}/{request}")
                };
                if !request.is_empty() {
                    invalid_each(
                        errors,
                        &path.child("request"),
                        request,
                        names::dns1123_label(request),
                    );
                }
                if seen.contains(&key) {
                    errors.duplicate(&path, key.as_str());
                } else if request.is_empty() {
                    let requests = format!("{name}/");
                    let before = seen
                        .range(requests.clone()..)
                        .take_while(|one| one.starts_with(&requests));
                    errors.extend(before.map(|_| FieldError::duplicate(&path, name)));
                }
                seen.insert(key);
            }
            if !known.contains(name) {
                let mut error = FieldError::not_found(&path, name);
                let mut known = self.claims.to_vec();
                known.sort_unstable();
                let known = if known.is_empty() {
                    " which is empty".to_owned()
                } else {
                    format!(": {}", known.join(", "))
                };
                error.detail =
                    format!("must be one of the names in pod.spec.resourceClaims{known}");
                errors.push(error);
            }
        }
    }
}

fn check_against_limit(
    errors: &mut ErrorList,
    path: &Path,
    name: &str,
    amount: &Value,
    limit: &Value,
) {
    let (request, bound) = (quantity(amount), quantity(limit));
    let relation = if request != bound && !allows_overcommit(name) {
        "equal to"
    } else if request > bound {
        "less than or equal to"
    } else {
        return;
    };
    errors.invalid(
        path,
        shown(amount),
        format!("must be {relation} {name} limit of {}", text(limit)),
    );
}

/// Reports whether an amount is a whole number of pages.
pub fn is_divisible(name: &str, amount: &Value) -> bool {
    let Some(size) = name
        .strip_prefix("hugepages-")
        .and_then(|size| Quantity::parse(size).ok())
        .and_then(|size| size.as_i64())
    else {
        return false;
    };
    size > 0 && quantity(amount).value() % size == 0
}
