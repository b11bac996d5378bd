//! The cost of expressions: to compile and check a typical rule, to evaluate it, to validate a
//! custom object by many of them, and to end those that run away.

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::executor::block_on;
use keelson::internals::admission::Operation;
use keelson::internals::admission::cel::{
    Compiler, Declarations, Evaluation, Inputs, RUNTIME_COST_BUDGET, Request, Returns, evaluate,
};
use keelson::internals::auth::User;
use keelson::internals::cel::{
    Environment, PER_CALL_LIMIT, Type, Value as CelValue, compile, estimate, plan,
};
use keelson::internals::extensions::{JsonSchemaProps, RuleValidator, cel_schema};
use keelson::internals::meta::{Gvk, Gvr, Object, Value, json};

/// A rule as most are: two fields of an object.
const RULE: &str = "self.replicas <= self.maxReplicas";
/// The rules of a definition.
const RULES: usize = 50;

fn schema(rules: usize) -> JsonSchemaProps {
    let integer = || json!({"type": "integer"});
    let name = json!({"type": "string", "maxLength": 63});
    let names = json!({"type": "array", "items": name, "maxItems": 10});
    let texts = [
        RULE,
        "self.names.all(name, name.startsWith('a') || name.size() < 20)",
        "!has(self.minReplicas) || self.minReplicas <= self.replicas",
        "self.replicas in [1, 3, 5, 7] || self.maxReplicas > 5",
        "self.names.map(name, name.lowerAscii()).exists(name, name == 'abc')",
    ];
    let rules: Vec<Value> = texts
        .iter()
        .cycle()
        .take(rules)
        .map(|text| json!({"rule": *text}))
        .collect();
    JsonSchemaProps::read(&json!({
        "type": "object", "x-kubernetes-validations": rules, "properties": {
            "replicas": integer(), "maxReplicas": integer(), "minReplicas": integer(), "names": names
        }
    }))
}

fn object() -> Value {
    json!({"replicas": 3, "maxReplicas": 5, "names": ["abc", "a-rather-long-name", "def"]})
}

fn expressions(c: &mut Criterion) {
    let props = schema(0);
    let schema = cel_schema::Schemas::default().of(&props, false);
    let environment = Environment::new().with_schema("self", &schema);
    let mut group = c.benchmark_group("cel");
    group.bench_function("compile a rule", |b| {
        b.iter(|| compile(RULE, &environment));
    });
    let checked = compile(RULE, &environment).expect("an expression");
    group.bench_function("estimate a rule", |b| {
        b.iter(|| estimate(&checked, Some(&schema)));
    });
    group.bench_function("plan a rule", |b| {
        b.iter(|| plan(&checked, &environment));
    });
    let object = object();
    for (name, rule) in [
        ("evaluate a rule", RULE),
        (
            "evaluate a comprehension",
            "self.names.all(name, name.startsWith('a') || name.size() < 20)",
        ),
    ] {
        let checked = compile(rule, &environment).expect("an expression");
        let program = plan(&checked, &environment).expect("a program");
        group.bench_function(name, |b| {
            b.iter(|| {
                let variables = [schema.value(&object).expect("an object of the schema")];
                program.evaluate(&variables, PER_CALL_LIMIT).cost
            });
        });
    }
    let environment = Environment::new().with_variable("x", Type::Dyn);
    let checked = compile("x.replicas <= x.maxReplicas", &environment).expect("an expression");
    let program = plan(&checked, &environment).expect("a program");
    group.bench_function("evaluate without a schema", |b| {
        b.iter(|| {
            let variables = [CelValue::from_unknown(&object)];
            program.evaluate(&variables, PER_CALL_LIMIT).cost
        });
    });
    group.finish();
}

/// Expressions that end at a limit: of the cost, of the work of looking at values, of the work of
/// searching texts.
fn limits(c: &mut Criterion) {
    let long = "lists.range(20000).map(i, 'a').join()";
    let environment = Environment::new();
    let mut group = c.benchmark_group("cel/up to the limit");
    group.sample_size(10);
    for (name, text) in [
        (
            "of cost",
            "lists.range(90000).all(a, lists.range(90000).all(b, a + b >= 0))".to_owned(),
        ),
        (
            "of values",
            "[lists.range(50000)].all(b, lists.range(90000).all(i, b == b))".to_owned(),
        ),
        ("of texts", format!("{long}.findAll('a*b|a').size() > 0")),
        (
            "of patterns",
            "lists.range(60000).all(i, ''.matches('(\\\\pL{900}|' + string(i) + ')') || true)"
                .to_owned(),
        ),
    ] {
        let checked = compile(&text, &environment).expect("an expression");
        let program = plan(&checked, &environment).expect("a program");
        group.bench_function(name, |b| {
            b.iter(|| {
                program
                    .evaluate(&[], PER_CALL_LIMIT)
                    .value
                    .expect_err("it is ended")
            });
        });
    }
    group.finish();
}

fn validation(c: &mut Criterion) {
    let props = schema(RULES);
    let validator = RuleValidator::new(&props).expect("rules");
    let object = object();
    c.bench_function("cel/validate a custom object by 50 rules", |b| {
        b.iter(|| validator.validate(&props, &object, None));
    });
}

/// The policies that are about pods.
const POLICIES: usize = 20;

/// The policies of a pod, with one validation each, but for the choice of those that are about it.
fn policies(c: &mut Criterion) {
    let declarations = Declarations {
        params: false,
        authorizer: true,
        patch_types: false,
    };
    let texts = [
        "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') || has(c.image))",
        "!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
        "has(object.metadata.labels) && 'app' in object.metadata.labels || object.kind == 'Pod'",
        "object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged))",
        "request.userInfo.username != 'nobody' && variables.count < 100",
    ];
    let policies: Vec<_> = texts
        .iter()
        .cycle()
        .take(POLICIES)
        .map(|text| {
            let mut compiler = Compiler::new();
            let count = compiler.variable("count", "size(object.spec.containers)", declarations);
            count.expect("a variable");
            let expression = compiler.compile(text, Returns::Bool, declarations);
            assert_eq!(expression.error(), None);
            ([Some(expression)], compiler.finish())
        })
        .collect();
    let pod: serde_json::Value = serde_json::from_str(include_str!("pod.json")).expect("JSON");
    let pod = Object::from_value(pod.into()).expect("an object");
    let (kind, resource) = (Gvk::new("", "v1", "Pod"), Gvr::new("", "v1", "pods"));
    let user = Arc::new(User {
        name: "jane".to_owned(),
        ..User::default()
    });
    let evaluate_all = || {
        let request = Request {
            kind: &kind,
            resource: &resource,
            sub_resource: "",
            request_kind: &kind,
            request_resource: &resource,
            request_sub_resource: "",
            name: "pod",
            namespace: "default",
            operation: Operation::Create,
            user: &user,
            dry_run: false,
            options: None,
        };
        let inputs = Inputs {
            object: Some(&pod),
            old_object: None,
            request: &request,
            params: None,
            namespace: None,
            authorizer: None,
        };
        let mut holding = 0;
        for (expressions, variables) in &policies {
            let mut budget = RUNTIME_COST_BUDGET;
            let done = evaluate(expressions, variables, inputs, &mut budget);
            let done = block_on(done).expect("a budget that suffices");
            holding += usize::from(done == [Evaluation::Bool(true)]);
        }
        holding
    };
    assert_eq!(evaluate_all(), POLICIES);
    c.bench_function("cel/20 policies on a pod", |b| b.iter(evaluate_all));
}

criterion_group!(benches, expressions, limits, validation, policies);
criterion_main!(benches);
