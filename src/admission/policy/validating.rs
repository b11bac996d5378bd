//! ValidatingAdmissionPolicy: refuses requests, warns of them, or notes them for the audit
//! (apiserver `admission/plugin/policy/validating`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::definition::{Action, Binding, Evaluator, PolicySpec};
use super::dispatch::{ConfigurationError, Dispatch, Parts, Subject, is_exempt};
use super::expressions::{Pace, declare_variables, items};
use super::observation::{self, Enforcement};
use super::source::{Hook, PolicySource};
use crate::admission::cel::{
    self, Compiler, Declarations, Evaluation, Expression, Inputs, Match, MatchCondition, Returns,
    Variables,
};
use crate::admission::matching::Matched;
use crate::admission::{Attributes, Plugin};
use crate::base::coop::CoopBudget;
use crate::codec::json::text_of;
use crate::meta::status::{self, Cause};
use crate::meta::{Status, Value, json, str_at};

/// The longest message that an expression may make, in bytes (apiserver
/// `MaxEvaluatedMessageExpressionSizeBytes`).
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// The longest value of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
/// The audit annotation of failed validations.
const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
const INVALID: &str = "Invalid";

/// The compiled expressions of a ValidatingAdmissionPolicy.
pub struct ValidatingEvaluator {
    variables: Variables,
    conditions: Vec<MatchCondition>,
    validations: Vec<Option<Expression>>,
    /// The expressions of messages, `None` for validations without one.
    messages: Vec<Option<Expression>>,
    has_messages: bool,
    annotations: Vec<Option<Expression>>,
    pace: Pace,
}

impl Evaluator for ValidatingEvaluator {
    fn compile(policy: &PolicySpec) -> Self {
        let spec = &policy.spec;
        let declarations = Declarations {
            params: policy.param_kind.is_some(),
            authorizer: true,
            patch_types: false,
        };
        let unauthorized = Declarations {
            authorizer: false,
            ..declarations
        };
        let mut compiler = Compiler::new();
        declare_variables(&mut compiler, spec, declarations);
        let all = |list: &str, path: &str, returns: Returns, declarations: Declarations| {
            let text = |item: &Value| str_at(item, path).to_owned();
            let texts = items(spec, list).iter().map(text);
            texts
                .map(|text| {
                    (!text.is_empty() || path != "/messageExpression")
                        .then(|| compiler.compile(&text, returns, declarations))
                })
                .collect::<Vec<_>>()
        };
        let messages = all(
            "validations",
            "/messageExpression",
            Returns::String,
            unauthorized,
        );
        Self {
            conditions: cel::compile_conditions(
                &compiler,
                items(spec, "matchConditions"),
                declarations,
            ),
            validations: all("validations", "/expression", Returns::Bool, declarations),
            has_messages: messages.iter().any(Option::is_some),
            messages,
            annotations: all(
                "auditAnnotations",
                "/valueExpression",
                Returns::StringOrNull,
                declarations,
            ),
            variables: compiler.finish(),
            pace: Pace::default(),
        }
    }
}

/// The plugin.
pub struct ValidatingAdmissionPolicy {
    pub source: Arc<PolicySource<ValidatingEvaluator>>,
    pub parts: Parts,
}

#[async_trait]
impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        self.source.has_any(&attributes.gvr.resource) && !is_exempt(attributes.gvr)
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> status::Result<()> {
        let dispatch = Dispatch::new(&self.parts, attributes);
        let mut round = Round {
            dispatch: &dispatch,
            attributes,
            denied: None,
        };
        let mut budget = CoopBudget::default();
        for hook in self.source.hooks(&attributes.gvr.resource) {
            round.evaluate(&hook).await?;
            budget.step().await;
        }
        match round.denied {
            None => Ok(()),
            Some(denied) => Err(denied),
        }
    }
}

/// The decision of one validation.
struct Decision {
    denies: bool,
    /// The error that kept it from being evaluated.
    failed: bool,
    message: String,
    /// Empty for one that is not said.
    reason: &'static str,
}

impl Decision {
    /// The decision about a policy that cannot be evaluated.
    fn failed(policy: &PolicySpec, message: String) -> Self {
        Self {
            denies: policy.fails,
            failed: true,
            message,
            reason: "",
        }
    }
}

/// The value of an audit annotation.
enum Annotation {
    Value(String),
    Error(String),
    None,
}

/// The verdict of a policy on a request with one parameter.
#[derive(Default)]
struct Verdict {
    decisions: Vec<Decision>,
    annotations: Vec<Annotation>,
}

impl Verdict {
    fn failed(policy: &PolicySpec, message: String) -> Self {
        Self {
            decisions: vec![Decision::failed(policy, message)],
            annotations: Vec::new(),
        }
    }
}

/// One request on its way through the validating policies.
struct Round<'r> {
    dispatch: &'r Dispatch<'r>,
    attributes: &'r Attributes<'r>,
    /// The first refusal; the others are not told.
    denied: Option<Status>,
}

impl Round<'_> {
    async fn evaluate(&mut self, hook: &Hook<ValidatingEvaluator>) -> status::Result<()> {
        let (dispatch, attributes) = (self.dispatch, self.attributes);
        let matched = match dispatch.policy_matches(hook, attributes).await {
            Ok(None) => return Ok(()),
            Ok(Some(matched)) => matched,
            Err(why) => {
                self.misconfigured(&hook.policy.spec, why);
                return Ok(());
            }
        };
        let mut published = Published::default();
        for binding in &hook.bindings {
            match self.bound(hook, binding, &matched).await? {
                Ok(verdicts) => {
                    for (verdict, elapsed) in verdicts {
                        self.act(hook, binding, verdict, elapsed, &mut published);
                    }
                }
                Err(why) => self.misconfigured(&hook.policy.spec, why),
            }
        }
        published.publish(&hook.policy.spec.name, attributes);
        Ok(())
    }

    /// Evaluates a policy as it is bound, once for each parameter.
    async fn bound(
        &self,
        hook: &Hook<ValidatingEvaluator>,
        binding: &Binding,
        matched: &Matched<'_>,
    ) -> status::Result<Result<Vec<(Verdict, Duration)>, ConfigurationError>> {
        let (dispatch, attributes) = (self.dispatch, self.attributes);
        let params = match dispatch.binding_matches(binding, attributes).await {
            Ok(false) => return Ok(Ok(Vec::new())),
            Ok(true) => dispatch.params(hook, binding, attributes.namespace).await,
            Err(why) => Err(why),
        };
        let params = match params {
            Ok(params) if params.is_empty() => return Ok(Ok(Vec::new())),
            Ok(params) => params,
            Err(why) => return Ok(Err(why)),
        };
        let versioned = match dispatch.versioned(attributes, matched).await {
            Ok(versioned) => versioned,
            Err(why) => {
                let why = format!("failed to convert object version: {}", why.message);
                return Ok(Err(ConfigurationError::of_binding(binding, &why)));
            }
        };
        let namespace = dispatch.namespace(attributes).await?;
        let mut verdicts = Vec::with_capacity(params.len());
        for params in params {
            let subject = Subject {
                dispatch,
                attributes,
                matched,
                versioned: &versioned,
                namespace: namespace.as_deref(),
                params: params.as_deref(),
            };
            verdicts.push(subject.judge(hook).await);
        }
        Ok(Ok(verdicts))
    }

    fn misconfigured(&mut self, policy: &PolicySpec, why: ConfigurationError) {
        if policy.fails {
            self.deny(policy, why.binding.as_deref(), &why.message, "");
        }
    }

    /// Takes note of a refusal; the first is answered.
    fn deny(&mut self, policy: &PolicySpec, binding: Option<&str>, why: &str, reason: &str) {
        if self.denied.is_some() {
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{name}' with binding '{binding}' denied request: {why}"
            ),
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: {why}"),
        };
        let mut status = self.attributes.forbidden(&message);
        let (reason, code) = match reason {
            "Forbidden" => ("Forbidden", 403),
            "Unauthorized" => ("Unauthorized", 401),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => (INVALID, 422),
        };
        (status.reason, status.code) = (reason.into(), code);
        status.details_mut().causes.push(Cause {
            message,
            ..Cause::default()
        });
        self.denied = Some(status);
    }

    /// Acts as a binding says about the decisions of its policy.
    fn act(
        &mut self,
        hook: &Hook<ValidatingEvaluator>,
        binding: &Binding,
        verdict: Verdict,
        elapsed: Duration,
        published: &mut Published,
    ) {
        let policy = &*hook.policy.spec;
        for (index, decision) in verdict.decisions.iter().enumerate() {
            let observe = |enforcement: Enforcement| {
                let error = decision.failed.then_some(decision.message.as_str());
                let names = (policy.name.as_str(), binding.name.as_str());
                observation::validated(names, enforcement, error, elapsed);
            };
            if !decision.denies {
                if decision.failed {
                    observe(Enforcement::Allow);
                }
                continue;
            }
            for action in &binding.actions {
                match action {
                    Action::Deny => {
                        observe(Enforcement::Deny);
                        self.deny(
                            policy,
                            Some(&binding.name),
                            &decision.message,
                            decision.reason,
                        );
                    }
                    Action::Audit => {
                        observe(Enforcement::Audit);
                        let failure = failure(policy, binding, index, decision);
                        self.attributes
                            .notes
                            .annotate(VALIDATION_FAILURE.to_owned(), failure);
                    }
                    Action::Warn => {
                        observe(Enforcement::Warn);
                        self.attributes.notes.warn(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, decision.message
                        ));
                    }
                }
            }
        }
        let keys = items(&policy.spec, "auditAnnotations").iter();
        for (annotation, item) in verdict.annotations.into_iter().zip(keys) {
            match annotation {
                Annotation::Value(value) => published.add(str_at(item, "/key"), value),
                Annotation::Error(why) => self.deny(policy, Some(&binding.name), &why, ""),
                Annotation::None => {}
            }
        }
    }
}

/// The value of the audit annotation of a failed validation: JSON as Go writes it.
fn failure(policy: &PolicySpec, binding: &Binding, index: usize, decision: &Decision) -> String {
    let failures = json!([{
        "message": decision.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": index,
        "validationActions": binding.action_names(),
    }]);
    text_of(&failures)
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
}

/// The audit annotations of a policy, over all of its bindings.
#[derive(Default)]
struct Published(Vec<(String, Vec<String>)>);

impl Published {
    fn add(&mut self, key: &str, mut value: String) {
        value.truncate(value.floor_char_boundary(MAX_ANNOTATION_BYTES));
        let position = self.0.iter().position(|(known, _)| known == key);
        let index = position.unwrap_or_else(|| {
            self.0.push((key.to_owned(), Vec::new()));
            self.0.len() - 1
        });
        let values = &mut self.0[index].1;
        if !values.contains(&value) {
            values.push(value);
        }
    }

    fn publish(self, policy: &str, attributes: &Attributes<'_>) {
        for (key, values) in self.0 {
            attributes
                .notes
                .annotate(format!("{policy}/{key}"), values.join(", "));
        }
    }
}

impl Subject<'_> {
    /// Evaluates a policy; one that takes long beside other requests.
    async fn judge(&self, hook: &Hook<ValidatingEvaluator>) -> (Verdict, Duration) {
        let evaluator = hook.policy.evaluator();
        let evaluation = self.evaluate(&hook.policy.spec, evaluator);
        evaluator.pace.run(evaluation).await
    }

    async fn evaluate(&self, policy: &PolicySpec, evaluator: &ValidatingEvaluator) -> Verdict {
        let (conditions, variables) = (&evaluator.conditions, &evaluator.variables);
        match self.matches(policy, conditions, variables).await {
            Match::Matches => {}
            Match::DoesNotMatch(_) => return Verdict::default(),
            Match::Error(why) => return Verdict::failed(policy, why),
        }
        let (attributes, matched) = (self.attributes, self.matched);
        let request = self
            .dispatch
            .request(attributes, &matched.gvr, &matched.gvk);
        let inputs = self.inputs(&request);
        let unauthorized = Inputs {
            authorizer: None,
            ..inputs
        };
        let mut budget = cel::RUNTIME_COST_BUDGET;
        let validations =
            cel::evaluate(&evaluator.validations, variables, inputs, &mut budget).await;
        let validations = match validations {
            Ok(validations) => validations,
            Err(why) => return Verdict::failed(policy, why.to_string()),
        };
        let messages = if evaluator.has_messages {
            cel::evaluate(&evaluator.messages, variables, unauthorized, &mut budget)
                .await
                .map_err(|why| format!("failed messageExpression: {why}"))
        } else {
            Ok(Vec::new())
        };
        let mut budget = cel::RUNTIME_COST_BUDGET;
        let annotations =
            cel::evaluate(&evaluator.annotations, variables, unauthorized, &mut budget);
        let annotations = match annotations.await {
            Ok(annotations) => annotations,
            Err(why) => return Verdict::failed(policy, why.to_string()),
        };
        Verdict {
            decisions: decisions(policy, validations, messages),
            annotations: annotations
                .into_iter()
                .zip(items(&policy.spec, "auditAnnotations"))
                .map(|(value, item)| annotation(policy, value, item))
                .collect(),
        }
    }
}

/// The decisions of the validations of a policy, with their messages.
fn decisions(
    policy: &PolicySpec,
    validations: Vec<Evaluation>,
    messages: Result<Vec<Evaluation>, String>,
) -> Vec<Decision> {
    let items = items(&policy.spec, "validations");
    let decision = |(index, evaluation): (usize, Evaluation)| match (evaluation, &messages) {
        (Evaluation::Error(why), _) => Decision::failed(policy, why),
        (_, Err(why)) => Decision::failed(policy, why.clone()),
        (Evaluation::Bool(true), _) => Decision {
            denies: false,
            failed: false,
            message: String::new(),
            reason: "",
        },
        (_, Ok(messages)) => {
            let item = items.get(index).unwrap_or(&Value::Null);
            Decision {
                denies: true,
                failed: false,
                message: message(item, messages.get(index)),
                reason: match str_at(item, "/reason") {
                    "Forbidden" => "Forbidden",
                    "Unauthorized" => "Unauthorized",
                    "RequestEntityTooLarge" => "RequestEntityTooLarge",
                    _ => INVALID,
                },
            }
        }
    };
    validations.into_iter().enumerate().map(decision).collect()
}

/// The message of a validation that does not hold: what its expression made, else the text that it
/// has, else the expression itself.
fn message(item: &Value, made: Option<&Evaluation>) -> String {
    if let Some(Evaluation::String(made)) = made {
        let made = made.trim();
        if !made.is_empty() && made.len() <= MAX_MESSAGE_BYTES && !made.contains('\n') {
            return made.to_owned();
        }
    }
    match str_at(item, "/message").trim() {
        "" => format!("failed expression: {}", str_at(item, "/expression").trim()),
        text => text.to_owned(),
    }
}

fn annotation(policy: &PolicySpec, value: Evaluation, item: &Value) -> Annotation {
    let unsupported = |name: &str| {
        format!(
            "valueExpression '{}' resulted in unsupported return type: {name}. Return type must be either string or null.",
            str_at(item, "/valueExpression")
        )
    };
    match value {
        Evaluation::String(text) => match text.trim() {
            "" => Annotation::None,
            text => Annotation::Value(text.to_owned()),
        },
        Evaluation::Null | Evaluation::Placeholder => Annotation::None,
        Evaluation::Error(why) if policy.fails => Annotation::Error(why),
        Evaluation::Error(_) => Annotation::None,
        Evaluation::Bool(_) => Annotation::Error(unsupported("bool")),
        Evaluation::Other(name) => Annotation::Error(unsupported(&name)),
    }
}
