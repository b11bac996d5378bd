//! The view that selectors have of an object in any form: scalars by path, and labels.

use std::borrow::Cow;

use crate::meta::Value;

use crate::meta::Object;

/// An object whose scalars and labels can be looked up. The readers of stored bytes do so without
/// reading the rest.
pub trait FieldReader {
    /// The string, bool or integer at a dotted path (`spec.nodeName`, `status.podIPs.0.ip`), as
    /// field selectors compare it; empty where there is none.
    fn text_at(&self, dotted: &str) -> Cow<'_, str>;

    /// The value of a label; `None` where the object does not have it.
    fn label(&self, key: &str) -> Option<Cow<'_, str>>;

    /// Goes through all labels.
    fn each_label(&self, look: &mut dyn FnMut(&str, &str));
}

impl FieldReader for Object {
    fn text_at(&self, dotted: &str) -> Cow<'_, str> {
        let mut parts = dotted.split('.');
        let mut value = parts.next().and_then(|first| self.get(first));
        for part in parts {
            value = value.and_then(|value| match value {
                Value::Object(map) => map.get(part),
                Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            });
        }
        match value {
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(Value::Bool(value)) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Some(Value::Number(number)) => Cow::Owned(number.to_string()),
            _ => Cow::Borrowed(""),
        }
    }

    fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.labels()?.get(key)?.as_str().map(Cow::Borrowed)
    }

    fn each_label(&self, look: &mut dyn FnMut(&str, &str)) {
        let labels = self.labels().into_iter().flatten();
        labels
            .filter_map(|(key, value)| Some((key, value.as_str()?)))
            .for_each(|(key, value)| look(key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn scalars_are_read_as_selectors_compare_them() {
        let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"on": true, "count": 3, "ips": [{"ip": "::1"}]}});
        let object = Object::from_value(object).expect("an object");
        for (path, want) in [
            ("spec.on", "true"),
            ("spec.count", "3"),
            ("spec.ips.0.ip", "::1"),
            ("spec.ips.1.ip", ""),
            ("spec", ""),
        ] {
            assert_eq!(object.text_at(path), want, "{path}");
        }
        assert_eq!(object.label("a").as_deref(), Some("b"));
        assert_eq!(object.label("b"), None);
    }
}
