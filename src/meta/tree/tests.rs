//! Maps and values behave as those of `serde_json`.

use super::*;
use serde_json::from_str;

fn map(text: &str) -> Map {
    from_str(text).expect("a map")
}

/// A map with so many entries, named by their numbers backwards.
fn numbered(count: usize) -> Map {
    (0..count)
        .rev()
        .map(|n| (format!("k{n:02}"), Value::from(n)))
        .collect()
}

#[test]
fn maps_keep_their_order_however_many_entries_they_have() {
    for count in [0, 1, 15, 16, 17, 40] {
        let mut map = numbered(count);
        assert_eq!(map.len(), count);
        let keys: Vec<String> = map.keys().map(ToString::to_string).collect();
        assert_eq!(
            keys,
            (0..count)
                .rev()
                .map(|n| format!("k{n:02}"))
                .collect::<Vec<_>>()
        );
        for n in 0..count {
            assert_eq!(map.get(&format!("k{n:02}")), Some(&Value::from(n)));
        }
        assert_eq!(map.get("none"), None);
        assert_eq!(map.insert("new", Value::Null), None);
        assert_eq!(map.insert("new", true.into()), Some(Value::Null));
        assert_eq!(map.keys().next_back().map(Key::as_str), Some("new"));
        assert_eq!(map.shift_insert(0, "new", 1.into()), Some(true.into()));
        assert_eq!(map.shift_insert(0, "first", 2.into()), None);
        assert_eq!(
            map.keys().take(2).map(Key::as_str).collect::<Vec<_>>(),
            ["first", "new"]
        );
        assert_eq!(map.shift_remove("first"), Some(2.into()));
        assert_eq!(map.swap_remove("new"), Some(1.into()));
        assert_eq!((map.len(), map.shift_remove("new")), (count, None));
        map.sort_keys();
        assert!(map.keys().is_sorted());
        map.retain(|_, value| value.as_i64().is_some_and(|n| n % 2 == 0));
        assert_eq!(map.len(), count.div_ceil(2));
        *map.entry("k00").or_insert(Value::Null) = "x".into();
        assert_eq!(map["k00"], "x");
    }
}

#[test]
fn maps_are_equal_in_any_order() {
    let (one, other) = (
        map(r#"{"a": 1, "b": [2], "c": {}}"#),
        map(r#"{"c": {}, "a": 1, "b": [2]}"#),
    );
    assert_eq!(one, other);
    assert_ne!(one, map(r#"{"a": 1, "b": [2], "d": {}}"#));
    assert_ne!(one, map(r#"{"a": 1, "b": [2]}"#));
    let long = numbered(40);
    let mut sorted = long.clone();
    sorted.sort_keys();
    assert_eq!(long, sorted);
}

#[test]
fn values_are_read_written_and_pointed_into() {
    let text = r#"{"b":[1,-2,2.5,{"x/y":null}],"a":{"~":"é\n"},"c":true}"#;
    let mut value: Value = from_str(text).expect("JSON");
    assert_eq!(value.to_string(), text);
    assert_eq!(
        value,
        json!({"a": {"~": "é\n"}, "b": [1, -2, 2.5, {"x/y": null}], "c": true})
    );
    assert_eq!(value.pointer("/b/3/x~1y"), Some(&Value::Null));
    assert_eq!(value.pointer("/a/~0").and_then(Value::as_str), Some("é\n"));
    assert_eq!((value.pointer("/b/01"), value.pointer("b")), (None, None));
    *value.pointer_mut("/b/0").expect("an item") = 7.into();
    assert_eq!(
        (&value["b"][0], &value["b"][9], &value["none"]["x"]),
        (&7.into(), &Value::Null, &Value::Null)
    );
    value["d"]["e"] = "f".into();
    value.sort_all_objects();
    assert_eq!(
        value.to_string(),
        r#"{"a":{"~":"é\n"},"b":[7,-2,2.5,{"x/y":null}],"c":true,"d":{"e":"f"}}"#
    );
}

#[test]
fn a_repeated_key_counts_as_it_came_last() {
    assert_eq!(
        serde_json::to_string(&map(r#"{"a": 1, "b": 2, "a": 3}"#)).expect("JSON"),
        r#"{"a":3,"b":2}"#
    );
}

#[test]
fn values_are_small() {
    assert_eq!(
        (
            size_of::<Map>(),
            size_of::<Value>(),
            size_of::<Option<Value>>(),
            size_of::<Key>()
        ),
        (24, 32, 32, 24)
    );
}

#[test]
fn a_raw_map_is_parsed_on_first_access() {
    let text = r#"{"f:b":{},"f:a":{".":{},"k:{\"x\":\"y\"}":{}}}"#;
    let raw = Map::from_raw_json(text.to_owned());
    assert_eq!(
        (
            raw.raw_json(),
            raw.is_empty(),
            Map::from_raw_json("{}".to_owned())
        ),
        (Some(text), false, Map::new())
    );
    assert_eq!(raw, map(text));
    assert_eq!(map(text), raw.clone());
    assert_eq!(serde_json::to_string(&raw).expect("JSON"), text);
    assert_eq!(
        raw.keys().map(Key::as_str).collect::<Vec<_>>(),
        ["f:b", "f:a"]
    );
    assert_eq!(
        raw.get("f:a").and_then(|below| below.get(".")),
        Some(&json!({}))
    );
    let mut changed = raw.clone();
    changed.insert("f:c", Value::Null);
    assert_eq!((changed.len(), changed.raw_json(), raw.len()), (3, None, 2));
    assert_eq!(
        raw.into_iter()
            .map(|(key, _)| key.to_string())
            .collect::<Vec<_>>(),
        ["f:b", "f:a"]
    );
}
