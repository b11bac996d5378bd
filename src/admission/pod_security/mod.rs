//! PodSecurity: pods keep to the level of the Pod Security Standards that the labels of their
//! namespace choose (pod-security-admission `admission/admission.go`,
//! `plugin/pkg/admission/security/podsecurity`).

mod checks;
mod configuration;
mod levels;
pub mod metrics;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::base::coop::CoopBudget;
use crate::meta::status::Result;
use crate::meta::{ErrorList, Gvr, Object, Status, Value, array_at, bool_at, map_at, str_at};
pub use configuration::Configuration;

use checks::{Pod, details, evaluate, reasons};
use levels::{Level, LevelVersion, Levels, PREFIX};

/// The most pods that are checked when a namespace gets a stricter level.
const MAX_CHECKED_PODS: usize = 3_000;
/// The longest that this may take.
const MAX_CHECK_TIME: Duration = Duration::from_secs(1);

/// The resources besides pods that pods are made from: group, resource, and the path of the
/// template.
const TEMPLATES: [(&str, &str, &str); 8] = [
    ("", "podtemplates", "/template"),
    ("", "replicationcontrollers", "/spec/template"),
    ("apps", "daemonsets", "/spec/template"),
    ("apps", "deployments", "/spec/template"),
    ("apps", "replicasets", "/spec/template"),
    ("apps", "statefulsets", "/spec/template"),
    ("batch", "cronjobs", "/spec/jobTemplate/spec/template"),
    ("batch", "jobs", "/spec/template"),
];

/// The subresources of pods that do not change what a pod may do.
const HARMLESS_SUBRESOURCES: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

/// Checks pods, and warns of objects that pods are made from.
pub struct PodSecurity {
    objects: Arc<dyn Objects>,
    configuration: Configuration,
}

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && (attributes.is("", "namespaces")
                || is_pod(attributes)
                || template(attributes).is_some())
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(object) = attributes.object() else {
            return Ok(());
        };
        if attributes.is("", "namespaces") {
            self.namespace(attributes, object).await
        } else if is_pod(attributes) {
            self.pod(attributes, object).await
        } else {
            self.template(attributes, object).await
        }
    }
}

fn is_pod(attributes: &Attributes<'_>) -> bool {
    attributes.is_any("", "pods") && !HARMLESS_SUBRESOURCES.contains(&attributes.subresource)
}

fn template(attributes: &Attributes<'_>) -> Option<&'static str> {
    TEMPLATES
        .iter()
        .find(|(group, resource, _)| attributes.is(group, resource))
        .map(|(_, _, path)| *path)
}

impl PodSecurity {
    /// Creates the plugin.
    pub fn new(objects: Arc<dyn Objects>, configuration: Configuration) -> Self {
        Self {
            objects,
            configuration,
        }
    }

    fn levels_of(&self, namespace: &Object) -> (Levels, ErrorList) {
        Levels::of(namespace.labels(), self.configuration.defaults)
    }

    /// Reports whether nothing is checked in the namespace or of the user, and notes why.
    fn is_exempt(&self, attributes: &Attributes<'_>) -> bool {
        let (namespaces, users) = (
            &self.configuration.namespaces,
            &self.configuration.usernames,
        );
        let reason = if namespaces.iter().any(|name| name == attributes.namespace) {
            "namespace"
        } else if users.iter().any(|name| *name == attributes.user.name) {
            "user"
        } else {
            return false;
        };
        annotate(attributes, "exempt", reason.to_owned());
        metrics::exempt(attributes);
        true
    }

    fn is_exempt_runtime_class(&self, pod: Pod<'_>) -> bool {
        let class = str_at(pod.spec, "/runtimeClassName");
        let exempt = &self.configuration.runtime_classes;
        !class.is_empty() && exempt.iter().any(|name| name == class)
    }

    /// Refuses wrong labels, and warns of pods that a stricter level would not allow.
    async fn namespace(&self, attributes: &Attributes<'_>, object: &Object) -> Result<()> {
        let (levels, errors) = self.levels_of(object);
        let name = object.name();
        let exempt = self
            .configuration
            .namespaces
            .iter()
            .any(|exempt| exempt == name);
        let exempt_warning = || {
            let defaults = &self.configuration.defaults;
            if let Some(text) = levels.exempt_warning(name, object.labels(), defaults) {
                attributes.notes.warn(text);
            }
        };
        let Some(old) = attributes.old else {
            if !errors.is_empty() {
                return Err(Status::invalid(attributes.gvk, name, errors));
            }
            if exempt {
                exempt_warning();
            }
            return Ok(());
        };
        let (old_levels, old_errors) = self.levels_of(old);
        if !errors.is_empty() && errors != old_errors {
            return Err(Status::invalid(attributes.gvk, name, errors));
        }
        let (new, old) = (levels.enforce, old_levels.enforce);
        let is_relaxed = new.version == old.version && new.level <= old.level;
        if new.level == Level::Privileged || is_relaxed {
            return Ok(());
        }
        if exempt {
            exempt_warning();
            return Ok(());
        }
        for warning in self.warnings_of_pods(name, new).await {
            attributes.notes.warn(warning);
        }
        Ok(())
    }

    /// Checks a new pod, and one whose containers change.
    async fn pod(&self, attributes: &Attributes<'_>, object: &Object) -> Result<()> {
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespaces = Gvr::new("", "v1", "namespaces");
        let name = attributes.namespace;
        let Some(namespace) = self.objects.get(&namespaces, "", name).await? else {
            metrics::failed(attributes, true);
            return Err(Status::internal(format!(
                "failed to lookup namespace {name:?}"
            )));
        };
        let (levels, errors) = self.levels_of(&namespace);
        if errors.is_empty() && levels.is_privileged() {
            metrics::evaluated(attributes, "enforce", levels.enforce, true);
            annotate(attributes, "enforce-policy", levels.enforce.to_string());
            return Ok(());
        }
        if attributes.operation == Operation::Update
            && attributes
                .old
                .is_some_and(|old| !changes_containers(object, old))
        {
            return Ok(());
        }
        let pod = of_object(object);
        if self.is_exempt_runtime_class(pod) {
            annotate(attributes, "exempt", "runtimeClass".to_owned());
            metrics::exempt(attributes);
            return Ok(());
        }
        if !errors.is_empty() {
            annotate(attributes, "error", parse_error(&errors));
            metrics::failed(attributes, false);
        }
        annotate(attributes, "enforce-policy", levels.enforce.to_string());
        audit(attributes, levels.audit, pod);
        let found = evaluate(levels.enforce, pod);
        metrics::evaluated(attributes, "enforce", levels.enforce, found.is_empty());
        if !found.is_empty() {
            return Err(attributes.forbidden(&format!(
                "violates PodSecurity \"{}\": {}",
                levels.enforce,
                details(&found)
            )));
        }
        // The enforced level has been found to allow the pod.
        if levels.warn != levels.enforce {
            warn(attributes, levels.warn, pod);
        }
        Ok(())
    }

    /// Warns of a template whose pods would be refused, audited or warned of.
    async fn template(&self, attributes: &Attributes<'_>, object: &Object) -> Result<()> {
        let template = template(attributes).and_then(|path| object.at(path));
        let Some(template) = template.filter(|template| template.is_object()) else {
            return Ok(());
        };
        if self.is_exempt(attributes) {
            return Ok(());
        }
        let namespaces = Gvr::new("", "v1", "namespaces");
        let name = attributes.namespace;
        let namespace = match self.objects.get(&namespaces, "", name).await {
            Ok(Some(namespace)) => namespace,
            found => {
                let why = found.err().map_or_else(
                    || format!("namespaces {name:?} not found"),
                    |status| status.message,
                );
                let text = format!("failed to lookup namespace {name:?}: {why}");
                annotate(attributes, "error", text);
                metrics::failed(attributes, true);
                return Ok(());
            }
        };
        let (levels, errors) = self.levels_of(&namespace);
        let pod = Pod {
            annotations: map_at(template, "/metadata/annotations"),
            spec: template.get("spec").unwrap_or(&Value::Null),
        };
        if self.is_exempt_runtime_class(pod) {
            annotate(attributes, "exempt", "runtimeClass".to_owned());
            metrics::exempt(attributes);
            return Ok(());
        }
        if !errors.is_empty() {
            annotate(attributes, "error", parse_error(&errors));
            metrics::failed(attributes, false);
        }
        audit(attributes, levels.audit, pod);
        warn(attributes, levels.warn, pod);
        Ok(())
    }

    /// Returns warnings about the pods of a namespace that a level would not allow.
    async fn warnings_of_pods(&self, namespace: &str, level: LevelVersion) -> Vec<String> {
        let Ok(pods) = self
            .objects
            .list(&Gvr::new("", "v1", "pods"), namespace)
            .await
        else {
            return vec!["failed to list pods while checking new PodSecurity enforce level".into()];
        };
        let deadline = Instant::now() + MAX_CHECK_TIME;
        let (mut checked, mut budget) = (0, CoopBudget::default());
        // By their texts: how many pods, and the first name among them.
        let mut found: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        let pods = self.prioritized(&pods);
        for pod in pods.iter().take(MAX_CHECKED_PODS) {
            checked += 1;
            let violations = evaluate(level, of_object(pod));
            if !violations.is_empty() {
                let (count, first) = found.entry(reasons(&violations)).or_insert((0, pod.name()));
                *count += 1;
                *first = pod.name().min(first);
            }
            budget.step().await;
            if Instant::now() >= deadline {
                break;
            }
        }
        let mut warnings = Vec::new();
        if checked < pods.len() {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {} existing pods",
                pods.len()
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
            ));
        }
        let mut texts: Vec<String> = found
            .into_iter()
            .map(|(reasons, (count, first))| match count {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                _ => format!("{first} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        texts.sort();
        warnings.extend(texts);
        warnings
    }

    /// Returns the pods that are not exempt, and puts those of a controller behind its first one,
    /// since they are probably alike.
    fn prioritized<'a>(&self, pods: &'a [Arc<Object>]) -> Vec<&'a Object> {
        let mut controllers = HashSet::new();
        let (mut first, later): (Vec<&Object>, Vec<&Object>) = pods
            .iter()
            .map(AsRef::as_ref)
            .filter(|pod| !self.is_exempt_runtime_class(of_object(pod)))
            .partition(|pod| {
                let owners = pod.array_at("/metadata/ownerReferences").iter();
                let mut controller = owners.filter(|owner| bool_at(owner, "/controller"));
                controller
                    .next()
                    .is_none_or(|owner| controllers.insert(str_at(owner, "/uid")))
            });
        first.extend(later);
        first
    }
}

fn annotate(attributes: &Attributes<'_>, key: &str, value: String) {
    attributes.notes.annotate(format!("{PREFIX}{key}"), value);
}

fn parse_error(errors: &ErrorList) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => format!("Failed to parse policy: {one}"),
        all => format!("Failed to parse policy: [{}]", all.join(", ")),
    }
}

fn would_violate(level: LevelVersion, pod: Pod<'_>) -> Option<String> {
    let found = evaluate(level, pod);
    (!found.is_empty())
        .then(|| format!("would violate PodSecurity \"{level}\": {}", details(&found)))
}

fn audit(attributes: &Attributes<'_>, level: LevelVersion, pod: Pod<'_>) {
    if let Some(text) = would_violate(level, pod) {
        annotate(attributes, "audit-violations", text);
        metrics::evaluated(attributes, "audit", level, false);
    }
}

fn warn(attributes: &Attributes<'_>, level: LevelVersion, pod: Pod<'_>) {
    if let Some(text) = would_violate(level, pod) {
        attributes.notes.warn(text);
        metrics::evaluated(attributes, "warn", level, false);
    }
}

fn of_object(pod: &Object) -> Pod<'_> {
    Pod {
        annotations: pod.annotations(),
        spec: pod.at("/spec").unwrap_or(&Value::Null),
    }
}

/// Reports whether an update adds containers or changes their images.
fn changes_containers(pod: &Object, old: &Object) -> bool {
    let image = |container: &Value| str_at(container, "/image").to_owned();
    let changes = |path: &str| {
        let (new, old) = (pod.array_at(path), old.array_at(path));
        new.len() != old.len()
            || new
                .iter()
                .zip(old)
                .any(|(new, old)| image(new) != image(old))
    };
    let known: HashMap<&str, &Value> = old
        .array_at("/spec/ephemeralContainers")
        .iter()
        .map(|container| (str_at(container, "/name"), container))
        .collect();
    changes("/spec/containers")
        || changes("/spec/initContainers")
        || array_at(
            pod.at("/spec").unwrap_or(&Value::Null),
            "/ephemeralContainers",
        )
        .iter()
        .any(|new| {
            known
                .get(str_at(new, "/name"))
                .is_none_or(|old| image(new) != image(old))
        })
}
