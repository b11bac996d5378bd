//! The steps that both kinds of policies have in common: matching, versions, and parameters
//! (apiserver `admission/plugin/policy/generic`).

use std::borrow::Cow;
use std::sync::Arc;

use super::definition::{Binding, Evaluator, PolicySpec};
use super::params;
use super::source::Hook;
use crate::admission::cel::{
    self, Authorizations, Inputs, Match, MatchCondition, Request, Variables,
};
use crate::admission::kinds::Kinds;
use crate::admission::matching::{Matched, RequestMatcher};
use crate::admission::observation::ConditionLabels;
use crate::admission::{Attributes, Objects};
use crate::auth::authz::Authorizer;
use crate::meta::status;
use crate::meta::{Gvk, Gvr, Object, Value};

/// The dependencies of the plugins.
#[derive(Clone)]
pub struct Parts {
    pub objects: Arc<dyn Objects>,
    pub kinds: Arc<dyn Kinds>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Reports whether no policy is asked about a resource: not about policies, so that those that are
/// wrong can be mended, and not about reviews, without which nothing works
/// (`pkg/kubeapiserver/admission/exclusion`).
pub fn is_exempt(gvr: &Gvr) -> bool {
    match gvr.group.as_str() {
        "admissionregistration.k8s.io" => matches!(
            gvr.resource.as_str(),
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" => {
            matches!(gvr.resource.as_str(), "selfsubjectreviews" | "tokenreviews")
        }
        "authorization.k8s.io" => matches!(
            gvr.resource.as_str(),
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}

/// An error of a policy, or of one of its bindings, that keeps it from being evaluated.
pub struct ConfigurationError {
    /// The binding that it is about.
    pub binding: Option<String>,
    pub message: String,
}

impl ConfigurationError {
    pub fn of_policy(why: &str) -> Self {
        Self {
            binding: None,
            message: format!("failed to configure policy: {why}"),
        }
    }

    pub fn of_binding(binding: &Binding, why: &str) -> Self {
        Self {
            binding: Some(binding.name.clone()),
            message: format!("failed to configure binding: {why}"),
        }
    }
}

/// One request on its way through the policies.
pub struct Dispatch<'a> {
    pub parts: &'a Parts,
    pub matcher: RequestMatcher<'a>,
    pub authorizations: Authorizations,
    /// The options of the request.
    options: Option<Value>,
}

impl<'a> Dispatch<'a> {
    pub fn new(parts: &'a Parts, attributes: &Attributes<'_>) -> Self {
        Self {
            parts,
            matcher: RequestMatcher::new(&*parts.objects, &*parts.kinds),
            authorizations: Authorizations::new(parts.authorizer.clone(), attributes.user.clone()),
            options: attributes.options_value(),
        }
    }

    /// Returns the resource and kind in which a policy matches the request; `None` if it does not.
    ///
    /// # Errors
    /// The policy cannot be used.
    pub async fn policy_matches<'r, E: Evaluator>(
        &self,
        hook: &Hook<E>,
        attributes: &'r Attributes<'_>,
    ) -> Result<Option<Matched<'r>>, ConfigurationError> {
        let spec = &hook.policy.spec;
        let constraints = spec.constraints.as_ref();
        let constraints = constraints.map_err(|why| ConfigurationError::of_policy(why))?;
        let matched = self.matcher.matches(constraints, attributes).await;
        let matched = matched.map_err(|why| ConfigurationError::of_policy(&why.message))?;
        if let (Some(_), Some(gvk)) = (&matched, &spec.param_kind)
            && hook
                .policy
                .param_resource(&*self.parts.kinds, gvk)
                .is_none()
        {
            return Err(ConfigurationError::of_policy(&params::unknown_kind(gvk)));
        }
        Ok(matched)
    }

    /// Reports whether a binding matches the request too.
    ///
    /// # Errors
    /// The binding cannot be used.
    pub async fn binding_matches(
        &self,
        binding: &Binding,
        attributes: &Attributes<'_>,
    ) -> Result<bool, ConfigurationError> {
        let wrong = |why: &str| ConfigurationError::of_binding(binding, why);
        match &binding.resources {
            None => Ok(true),
            Some(Err(why)) => Err(wrong(why)),
            Some(Ok(resources)) => {
                let matched = self.matcher.matches(resources, attributes).await;
                Ok(matched.map_err(|why| wrong(&why.message))?.is_some())
            }
        }
    }

    /// Returns the parameters that a binding gives.
    ///
    /// # Errors
    /// The binding cannot be used.
    pub async fn params<E: Evaluator>(
        &self,
        hook: &Hook<E>,
        binding: &Binding,
        namespace: &str,
    ) -> Result<Vec<Option<Arc<Object>>>, ConfigurationError> {
        let (objects, kinds) = (&*self.parts.objects, &*self.parts.kinds);
        params::collect(&hook.policy, binding, namespace, objects, kinds)
            .await
            .map_err(|why| ConfigurationError::of_binding(binding, &why))
    }

    /// Returns the namespace of the request; `None` where it is in none, or about one.
    ///
    /// # Errors
    /// 404 where there is none.
    pub async fn namespace(
        &self,
        attributes: &Attributes<'_>,
    ) -> status::Result<Option<Arc<Object>>> {
        let gvk = attributes.gvk;
        let of_namespace = gvk.kind == "Namespace" && gvk.version == "v1" && gvk.group.is_empty();
        if attributes.namespace.is_empty() || of_namespace {
            return Ok(None);
        }
        self.matcher.namespace(attributes.namespace).await.map(Some)
    }

    /// The request as expressions see it. `resource` is the one that it counts as.
    pub fn request<'r>(
        &'r self,
        attributes: &'r Attributes<'_>,
        resource: &'r Gvr,
        kind: &'r Gvk,
    ) -> Request<'r> {
        Request {
            kind,
            resource,
            options: self.options.as_ref(),
            ..Request::of(attributes)
        }
    }

    /// The new and the old object of a request in the kind in which it matched.
    ///
    /// # Errors
    /// One of them cannot be converted.
    pub async fn versioned<'o>(
        &self,
        attributes: &'o Attributes<'_>,
        matched: &Matched<'_>,
    ) -> status::Result<Versioned<'o>> {
        let versioned = async |object: Option<&'o Object>| match object {
            Some(object) => {
                let kinds = &self.parts.kinds;
                let shown = kinds.versioned(object, &matched.gvr, &matched.gvk).await;
                shown.map(Some)
            }
            None => Ok(None),
        };
        Ok(Versioned {
            object: versioned(attributes.object()).await?,
            old: versioned(attributes.old).await?,
        })
    }
}

/// The objects of a request in one kind.
pub struct Versioned<'o> {
    pub object: Option<Cow<'o, Object>>,
    pub old: Option<Cow<'o, Object>>,
}

/// A request, in the form and with the parameter that a policy is evaluated with.
pub struct Subject<'r> {
    pub dispatch: &'r Dispatch<'r>,
    pub attributes: &'r Attributes<'r>,
    pub matched: &'r Matched<'r>,
    pub versioned: &'r Versioned<'r>,
    pub namespace: Option<&'r Object>,
    pub params: Option<&'r Object>,
}

impl Subject<'_> {
    /// The inputs of the expressions that decide or mutate.
    pub fn inputs<'s>(&'s self, request: &'s Request<'s>) -> Inputs<'s> {
        Inputs {
            object: self.versioned.object.as_deref(),
            old_object: self.versioned.old.as_deref(),
            request,
            params: self.params,
            namespace: self.namespace,
            authorizer: Some(&self.dispatch.authorizations),
        }
    }

    /// Evaluates the conditions under which a policy is evaluated. They see the resource that the
    /// request is about, and no namespace.
    pub async fn matches(
        &self,
        policy: &PolicySpec,
        conditions: &[MatchCondition],
        variables: &Variables,
    ) -> Match {
        if conditions.is_empty() {
            return Match::Matches;
        }
        let attributes = self.attributes;
        let request = self
            .dispatch
            .request(attributes, attributes.gvr, &self.matched.gvk);
        let labels = ConditionLabels {
            kind: "policy",
            name: &policy.name,
            operation: attributes.operation,
            step: "validate",
        };
        let inputs = self.inputs(&request);
        cel::matches(conditions, variables, inputs, policy.fails, labels).await
    }
}
