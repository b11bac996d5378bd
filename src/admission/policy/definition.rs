//! Policies and their bindings, read from objects once.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::admission::kinds::{KindResource, Kinds};
use crate::admission::matching::MatchResources;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::{Gvk, Map, Object, Value, str_at};

/// The compiled expressions of a policy.
pub trait Evaluator: Send + Sync + 'static {
    /// Compiles what the policy says. What does not compile is told when it is evaluated.
    fn compile(policy: &PolicySpec) -> Self;
}

/// A policy without its compiled expressions.
#[derive(Debug)]
pub struct PolicySpec {
    pub name: String,
    /// The `spec` of the object.
    pub spec: Value,
    /// The error is that of a policy that does not say what it is about.
    pub constraints: Result<MatchResources, String>,
    /// The kind of its parameters.
    pub param_kind: Option<Gvk>,
    /// True if the requests that it cannot judge are refused.
    pub fails: bool,
}

/// A policy, with its expressions once they were needed.
pub struct Policy<E> {
    pub spec: Arc<PolicySpec>,
    compiled: Arc<OnceLock<E>>,
    /// The last known resource of the parameters, and the generation of the served kinds then.
    param_resource: Mutex<Option<(u64, Option<KindResource>)>>,
}

impl<E: Evaluator> Policy<E> {
    /// Reads a policy. Where `before` says the same, its compiled expressions are kept.
    pub fn read(object: &Object, before: Option<&Self>) -> Self {
        let spec = object.at("/spec").cloned().unwrap_or_default();
        if let Some(before) = before.filter(|before| before.spec.spec == spec) {
            return Self {
                spec: before.spec.clone(),
                compiled: before.compiled.clone(),
                param_resource: Mutex::new(before.param_resource.lock().clone()),
            };
        }
        Self {
            spec: Arc::new(PolicySpec::read(object.name(), spec)),
            compiled: Arc::default(),
            param_resource: Mutex::new(None),
        }
    }

    /// Returns the compiled expressions.
    pub fn evaluator(&self) -> &E {
        self.compiled.get_or_init(|| E::compile(&self.spec))
    }

    /// Returns the resource of the parameters. One that was served once stays the resource of the
    /// policy, as upstream goes on following it.
    pub fn param_resource(&self, kinds: &dyn Kinds, gvk: &Gvk) -> Option<KindResource> {
        let generation = kinds.generation();
        let mut known = self.param_resource.lock();
        let before = match known.take() {
            Some((at, resource)) if at == generation => {
                *known = Some((at, resource.clone()));
                return resource;
            }
            before => before.and_then(|(_, resource)| resource),
        };
        let resource = kinds.resource_of(gvk).or(before);
        *known = Some((generation, resource.clone()));
        resource
    }
}

impl PolicySpec {
    fn read(name: &str, spec: Value) -> Self {
        let constraints = match spec.get("matchConstraints").filter(|it| it.is_object()) {
            Some(constraints) => MatchResources::read(constraints),
            None => Err("policy contained no match constraints, a required field".to_owned()),
        };
        let kind = spec.get("paramKind").filter(|kind| kind.is_object());
        Self {
            name: name.to_owned(),
            constraints,
            param_kind: kind.map(|kind| {
                Gvk::from_api_version(str_at(kind, "/apiVersion"), str_at(kind, "/kind"))
            }),
            fails: str_at(&spec, "/failurePolicy") != "Ignore",
            spec,
        }
    }
}

/// The consequence of a validation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Deny,
    Warn,
    Audit,
}

/// The place of a policy's parameters.
#[derive(Debug)]
pub struct ParamRef {
    pub name: String,
    pub namespace: String,
    /// The error is that of a selector that cannot be read.
    pub selector: Option<Result<LabelSelector, String>>,
    /// True if there must be some.
    pub required: bool,
}

impl ParamRef {
    fn read(value: &Value) -> Self {
        let selector = value.get("selector").filter(|it| it.is_object());
        Self {
            name: str_at(value, "/name").to_owned(),
            namespace: str_at(value, "/namespace").to_owned(),
            selector: selector.map(|selector| LabelSelector::from_object(Some(selector))),
            required: str_at(value, "/parameterNotFoundAction") == "Deny",
        }
    }
}

/// A binding, which puts a policy into effect.
#[derive(Debug)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    pub params: Option<ParamRef>,
    /// The part of the requests of the policy that it is about.
    pub resources: Option<Result<MatchResources, String>>,
    pub actions: Vec<Action>,
}

impl Binding {
    pub fn read(object: &Object) -> Self {
        let empty = Map::new();
        let spec = object
            .at("/spec")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let part = |key: &str| spec.get(key).filter(|value| value.is_object());
        let action = |text: &Value| match text.as_str() {
            Some("Deny") => Some(Action::Deny),
            Some("Warn") => Some(Action::Warn),
            Some("Audit") => Some(Action::Audit),
            _ => None,
        };
        Self {
            name: object.name().to_owned(),
            policy: object.str_at("/spec/policyName").to_owned(),
            params: part("paramRef").map(ParamRef::read),
            resources: part("matchResources").map(MatchResources::read),
            actions: object
                .array_at("/spec/validationActions")
                .iter()
                .filter_map(action)
                .collect(),
        }
    }

    /// The names of its actions, in the order in which it has them.
    pub fn action_names(&self) -> Vec<&'static str> {
        self.actions
            .iter()
            .map(|action| match action {
                Action::Deny => "Deny",
                Action::Warn => "Warn",
                Action::Audit => "Audit",
            })
            .collect()
    }
}
