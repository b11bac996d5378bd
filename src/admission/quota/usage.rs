//! The usage of objects, and the quotas that count it (`pkg/quota/v1/evaluator`).

use super::configuration::Requirement;
use super::device_claims::{self, DeviceClasses};
use super::{pods, services, volume_claims};
use crate::admission::resource_list::ResourceList;
use crate::admission::{Attributes, Objects, Operation};
use crate::meta::go::quantity::{Format, Quantity};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value};

/// The prefix of a resource that stands for the devices of a class.
pub const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// Kinds that could be counted by their plain name before every kind could.
const ALIASES: [&str; 4] = [
    "configmaps",
    "resourcequotas",
    "replicationcontrollers",
    "secrets",
];

/// An evaluator: how objects of a kind are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    Pods,
    Services,
    VolumeClaims,
    DeviceClaims,
    /// By number only: `count/RESOURCE.GROUP` and, for some, the plain name too.
    Count(String, Option<&'static str>),
}

/// One object.
pub fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSi)
}

impl Requirement {
    /// Reports whether a name satisfies the requirement; an empty one is none.
    pub fn selects(&self, name: &str) -> bool {
        let is_listed = self.values.iter().any(|value| value == name);
        match self.operator.as_str() {
            "Exists" => !name.is_empty(),
            "DoesNotExist" => name.is_empty(),
            "In" => !name.is_empty() && is_listed,
            "NotIn" => name.is_empty() || !is_listed,
            _ => false,
        }
    }
}

/// Returns the scopes of a quota.
pub fn scopes(quota: &Object) -> Vec<Requirement> {
    let plain = quota.array_at("/spec/scopes").iter();
    let plain = plain.filter_map(Value::as_str).map(|scope| Requirement {
        scope: scope.to_owned(),
        operator: "Exists".to_owned(),
        values: Vec::new(),
    });
    let selectors = quota.array_at("/spec/scopeSelector/matchExpressions");
    plain
        .chain(selectors.iter().map(Requirement::read))
        .collect()
}

impl Evaluator {
    /// Returns the evaluator of `gvr`.
    pub fn of(gvr: &Gvr) -> Self {
        match (gvr.group.as_str(), gvr.resource.as_str()) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaims,
            (group, resource) => {
                let alias = if group.is_empty() {
                    ALIASES.into_iter().find(|alias| *alias == resource)
                } else {
                    None
                };
                Self::Count(format!("count/{}", gvr.group_resource()), alias)
            }
        }
    }

    /// Reports whether the request can change the usage.
    pub fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let (create, update) = (
            attributes.operation == Operation::Create,
            attributes.operation == Operation::Update,
        );
        match (self, attributes.subresource) {
            (Self::Pods, "") => {
                let terminating =
                    |object: Option<&Object>| object.is_some_and(pods::is_terminating);
                create || update && terminating(attributes.object()) != terminating(attributes.old)
            }
            (Self::Pods, "resize") => update,
            (Self::Services | Self::VolumeClaims | Self::DeviceClaims, "") => create || update,
            (Self::VolumeClaims, "status") => update,
            (Self::Count(..), "") => create,
            _ => false,
        }
    }

    /// Reports whether an object is in a scope.
    pub fn in_scope(&self, object: &Object, requirement: &Requirement) -> bool {
        match self {
            Self::Pods => pods::in_scope(object, requirement),
            Self::VolumeClaims => volume_claims::in_scope(object, requirement),
            _ => false,
        }
    }

    /// Returns the amounts that the object lacks to be counted against limits, in the words of the
    /// answer.
    pub fn missing(&self, limits: &[String], object: &Object) -> Option<String> {
        match self {
            Self::Pods => pods::missing(limits, object),
            _ => None,
        }
    }
}

/// The objects of a request with what must be known to count them.
pub struct Usage<'a> {
    pub evaluator: Evaluator,
    pub object: &'a Object,
    pub old: Option<&'a Object>,
    classes: DeviceClasses,
    /// The usage of the pods that claims were made for.
    pods: [ResourceList; 2],
    now: i64,
}

impl<'a> Usage<'a> {
    /// Reads what must be known.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(
        attributes: &'a Attributes<'_>,
        object: &'a Object,
        objects: &dyn Objects,
        now: i64,
    ) -> Result<Self> {
        let mut usage = Self {
            evaluator: Evaluator::of(attributes.gvr),
            object,
            old: attributes
                .old
                .filter(|old| !old.resource_version().is_empty()),
            classes: DeviceClasses::default(),
            pods: Default::default(),
            now,
        };
        if usage.evaluator == Evaluator::DeviceClaims {
            usage.classes = DeviceClasses::read(objects).await?;
            let of_pod =
                |claim| device_claims::pod_usage(objects, claim, attributes.namespace, now);
            usage.pods[0] = of_pod(object).await?;
            if let Some(old) = usage.old {
                usage.pods[1] = of_pod(old).await?;
            }
        }
        Ok(usage)
    }

    /// The usage of an object that is stored. `pod` is that of the pod that a claim was made for.
    pub fn counting(
        evaluator: Evaluator,
        object: &'a Object,
        classes: &DeviceClasses,
        pod: ResourceList,
        now: i64,
    ) -> Self {
        Self {
            evaluator,
            object,
            old: None,
            classes: classes.clone(),
            pods: [pod, ResourceList::new()],
            now,
        }
    }

    /// Reports whether a limit is about objects of this kind.
    pub fn matches_resource(&self, limit: &str) -> bool {
        match &self.evaluator {
            Evaluator::Pods => pods::matches_resource(limit),
            Evaluator::Services => services::matches_resource(limit),
            Evaluator::VolumeClaims => volume_claims::matches_resource(limit),
            Evaluator::DeviceClaims => self.classes.matches_resource(limit),
            Evaluator::Count(name, alias) => limit == name || *alias == Some(limit),
        }
    }

    /// Reports whether a quota is about an object: it limits something of its kind, and all its
    /// scopes match.
    pub fn matches(&self, quota: &Object, object: &Object) -> bool {
        let hard = quota.at("/status/hard").and_then(Value::as_object);
        hard.is_some_and(|hard| hard.keys().any(|name| self.matches_resource(name)))
            && scopes(quota)
                .iter()
                .all(|scope| self.evaluator.in_scope(object, scope))
    }

    /// Returns the usage of the object.
    pub fn of_object(&self) -> ResourceList {
        self.of(self.object, &self.pods[0])
    }

    /// Returns the increase of the usage over the one before, never negative.
    pub fn added(&self) -> ResourceList {
        let mut out = self.of_object();
        let Some(old) = self.old else {
            return out;
        };
        let before = self.of(old, &self.pods[1]);
        for (name, amount) in &mut out {
            if let Some(before) = before.get(name) {
                amount.sub(before);
            }
            if amount.sign() < 0 {
                *amount = Quantity::default();
            }
        }
        out
    }

    fn of(&self, object: &Object, pod: &ResourceList) -> ResourceList {
        match &self.evaluator {
            Evaluator::Pods => pods::usage(object, self.now),
            Evaluator::Services => services::usage(object),
            Evaluator::VolumeClaims => volume_claims::usage(object),
            Evaluator::DeviceClaims => self.classes.usage(object, pod),
            Evaluator::Count(name, alias) => {
                let names = [Some(name.as_str()), *alias].into_iter().flatten();
                names.map(|name| (name.to_owned(), one())).collect()
            }
        }
    }
}
