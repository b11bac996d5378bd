//! RBAC rules: the requests that one allows, and the rules that it covers (`pkg/apis/rbac/v1`,
//! `component-helpers/auth/rbac/validation`).

use std::collections::{BTreeSet, HashMap};

use super::Attributes;
use crate::meta::go;
use crate::meta::{Map, Value, array_at};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale` or `*`.
    pub resources: Vec<String>,
    /// Empty for any name.
    pub resource_names: Vec<String>,
    /// Paths, where a trailing `*` stands for any rest.
    pub non_resource_urls: Vec<String>,
}

const ALL: &str = "*";

fn has(set: &[String], one: &str) -> bool {
    set.iter().any(|element| element == one)
}

fn has_or_all(set: &[String], one: &str) -> bool {
    set.iter().any(|element| element == ALL || element == one)
}

/// Reports whether the path pattern `owner` is, or matches, `path`.
fn url_covers(owner: &str, path: &str) -> bool {
    owner == path || owner.ends_with('*') && path.starts_with(owner.trim_end_matches('*'))
}

impl Rule {
    /// The rule in a role's JSON.
    pub fn from_value(value: &Value) -> Self {
        let strings = |path| {
            array_at(value, path)
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            verbs: strings("/verbs"),
            api_groups: strings("/apiGroups"),
            resources: strings("/resources"),
            resource_names: strings("/resourceNames"),
            non_resource_urls: strings("/nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn list(rules: &[Value]) -> Vec<Self> {
        rules.iter().map(Self::from_value).collect()
    }

    /// The rule as JSON, members in the order of the API, empty ones left out.
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        let members = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        for (name, values) in members {
            if !values.is_empty() {
                out.insert(name.to_owned(), values.iter().cloned().collect());
            }
        }
        Value::Object(out)
    }

    /// The rules that allow everything: every verb on every resource and on every path.
    pub fn everything() -> Vec<Self> {
        let all = || vec![ALL.to_owned()];
        vec![
            Self {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                non_resource_urls: all(),
                ..Self::default()
            },
        ]
    }

    /// Reports whether the rule allows what is asked.
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !has_or_all(&self.verbs, &asked.verb) {
            return false;
        }
        if !asked.resource_request {
            return self
                .non_resource_urls
                .iter()
                .any(|url| url_covers(url, &asked.path));
        }
        has_or_all(&self.api_groups, &asked.group)
            && self
                .resources
                .iter()
                .any(|resource| resource_matches(resource, asked))
            && (self.resource_names.is_empty() || has(&self.resource_names, &asked.name))
    }

    /// The number of names in the rule, of all kinds.
    fn names(&self) -> usize {
        1 + [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ]
        .map(Vec::len)
        .iter()
        .sum::<usize>()
    }

    /// The number of rules [`Rule::break_down`] makes.
    fn parts(&self) -> usize {
        let lists = [&self.api_groups, &self.resources, &self.verbs].map(Vec::len);
        let of_resources = lists
            .into_iter()
            .fold(self.resource_names.len().max(1), usize::saturating_mul);
        of_resources.saturating_add(
            self.non_resource_urls
                .len()
                .saturating_mul(self.verbs.len()),
        )
    }

    /// Cuts the rule into rules of one group, resource, verb and name, or one path and verb.
    fn break_down(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut out = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        out.push(rule);
                    } else {
                        out.extend(self.resource_names.iter().map(|name| Self {
                            resource_names: one(name),
                            ..rule.clone()
                        }));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            out.extend(self.verbs.iter().map(|verb| Self {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Self::default()
            }));
        }
        out
    }

    /// Reports whether this rule allows everything that `atom` allows, which is a rule out of
    /// [`Rule::break_down`] or a whole one.
    fn covers(&self, atom: &Self) -> bool {
        let in_all = |owner: &[String], needed: &[String]| needed.iter().all(|one| has(owner, one));
        (has(&self.verbs, ALL) || in_all(&self.verbs, &atom.verbs))
            && (has(&self.api_groups, ALL) || in_all(&self.api_groups, &atom.api_groups))
            && atom
                .resources
                .iter()
                .all(|resource| self.covers_resource(resource))
            && (self.resource_names.is_empty()
                || !atom.resource_names.is_empty()
                    && in_all(&self.resource_names, &atom.resource_names))
            && atom.non_resource_urls.iter().all(|url| {
                self.non_resource_urls
                    .iter()
                    .any(|owner| url_covers(owner, url))
            })
    }

    fn covers_resource(&self, resource: &str) -> bool {
        has_or_all(&self.resources, resource)
            || resource.split_once('/').is_some_and(|(_, sub)| {
                self.resources
                    .iter()
                    .any(|owner| owner.strip_prefix("*/") == Some(sub))
            })
    }

    /// The key that rules must share to be merged into one: a single group, resource and at most
    /// one name.
    fn simple_key(&self) -> Option<(&str, &str, Option<&str>)> {
        match (
            self.api_groups.as_slice(),
            self.resources.as_slice(),
            self.resource_names.as_slice(),
        ) {
            ([group], [resource], []) if self.non_resource_urls.is_empty() => {
                Some((group, resource, None))
            }
            ([group], [resource], [name]) if self.non_resource_urls.is_empty() => {
                Some((group, resource, Some(name)))
            }
            _ => None,
        }
    }

    /// The rule for people: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    fn describe(&self) -> String {
        let members = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> = members
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", go::quote_all(values)))
            .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

fn resource_matches(rule: &str, asked: &Attributes) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => asked.subresource.is_empty() && rule == asked.resource,
        Some((resource, sub)) => {
            !asked.subresource.is_empty()
                && sub == asked.subresource
                && (resource == ALL || resource == asked.resource)
        }
    }
}

/// The maximum number of comparisons of names, about, by which rules are checked that no held rule
/// covers as they are. Rules for people need some thousands.
const MAX_COMPARISONS: usize = 100_000_000;
/// The cost of one part of a rule, in comparisons: there are at most a hundred thousand of them.
const COST_OF_PART: usize = 1_000;
/// The maximum number of rules in [`describe`].
const MAX_DESCRIBED: usize = 1_000;

/// Returns the part of `wanted` that `held` does not cover, in rules of one group, resource, verb
/// and name. `None` if there are too many rules, or too large ones, to find out.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Option<Vec<Rule>> {
    let names: usize = held.iter().map(Rule::names).fold(1, usize::saturating_add);
    let mut left = MAX_COMPARISONS;
    let mut missing = Vec::new();
    for rule in wanted {
        left = left.checked_sub(names.saturating_mul(rule.names()))?;
        if held.iter().any(|one| one.covers(rule)) {
            continue;
        }
        left = left.checked_sub(
            names
                .saturating_mul(rule.parts())
                .max(rule.parts().saturating_mul(COST_OF_PART)),
        )?;
        missing.extend(
            rule.break_down()
                .into_iter()
                .filter(|atom| !held.iter().any(|rule| rule.covers(atom))),
        );
    }
    Some(missing)
}

/// The rules for people, one to a line, in order; those that differ only in verbs are one.
pub fn describe(rules: Vec<Rule>) -> String {
    let mut compact: Vec<Rule> = Vec::new();
    let mut places: HashMap<(String, String, Option<String>), usize> = HashMap::new();
    for rule in rules {
        let key = rule.simple_key().map(|(group, resource, name)| {
            (
                group.to_owned(),
                resource.to_owned(),
                name.map(str::to_owned),
            )
        });
        if let Some(same) = key
            .as_ref()
            .and_then(|key| places.get(key))
            .and_then(|&at| compact.get_mut(at))
        {
            same.verbs.extend(rule.verbs);
        } else if compact.len() < MAX_DESCRIBED {
            places.extend(key.map(|key| (key, compact.len())));
            compact.push(rule);
        }
    }
    let lines: BTreeSet<String> = compact.iter().map(Rule::describe).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn asked(verb: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            resource_request: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn rule_matches_subresources_and_names() {
        let cases = [
            ("pods", "pods", "", true),
            ("pods", "pods", "log", false),
            ("pods/log", "pods", "log", true),
            ("pods/log", "pods", "", false),
            ("*/log", "pods", "log", true),
            ("*/log", "pods", "", false),
            ("*", "pods", "log", true),
            ("*/*", "pods", "log", false),
        ];
        for (resource, on, sub, want) in cases {
            let rule = Rule::from_value(
                &json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]}),
            );
            assert_eq!(
                rule.allows(&asked("get", on, sub, "")),
                want,
                "{resource} on {on}/{sub}"
            );
        }
        let named = Rule::from_value(
            &json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods"], "resourceNames": ["a"]}),
        );
        assert!(named.allows(&asked("get", "pods", "", "a")));
        assert!(!named.allows(&asked("list", "pods", "", "")));
    }

    #[test]
    fn rule_matches_paths_with_a_trailing_star() {
        let path = |path: &str| Attributes {
            verb: "get".to_owned(),
            path: path.to_owned(),
            ..Attributes::default()
        };
        for (url, asked, want) in [
            ("/api", "/api", true),
            ("/api", "/api/v1", false),
            ("/api/*", "/api/v1", true),
            ("*", "/x", true),
            ("/a*b", "/axb", false),
        ] {
            let rule = Rule::from_value(&json!({"verbs": ["get"], "nonResourceURLs": [url]}));
            assert_eq!(rule.allows(&path(asked)), want, "{url} on {asked}");
        }
    }

    #[test]
    fn uncovered_gives_up_on_too_many_rules() {
        let list = |start: &str| {
            (0..2_000)
                .map(|number| format!("{start}{number}"))
                .collect::<Vec<String>>()
        };
        let wanted = Rule {
            verbs: list("v"),
            api_groups: list("g"),
            resources: list("r"),
            ..Rule::default()
        };
        assert_eq!(uncovered(&[], std::slice::from_ref(&wanted)), None);
        assert_eq!(
            uncovered(&Rule::everything(), std::slice::from_ref(&wanted)),
            Some(Vec::new())
        );
        assert_eq!(
            uncovered(std::slice::from_ref(&wanted), std::slice::from_ref(&wanted)),
            Some(Vec::new())
        );
        let some = Rule {
            verbs: vec!["get".to_owned()],
            api_groups: vec![String::new()],
            resources: list("r"),
            ..Rule::default()
        };
        let missing = uncovered(&[], &[some]).expect("few");
        assert_eq!(missing.len(), 2_000);
        assert_eq!(describe(missing).lines().count(), MAX_DESCRIBED);
    }

    #[test]
    fn uncovered_merges_rules() {
        let held = Rule::list(&[
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]}),
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}),
            json!({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}),
        ]);
        let cases = [
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "deployments/scale"]}),
                "",
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}),
                "",
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}),
                "",
            ),
            (json!({"verbs": ["get"], "nonResourceURLs": ["/x/y"]}), ""),
            (
                json!({"verbs": ["create", "get", "delete"], "apiGroups": ["", "apps"], "resources": ["pods"]}),
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"create\" \"delete\"]}\n\
                 {APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"create\" \"get\" \"delete\"]}",
            ),
            (
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}),
                "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}",
            ),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["/y"]}),
                "{NonResourceURLs:[\"/y\"], Verbs:[\"get\"]}",
            ),
            (
                json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}),
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}",
            ),
        ];
        for (wanted, want) in cases {
            let missing = uncovered(&held, &[Rule::from_value(&wanted)]).expect("few");
            assert_eq!(describe(missing), want, "{wanted}");
        }
    }
}
