//! Labels and label selectors as one line of text.

use super::{NONE, join};
use crate::meta::{Value, array_at, map_at, str_at};

/// A string map as `key=value` pairs in the order of the keys.
pub fn format_labels(labels: Option<&Value>) -> String {
    let Some(labels) = labels
        .and_then(Value::as_object)
        .filter(|labels| !labels.is_empty())
    else {
        return NONE.to_owned();
    };
    let mut pairs: Vec<(&str, &str)> = labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// A LabelSelector in the query syntax; `<none>` for one that says nothing.
pub fn format_selector(selector: Option<&Value>) -> String {
    match selector_text(selector) {
        Some(text) if text.is_empty() => NONE.to_owned(),
        Some(text) => text,
        None => "<error>".to_owned(),
    }
}

/// A LabelSelector in the query syntax, its requirements in the order of their keys; `None` for one
/// with an operator that is not known.
pub fn selector_text(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else {
        return Some(String::new());
    };
    let mut requirements: Vec<(&str, String)> = Vec::new();
    for (key, value) in map_at(selector, "/matchLabels").into_iter().flatten() {
        requirements.push((key, format!("{key}={}", value.as_str().unwrap_or(""))));
    }
    for expression in array_at(selector, "/matchExpressions") {
        let key = str_at(expression, "/key");
        let mut values: Vec<&str> = array_at(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = join(values.into_iter(), ",");
        let text = match str_at(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, text));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(join(
        requirements.iter().map(|(_, text)| text.as_str()),
        ",",
    ))
}

/// A LabelSelector as Go prints the struct, which is what admission policy bindings show.
pub fn selector_as_go_prints_it(selector: &Value) -> String {
    let mut labels: Vec<String> = map_at(selector, "/matchLabels")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or("")))
        .collect();
    labels.sort_unstable();
    let expressions: Vec<String> = array_at(selector, "/matchExpressions")
        .iter()
        .map(|one| {
            let values = join(
                array_at(one, "/values").iter().filter_map(Value::as_str),
                " ",
            );
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                str_at(one, "/key"),
                str_at(one, "/operator")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn selectors_read_like_queries() {
        let expressions = json!([
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ]);
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": expressions});
        assert_eq!(format_selector(Some(&selector)), "a in (x,y),b=1,c,!d");
        assert_eq!(format_selector(Some(&json!({}))), "<none>");
        assert_eq!(format_selector(None), "<none>");
        assert_eq!(
            format_selector(Some(
                &json!({"matchExpressions": [{"key": "a", "operator": "X"}]})
            )),
            "<error>"
        );
        assert_eq!(
            selector_as_go_prints_it(
                &json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]})
            ),
            "&LabelSelector{MatchLabels:map[string]string{b: 1,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:a,Operator:In,Values:[x y],},},}"
        );
    }

    #[test]
    fn labels_are_sorted() {
        assert_eq!(format_labels(Some(&json!({"k": "v", "a": "z"}))), "a=z,k=v");
        assert_eq!(format_labels(Some(&json!({}))), "<none>");
    }
}
