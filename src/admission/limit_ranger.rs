//! LimitRanger: default requests and limits of containers, and their allowed minimum, maximum and
//! ratio (`plugin/pkg/admission/limitranger`).

use std::sync::Arc;

use async_trait::async_trait;

use super::resource_list::{self, ResourceList};
use super::{Attributes, Objects, Operation, Plugin};
use crate::auth::authz::aggregate;
use crate::meta::go::quantity::Quantity;
use crate::meta::status::Result;
use crate::meta::{Gvr, Map, Object, Value, str_at};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The greatest number of which the server takes thousandths.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

pub struct LimitRanger(pub Arc<dyn Objects>);

impl LimitRanger {
    async fn ranges(&self, attributes: &Attributes<'_>) -> Result<Vec<Arc<Object>>> {
        if attributes
            .old
            .is_some_and(|old| old.deletion_timestamp().is_some())
        {
            return Ok(Vec::new());
        }
        self.0
            .list(&Gvr::new("", "v1", "limitranges"), attributes.namespace)
            .await
    }
}

#[async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => {
                attributes.is("", "pods") || attributes.is("", "persistentvolumeclaims")
            }
            // Nothing else of a pod's resources can change.
            Operation::Update if attributes.is_any("", "pods") => {
                attributes.subresource == "resize"
            }
            Operation::Update => attributes.is("", "persistentvolumeclaims"),
            _ => false,
        }
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        if !attributes.is_any("", "pods") {
            return Ok(());
        }
        for range in self.ranges(attributes).await? {
            if let Some(pod) = attributes.object_mut() {
                set_defaults(pod, &range);
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(object) = attributes.object() else {
            return Ok(());
        };
        for range in self.ranges(attributes).await? {
            let errors = match attributes.is_any("", "pods") {
                true => pod_errors(object, &range),
                false => claim_errors(object, &range),
            };
            if !errors.is_empty() {
                return Err(attributes.forbidden(&aggregate(&errors)));
            }
        }
        Ok(())
    }
}

/// The limits of the range that are for `kind`.
fn limits<'a>(range: &'a Object, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range
        .array_at("/spec/limits")
        .iter()
        .filter(move |limit| str_at(limit, "/type") == kind)
}

fn set_defaults(pod: &mut Object, range: &Object) {
    let (mut requests, mut caps) = (Map::new(), Map::new());
    for limit in limits(range, "Container") {
        for (into, from) in [(&mut requests, "defaultRequest"), (&mut caps, "default")] {
            into.extend(
                limit
                    .get(from)
                    .and_then(Value::as_object)
                    .cloned()
                    .unwrap_or_default(),
            );
        }
    }
    let mut notes = Vec::new();
    for (key, kind) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let list = pod
            .section_mut("spec")
            .get_mut(key)
            .and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = container
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned();
            let capped = fill(container, "limits", &caps);
            for (set, what) in [
                (fill(container, "requests", &requests), "request"),
                (capped, "limit"),
            ] {
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {kind} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let slot = pod
            .metadata_mut()
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = slot.as_object_mut() {
            annotations.insert(
                ANNOTATION.to_owned(),
                format!("LimitRanger plugin set: {}", notes.join("; ")).into(),
            );
            annotations.sort_keys();
        }
    }
}

/// Sets the amounts that a container leaves out; their names in order.
fn fill(container: &mut Map, which: &'static str, defaults: &Map) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let resources = container
        .entry("resources")
        .or_insert_with(|| Value::Object(Map::new()));
    let slot = resources.as_object_mut().map(|map| {
        map.entry(which)
            .or_insert_with(|| Value::Object(Map::new()))
    });
    let Some(amounts) = slot.and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let mut set: Vec<String> = defaults
        .keys()
        .filter(|name| !amounts.contains_key(name))
        .map(ToString::to_string)
        .collect();
    for name in &set {
        amounts.insert(
            name.clone(),
            defaults.get(name).cloned().unwrap_or_default(),
        );
    }
    amounts.sort_keys();
    set.sort();
    set
}

fn pod_errors(pod: &Object, range: &Object) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range.array_at("/spec/limits") {
        match str_at(limit, "/type") {
            "Container" => {
                for container in ["/spec/containers", "/spec/initContainers"]
                    .into_iter()
                    .flat_map(|path| pod.array_at(path))
                {
                    let requests = resource_list::read(container, "/resources/requests");
                    let caps = resource_list::read(container, "/resources/limits");
                    check(&mut errors, "Container", limit, &requests, &caps);
                }
            }
            "Pod" => {
                let (requests, caps) = (
                    resource_list::of_pod(pod, "requests"),
                    resource_list::of_pod(pod, "limits"),
                );
                check(&mut errors, "Pod", limit, &requests, &caps);
            }
            _ => {}
        }
    }
    errors
}

/// Checks the request and the limit of a resource against a bound.
type Rule = fn(&str, &str, Quantity, Option<&Quantity>, Option<&Quantity>) -> Option<String>;

fn check(
    errors: &mut Vec<String>,
    kind: &str,
    limit: &Value,
    requests: &ResourceList,
    caps: &ResourceList,
) {
    for (path, rule) in [
        ("/min", below as Rule),
        ("/max", above),
        ("/maxLimitRequestRatio", ratio),
    ] {
        for (name, bound) in resource_list::read(limit, path) {
            let (request, cap) = (requests.get(&name), caps.get(&name));
            errors.extend(rule(kind, &name, bound, request, cap));
        }
    }
}

fn claim_errors(claim: &Object, range: &Object) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = claim
        .get("spec")
        .map(|spec| resource_list::read(spec, "/resources/requests"))
        .unwrap_or_default();
    let mut errors = Vec::new();
    for limit in limits(range, KIND) {
        for (name, least) in resource_list::read(limit, "/min") {
            errors.extend(below(KIND, &name, least, requests.get(&name), None));
        }
        for (name, most) in resource_list::read(limit, "/max") {
            let rule = format!("maximum {name} usage per {KIND} is {most}");
            errors.extend(match requests.get(&name) {
                None => Some(format!("{rule}.  No request is specified")),
                Some(request) if *request > most => {
                    Some(format!("{rule}, but request is {request}"))
                }
                Some(_) => None,
            });
        }
    }
    errors
}

fn below(
    kind: &str,
    name: &str,
    least: Quantity,
    request: Option<&Quantity>,
    cap: Option<&Quantity>,
) -> Option<String> {
    let rule = format!("minimum {name} usage per {kind} is {least}");
    match (request, cap) {
        (None, _) => Some(format!("{rule}.  No request is specified")),
        (Some(request), _) if *request < least => Some(format!("{rule}, but request is {request}")),
        (_, Some(cap)) if *cap < least => Some(format!("{rule}, but limit is {cap}")),
        _ => None,
    }
}

fn above(
    kind: &str,
    name: &str,
    most: Quantity,
    request: Option<&Quantity>,
    cap: Option<&Quantity>,
) -> Option<String> {
    let rule = format!("maximum {name} usage per {kind} is {most}");
    match (request, cap) {
        (_, None) => Some(format!("{rule}.  No limit is specified")),
        (_, Some(cap)) if *cap > most => Some(format!("{rule}, but limit is {cap}")),
        (Some(request), _) if *request > most => Some(format!("{rule}, but request is {request}")),
        _ => None,
    }
}

fn ratio(
    kind: &str,
    name: &str,
    most: Quantity,
    request: Option<&Quantity>,
    cap: Option<&Quantity>,
) -> Option<String> {
    let rule = format!("{name} max limit to request ratio per {kind} is {most}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!(
            "{rule}, but no request is specified or request is 0"
        ));
    };
    let Some(cap) = cap.filter(|cap| !cap.is_zero()) else {
        return Some(format!("{rule}, but no limit is specified or limit is 0"));
    };
    let fine = [request, cap]
        .iter()
        .all(|amount| amount.value() <= MAX_MILLI_VALUE);
    let number = |amount: &Quantity| {
        if fine {
            amount.milli_value() as f64
        } else {
            amount.value() as f64
        }
    };
    let found = number(cap) / number(request);
    let (scaled, allowed) = match most.value() <= MAX_MILLI_VALUE {
        true => (found * 1000.0, most.milli_value() as f64),
        false => (found, most.value() as f64),
    };
    (scaled > allowed).then(|| format!("{rule}, but provided ratio is {found:.6}"))
}
