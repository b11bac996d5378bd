//! ABAC: policies in a file, one JSON object a line (kubernetes `pkg/auth/authorizer/abac`).

use async_trait::async_trait;

use super::{Attributes, Authorizer, Decision, Rule, UserRules};
use crate::auth::{AUTHENTICATED, User};
use crate::codec::json::Document;
use crate::meta::{Value, str_at, value_at};

const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const ALL: &str = "*";
/// The length of a line (Go's `bufio.MaxScanTokenSize`).
const MAX_LINE_BYTES: usize = 64 * 1024;

/// A policy: who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Policy {
    user: String,
    group: String,
    /// It allows reading only.
    read_only: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

/// The policies of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyList(Vec<Policy>);

impl PolicyList {
    /// Reads the lines of a file. Empty ones and comments are passed over. `path` is for messages.
    ///
    /// # Errors
    /// Upstream's text, with the number of a line that is no policy.
    pub fn parse(text: &str, path: &str) -> Result<Self, String> {
        let mut policies = Vec::new();
        let mut unversioned = false;
        for (at, line) in text.lines().enumerate() {
            let wrong = |why: String| {
                format!(
                    "error reading policy file {path}, line {}: {line}: {why}",
                    at + 1
                )
            };
            if line.len() >= MAX_LINE_BYTES {
                return Err(format!(
                    "error reading policy file {path}: bufio.Scanner: token too long"
                ));
            }
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let document = Document::new(line.as_bytes()).map_err(|why| wrong(why.0))?;
            let value = document.value().map_err(|why| wrong(why.0))?;
            if !value.is_object() {
                return Err(wrong("expected an object".to_owned()));
            }
            let known =
                str_at(&value, "/kind") == "Policy" && str_at(&value, "/apiVersion") == API_VERSION;
            unversioned |= !known;
            let policy = match known {
                true => Policy::v1beta1(&value),
                false => Policy::v0(&value),
            };
            policies.push(policy.map_err(wrong)?);
        }
        if unversioned {
            tracing::warn!("the policy file {path} has policies without kind and apiVersion");
        }
        Ok(Self(policies))
    }
}

/// A text of a policy.
fn text(value: &Value, field: &str, of: &str) -> Result<String, String> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!(
            "json: cannot unmarshal into Go struct field {of}{field} of type string"
        )),
    }
}

fn switch(value: &Value, field: &str, of: &str) -> Result<bool, String> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(format!(
            "json: cannot unmarshal into Go struct field {of}{field} of type bool"
        )),
    }
}

impl Policy {
    fn v1beta1(value: &Value) -> Result<Self, String> {
        let none = Value::Null;
        let spec = value_at(value, "/spec").unwrap_or(&none);
        let of = |field| text(spec, field, "PolicySpec.spec.");
        Ok(Self {
            user: of("user")?,
            group: of("group")?,
            read_only: switch(spec, "readonly", "PolicySpec.spec.")?,
            api_group: of("apiGroup")?,
            resource: of("resource")?,
            namespace: of("namespace")?,
            non_resource_path: of("nonResourcePath")?,
        }
        .for_authenticated())
    }

    /// Reads the form without a version, in which what is absent is everything.
    fn v0(value: &Value) -> Result<Self, String> {
        let of = |field| text(value, field, "Policy.");
        let or_all = |text: &str| match text {
            "" => ALL.to_owned(),
            text => text.to_owned(),
        };
        let (user, group) = (of("user")?, of("group")?);
        let (namespace, resource) = (of("namespace")?, of("resource")?);
        let everything = namespace.is_empty() && resource.is_empty();
        let anybody = user.is_empty() && group.is_empty();
        Ok(Self {
            user,
            group: if anybody {
                AUTHENTICATED.to_owned()
            } else {
                group
            },
            read_only: switch(value, "readonly", "Policy.")?,
            api_group: ALL.to_owned(),
            resource: or_all(&resource),
            namespace: or_all(&namespace),
            non_resource_path: if everything {
                ALL.to_owned()
            } else {
                String::new()
            },
        }
        .for_authenticated())
    }

    /// "Everybody" is everybody who is authenticated.
    fn for_authenticated(self) -> Self {
        if self.user != ALL && self.group != ALL {
            return self;
        }
        Self {
            user: String::new(),
            group: AUTHENTICATED.to_owned(),
            ..self
        }
    }

    fn is_about(&self, user: &User) -> bool {
        let named = !self.user.is_empty() || !self.group.is_empty();
        named
            && (self.user.is_empty() || self.user == user.name)
            && (self.group.is_empty() || user.is_in(&self.group))
    }

    fn allows(&self, asked: &Attributes) -> bool {
        let is = |pattern: &str, value: &str| pattern == ALL || pattern == value;
        if !self.is_about(&asked.user) || self.read_only && !asked.is_read_only() {
            return false;
        }
        if asked.resource_request {
            return is(&self.namespace, &asked.namespace)
                && is(&self.resource, &asked.resource)
                && is(&self.api_group, &asked.group);
        }
        let path = self.non_resource_path.as_str();
        is(path, &asked.path)
            || path.ends_with(ALL) && asked.path.starts_with(path.trim_end_matches(ALL))
    }

    fn verbs(&self) -> Vec<String> {
        let verbs: &[&str] = match self.read_only {
            true => &["get", "list", "watch"],
            false => &[ALL],
        };
        verbs.iter().map(|verb| (*verb).to_owned()).collect()
    }

    fn rules(&self) -> impl Iterator<Item = Rule> {
        let resources = (!self.resource.is_empty()).then(|| Rule {
            verbs: self.verbs(),
            api_groups: vec![self.api_group.clone()],
            resources: vec![self.resource.clone()],
            ..Rule::default()
        });
        let paths = (!self.non_resource_path.is_empty()).then(|| Rule {
            verbs: self.verbs(),
            non_resource_urls: vec![self.non_resource_path.clone()],
            ..Rule::default()
        });
        resources.into_iter().chain(paths)
    }
}

#[async_trait]
impl Authorizer for PolicyList {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        match self.0.iter().any(|policy| policy.allows(attributes)) {
            true => Decision::allow(""),
            false => Decision::no_opinion("No policy matched."),
        }
    }

    async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let about = self.0.iter().filter(|policy| {
            policy.is_about(user) && (policy.namespace == ALL || policy.namespace == namespace)
        });
        UserRules {
            rules: about.flat_map(Policy::rules).collect(),
            ..UserRules::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lines: &[&str]) -> PolicyList {
        PolicyList::parse(&lines.join("\n"), "f").expect("policies")
    }

    fn spec(fields: &str) -> String {
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{{{fields}}}}}"#)
    }

    fn ask(verb: &str, resource: &str, namespace: &str, user: &str) -> Attributes {
        let user = User {
            name: user.to_owned(),
            groups: vec![AUTHENTICATED.to_owned()],
            ..User::default()
        };
        Attributes {
            user: user.into(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            resource_request: true,
            ..Attributes::default()
        }
    }

    fn path(path: &str, user: &str) -> Attributes {
        Attributes {
            resource_request: false,
            path: path.to_owned(),
            ..ask("get", "", "", user)
        }
    }

    #[tokio::test]
    async fn the_examples_of_the_documentation_work() {
        let policies = list(&[
            "# comment",
            "",
            &spec(r#""user":"alice","namespace":"*","resource":"*","apiGroup":"*""#),
            &spec(r#""user":"kubelet","namespace":"*","resource":"pods","readonly":true"#),
            &spec(r#""user":"bob","namespace":"projectCaribou","resource":"pods","readonly":true"#),
            &spec(r#""group":"system:authenticated","readonly":true,"nonResourcePath":"/api/*""#),
        ]);
        let checks = [
            (ask("delete", "secrets", "x", "alice"), true),
            (ask("get", "pods", "x", "kubelet"), true),
            (ask("create", "pods", "x", "kubelet"), false),
            (ask("watch", "pods", "projectCaribou", "bob"), true),
            (ask("watch", "pods", "other", "bob"), false),
            (path("/api/v1", "bob"), true),
            (path("/version", "bob"), false),
        ];
        for (asked, want) in checks {
            let decision = policies.authorize(&asked).await;
            assert_eq!(decision.is_allowed(), want, "{asked:?}");
        }
        let bob = ask("", "", "", "bob").user;
        let rules = policies.rules_for(&bob, "projectCaribou").await.rules;
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].verbs, ["get", "list", "watch"]);
    }

    #[tokio::test]
    async fn policies_without_a_version_allow_all_that_they_do_not_name() {
        let policies = list(&[
            r#"{"user":"u"}"#,
            r#"{"readonly":true,"resource":"events"}"#,
        ]);
        for (asked, want) in [
            (ask("delete", "x", "y", "u"), true),
            (path("/anything", "u"), true),
            (ask("list", "events", "n", "other"), true),
            (ask("create", "events", "n", "other"), false),
            (path("/anything", "other"), false),
        ] {
            assert_eq!(policies.authorize(&asked).await.is_allowed(), want);
        }
        // Everybody is authenticated.
        let anyone = list(&[&spec(
            r#""user":"*","resource":"*","namespace":"*","apiGroup":"*""#,
        )]);
        let mut asked = ask("get", "pods", "n", "x");
        assert!(anyone.authorize(&asked).await.is_allowed());
        std::sync::Arc::make_mut(&mut asked.user).groups.clear();
        assert!(!anyone.authorize(&asked).await.is_allowed());
    }

    #[test]
    fn a_line_that_is_no_policy_is_told_with_its_number() {
        for (line, want) in [
            ("{", "error reading policy file f, line 2: {: "),
            ("[]", "line 2: []: expected an object"),
            (
                r#"{"user":1}"#,
                "Go struct field Policy.user of type string",
            ),
        ] {
            let why = PolicyList::parse(&format!("#\n{line}"), "f").expect_err(line);
            assert!(why.contains(want), "{why}");
        }
        let long = format!("#{}", "x".repeat(MAX_LINE_BYTES));
        assert!(PolicyList::parse(&long, "f").is_err());
    }
}
