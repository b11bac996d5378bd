//! MutatingAdmissionPolicy: changes the objects of requests (apiserver
//! `admission/plugin/policy/mutating`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;

use super::definition::{Binding, Evaluator, PolicySpec};
use super::dispatch::{ConfigurationError, Dispatch, Parts, Subject, is_exempt};
use super::expressions::{Pace, declare_variables, items};
use super::observation;
use super::source::{Hook, PolicySource};
use crate::admission::cel::{
    self, Compiler, Declarations, Match, MatchCondition, PatchError, Patcher, Returns, Variables,
};
use crate::admission::kinds::Unfit;
use crate::admission::matching::Matched;
use crate::admission::{Attributes, Operation, Plugin};
use crate::base::coop::CoopBudget;
use crate::meta::status::{self, Cause};
use crate::meta::{Gvk, Object, Status, str_at};

/// The largest object that a mutation may make, in bytes: the largest that a client may send.
const MAX_MUTATED_BYTES: usize = 3 * 1024 * 1024;
/// The most bytes of messages that an answer tells of policies that failed.
const MAX_FAILURE_BYTES: usize = 256 * 1024;

/// The compiled expressions of a MutatingAdmissionPolicy.
pub struct MutatingEvaluator {
    variables: Variables,
    conditions: Vec<MatchCondition>,
    mutations: Vec<Patcher>,
    pace: Pace,
}

impl Evaluator for MutatingEvaluator {
    fn compile(policy: &PolicySpec) -> Self {
        let spec = &policy.spec;
        let declarations = Declarations {
            params: policy.param_kind.is_some(),
            authorizer: true,
            patch_types: false,
        };
        let mut compiler = Compiler::new();
        declare_variables(&mut compiler, spec, declarations);
        let patches = Declarations {
            patch_types: true,
            ..declarations
        };
        let mutation = |item| match str_at(item, "/patchType") {
            "JSONPatch" => {
                let text = str_at(item, "/jsonPatch/expression");
                Patcher::JsonPatch(compiler.compile(text, Returns::JsonPatches, patches))
            }
            _ => {
                let text = str_at(item, "/applyConfiguration/expression");
                Patcher::ApplyConfiguration(compiler.compile(text, Returns::Object, patches))
            }
        };
        Self {
            conditions: cel::compile_conditions(
                &compiler,
                items(spec, "matchConditions"),
                declarations,
            ),
            mutations: items(spec, "mutations").iter().map(mutation).collect(),
            variables: compiler.finish(),
            pace: Pace::default(),
        }
    }
}

/// A policy as it is bound, with one parameter, by names: the parameter's with its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InvocationKey {
    policy: String,
    binding: String,
    params: Option<(String, String)>,
}

/// The policies that have run on a request, for the second round of the mutating plugins (upstream
/// `policyReinvokeContext`).
#[derive(Debug, Default)]
pub struct PolicyReinvocation {
    /// Those that run again if the object changes after them.
    invoked: HashSet<InvocationKey>,
    /// Those that are to run again, because it did.
    due: HashSet<InvocationKey>,
    /// The object as the policies left it.
    output: Option<Object>,
}

impl PolicyReinvocation {
    fn object_changed(&mut self) {
        self.due.extend(self.invoked.drain());
    }

    fn begin_second_round(&mut self, object: Option<&Object>) {
        if self.output.as_ref() != object {
            self.object_changed();
        }
    }

    fn end_round(&mut self, object: Option<&Object>) {
        // Nobody asks where none is left to run again.
        self.output = object.filter(|_| !self.invoked.is_empty()).cloned();
    }
}

/// The plugin.
pub struct MutatingAdmissionPolicy {
    pub source: Arc<PolicySource<MutatingEvaluator>>,
    pub parts: Parts,
}

#[async_trait]
impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Delete
            && self.source.has_any(&attributes.gvr.resource)
            && !is_exempt(attributes.gvr)
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> status::Result<()> {
        let dispatch = Dispatch::new(&self.parts, attributes);
        let mut failures = Failures::default();
        let invocations = self.invocations(&dispatch, attributes, &mut failures).await;
        if !invocations.is_empty() {
            let mut round = Round {
                dispatch: &dispatch,
                namespace: dispatch.namespace(attributes).await?,
                failures: &mut failures,
            };
            round.run(&invocations, attributes).await?;
        }
        failures.refusal(attributes)
    }
}

impl MutatingAdmissionPolicy {
    /// Returns the policies that match a request, by name, as they are bound and with each of their
    /// parameters. The object of the request is the one from before all policies.
    async fn invocations(
        &self,
        dispatch: &Dispatch<'_>,
        attributes: &Attributes<'_>,
        failures: &mut Failures,
    ) -> Vec<Invocation> {
        let mut found = Vec::new();
        let mut budget = CoopBudget::default();
        for hook in self.source.hooks(&attributes.gvr.resource) {
            budget.step().await;
            let matched = match dispatch.policy_matches(&hook, attributes).await {
                Ok(None) => continue,
                Ok(Some(matched)) => matched,
                Err(why) => {
                    failures.misconfigured(&hook.policy.spec, why);
                    continue;
                }
            };
            for binding in &hook.bindings {
                match self
                    .bound(dispatch, &hook, binding, (&matched, attributes))
                    .await
                {
                    Ok(mut invocations) => found.append(&mut invocations),
                    Err(why) => failures.misconfigured(&hook.policy.spec, why),
                }
            }
        }
        found
    }

    /// Returns the invocations of a policy as it is bound, one for each parameter.
    async fn bound(
        &self,
        dispatch: &Dispatch<'_>,
        hook: &Arc<Hook<MutatingEvaluator>>,
        binding: &Arc<Binding>,
        (matched, attributes): (&Matched<'_>, &Attributes<'_>),
    ) -> Result<Vec<Invocation>, ConfigurationError> {
        if !dispatch.binding_matches(binding, attributes).await? {
            return Ok(Vec::new());
        }
        dispatch
            .versioned(attributes, matched)
            .await
            .map_err(|why| ConfigurationError::of_policy(&why.message))?;
        let params = dispatch.params(hook, binding, attributes.namespace).await?;
        let invocation = |params| Invocation {
            hook: hook.clone(),
            binding: binding.clone(),
            matched: matched.clone().into_owned(),
            params,
        };
        Ok(params.into_iter().map(invocation).collect())
    }
}

/// A policy that a request is to be changed by.
struct Invocation {
    hook: Arc<Hook<MutatingEvaluator>>,
    binding: Arc<Binding>,
    matched: Matched<'static>,
    params: Option<Arc<Object>>,
}

impl Invocation {
    fn key(&self) -> InvocationKey {
        let named = |params: &Arc<Object>| {
            let namespace = params.namespace().to_owned();
            (namespace, params.name().to_owned())
        };
        InvocationKey {
            policy: self.hook.policy.spec.name.clone(),
            binding: self.binding.name.clone(),
            params: self.params.as_ref().map(named),
        }
    }
}

/// The policies that could not be applied, of those that refuse a request then.
#[derive(Default)]
struct Failures {
    messages: Vec<String>,
    bytes: usize,
    /// The reason that the first one gives.
    reason: Option<&'static str>,
}

impl Failures {
    fn add(&mut self, message: String, reason: &'static str) {
        self.reason.get_or_insert(reason);
        if self.messages.is_empty() || self.bytes + message.len() <= MAX_FAILURE_BYTES {
            self.bytes += message.len();
            self.messages.push(message);
        }
    }

    fn misconfigured(&mut self, policy: &PolicySpec, why: ConfigurationError) {
        if !policy.fails {
            return;
        }
        let (name, message) = (&policy.name, &why.message);
        let message = match &why.binding {
            Some(binding) => {
                format!("policy '{name}' with binding '{binding}' denied request: {message}")
            }
            None => format!("policy {name:?} denied request: {message}"),
        };
        self.add(message, "Forbidden");
    }

    fn failed(&mut self, invocation: &Invocation, why: &str) {
        let policy = &invocation.hook.policy.spec;
        if policy.fails {
            let (name, binding) = (&policy.name, &invocation.binding.name);
            let message = format!("policy '{name}' with binding '{binding}' denied request: {why}");
            self.add(message, "Invalid");
        }
    }

    /// Refuses the request if there are any.
    fn refusal(self, attributes: &Attributes<'_>) -> status::Result<()> {
        let (Some(first), Some(reason)) = (self.messages.first(), self.reason) else {
            return Ok(());
        };
        let mut status = attributes.forbidden("");
        // Upstream gives another reason and leaves the code as it is.
        status.reason = reason.into();
        status.message.clone_from(first);
        let causes = self.messages.into_iter().map(|message| Cause {
            message,
            ..Cause::default()
        });
        status.details_mut().causes.extend(causes);
        Err(status)
    }
}

/// The object of a request in each version that policies of it match in. Those of one version do
/// not see what those of another did, and what the version of the last one is like in the end is
/// the object (upstream `dispatchInvocations`).
#[derive(Default)]
struct Versions {
    /// The object before all policies; `None` where all match in one version.
    original: Option<Object>,
    changed: HashMap<Gvk, Object>,
    last: Option<Gvk>,
}

impl Versions {
    fn new(invocations: &[Invocation], attributes: &Attributes<'_>) -> Self {
        let mut kinds = invocations.iter().map(|one| &*one.matched.gvk);
        let first = kinds.next();
        let are_several = kinds.any(|kind| Some(kind) != first);
        Self {
            original: attributes.object().filter(|_| are_several).cloned(),
            ..Self::default()
        }
    }

    /// Lets a policy see its version.
    fn begin(&self, invocation: &Invocation, attributes: &mut Attributes<'_>) {
        if let Some(original) = &self.original {
            let object = self.changed.get(&*invocation.matched.gvk);
            attributes.replace_object(object.unwrap_or(original).clone());
        }
    }

    fn end(&mut self, invocation: &Invocation, has_changed: bool, attributes: &Attributes<'_>) {
        let kind = &*invocation.matched.gvk;
        let object = attributes.object().filter(|_| self.original.is_some());
        if let Some(object) = object {
            self.last = Some(kind.clone());
            if has_changed {
                self.changed.insert(kind.clone(), object.clone());
            }
        }
    }

    fn finish(mut self, attributes: &mut Attributes<'_>) {
        if let Some(original) = self.original {
            let last = self.last.and_then(|kind| self.changed.remove(&kind));
            attributes.replace_object(last.unwrap_or(original));
        }
    }
}

/// One round of the policies on a request.
struct Round<'r> {
    dispatch: &'r Dispatch<'r>,
    namespace: Option<Arc<Object>>,
    failures: &'r mut Failures,
}

impl Round<'_> {
    async fn run(
        &mut self,
        invocations: &[Invocation],
        attributes: &mut Attributes<'_>,
    ) -> status::Result<()> {
        if attributes.reinvocation.is_reinvoke {
            let object = attributes.object.as_deref();
            attributes.reinvocation.policies.begin_second_round(object);
        }
        let mut budget = CoopBudget::default();
        let mut mutated = false;
        let mut versions = Versions::new(invocations, attributes);
        for invocation in invocations {
            versions.begin(invocation, attributes);
            if let Some(has_changed) = self.invoke(invocation, attributes).await? {
                mutated |= has_changed;
                versions.end(invocation, has_changed, attributes);
            }
            budget.step().await;
        }
        versions.finish(attributes);
        let reinvocation = &mut attributes.reinvocation;
        if mutated {
            reinvocation.policies.object_changed();
            reinvocation.should_reinvoke = true;
        }
        let object = attributes.object.as_deref();
        reinvocation.policies.end_round(object);
        Ok(())
    }

    /// Applies the mutations of a policy in their order; reports whether there were any to apply,
    /// if the policy is to run.
    async fn invoke(
        &mut self,
        invocation: &Invocation,
        attributes: &mut Attributes<'_>,
    ) -> status::Result<Option<bool>> {
        match self.conditions(invocation, attributes).await? {
            Match::Matches => {}
            Match::DoesNotMatch(_) => return Ok(None),
            Match::Error(why) => {
                self.failures.failed(invocation, &why);
                return Ok(None);
            }
        }
        let reinvocation = &mut attributes.reinvocation;
        let key = invocation.key();
        // What did not run in the first round does not run in the second.
        if reinvocation.is_reinvoke && !reinvocation.policies.due.contains(&key) {
            return Ok(None);
        }
        let (policy, evaluator) = (
            &invocation.hook.policy.spec,
            invocation.hook.policy.evaluator(),
        );
        let mut mutated = false;
        for mutation in &evaluator.mutations {
            if attributes.object().is_none() {
                continue;
            }
            let patched = self.patched(invocation, mutation, attributes);
            let (patched, elapsed) = evaluator.pace.run(patched).await;
            let error = match &patched {
                Ok(_) => None,
                Err(PatchError::Status(status)) => Some(status.message.as_str()),
                Err(PatchError::Policy(why)) => Some(why.as_str()),
            };
            let names = (policy.name.as_str(), invocation.binding.name.as_str());
            observation::mutated(names, error, elapsed);
            match patched {
                Ok(patched) => {
                    mutated = true;
                    attributes.replace_object(patched);
                }
                Err(PatchError::Status(status)) => return Err(status),
                Err(PatchError::Policy(why)) => self.failures.failed(invocation, &why),
            }
        }
        if str_at(&policy.spec, "/reinvocationPolicy") == "IfNeeded" {
            attributes.reinvocation.policies.invoked.insert(key);
        }
        Ok(Some(mutated))
    }

    /// Evaluates the conditions under which a policy is applied, on the object as it is now.
    async fn conditions(
        &self,
        invocation: &Invocation,
        attributes: &Attributes<'_>,
    ) -> status::Result<Match> {
        let policy = &invocation.hook.policy;
        let evaluator = policy.evaluator();
        if evaluator.conditions.is_empty() {
            return Ok(Match::Matches);
        }
        let versioned = self
            .dispatch
            .versioned(attributes, &invocation.matched)
            .await?;
        let subject = Subject {
            dispatch: self.dispatch,
            attributes,
            matched: &invocation.matched,
            versioned: &versioned,
            namespace: None,
            params: invocation.params.as_deref(),
        };
        let matches = subject.matches(&policy.spec, &evaluator.conditions, &evaluator.variables);
        Ok(evaluator.pace.run(matches).await.0)
    }

    /// Returns the object as one mutation changes it, complete and of the version that it has.
    async fn patched(
        &self,
        invocation: &Invocation,
        mutation: &Patcher,
        attributes: &Attributes<'_>,
    ) -> Result<Object, PatchError> {
        let (dispatch, matched) = (self.dispatch, &invocation.matched);
        let kinds = &dispatch.parts.kinds;
        let versioned = dispatch.versioned(attributes, matched).await;
        let versioned = versioned.map_err(PatchError::Status)?;
        let ty = kinds.type_of(&matched.gvr, &matched.gvk).ok_or_else(|| {
            // As Go prints a kind: the core group is empty and has its slash.
            let Gvk {
                group,
                version,
                kind,
            } = &*matched.gvk;
            PatchError::Status(Status::unavailable(format!(
                "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay \
                 between when CustomResourceDefinitions are created and when they are available."
            )))
        })?;
        let subject = Subject {
            dispatch,
            attributes,
            matched,
            versioned: &versioned,
            namespace: self.namespace.as_deref(),
            params: invocation.params.as_deref(),
        };
        let request = dispatch.request(attributes, &matched.gvr, &matched.gvk);
        let inputs = subject.inputs(&request);
        let variables = &invocation.hook.policy.evaluator().variables;
        let budget = cel::RUNTIME_COST_BUDGET;
        let patched = mutation
            .patch(variables, inputs, ty.patch_types(), budget)
            .await?;
        if patched.is_larger_than(MAX_MUTATED_BYTES) {
            let why = format!("limit is {MAX_MUTATED_BYTES}");
            return Err(PatchError::Status(Status::too_large(&why)));
        }
        let Some(original) = attributes.object() else {
            return Ok(patched);
        };
        let completed = kinds.completed(patched, &matched.gvr, &matched.gvk, original);
        completed.await.map_err(|unfit| {
            PatchError::Status(Status::internal(match unfit {
                Unfit::Unreadable(why) => why,
                Unfit::Unconvertible(why) => format!("failed to convert object: {why}"),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn object(data: &str) -> Object {
        Object::from_value(json!({"data": {"k": data}})).expect("an object")
    }

    #[test]
    fn what_has_run_is_due_again_once_the_object_has_changed() {
        let key = InvocationKey {
            policy: "p".to_owned(),
            binding: "b".to_owned(),
            params: None,
        };
        let mut rounds = PolicyReinvocation::default();
        rounds.invoked.insert(key.clone());
        rounds.end_round(Some(&object("as the policies left it")));
        rounds.begin_second_round(Some(&object("as the policies left it")));
        assert!(rounds.due.is_empty());
        rounds.begin_second_round(Some(&object("as a plugin changed it")));
        assert!(rounds.due.contains(&key) && rounds.invoked.is_empty());
    }
}
