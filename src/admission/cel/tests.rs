//! Expressions with what kube-apiserver makes of them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::*;
use crate::admission::Operation;
use crate::admission::observation::ConditionLabels;
use crate::auth::User;
use crate::auth::authz::{self, Authorizer, Decision};
use crate::meta::{Gvk, Gvr, Object, Value, json};

/// The declarations of a policy's validations.
const ALL: Declarations = Declarations {
    params: true,
    authorizer: true,
    patch_types: false,
};

struct Given {
    kind: Gvk,
    resource: Gvr,
    user: Arc<User>,
    object: Object,
    params: Object,
    namespace: Object,
    options: Value,
}

impl Given {
    fn new() -> Self {
        let object = |value: Value| Object::from_value(value).expect("an object");
        Self {
            kind: Gvk::new("apps", "v1", "Deployment"),
            resource: Gvr::new("apps", "v1", "deployments"),
            user: Arc::new(User {
                name: "alice".to_owned(),
                groups: vec!["developers".to_owned()],
                extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
                ..User::default()
            }),
            object: object(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
                "spec": {"replicas": 3, "template": {"spec": {"containers": [
                    {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}
                ]}}}
            })),
            params: object(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"},
                "data": {"max": "5"}
            })),
            namespace: object(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": "shop", "uid": "u", "labels": {"team": "a"},
                    "creationTimestamp": "2024-01-01T00:00:00Z",
                    "managedFields": [{"manager": "m"}], "ownerReferences": [{"name": "o"}]
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}
            })),
            options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            kind: &self.kind,
            resource: &self.resource,
            sub_resource: "",
            request_kind: &self.kind,
            request_resource: &self.resource,
            request_sub_resource: "",
            name: "web",
            namespace: "shop",
            operation: Operation::Create,
            user: &self.user,
            dry_run: false,
            options: Some(&self.options),
        }
    }

    fn inputs<'a>(&'a self, request: &'a Request<'a>) -> Inputs<'a> {
        Inputs {
            object: Some(&self.object),
            old_object: None,
            request,
            params: Some(&self.params),
            namespace: Some(&self.namespace),
            authorizer: None,
        }
    }
}

/// Evaluates expressions with the declarations of validations.
async fn evaluated(compiler: Compiler, expressions: &[&str]) -> Vec<Evaluation> {
    let compiled: Vec<Option<Expression>> = expressions
        .iter()
        .map(|text| Some(compiler.compile(text, Returns::Any, ALL)))
        .collect();
    let given = Given::new();
    let request = given.request();
    let variables = compiler.finish();
    let mut budget = RUNTIME_COST_BUDGET;
    evaluate(&compiled, &variables, given.inputs(&request), &mut budget)
        .await
        .expect("a budget that suffices")
}

fn text(text: &str) -> Evaluation {
    Evaluation::String(text.to_owned())
}

#[tokio::test]
async fn variables_of_admission_have_the_values_of_the_request() {
    let all = [
        "object.spec.replicas == 3 && oldObject == null",
        "params.data.max == '5'",
        "request.kind.kind == 'Deployment' && request.resource.resource == 'deployments'",
        "request.requestKind == request.kind && request.requestResource == request.resource",
        "!has(request.subResource) && !has(request.requestSubResource)",
        "request.name == 'web' && request.namespace == 'shop' && request.operation == 'CREATE'",
        "request.userInfo.username == 'alice' && 'developers' in request.userInfo.groups",
        "request.userInfo.extra['scopes'] == ['a'] && !has(request.userInfo.uid)",
        "request.dryRun == false && request.options.kind == 'CreateOptions'",
        "dyn(request).uid == '' && dyn(request).object == null",
        "namespaceObject.metadata.labels.team == 'a' && namespaceObject.status.phase == 'Active'",
        "namespaceObject.spec.finalizers == ['kubernetes']",
        "dyn(namespaceObject).metadata.uid == 'u'",
        "!has(dyn(namespaceObject).metadata.managedFields)",
        "!has(dyn(namespaceObject).metadata.ownerReferences) && !has(dyn(namespaceObject).kind)",
        "type(dyn(namespaceObject).metadata.creationTimestamp) == string",
    ];
    for (text, value) in all.iter().zip(evaluated(Compiler::new(), &all).await) {
        assert_eq!(value, Evaluation::Bool(true), "{text}");
    }
}

#[test]
fn expressions_of_another_type_and_unknown_names_are_refused() {
    let compiler = Compiler::new();
    let none = Declarations::default();
    let checks = [
        ("1", Returns::Bool, ALL, "must evaluate to bool but got int"),
        (
            "object.a",
            Returns::Bool,
            ALL,
            "must evaluate to bool but got dyn",
        ),
        (
            "1 == 1",
            Returns::StringOrNull,
            ALL,
            "must evaluate to one of [string null_type] but got bool",
        ),
        (
            "{'a': [timestamp('2024-01-01T00:00:00Z')]}",
            Returns::String,
            ALL,
            "must evaluate to string but got map(string, list(google.protobuf.Timestamp))",
        ),
        (
            "params.a",
            Returns::Any,
            none,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in \
             container '')\n | params.a\n | ^",
        ),
        (
            "authorizer.group('')",
            Returns::Any,
            none,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in \
             container '')\n | authorizer.group('')\n | ^",
        ),
        (
            "request.object",
            Returns::Any,
            ALL,
            "compilation failed: ERROR: <input>:1:8: undefined field 'object'\n | request.object\n \
             | .......^",
        ),
        (
            "variables.nothing",
            Returns::Any,
            ALL,
            "compilation failed: ERROR: <input>:1:10: undefined field 'nothing'\n | \
             variables.nothing\n | .........^",
        ),
        (
            "jsonpatch.escapeKey('a')",
            Returns::Any,
            ALL,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'jsonpatch' (in \
             container '')\n | jsonpatch.escapeKey('a')\n | ^\nERROR: <input>:1:20: undeclared \
             reference to 'escapeKey' (in container '')\n | jsonpatch.escapeKey('a')\n | \
             ...................^",
        ),
    ];
    for (text, returns, declarations, want) in checks {
        let expression = compiler.compile(text, returns, declarations);
        let error = expression.error().map(ToString::to_string);
        assert_eq!(error.as_deref(), Some(want), "{text}");
    }
    let bare = Compiler::without_variables();
    assert!(
        bare.compile("variables.a", Returns::Any, ALL)
            .error()
            .is_some()
    );
}

#[tokio::test]
async fn variables_are_typed_and_evaluated_when_they_are_asked_for() {
    let mut compiler = Compiler::new();
    let declared = [
        ("replicas", "int(object.spec.replicas)"),
        ("double", "variables.replicas * 2"),
        ("broken", "object.spec.missing"),
        (
            "images",
            "object.spec.template.spec.containers.map(c, string(c.image))",
        ),
    ];
    for (name, text) in declared {
        compiler
            .variable(name, text, ALL)
            .expect("an expression that compiles");
    }
    let error = compiler
        .variable("wrong", "nowhere", ALL)
        .expect_err("an unknown name");
    assert!(
        error
            .to_string()
            .starts_with("compilation failed: ERROR: <input>:1:1: undeclared")
    );
    // A type that is known is checked.
    let mixed = compiler.compile("variables.replicas + 'a'", Returns::Any, ALL);
    assert!(mixed.error().is_some());
    let values = evaluated(
        compiler,
        &[
            "variables.double == 6 ? 'six' : variables.broken",
            "variables.broken",
            "variables.wrong",
            "has(variables.replicas) && variables.?replicas.orValue(0) == 3",
            "variables.images.join(',')",
        ],
    )
    .await;
    let wrong = "expression 'variables.wrong' resulted in error: composited variable \"wrong\" \
                 fails to compile: compilation failed: ERROR: <input>:1:1: undeclared reference \
                 to 'nowhere' (in container '')\n | nowhere\n | ^";
    let broken = "expression 'variables.broken' resulted in error: composited variable \"broken\" \
                  fails to evaluate: no such key: missing";
    assert_eq!(
        values,
        [
            text("six"),
            Evaluation::Error(broken.to_owned()),
            Evaluation::Error(wrong.to_owned()),
            Evaluation::Bool(true),
            text("a:1,b:1"),
        ]
    );
}

#[tokio::test]
async fn costs_of_expressions_and_of_their_variables_are_taken_from_the_budget_once() {
    let mut compiler = Compiler::new();
    compiler
        .variable("r", "object.spec.replicas", ALL)
        .expect("valid");
    let once = || Some(compiler.compile("variables.r == 3", Returns::Bool, ALL));
    let expressions = [once(), None, once()];
    let given = Given::new();
    let request = given.request();
    let (variables, mut budget) = (Variables::default(), 1_000);
    let none = evaluate(&[None], &variables, given.inputs(&request), &mut budget).await;
    assert_eq!((none, budget), (Ok(vec![Evaluation::Placeholder]), 1_000));
    let costs = |limit: u64| {
        let (expressions, request, given) = (&expressions, &request, &given);
        let mut fresh = Compiler::new();
        fresh
            .variable("r", "object.spec.replicas", ALL)
            .expect("valid");
        let variables = fresh.finish();
        async move {
            let mut budget = limit;
            let done = evaluate(expressions, &variables, given.inputs(request), &mut budget).await;
            (done, limit - budget)
        }
    };
    // Twice 2 for the variable and 1 for the comparison, and once 3 for what the variable is.
    let (done, cost) = costs(1_000).await;
    assert_eq!(cost, 9);
    assert_eq!(done.map(|all| all.len()), Ok(3));
    assert_eq!(costs(9).await.1, 9);
    assert_eq!(costs(8).await.0, Err(EvaluationError::OutOfBudget));
}

#[tokio::test]
async fn an_expression_ends_at_its_own_limit_and_variables_in_each_other_at_theirs() {
    let endless = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, \
                   [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, \
                   [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, true))))))";
    let values = evaluated(Compiler::new(), &[endless]).await;
    let want = format!(
        "expression '{endless}' resulted in error: operation cancelled: actual cost limit exceeded"
    );
    assert_eq!(values, [Evaluation::Error(want)]);
    let mut compiler = Compiler::new();
    compiler.variable("v0", "1", ALL).expect("valid");
    for i in 1..1_000 {
        let text = format!("variables.v{} + 1", i - 1);
        compiler
            .variable(&format!("v{i}"), &text, ALL)
            .expect("valid");
    }
    let values = evaluated(compiler, &["variables.v50", "variables.v999"]).await;
    assert!(
        matches!(values.as_slice(), [Evaluation::Other(ty), Evaluation::Error(_)] if ty == "int")
    );
}

/// Allows alice to get deployments, and a service account to look at `/healthz`.
#[derive(Default)]
struct Asked(Mutex<Vec<authz::Attributes>>);

#[async_trait]
impl Authorizer for Asked {
    async fn authorize(&self, attributes: &authz::Attributes) -> Decision {
        tokio::task::yield_now().await;
        self.0.lock().expect("a lock").push(attributes.clone());
        match (attributes.user.name.as_str(), attributes.verb.as_str()) {
            ("alice", "get") => Decision::allow("she may"),
            ("system:serviceaccount:ns:sa", "watch") => Decision::allow(""),
            _ => Decision::no_opinion("nobody may"),
        }
    }
}

#[tokio::test]
async fn authorizer_is_asked_once_for_each_check_of_a_request() {
    let asked = Arc::new(Asked::default());
    let given = Given::new();
    let request = given.request();
    let authorizations = Authorizations::new(asked.clone(), given.user.clone());
    let inputs = Inputs {
        authorizer: Some(&authorizations),
        ..given.inputs(&request)
    };
    let all = [
        "authorizer.requestResource.check('get').allowed()",
        "authorizer.requestResource.check('get').reason() == 'she may'",
        "!authorizer.requestResource.check('delete').allowed()",
        "authorizer.requestResource.check('delete').reason() == 'nobody may'",
        "!authorizer.requestResource.check('delete').errored()",
        "authorizer.requestResource.check('delete').error() == ''",
        "authorizer.serviceAccount('ns', 'sa').path('/healthz').check('watch').allowed()",
        "authorizer.group('').resource('pods').subresource('log').namespace('n').name('p')\
         .fieldSelector('spec.nodeName=m').check('get').allowed()",
    ];
    let compiler = Compiler::new();
    let compiled: Vec<_> = all
        .iter()
        .map(|text| Some(compiler.compile(text, Returns::Bool, ALL)))
        .collect();
    let variables = compiler.finish();
    let mut budget = RUNTIME_COST_BUDGET;
    let values = evaluate(&compiled, &variables, inputs, &mut budget).await;
    assert_eq!(values, Ok(vec![Evaluation::Bool(true); all.len()]));
    // A check costs 350 000 each time, though the authorizer is asked once.
    assert_eq!((RUNTIME_COST_BUDGET - budget) / 350_000, 8);
    let asked = asked.0.lock().expect("a lock");
    let seen: Vec<_> = asked
        .iter()
        .map(|one| (one.verb.as_str(), one.path.as_str(), one.resource.as_str()))
        .collect();
    let want = [
        ("get", "", "deployments"),
        ("delete", "", "deployments"),
        ("watch", "/healthz", ""),
        ("get", "", "pods"),
    ];
    assert_eq!(seen, want);
    let pods = asked.last().expect("a question");
    let narrowed = (
        pods.subresource.as_str(),
        pods.namespace.as_str(),
        pods.name.as_str(),
        pods.version.as_str(),
    );
    assert_eq!(narrowed, ("log", "n", "p", "*"));
    let term = pods.field_selector.first().expect("a requirement");
    assert_eq!(
        (term.field.as_str(), term.value.as_str()),
        ("spec.nodeName", "m")
    );
    let account = asked.get(2).expect("a question");
    assert_eq!(
        account.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns"]
    );
}

#[tokio::test]
async fn checks_that_cannot_be_asked_are_errors_and_three_of_them_cost_too_much() {
    let asked = Arc::new(Asked::default());
    let given = Given::new();
    let request = given.request();
    let authorizations = Authorizations::new(asked, given.user.clone());
    let inputs = |authorizer| Inputs {
        authorizer,
        ..given.inputs(&request)
    };
    let checks = [
        (
            "authorizer.path(' ').check('get').allowed()",
            "path must not be empty",
        ),
        (
            "authorizer.group('').resource('').check('get').allowed()",
            "resource must not be empty",
        ),
        (
            "authorizer.serviceAccount('a.b', 'c').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
        (
            "authorizer.serviceAccount('a', '_').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "['a', 'b', 'c'].exists(v, authorizer.path('/').check(v).allowed())",
            "operation cancelled: actual cost limit exceeded",
        ),
    ];
    for (text, why) in checks {
        let compiler = Compiler::new();
        let expression = [Some(compiler.compile(text, Returns::Bool, ALL))];
        let variables = compiler.finish();
        let mut budget = RUNTIME_COST_BUDGET;
        let done = evaluate(
            &expression,
            &variables,
            inputs(Some(&authorizations)),
            &mut budget,
        );
        let want = Evaluation::Error(format!("expression '{text}' resulted in error: {why}"));
        assert_eq!(done.await, Ok(vec![want]));
    }
}

#[tokio::test]
async fn authorizer_that_is_not_bound_is_an_error() {
    let given = Given::new();
    let request = given.request();
    let compiler = Compiler::new();
    let text = "authorizer.path('/').check('get').allowed()";
    let expression = [Some(compiler.compile(text, Returns::Bool, ALL))];
    let (variables, mut budget) = (compiler.finish(), RUNTIME_COST_BUDGET);
    let done = evaluate(&expression, &variables, given.inputs(&request), &mut budget).await;
    let why = "no such attribute(s): authorizer";
    let want = Evaluation::Error(format!("expression '{text}' resulted in error: {why}"));
    assert_eq!(done, Ok(vec![want]));
}

/// The outcome of match conditions under a failure policy.
async fn matched(conditions: &[(&str, &str)], fails: bool) -> Match {
    let compiler = Compiler::new();
    let conditions: Vec<MatchCondition> = conditions
        .iter()
        .map(|(name, text)| MatchCondition {
            name: (*name).to_owned(),
            expression: compiler.compile(text, Returns::Bool, ALL),
        })
        .collect();
    let given = Given::new();
    let request = given.request();
    let variables = compiler.finish();
    let labels = ConditionLabels {
        kind: "policy",
        name: "p",
        operation: Operation::Create,
        step: "validate",
    };
    matches(
        &conditions,
        &variables,
        given.inputs(&request),
        fails,
        labels,
    )
    .await
}

#[tokio::test]
async fn match_conditions_hold_unless_one_is_false_or_fails() {
    let (yes, no) = (
        ("yes", "object.spec.replicas == 3"),
        ("no", "oldObject != null"),
    );
    let broken = ("broken", "object.spec.missing == 1");
    let error = "expression 'object.spec.missing == 1' resulted in error: no such key: missing";
    let named = |name: &str| Match::DoesNotMatch(Some(name.to_owned()));
    assert_eq!(matched(&[], true).await, Match::Matches);
    assert_eq!(matched(&[yes, yes], true).await, Match::Matches);
    assert_eq!(matched(&[yes, no], true).await, named("no"));
    assert_eq!(matched(&[broken, no], true).await, named("no"));
    assert_eq!(
        matched(&[yes, broken], true).await,
        Match::Error(error.to_owned())
    );
    assert_eq!(
        matched(&[yes, broken], false).await,
        Match::DoesNotMatch(None)
    );
    // The same error is said once.
    assert_eq!(
        matched(&[broken, broken], true).await,
        Match::Error(error.to_owned())
    );
    let namespace = ("namespace", "namespaceObject == null");
    assert_eq!(matched(&[namespace], true).await, Match::Matches);
}

#[tokio::test]
async fn match_conditions_have_a_quarter_of_the_budget() {
    let long = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, \
                [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, \
                [0,1,2,3,4,5,6,7,8,9].all(e, true)))))";
    let conditions = [("long", long); 12];
    let ended = "validation failed due to running out of cost budget, no further validation rules \
                 will be run";
    assert_eq!(
        matched(&conditions, true).await,
        Match::Error(ended.to_owned())
    );
    assert_eq!(matched(&conditions, false).await, Match::DoesNotMatch(None));
    assert_eq!(matched(&conditions[..2], true).await, Match::Matches);
}
