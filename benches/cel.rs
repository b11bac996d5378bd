//! The cost of expressions: to compile and check a typical rule, to evaluate it, and to validate a
//! custom object by many of them.

use criterion::{Criterion, criterion_group, criterion_main};
use keelson::internals::cel::{
    Environment, PER_CALL_LIMIT, Type, Value as CelValue, compile, estimate, plan,
};
use keelson::internals::extensions::{JsonSchemaProps, RuleValidator, cel_schema};
use keelson::internals::meta::{Value, json};

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

fn validation(c: &mut Criterion) {
    let props = schema(RULES);
    let validator = RuleValidator::new(&props).expect("rules");
    let object = object();
    c.bench_function("cel/validate a custom object by 50 rules", |b| {
        b.iter(|| validator.validate(&props, &object, None));
    });
}

criterion_group!(benches, expressions, validation);
criterion_main!(benches);
