//! Expressions with what cel-go says of them: types, values, errors, costs and estimates.

use keelson::internals::cel::{Environment, PER_CALL_LIMIT, Type, Value, compile, estimate, plan};
use keelson::internals::meta;
use proptest::proptest;
use serde_json::{Value as Json, json};

/// The variables of the recorded expressions.
fn environment() -> Environment {
    Environment::new()
        .with_variable("x", Type::Dyn)
        .with_variable("n", Type::Int)
        .with_variable("s", Type::String)
        .with_variable("l", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::String))
}

/// Returns the outcome of an expression as text.
fn outcome(expr: &str, environment: &Environment) -> Json {
    let object = |value: Json| meta::Value::from(value);
    let x = object(json!({
        "a": {"b": 1}, "s": "q", "n": 3, "l": [1, 2, 3], "t": true, "z": null, "f": 1.5
    }));
    let (l, m) = (
        object(json!([1, 2, 3])),
        object(json!({"a": "b", "c": "d"})),
    );
    let checked = match compile(expr, environment) {
        Ok(checked) => checked,
        Err(error) => return json!({"expr": expr, "error": error.0}),
    };
    let range = estimate(&checked, None);
    let ty = checked.type_of(checked.root.id).to_string();
    let mut out = json!({"expr": expr, "type": ty, "min": range.min, "max": range.max});
    match plan(&checked, environment) {
        Err(error) => out["error"] = format!("program: {error}").into(),
        Ok(program) => {
            let variables = [
                Value::from_unknown(&x),
                Value::Int(7),
                Value::text("hello"),
                Value::from_unknown(&l),
                Value::from_unknown(&m),
            ];
            let outcome = program.evaluate(&variables, PER_CALL_LIMIT);
            match outcome.value {
                Ok(value) => {
                    out["value"] = canonical(&value).into();
                    out["cost"] = outcome.cost.into();
                }
                Err(error) => out["eval"] = error.to_string().into(),
            }
        }
    }
    out
}

/// A value as the recordings write it.
fn canonical(value: &Value<'_>) -> String {
    match value {
        Value::Uint(number) => format!("{number}u"),
        Value::Double(_) => format!("double {}", value.shown()),
        Value::String(text) => Json::from(text.as_str()).to_string(),
        Value::Bytes(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("b{hex}")
        }
        Value::Timestamp(_) => format!("timestamp {}", value.shown()),
        Value::Duration(_) => format!("duration {}", value.shown()),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("optional {}", canonical(value)),
        Value::Type(name) => format!("type {}", name.as_str()),
        Value::List(list) => {
            let items: Vec<String> = list
                .iter()
                .map(|item| item.map_or_else(|error| error.to_string(), |item| canonical(&item)))
                .collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut entries: Vec<String> = map
                .keys()
                .iter()
                .map(|key| {
                    let value = map.get(key).expect("a value").expect("one that fits");
                    format!("{}: {}", canonical(key), canonical(&value))
                })
                .collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.shown(),
    }
}

#[test]
fn expressions_are_what_cel_go_makes_of_them() {
    let environment = environment();
    let recorded = include_str!("vectors/cel.jsonl");
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let want: Json = serde_json::from_str(line).expect("JSON");
        let got = outcome(want["expr"].as_str().expect("an expression"), &environment);
        if got != want {
            wrong.push(format!("want {want}\n     got {got}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

proptest! {
    /// Any expression that a client sends gets an answer, never a panic.
    #[test]
    fn no_expression_panics(tokens in proptest::collection::vec(0..TOKENS.len(), 0..24)) {
        let text: String = tokens.iter().map(|token| TOKENS[*token]).collect();
        outcome(&text, &environment());
    }
}

/// Tokens of random expressions.
const TOKENS: &[&str] = &[
    "x",
    "n",
    "s",
    "l",
    "m",
    "1",
    "-1",
    "2u",
    "1.5",
    "'a'",
    "\"\\u00e9\"",
    "b'a'",
    "null",
    "true",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "&&",
    "||",
    "==",
    "<",
    ">=",
    " in ",
    "has(x.a)",
    ".size()",
    ".all(i, i",
    ".map(i, i",
    ".a",
    "?.b",
    "[0]",
    ".exists(i, v, i",
    ".filter(i, i",
    "duration('1s')",
    "timestamp('2020-01-01T00:00:00Z')",
    ".matches('a+')",
    "'%s'.format([x])",
    "optional.of(x)",
    ".orValue(1)",
    ".substring(1, 2)",
    "string(",
    "int(",
    "type(",
    "\\",
    "`",
    "\n",
    "é",
    "if",
    ".?",
    "[?",
];
