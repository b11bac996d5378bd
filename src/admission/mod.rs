//! Admission: plugins that may change or refuse a decoded request before its object is stored
//! (apiserver `pkg/admission`).

pub mod cel;
mod certificates;
pub mod configuration;
pub mod configuration_fields;
mod deny;
mod event_rate_limit;
mod image_policy;
mod ingress_class;
pub mod kinds;
mod limit_ranger;
pub mod matching;
mod namespace_lifecycle;
mod namespaces;
mod node_declared_features;
mod node_restriction;
pub mod observation;
pub mod observed;
mod owner_references;
pub mod plugins;
mod pod_node_selector;
pub mod policy;
mod pod_resize;
pub mod pod_security;
pub mod pod_toleration_restriction;
mod pod_topology_labels;
mod pods;
mod priority;
pub mod quota;
mod resource_list;
mod runtime_class;
mod service_account;
mod storage;
mod taints;
pub mod tolerations;
pub mod webhook;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use plugins::{PLUGINS, Support};

pub use plugins::PluginDeps;

use crate::auth::User;
use crate::merge::managers;
use crate::meta::options::OperationOptions;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status, Value};
use configuration::PluginConfigurations;
use observation::{Calls, PluginTimings, Step, step_done};
use observed::Observer;
use policy::Policies;
use webhook::{WebhookReinvocation, Webhooks};

/// The operation of a request on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// The name in admission reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The warnings and audit annotations of plugins.
pub trait Notes: Send + Sync {
    /// Adds a Warning header to the answer.
    fn warn(&self, text: String);

    /// Adds an annotation to the audit event of the request; the first of a key stays.
    fn annotate(&self, key: String, value: String);

    /// [`Notes::annotate`] with something that shows parts of the object: only where the event
    /// tells all of it.
    fn annotate_object(&self, key: String, value: String) {
        self.annotate(key, value);
    }

    /// Notes the time that a mutating or else a validating webhook took.
    fn webhook_took(&self, _mutating: bool, _time: Duration) {}
}

/// The second round of the mutating plugins, which one of them may ask for because others should
/// see what it changed (apiserver `admission/reinvocation.go`).
#[derive(Debug, Default)]
pub struct Reinvocation {
    /// Reports whether this is the second round.
    pub is_reinvoke: bool,
    /// Set by a plugin that changed the object.
    pub should_reinvoke: bool,
    /// The policies that have run.
    pub policies: policy::PolicyReinvocation,
    /// The part of the webhooks.
    pub webhooks: WebhookReinvocation,
}

/// The request as the plugins see it.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub gvr: &'a Gvr,
    pub gvk: &'a Gvk,
    /// Empty for the resource itself.
    pub subresource: &'a str,
    /// Empty for resources of the cluster.
    pub namespace: &'a str,
    /// Empty where a create leaves the name to the server.
    pub name: &'a str,
    /// The new object: of the storage version, complete and defaulted. `None` for deletes.
    pub object: Option<&'a mut Object>,
    /// The stored object of an update or delete.
    pub old: Option<&'a Object>,
    pub user: &'a Arc<User>,
    pub dry_run: bool,
    /// The time at which the request has failed if it is not done.
    pub deadline: Instant,
    pub options: OperationOptions<'a>,
    pub notes: &'a dyn Notes,
    pub reinvocation: Reinvocation,
}

impl Attributes<'_> {
    /// Reports whether the request is about `resource` of `group` itself, not a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.is_any(group, resource) && self.subresource.is_empty()
    }

    /// Reports whether the request is about `resource` of `group` or one of its subresources.
    pub fn is_any(&self, group: &str, resource: &str) -> bool {
        self.gvr.resource == resource && self.gvr.group == group
    }

    /// Returns the options of the request as reviews and expressions see them; `None` for requests
    /// without options.
    pub fn options_value(&self) -> Option<Value> {
        self.options.to_value(match self.operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        })
    }

    /// The new object, to read.
    pub fn object(&self) -> Option<&Object> {
        self.object.as_deref()
    }

    /// The new object, to change.
    pub fn object_mut(&mut self) -> Option<&mut Object> {
        self.object.as_deref_mut()
    }

    /// Replaces the new object by what a plugin made of it. Managed fields that cannot be read stay
    /// as they were, with a warning (apiserver `fieldmanager/admission.go`).
    pub fn replace_object(&mut self, mut changed: Object) {
        let Some(object) = self.object.as_deref_mut() else {
            return;
        };
        const FIELDS: &str = "/metadata/managedFields";
        let before = object.at(FIELDS);
        if changed.at(FIELDS) != before
            && let Err(why) = managers::check(&changed)
        {
            self.notes.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be \
                 caused by an outdated mutating admission controller; please fix your requests: \
                 {why}"
            ));
            match before {
                Some(before) => {
                    let before = before.clone();
                    changed.metadata_mut().insert("managedFields", before);
                }
                None => {
                    changed.metadata_mut().shift_remove("managedFields");
                }
            }
        }
        *object = changed;
    }

    /// The 403 of a plugin that refuses the request. The name is that of the request or the object;
    /// a name that the server has yet to generate is given by its prefix.
    pub fn forbidden(&self, why: &str) -> Status {
        let object = self.object();
        let names = [
            self.name,
            object.map_or("", |object| object.name()),
            object.map_or("", |object| object.generate_name()),
            "Unknown",
        ];
        let name = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        Status::forbidden(self.gvr, name, why)
    }
}

/// Reads other objects for the plugins as this server knows them: with every write of its own, and
/// with those of other servers as soon as its watch has told of them. What is not known is looked
/// for in the store.
#[async_trait]
pub trait Objects: Send + Sync {
    /// The object, or `None` where there is none. `namespace` is empty for resources of the
    /// cluster.
    async fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>>;

    /// Every object of the namespace, or of the cluster where `namespace` is empty, by key. Stored
    /// ones that cannot be read are left out and logged.
    async fn list(&self, gvr: &Gvr, namespace: &str) -> Result<Vec<Arc<Object>>>;

    /// The object as far as this server knows, without a look into the store for what it does not:
    /// what is not served is not there either.
    async fn known(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Arc<Object>>> {
        self.get(gvr, namespace, name).await
    }

    /// The objects of the namespace, or of the cluster where `namespace` is empty, with labels that
    /// the selector takes, by key. What is not served has none.
    async fn select(
        &self,
        gvr: &Gvr,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Arc<Object>>> {
        let mut objects = self.list(gvr, namespace).await?;
        objects.retain(|object| selector.matches(object.labels()));
        Ok(objects)
    }

    /// Creates an object as the server itself, with no regard to admission.
    ///
    /// # Errors
    /// 409 if it exists.
    async fn create(&self, gvr: &Gvr, object: Object) -> Result<()> {
        Err(Status::internal(format!(
            "{} {} cannot be created here",
            gvr.group_resource(),
            object.name()
        )))
    }

    /// Writes the status of an object that one of the calls above returned, as a PUT of its status
    /// subresource would.
    ///
    /// # Errors
    /// 409 if it has changed since, 404 if it is gone.
    async fn update_status(&self, gvr: &Gvr, object: Object) -> Result<()> {
        Err(Status::internal(format!(
            "the status of {} {} cannot be written here",
            gvr.group_resource(),
            object.name()
        )))
    }
}

/// One admission plugin. Both methods do nothing by default.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// The name in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Reports whether the plugin handles this request; cheap, so that most plugins cost most
    /// requests nothing.
    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    /// Changes the object, or refuses the request.
    async fn admit(&self, _attributes: &mut Attributes<'_>) -> Result<()> {
        Ok(())
    }

    /// Refuses the request, or not. Runs once the object is final.
    async fn validate(&self, _attributes: &Attributes<'_>) -> Result<()> {
        Ok(())
    }
}

/// The plugins in the order in which they run.
#[derive(Default)]
pub struct Chain {
    plugins: Vec<Link>,
}

/// A plugin of a chain, and how long it takes.
struct Link {
    plugin: Box<dyn Plugin>,
    timings: PluginTimings,
}

impl Chain {
    pub fn new(plugins: Vec<(Box<dyn Plugin>, Calls)>) -> Self {
        let link = |(plugin, calls): (Box<dyn Plugin>, Calls)| Link {
            timings: PluginTimings::new(plugin.name(), calls),
            plugin,
        };
        Self {
            plugins: plugins.into_iter().map(link).collect(),
        }
    }

    /// The names of the plugins.
    pub fn names(&self) -> Vec<&'static str> {
        self.plugins.iter().map(|link| link.plugin.name()).collect()
    }

    /// Lets every plugin change the object; the first refusal ends it. Before the strategy prepares
    /// and validates. Where one asks for it, all of them run once more.
    ///
    /// # Errors
    /// The first refusal of a plugin.
    pub async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let start = Instant::now();
        let mut done = self.admit_once(attributes).await;
        if done.is_ok() && attributes.reinvocation.should_reinvoke {
            attributes.reinvocation.is_reinvoke = true;
            done = self.admit_once(attributes).await;
        }
        let elapsed = start.elapsed();
        step_done(Step::Admit, attributes.operation, done.is_err(), elapsed);
        done
    }

    async fn admit_once(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        for Link { plugin, timings } in &self.plugins {
            if plugin.handles(attributes) {
                let start = Instant::now();
                let done = plugin.admit(attributes).await;
                let (failed, elapsed) = (done.is_err(), start.elapsed());
                timings.observe(Step::Admit, attributes.operation, failed, elapsed);
                done?;
            } else {
                timings.pass(Step::Admit, attributes.operation);
            }
        }
        Ok(())
    }

    /// Lets every plugin check the final object; the first refusal ends it. After the strategy
    /// validated.
    ///
    /// # Errors
    /// The first refusal of a plugin.
    pub async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let start = Instant::now();
        let done = self.validate_once(attributes).await;
        let elapsed = start.elapsed();
        step_done(Step::Validate, attributes.operation, done.is_err(), elapsed);
        done
    }

    async fn validate_once(&self, attributes: &Attributes<'_>) -> Result<()> {
        for Link { plugin, timings } in &self.plugins {
            if plugin.handles(attributes) {
                let start = Instant::now();
                let done = plugin.validate(attributes).await;
                let (failed, elapsed) = (done.is_err(), start.elapsed());
                timings.observe(Step::Validate, attributes.operation, failed, elapsed);
                done?;
            } else {
                timings.pass(Step::Validate, attributes.operation);
            }
        }
        Ok(())
    }
}

/// The group of the policies and the configurations of webhooks.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// The policies and webhooks of a server, which clients register.
#[derive(Clone, Default)]
pub struct Registrations {
    pub policies: Policies,
    pub webhooks: Webhooks,
}

impl Registrations {
    /// The resources of the [`GROUP`] that have an effect, and who is to know of their objects.
    pub fn observers(&self) -> Vec<(&'static str, Arc<dyn Observer>)> {
        let mut observers = self.policies.observers();
        observers.extend(self.webhooks.observers());
        observers
    }
}

/// The settings that plugins have of their own.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--default-not-ready-toleration-seconds`.
    pub not_ready_toleration_seconds: i64,
    /// `--default-unreachable-toleration-seconds`.
    pub unreachable_toleration_seconds: i64,
    /// `--admission-control-config-file`.
    pub plugins: PluginConfigurations,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            plugins: PluginConfigurations::default(),
        }
    }
}

/// The plugins of the server in the order in which they run: those of the [`plugins::PLUGINS`] that
/// `runs` says yes to, given the name and whether it runs where no flag
/// names it.
pub fn chain(parts: &PluginDeps<'_>, runs: impl Fn(&str, bool) -> bool) -> Chain {
    let chosen = PLUGINS
        .iter()
        .filter(|plugin| runs(plugin.name, plugin.by_default));
    let built = chosen.map(|plugin| match plugin.support {
        Support::Runs(build) => (build(parts), plugin.calls),
        Support::Inert(_) => (
            Box::new(Inert(plugin.name)) as Box<dyn Plugin>,
            plugin.calls,
        ),
    });
    Chain::new(built.collect())
}

/// A plugin that has nothing to do. It is there to be counted.
struct Inert(&'static str);

#[async_trait]
impl Plugin for Inert {
    fn name(&self) -> &'static str {
        self.0
    }

    fn handles(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
