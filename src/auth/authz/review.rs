//! A question as a SubjectAccessReview: to be sent to a webhook, and for the conditions on doing so
//! (apiserver `plugin/pkg/authorizer/webhook`, `authorization/cel`).

use super::Attributes;
use super::configuration::ReviewVersion;
use crate::codec::json::encode_value;
use crate::meta::selector::labels::Operator;
use crate::meta::{Key, Map, Value, json};

pub const KIND: &str = "SubjectAccessReview";

impl ReviewVersion {
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authorization.k8s.io/v1",
            Self::V1Beta1 => "authorization.k8s.io/v1beta1",
        }
    }
}

/// A question as the spec of a review.
pub struct Spec<'a>(pub &'a Attributes);

impl Spec<'_> {
    /// Returns the review in JSON, as Go writes it: what is empty is left out.
    pub fn review(&self, version: ReviewVersion) -> Vec<u8> {
        let review = json!({
            "kind": KIND,
            "apiVersion": version.api_version(),
            "metadata": {},
            "spec": self.spec(version),
            "status": {"allowed": false},
        });
        let mut out = Vec::new();
        encode_value(&review, &mut out);
        out
    }

    fn spec(&self, version: ReviewVersion) -> Value {
        let (asked, user) = (self.0, &self.0.user);
        let mut spec = Map::new();
        match asked.resource_request {
            true => spec.insert("resourceAttributes", resource(asked, true)),
            false => spec.insert("nonResourceAttributes", path(asked, true)),
        };
        put(&mut spec, "user", &user.name);
        if !user.groups.is_empty() {
            let groups = match version {
                ReviewVersion::V1 => "groups",
                ReviewVersion::V1Beta1 => "group",
            };
            spec.insert(groups, user.groups.iter().cloned().collect());
        }
        if !user.extra.is_empty() {
            spec.insert("extra", extra(asked));
        }
        put(&mut spec, "uid", &user.uid);
        Value::Object(spec)
    }
}

/// Returns the value of the variable `request` of conditions: every text is there.
pub fn request(asked: &Attributes) -> Value {
    let user = &asked.user;
    let mut request = Map::new();
    request.insert("user", user.name.clone().into());
    request.insert("groups", user.groups.iter().cloned().collect());
    request.insert("uid", user.uid.clone().into());
    request.insert("extra", extra(asked));
    match asked.resource_request {
        true => request.insert("resourceAttributes", resource(asked, false)),
        false => request.insert("nonResourceAttributes", path(asked, false)),
    };
    Value::Object(request)
}

fn put(out: &mut Map, key: &'static str, text: &str) {
    if !text.is_empty() {
        out.insert(key, text.into());
    }
}

fn extra(asked: &Attributes) -> Value {
    let extra = asked.user.extra.iter();
    Value::Object(
        extra
            .map(|(key, values)| (Key::from(key.clone()), values.iter().cloned().collect()))
            .collect(),
    )
}

/// The resource attributes, without what is empty if it is left out.
fn resource(asked: &Attributes, omit_empty: bool) -> Value {
    let mut out = Map::new();
    for (key, text) in [
        ("namespace", &asked.namespace),
        ("verb", &asked.verb),
        ("group", &asked.group),
        ("version", &asked.version),
        ("resource", &asked.resource),
        ("subresource", &asked.subresource),
        ("name", &asked.name),
    ] {
        if !omit_empty || !text.is_empty() {
            out.insert(key, text.clone().into());
        }
    }
    for (key, requirements) in [
        ("fieldSelector", fields(asked)),
        ("labelSelector", labels(asked)),
    ] {
        if !requirements.is_empty() {
            out.insert(key, json!({"requirements": requirements}));
        }
    }
    Value::Object(out)
}

fn path(asked: &Attributes, omit_empty: bool) -> Value {
    let mut out = Map::new();
    for (key, text) in [("path", &asked.path), ("verb", &asked.verb)] {
        if !omit_empty || !text.is_empty() {
            out.insert(key, text.clone().into());
        }
    }
    Value::Object(out)
}

fn fields(asked: &Attributes) -> Vec<Value> {
    let term = |term: &crate::meta::selector::fields::Term| {
        let operator = if term.negated { "NotIn" } else { "In" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    asked.field_selector.iter().map(term).collect()
}

/// The requirements on labels. Operators that the API has not are left out, which asks for more.
fn labels(asked: &Attributes) -> Vec<Value> {
    let mut out = Vec::new();
    for requirement in &asked.label_selector {
        let operator = match requirement.operator {
            Operator::In | Operator::Equals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => continue,
        };
        let mut one = json!({"key": requirement.key, "operator": operator});
        if !requirement.values.is_empty() {
            one["values"] = requirement.values.iter().cloned().collect();
        }
        out.push(one);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::meta::selector::fields::FieldSelector;
    use crate::meta::selector::labels::LabelSelector;

    fn list() -> Attributes {
        let user = User {
            name: "jane".to_owned(),
            groups: vec!["g".to_owned()],
            extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
            ..User::default()
        };
        let labels = LabelSelector::parse("a in (c,b),!d,e>1").expect("labels");
        Attributes {
            user: user.into(),
            verb: "list".to_owned(),
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            resource_request: true,
            field_selector: FieldSelector::parse("x!=y").expect("fields").terms,
            label_selector: labels.requirements,
            ..Attributes::default()
        }
    }

    #[test]
    fn a_review_is_written_as_go_writes_it() {
        let text = |version| String::from_utf8(Spec(&list()).review(version)).expect("text");
        assert_eq!(
            text(ReviewVersion::V1),
            r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"requirements":[{"key":"x","operator":"NotIn","values":["y"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"DoesNotExist"}]}},"user":"jane","groups":["g"],"extra":{"k":["v"]}},"status":{"allowed":false}}"#
        );
        let beta = text(ReviewVersion::V1Beta1);
        assert!(beta.contains(r#""authorization.k8s.io/v1beta1""#), "{beta}");
        assert!(beta.contains(r#""user":"jane","group":["g"],"#), "{beta}");
    }

    #[test]
    fn conditions_see_every_text() {
        let request = request(&Attributes {
            path: "/healthz".to_owned(),
            verb: "get".to_owned(),
            ..Attributes::default()
        });
        assert_eq!(
            request,
            json!({
                "user": "", "groups": [], "uid": "", "extra": {},
                "nonResourceAttributes": {"path": "/healthz", "verb": "get"},
            })
        );
    }
}
