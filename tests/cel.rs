//! Expressions with what cel-go says of them: types, values, errors, costs and estimates.

use keelson::internals::cel::{Environment, PER_CALL_LIMIT, Type, Value, compile, estimate, plan};
use keelson::internals::extensions::{JsonSchemaProps, cel_schema};
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
                .entries()
                .iter()
                .map(|(key, value)| {
                    let value = value.as_ref().expect("one that fits");
                    format!("{}: {}", canonical(key), canonical(value))
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

/// The answer to an expression on an object of a schema.
fn of_object(expr: &str, object: &Json, schema: Json) -> String {
    let props = JsonSchemaProps::read(&meta::Value::from(schema));
    let schema = cel_schema::Schemas::default().of(&props, false);
    let object = meta::Value::from(object.clone());
    let environment = Environment::new().with_schema("self", &schema);
    let checked = match compile(expr, &environment) {
        Ok(checked) => checked,
        Err(error) => return error.0,
    };
    let program = plan(&checked, &environment).expect("a program");
    let variables = [schema.value(&object).expect("an object of the schema")];
    let outcome = program.evaluate(&variables, PER_CALL_LIMIT);
    match outcome.value {
        Ok(value) => canonical(&value),
        Err(error) => error.to_string(),
    }
}

#[test]
fn fields_of_objects_are_read_as_their_schemas_say() {
    let text = json!({"type": "string", "nullable": true});
    let spec =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "note": text}});
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"type": "array", "items": {"type": "string"}});
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let named = json!({
        "type": "array", "items": item, "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    });
    let times = json!({"type": "array", "items": {"type": "string", "format": "date-time"}});
    let schema = json!({"type": "object", "properties": {
        "spec": spec, "labels": labels, "any": any, "names": names.clone(), "times": times,
        "named": named, "none": names,
    }});
    let object = json!({
        "spec": {"replicas": 3, "note": null}, "labels": {"a": "b"}, "any": {"x": {"y": 1}},
        "names": ["a"], "times": ["2020-01-01T00:00:00Z"], "named": [{"name": "a"}], "none": [],
    });
    for (expr, want) in [
        ("self.spec.replicas <= 5", "true"),
        ("self.spec == self.spec", "true"),
        ("has(self.spec.note)", "false"),
        ("self.spec.note == 'a'", "no such key: note"),
        ("type(self.spec) == map", "true"),
        ("dyn(1) in self.labels", "no such overload"),
        ("self.labels[dyn(1)] == 'b'", "no such overload"),
        ("'a' in self.labels", "true"),
        ("self.any == self.any", "true"),
        ("dyn({4: 1}) == dyn(self.labels)", "false"),
        ("self.names + ['b'] == ['a', 'b']", "true"),
        ("dyn(self.names + ['b']) == 1", "no such overload"),
        ("dyn(['a'] + ['b']) == 1", "false"),
        (
            "(self.names + [dyn(1)])[1] == 'b'",
            "invalid data, expected string, got int64",
        ),
        (
            "(self.times + self.times)[1] == self.times[0]",
            "invalid data, expected string, got time.Time",
        ),
        ("self.named == self.named", "true"),
        ("self.named == dyn([1])", "false"),
        ("self.named == dyn([{'name': 'a'}])", "false"),
        ("optional.ofNonZeroValue(self.none).hasValue()", "true"),
        (
            "optional.ofNonZeroValue(self.none.map(a, a)).hasValue()",
            "false",
        ),
        ("(self.times + self.times)[0] == self.times[0]", "true"),
    ] {
        assert_eq!(of_object(expr, &object, schema.clone()), want, "{expr}");
    }
}

/// The stack of threads that evaluate the deepest expressions.
const STACK_BYTES: usize = 128 << 20;

/// The answer to an expression of the variables of the recorded ones.
fn answer(expr: &str) -> String {
    let expr = expr.to_owned();
    let answer = move || {
        let said = outcome(&expr, &environment());
        let of = |name: &str| said[name].as_str().map(str::to_owned);
        of("error")
            .or_else(|| of("eval"))
            .or_else(|| of("value"))
            .unwrap_or_default()
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(answer).expect("a thread");
    thread.join().expect("no panic")
}

const TOO_MUCH: &str = "operation cancelled: actual cost limit exceeded";

/// A list of one, which has been made of the one before so many times.
fn repeated(first: &str, step: &str, times: usize) -> String {
    let again = |expr: String, _| format!("[{expr}.map(a, {step})[0]]");
    (0..times).fold(format!("[{first}]"), again)
}

#[test]
fn expressions_that_double_what_they_make_are_ended() {
    for (first, step, times, last) in [
        ("l", "a + a", 40, "[0].size() > 0"),
        ("s", "a + a", 40, "[0].size() > 0"),
        ("b'ab'", "a + a", 40, "[0].size() > 0"),
        ("dyn(l)", "dyn([a, a])", 40, ".all(b, b == b)"),
        ("dyn(l)", "dyn({'a': a, 'b': a})", 40, ".all(b, b == b)"),
        ("l", "[a, a].flatten()", 40, "[0].size() > 0"),
        ("s", "a.replace('', a)", 30, "[0].size() > 0"),
        ("['']", "a + a", 60, "[0].join() == ''"),
    ] {
        let expr = repeated(first, step, times) + last;
        let got = answer(&expr);
        assert!(
            got == TOO_MUCH || got.contains("the result has over"),
            "{step}: {got}"
        );
    }
}

#[test]
fn types_that_double_with_each_step_are_refused() {
    let again = |expr: String, _| format!("{expr}.map(a, {{a: a}})");
    let expr = (0..40).fold("[1]".to_owned(), again);
    assert!(answer(&expr).contains("the type has over 1000 parts"));
}

#[test]
fn expressions_that_look_at_much_for_little_are_ended() {
    for expr in [
        "[lists.range(50000)].all(b, lists.range(90000).all(i, b == b))",
        "lists.range(60000).all(i, ''.matches(r'(\\pL{900}|' + string(i) + ')') || true)",
        "[lists.range(50000)].all(b, lists.range(60000).all(i, b.reverse().size() > 0))",
        "[lists.range(50000)].all(b, lists.range(60000).all(i, b.max() > 0 || true))",
        "lists.range(20000).map(i, 'a').join().findAll('a*b|a').size() > 0",
        "['a'.replace('', 'bc').replace('', lists.range(9000).map(i, 'long text').join())]\
         .all(long, lists.range(1000).map(i, 'a'.replace('', long)).size() > 0)",
        "lists.range(1000).map(i, '%s%s'.format([lists.range(9000), lists.range(9000)])) == []",
    ] {
        assert_eq!(answer(expr), TOO_MUCH, "{expr}");
    }
}

#[test]
fn expressions_that_are_too_deep_or_long_are_refused() {
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        [open.repeat(times).as_str(), inner, &close.repeat(times)].concat()
    };
    for expr in [
        nested("(", "1", ")", 10_000),
        nested("[", "1", "]", 10_000),
        nested("{1: ", "1", "}", 10_000),
        nested("!(", "true", ")", 10_000),
        nested("size(", "s", ")", 10_000),
        nested("[1].map(a, ", "a", ")", 300),
        format!("x{}", ".a".repeat(10_000)),
        format!("x{}", "[0]".repeat(10_000)),
        format!("n{}", " + n".repeat(10_000)),
        format!("true{}", " ? true : true".repeat(5_000)),
        format!("s{}", ".lowerAscii()".repeat(7_000)),
    ] {
        let got = answer(&expr);
        assert!(got.contains("recursion"), "{}: {got}", &expr[..20]);
    }
    let copies = (0..30).fold("optional.of(1)".to_owned(), |expr, _| {
        format!("{expr}.optMap(a, a)")
    });
    assert!(answer(&copies).contains("the expression has over 200000 nodes"));
    let long = answer(&"a".repeat(100_001));
    assert!(long.contains("expression code point size exceeds limit"));
    let wrong = answer(&"'\u{e9}\\".repeat(10_000));
    assert!(wrong.contains("Syntax error"));
    let many: Vec<String> = (0..2_000).map(|i| format!("n == {i}")).collect();
    assert_eq!(answer(&many.join(" || ")), "true");
}

#[test]
fn numbers_and_times_end_where_those_of_go_end() {
    for (expr, want) in [
        ("9223372036854775807 + 1", "integer overflow"),
        ("(-9223372036854775807 - 1) / -1", "integer overflow"),
        ("-(-9223372036854775807 - 1)", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("int(9.3e18)", "program: integer overflow"),
        (
            "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
            "timestamp overflow",
        ),
        (
            "timestamp('0001-01-01T00:00:00Z') - duration('1ns')",
            "timestamp overflow",
        ),
        ("duration('2562047h') + duration('1h')", "integer overflow"),
        (
            "timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')",
            "integer overflow",
        ),
        (
            "timestamp('9999-12-31T23:59:59Z').getFullYear('+14:00')",
            "10000",
        ),
        ("timestamp('9999-12-31T23:59:59Z').getHours('+02:00')", "1"),
        (
            "timestamp('0001-01-01T00:00:00Z').getFullYear('-01:00')",
            "0",
        ),
        ("'ta\u{a9}o\u{a9}\u{3b1}T'.lastIndexOf('\u{a9}', 3)", "2"),
        ("'a'.substring(-1)", "index out of range: -1"),
        ("'%f'.format([1234567.5])", "\"1,234,567.500000\""),
        ("'%e'.format([double('NaN')])", "\"   NaN\""),
        ("quantity('1000m').isInteger()", "false"),
        (
            "quantity('1') == quantity('0.5').add(quantity('0.5'))",
            "no such overload",
        ),
        (
            "lists.range(9223372036854775807).size()",
            "lists.range makes no more than 1000000 items",
        ),
        ("optional.of(1).optMap(a, 2)", "optional 2"),
        ("n in []", "false"),
        (
            "cidr('10.0.0.0/8').containsIP(ip('1:2:3'))",
            "IP Address \"1:2:3\" parse error during conversion from string: ParseAddr(\"1:2:3\"): \
             address string too short",
        ),
    ] {
        assert_eq!(answer(expr), want, "{expr}");
    }
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
