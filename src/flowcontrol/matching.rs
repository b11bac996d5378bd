//! Matching of requests by flow schemas (apiserver `util/flowcontrol/rule.go`).

use super::configuration::{FlowSchema, NonResourceRule, PolicyRule, ResourceRule, Subject};
use super::digest::RequestDigest;
use crate::auth::User;

/// The prefix of the names of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl FlowSchema {
    /// Reports whether a request is one of the schema.
    pub fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(digest))
    }
}

impl PolicyRule {
    fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        if !self.subjects.iter().any(|one| one.matches(digest.user)) {
            return false;
        }
        if digest.is_resource {
            return self.resource_rules.iter().any(|rule| rule.matches(digest));
        }
        self.non_resource_rules
            .iter()
            .any(|rule| rule.matches(digest))
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.is_in(name),
            Self::ServiceAccount { namespace, name } => {
                let account = user
                    .name
                    .strip_prefix(SERVICE_ACCOUNT_PREFIX)
                    .and_then(|rest| rest.strip_prefix(namespace.as_str()))
                    .and_then(|rest| rest.strip_prefix(':'));
                account.is_some_and(|account| name == "*" || account == name)
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        if !contains(&self.verbs, digest.verb)
            || !self.has_resource(digest.resource, digest.subresource)
            || !contains(&self.groups, digest.group)
        {
            return false;
        }
        if digest.namespace.is_empty() {
            return self.cluster_scope;
        }
        contains(&self.namespaces, digest.namespace)
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        is_any(&self.resources)
            || self.resources.iter().any(|named| {
                named.strip_prefix(resource).is_some_and(|rest| match rest {
                    "" => subresource.is_empty(),
                    rest => rest.strip_prefix('/') == Some(subresource) && !subresource.is_empty(),
                })
            })
    }
}

impl NonResourceRule {
    fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        contains(&self.verbs, digest.verb)
            && self.paths.iter().any(|path| is_path(path, digest.path))
    }
}

/// Reports whether a rule's path is the requested one, or one above it.
fn is_path(rule: &str, requested: &str) -> bool {
    if rule == "*" || rule == requested {
        return true;
    }
    let above = rule.strip_suffix('*').unwrap_or(rule);
    match above.ends_with('/') {
        true => requested.starts_with(above),
        false => requested
            .strip_prefix(above)
            .is_some_and(|rest| rest.starts_with('/')),
    }
}

/// Reports whether a list has a text, or is the one of all texts.
fn contains(list: &[String], text: &str) -> bool {
    is_any(list) || list.iter().any(|one| one == text)
}

fn is_any(list: &[String]) -> bool {
    matches!(list, [one] if one == "*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{Object, Value, json};

    fn schema(rule: Value) -> FlowSchema {
        let object = json!({"metadata": {"name": "a"}, "spec": {"rules": [rule]}});
        FlowSchema::from_object(&Object::from_value(object).expect("an object"))
    }

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    fn request<'a>(user: &'a User, text: &'a str) -> RequestDigest<'a> {
        let mut parts = text.split(' ');
        let mut next = || parts.next().unwrap_or("");
        let (verb, first) = (next(), next());
        let is_resource = !first.starts_with('/');
        let (resource, subresource) = first.split_once('.').unwrap_or((first, ""));
        RequestDigest {
            user,
            is_resource,
            verb,
            group: next(),
            version: "v1",
            resource,
            subresource,
            namespace: next(),
            name: "",
            path: first,
        }
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let rules = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        let alice = user("alice", "devs");
        let robot = user("system:serviceaccount:ns:robot", "system:serviceaccounts");
        for (subject, matches) in [
            (
                json!({"kind": "User", "user": {"name": "alice"}}),
                [true, false],
            ),
            (json!({"kind": "User", "user": {"name": "*"}}), [true, true]),
            (json!({"kind": "User"}), [false, false]),
            (
                json!({"kind": "Group", "group": {"name": "devs"}}),
                [true, false],
            ),
            (
                json!({"kind": "Group", "group": {"name": "*"}}),
                [true, true],
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": "robot"}}),
                [false, true],
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": "*"}}),
                [false, true],
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}}),
                [false, false],
            ),
            (
                json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": "rob"}}),
                [false, false],
            ),
        ] {
            let rule = json!({"subjects": [subject], "nonResourceRules": rules});
            let schema = schema(rule.clone());
            for (user, matches) in [&alice, &robot].into_iter().zip(matches) {
                assert_eq!(
                    schema.matches(&request(user, "get /x")),
                    matches,
                    "{rule:?}"
                );
            }
        }
    }

    #[test]
    fn resource_rules_name_verbs_groups_resources_and_namespaces() {
        let subjects = json!([{"kind": "User", "user": {"name": "*"}}]);
        let alice = user("alice", "devs");
        let rule = |resources: &[&str], cluster: bool, namespaces: &[&str]| {
            let resources: Vec<Value> = resources.iter().map(|one| (*one).into()).collect();
            let namespaces: Vec<Value> = namespaces.iter().map(|one| (*one).into()).collect();
            schema(
                json!({"subjects": subjects, "resourceRules": [{"verbs": ["get", "list"],
                "apiGroups": ["apps"], "resources": resources, "clusterScope": cluster, "namespaces": namespaces}]}),
            )
        };
        for (schema, asked, matches) in [
            (rule(&["a"], false, &["n"]), "get a apps n", true),
            (rule(&["a"], false, &["n"]), "watch a apps n", false),
            (rule(&["a"], false, &["n"]), "get a batch n", false),
            (rule(&["a"], false, &["n"]), "get ab apps n", false),
            (rule(&["a"], false, &["n"]), "get a.status apps n", false),
            (
                rule(&["a/status"], false, &["n"]),
                "get a.status apps n",
                true,
            ),
            (rule(&["a/status"], false, &["n"]), "get a apps n", false),
            (rule(&["*"], false, &["n"]), "get a.status apps n", true),
            (rule(&["a"], false, &["n"]), "list a apps m", false),
            (rule(&["a"], false, &["*"]), "list a apps m", true),
            (rule(&["a"], false, &["*"]), "list a apps", false),
            (rule(&["a"], true, &[]), "list a apps", true),
            (rule(&["a"], true, &[]), "list a apps n", false),
            (rule(&["a"], true, &["*"]), "get /a", false),
        ] {
            assert_eq!(schema.matches(&request(&alice, asked)), matches, "{asked}");
        }
    }

    #[test]
    fn non_resource_rules_name_paths_and_those_below() {
        for (rule, path, matches) in [
            ("*", "/anything", true),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", true),
            ("/healthz", "/healthzy", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("/heal*", "/heal/x", true),
            ("/heal*", "/healthz", false),
            ("/", "/x", true),
        ] {
            assert_eq!(is_path(rule, path), matches, "{rule} {path}");
        }
    }
}
