//! YAML: scalars, documents and errors are those of yaml.v2, and no input does harm.

use super::*;
use crate::codec::DecodeError;
use crate::meta::{Value, json, on_deep_stack};

fn read(text: &str) -> Result<Value, DecodeError> {
    to_value(text.as_bytes()).map(|(value, _)| value)
}

#[test]
fn scalars_follow_yaml_1_1() {
    let table = [
        ("1", json!(1)),
        ("-0x10", json!(-16)),
        ("0o17", json!(15)),
        ("017", json!(15)),
        ("0b11", json!(3)),
        ("1_000", json!(1000)),
        ("08", json!(8)),
        ("1.50", json!(1.5)),
        ("1e3", json!(1000)),
        (".5", json!(0.5)),
        ("18446744073709551615", json!(u64::MAX)),
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("y", json!(true)),
        ("~", json!(null)),
        ("", json!(null)),
        ("2020-01-01", json!("2020-01-01")),
        ("1.2.3", json!("1.2.3")),
        ("10.0.0.1", json!("10.0.0.1")),
        ("1Gi", json!("1Gi")),
        ("'no'", json!("no")),
        ("\"a\\tb\"", json!("a\tb")),
        ("!!str 1", json!("1")),
        ("!!float 1", json!(1)),
        ("!!binary AQI=", json!("\u{1}\u{2}")),
        ("# only a comment", json!(null)),
        ("|\n  a\n  b\n", json!("a\nb\n")),
    ];
    for (text, want) in table {
        assert_eq!(read(text), Ok(want), "{text}");
    }
}

#[test]
fn documents_become_sorted_trees() {
    let text =
        "b: &x {k: v}\na: *x\n1: i\ntrue: t\n1.5: f\nm:\n  <<: *x\n  z: 1\n---\nignored: true\n";
    let want = r#"{"1":"i","1.5":"f","a":{"k":"v"},"b":{"k":"v"},"m":{"k":"v","z":1},"true":"t"}"#;
    assert_eq!(
        read(text).map(|value| value.to_string()),
        Ok(want.to_owned())
    );
}

#[test]
fn keys_that_are_set_twice_are_noted() {
    let text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yy}\ndata: {a: b}\ndata: {a: c}\n";
    let (value, issues) = to_value(text.as_bytes()).expect("valid");
    assert_eq!(value["data"], json!({"a": "c"}));
    assert_eq!(
        issues,
        ["yaml: unmarshal errors:\n  line 5: key \"data\" already set in map"]
    );
}

#[test]
fn errors_are_those_of_upstreams_library() {
    let table = [
        (
            "apiVersion: v1\n\tkind: ConfigMap\n",
            "yaml: line 2: found a tab character that violates indentation",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c\n",
            "yaml: line 3: did not find expected ',' or '}'",
        ),
        ("{", "yaml: line 1: did not find expected node content"),
        ("a: [", "yaml: line 1: did not find expected node content"),
        (
            "not yaml: [",
            "yaml: line 1: did not find expected node content",
        ),
        (
            "a: 1\ndata: {a: *nope}\n",
            "yaml: unknown anchor 'nope' referenced",
        ),
        ("a: .nan", "json: unsupported value: NaN"),
    ];
    for (text, want) in table {
        assert_eq!(read(text), Err(DecodeError::new(want)), "{text:?}");
    }
    assert!(to_value(b"a: \xff").is_err());
    assert!(read("a: \u{1}").is_err());
}

#[test]
fn alias_expansion_is_bounded() {
    let mut text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(",");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(
        read(&text),
        Err(DecodeError::new(
            "yaml: document contains excessive aliasing"
        ))
    );
    assert!(read("a: &a [*a]").is_err());
    let too_deep = Err(DecodeError::new("yaml: exceeded max depth of 10000"));
    assert_eq!(read(&"[".repeat(100_000)), too_deep);
    assert_eq!(read(&"- ".repeat(100_000)), too_deep);
    on_deep_stack(|| {
        assert!(read(&("[".repeat(10_000) + &"]".repeat(10_000))).is_ok());
        assert_eq!(
            read(&("- ".repeat(9_000) + &"[".repeat(9_000) + &"]".repeat(9_000))),
            Err(DecodeError::new("exceeded max depth"))
        );
        let chain = "a: &a ".to_owned()
            + &"[".repeat(9_000)
            + &"]".repeat(9_000)
            + "\nb: "
            + &"[".repeat(9_000)
            + "*a"
            + &"]".repeat(9_000);
        assert_eq!(read(&chain), Err(DecodeError::new("exceeded max depth")));
    });
}

#[test]
fn alias_text_is_bounded() {
    let excessive = Err(DecodeError::new(
        "yaml: document contains excessive aliasing",
    ));
    let long = "x".repeat(300_000);
    assert_eq!(
        read(&format!(
            "{{\"x\":[&a \"{long}\"{}]}}",
            ",*a".repeat(200_000)
        )),
        excessive
    );
    assert_eq!(
        read(&format!(
            "x: &a {long}\ny: {{{}}}",
            "? *a\n, ".repeat(100_000)
        )),
        excessive
    );
    assert_eq!(
        read(&format!(
            "x: &a {{? {long} : 1}}\ny: [{}]",
            "{<<: *a},".repeat(100_000)
        )),
        excessive
    );
    let tags = format!("%TAG !a! {long}\n---\n[{}]", "!a!b c,".repeat(50_000));
    assert_eq!(
        read(&tags),
        Err(DecodeError::new(
            "yaml: line 2: document contains excessive tags"
        ))
    );
    let handles: String = (0..50_000)
        .map(|number| format!("%TAG !h{number}! x\n"))
        .collect();
    assert_eq!(
        read(&format!("{handles}---\n[!h49999!b c]")),
        Ok(json!(["c"]))
    );
    // As often as an object might need it, a text may be repeated.
    let repeated = read(&format!(
        "x: [&a {}{}]",
        "x".repeat(1000),
        ",*a".repeat(1000)
    ))
    .expect("within bounds");
    assert_eq!(repeated["x"].as_array().map(Vec::len), Some(1001));
}

#[test]
fn deep_keys_print_in_linear_time() {
    on_deep_stack(|| {
        let key = "[".repeat(9_900) + &"x,".repeat(100_000) + &"]".repeat(9_900);
        let refused = read(&format!("? {key}\n: 1")).expect_err("lists are no keys");
        assert!(
            refused
                .0
                .starts_with("yaml: invalid map key: []interface {}{"),
            "{:.100}",
            refused.0
        );
    });
}

#[test]
fn trees_are_written_as_upstream_writes_them() {
    let long = "word ".repeat(32);
    let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {
        "c": "a: b", "e": "", "hash": "# no", "k": "v", "long": long, "m": "a\nb\n", "n": "1", "q": "it's \"q\"", "sp": " x ", "t": "true",
        "u": "é中", "x": "y", "tab": "a\tb", "time": "2020-01-02T03:04:05Z", "a10": "1e3", "a2": "1:30", "keep": "a\n\n", "strip": "a\nb",
    }, "items": [{"a": [1, [2, {"b": null}]], "e": {}, "l": []}, 1.5, "- x", true]});
    let want = "apiVersion: v1
data:
  a2: \"1:30\"
  a10: \"1e3\"
  c: 'a: b'
  e: \"\"
  hash: '# no'
  k: v
  keep: |+
    a

  long: 'word word word word word word word word word word word word word word word
    word word word word word word word word word word word word word word word word
    word '
  m: |
    a
    b
  \"n\": \"1\"
  q: it's \"q\"
  sp: ' x '
  strip: |-
    a
    b
  t: \"true\"
  tab: \"a\\tb\"
  time: \"2020-01-02T03:04:05Z\"
  u: é中
  x: \"y\"
items:
- a:
  - 1
  - - 2
    - b: null
  e: {}
  l: []
- 1.5
- '- x'
- true
kind: ConfigMap
";
    let got = String::from_utf8(encode(&value)).expect("UTF-8");
    for (got, want) in got.lines().zip(want.lines()) {
        assert_eq!(got, want);
    }
    assert_eq!(got, want);
    assert_eq!(
        read(&got),
        Ok(value.clone()).map(|value: Value| sorted(&value))
    );
}

/// The same tree with sorted keys, as reading makes it.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| (key.clone(), sorted(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

#[test]
fn any_text_is_read_or_refused_without_harm() {
    let text = "a: &x [1, 'b', \"c\\n\"]\nb: {<<: {q: 1}, *x : 2}\n? complex\n: - |\n   x\n  - >-\n   y\n!!binary z: !t u\n%TAG ! x\n--- ...";
    for end in 0..=text.len() {
        let _ = to_value(&text.as_bytes()[..end]);
        let _ = to_value(&text.as_bytes()[end..]);
    }
    let pieces = [
        ":", "- ", "\n", "{", "}", "[", "]", ",", "&a ", "*a", "!x ", "|", ">", "'", "\"", "#",
        "? ", "  ", "\t", "a", "%", "---\n", "\\",
    ];
    let mut seed = 7u64;
    for _ in 0..3000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let _ = read(&text);
    }
}

/// Texts with what Go made of them; bytes that are no UTF-8 are written as the private characters
/// from U+E000 on.
#[test]
fn vectors_of_yaml_v2_are_matched() {
    let table = include_str!("../../../tests/vectors/yaml.jsonl");
    let mut wrong = Vec::new();
    for line in table.lines() {
        let want: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| want[key].as_str().unwrap_or("").to_owned();
        let mut bytes = Vec::new();
        for c in text("in").chars() {
            match u32::from(c) {
                private @ 0xe000..=0xe0ff => bytes.push((private - 0xe000) as u8),
                _ => bytes.extend_from_slice(c.to_string().as_bytes()),
            }
        }
        let (json, error, strict) = match to_value(&bytes) {
            Ok((value, issues)) => (
                crate::codec::json::text_of(&value),
                String::new(),
                issues.concat(),
            ),
            Err(error) => (String::new(), error.0, String::new()),
        };
        if (&json, &error, &strict) != (&text("json"), &text("error"), &text("strict")) {
            wrong.push(format!(
                "{:?}\n  want {:?} {:?} {:?}\n  have {json:?} {error:?} {strict:?}",
                text("in"),
                text("json"),
                text("error"),
                text("strict")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
