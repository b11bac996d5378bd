//! Audit policies (apiserver `audit/policy`, `apis/audit/validation`).

use std::path::Path as FilePath;

use crate::auth::authz::Attributes;
use crate::base::files;
use crate::codec::configuration::{FileType, strict_error};
use crate::meta::{ErrorList, Object, Path, Value, array_at, names, str_at, texts_at};

use super::event::{Level, Stage};

/// The largest policy that is read.
const MAX_FILE_BYTES: u64 = 3 << 20;

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & Self::bit(stage) != 0
    }

    fn bit(stage: Stage) -> u8 {
        1 << stage as u8
    }

    fn of(names: &[String]) -> Self {
        let named = |stage: &Stage| names.iter().any(|name| name == stage.name());
        let stages = Stage::ALL.into_iter().filter(named);
        Self(stages.fold(0, |bits, stage| bits | Self::bit(stage)))
    }
}

/// The amount that is told of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    pub omitted: Stages,
    pub omit_managed_fields: bool,
}

/// A policy, whose first rule that matches decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Rule {
    level: String,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
    verdict: Verdict,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Policy {
    /// Reads the policy of a file.
    ///
    /// # Errors
    /// The file cannot be read, or its policy is wrong: says where.
    pub fn load(path: &FilePath) -> Result<Self, String> {
        let shown = path.display();
        let bytes = files::read_bounded(path, MAX_FILE_BYTES)
            .map_err(|why| format!("failed to read file path {:?}: {why}", shown.to_string()))?;
        Self::parse(&bytes).map_err(|why| format!("{why}: from file {shown}"))
    }

    /// Reads a policy. Fields that it does not have are only logged.
    ///
    /// # Errors
    /// The bytes are no policy, or a wrong one.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let decoded = FileType::AUDIT_POLICY.decode_leniently(bytes);
        let decoded = decoded.map_err(|why| format!("failed decoding: {why}"))?;
        if !decoded.issues.is_empty() {
            tracing::warn!(
                "Audit policy contains errors, falling back to lenient decoding: {}",
                strict_error(&decoded.issues)
            );
        }
        let mut policy = read(&decoded.object);
        let errors = policy.validate();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        match texts.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            several => return Err(format!("[{}]", several.join(", "))),
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        policy.settle();
        Ok(policy)
    }

    /// Works out what the rules say.
    fn settle(&mut self) {
        for rule in &mut self.rules {
            let level = Level::ALL
                .into_iter()
                .find(|level| level.name() == rule.level);
            let stages = [self.omit_stages.as_slice(), &rule.omit_stages].concat();
            rule.verdict = Verdict {
                level: level.unwrap_or_default(),
                omitted: Stages::of(&stages),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            };
        }
    }

    /// Returns what is told of a request.
    pub fn evaluate(&self, attributes: &Attributes) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.matches(attributes));
        rule.map_or(Verdict::default(), |rule| rule.verdict)
    }

    fn validate(&self) -> ErrorList {
        let mut errors = ErrorList::new();
        omit_stages(&mut errors, &self.omit_stages, &Path::new("omitStages"));
        for (at, rule) in self.rules.iter().enumerate() {
            rule.validate(&mut errors, &Path::new("rules").index(at));
        }
        errors
    }
}

fn read(object: &Object) -> Policy {
    Policy {
        rules: object.array_at("/rules").iter().map(rule).collect(),
        omit_stages: object.texts_at("/omitStages"),
        omit_managed_fields: object.bool_at("/omitManagedFields"),
    }
}

fn rule(value: &Value) -> Rule {
    let resources = array_at(value, "/resources").iter();
    Rule {
        level: str_at(value, "/level").to_owned(),
        users: texts_at(value, "/users"),
        groups: texts_at(value, "/userGroups"),
        verbs: texts_at(value, "/verbs"),
        namespaces: texts_at(value, "/namespaces"),
        urls: texts_at(value, "/nonResourceURLs"),
        omit_stages: texts_at(value, "/omitStages"),
        omit_managed_fields: value.get("omitManagedFields").and_then(Value::as_bool),
        resources: resources.map(group_resources).collect(),
        verdict: Verdict::default(),
    }
}

fn group_resources(value: &Value) -> GroupResources {
    GroupResources {
        group: str_at(value, "/group").to_owned(),
        resources: texts_at(value, "/resources"),
        names: texts_at(value, "/resourceNames"),
    }
}

fn omit_stages(errors: &mut ErrorList, stages: &[String], path: &Path) {
    let all = Stage::ALL.map(Stage::name);
    for (at, stage) in stages.iter().enumerate() {
        if !all.contains(&stage.as_str()) {
            let why = format!("allowed stages are {}", all.join(","));
            errors.invalid(&path.index(at), stage.as_str(), why);
        }
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|item| item == text)
}

impl Rule {
    fn matches(&self, attributes: &Attributes) -> bool {
        let user = &attributes.user;
        if !self.users.is_empty() && !has(&self.users, &user.name) {
            return false;
        }
        let in_group = || user.groups.iter().any(|group| has(&self.groups, group));
        if !self.groups.is_empty() && !in_group() {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, &attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.resource_request && self.matches_resource(attributes);
        }
        if !self.urls.is_empty() {
            let path = &attributes.path;
            let matches = |pattern: &String| path_matches(path, pattern);
            return !attributes.resource_request && self.urls.iter().any(matches);
        }
        true
    }

    fn matches_resource(&self, attributes: &Attributes) -> bool {
        if !self.namespaces.is_empty() && !has(&self.namespaces, &attributes.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|item| item.matches(attributes))
    }

    fn validate(&self, errors: &mut ErrorList, path: &Path) {
        let levels = Level::ALL.map(Level::name);
        let at = path.child("level");
        if self.level.is_empty() {
            errors.required(&at, "");
        } else if !levels.contains(&self.level.as_str()) {
            errors.not_supported(&at, self.level.as_str(), &levels);
        }
        let at = path.child("nonResourceURLs");
        for (index, url) in self.urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let at = at.index(index);
            if !url.starts_with('/') {
                let why = "non-resource URL rules must begin with a '/' character";
                errors.invalid(&at, url.as_str(), why);
            }
            let mut before_last = url.chars();
            before_last.next_back();
            if before_last.any(|c| c == '*') {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                errors.invalid(&at, url.as_str(), why);
            }
        }
        for item in &self.resources {
            item.validate(errors, &path.child("resources"));
        }
        omit_stages(errors, &self.omit_stages, &path.child("omitStages"));
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if !self.urls.is_empty() && of_resources {
            let urls = self.urls.iter().map(String::as_str).collect::<Value>();
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&at, urls, why);
        }
    }
}

fn path_matches(path: &str, pattern: &str) -> bool {
    pattern == "*"
        || pattern == path
        || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !has(&self.names, &attributes.name) {
            return false;
        }
        let (resource, sub) = (&attributes.resource, &attributes.subresource);
        self.resources.iter().any(|pattern| {
            let (of, below) = pattern.split_once('/').unwrap_or((pattern, ""));
            let itself = match sub.as_str() {
                "" => pattern == resource,
                _ => of == resource && below == sub,
            };
            let of_any = !sub.is_empty() && pattern.strip_prefix("*/") == Some(sub);
            let below_it = pattern.strip_suffix("/*") == Some(resource);
            pattern == "*" || itself || of_any || below_it
        })
    }

    fn validate(&self, errors: &mut ErrorList, path: &Path) {
        if !self.group.is_empty() && self.group != "*" {
            let problems = names::dns1123_subdomain(&self.group);
            if !problems.is_empty() {
                errors.invalid(
                    &path.child("group"),
                    self.group.as_str(),
                    problems.join(","),
                );
            }
        }
        if !self.names.is_empty() && self.resources.is_empty() {
            let all = self.names.iter().map(String::as_str).collect::<Value>();
            let why = "using resourceNames requires at least one resource";
            errors.invalid(&path.child("resourceNames"), all, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    fn parse(rest: &str) -> Result<Policy, String> {
        Policy::parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}").as_bytes())
    }

    /// The level of a request under one rule at level Request, where it matches.
    fn matches(rule: &str, change: impl Fn(&mut Attributes)) -> bool {
        let policy = parse(&format!("rules: [{{level: Request, {rule}}}]")).expect("a policy");
        let mut attributes = Attributes {
            user: User {
                name: "tim@k8s.io".to_owned(),
                groups: vec!["humans".to_owned()],
                ..User::default()
            }
            .into(),
            verb: "get".to_owned(),
            namespace: "default".to_owned(),
            resource: "pods".to_owned(),
            name: "busybox".to_owned(),
            version: "v1".to_owned(),
            resource_request: true,
            path: "/api/v1/namespaces/default/pods/busybox".to_owned(),
            ..Attributes::default()
        };
        change(&mut attributes);
        policy.evaluate(&attributes).level == Level::Request
    }

    /// The cases of `audit/policy/checker_test.go`.
    #[test]
    fn rules_match_as_upstream_s_do() {
        let pod = |_: &mut Attributes| {};
        let status = |it: &mut Attributes| it.subresource = "status".to_owned();
        let role = |it: &mut Attributes| {
            (it.resource, it.group) = ("clusterroles".to_owned(), "rbac".to_owned());
            (it.namespace, it.name) = (String::new(), "edit".to_owned());
        };
        let healthz = |it: &mut Attributes| {
            *it = Attributes {
                user: it.user.clone(),
                verb: "get".to_owned(),
                path: "/healthz/ping".to_owned(),
                ..Attributes::default()
            };
        };
        for (rule, on_pod, on_status, on_role, on_healthz) in [
            ("", true, true, true, true),
            ("users: [tim@k8s.io]", true, true, true, true),
            ("users: [other]", false, false, false, false),
            ("userGroups: [humans, x]", true, true, true, true),
            ("userGroups: [robots]", false, false, false, false),
            ("verbs: [get]", true, true, true, true),
            ("verbs: [create]", false, false, false, false),
            ("namespaces: [default]", true, true, false, false),
            ("namespaces: ['']", false, false, true, false),
            (
                "resources: [{resources: [pods]}]",
                true,
                false,
                false,
                false,
            ),
            (
                "resources: [{resources: [pods/status]}]",
                false,
                true,
                false,
                false,
            ),
            (
                "resources: [{resources: [pods/*]}]",
                true,
                true,
                false,
                false,
            ),
            (
                "resources: [{resources: ['*/status']}]",
                false,
                true,
                false,
                false,
            ),
            ("resources: [{resources: ['*']}]", true, true, false, false),
            (
                "resources: [{group: '*', resources: ['*']}]",
                true,
                true,
                true,
                false,
            ),
            ("resources: [{group: rbac}]", false, false, true, false),
            ("resources: [{}]", true, true, false, false),
            (
                "resources: [{resources: [pods], resourceNames: [busybox]}]",
                true,
                false,
                false,
                false,
            ),
            (
                "resources: [{resources: [pods], resourceNames: [other]}]",
                false,
                false,
                false,
                false,
            ),
            ("nonResourceURLs: ['*']", false, false, false, true),
            ("nonResourceURLs: [/healthz]", false, false, false, false),
            ("nonResourceURLs: ['/healthz*']", false, false, false, true),
            (
                "nonResourceURLs: [/healthz/ping]",
                false,
                false,
                false,
                true,
            ),
        ] {
            let found = (
                matches(rule, pod),
                matches(rule, status),
                matches(rule, role),
                matches(rule, healthz),
            );
            assert_eq!(found, (on_pod, on_status, on_role, on_healthz), "{rule}");
        }
    }

    #[test]
    fn the_first_rule_decides_and_stages_add_up() {
        let policy = parse(
            "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- level: None\n  verbs: [watch]\n\
             - {level: Metadata, omitStages: [Panic], omitManagedFields: false, verbs: [get]}\n- level: RequestResponse\n",
        )
        .expect("a policy");
        let verdict = |verb: &str| {
            policy.evaluate(&Attributes {
                verb: verb.to_owned(),
                ..Attributes::default()
            })
        };
        assert_eq!(verdict("watch").level, Level::None);
        let got = verdict("get");
        assert_eq!(
            (got.level, got.omit_managed_fields),
            (Level::Metadata, false)
        );
        let omitted = Stage::ALL.map(|stage| got.omitted.contains(stage));
        assert_eq!(omitted, [true, false, false, true]);
        let rest = verdict("list");
        assert_eq!(
            (rest.level, rest.omit_managed_fields),
            (Level::RequestResponse, true)
        );
    }

    #[test]
    fn wrong_policies_are_refused_with_the_path_of_the_field() {
        for (given, why) in [
            ("", "loaded illegal policy with 0 rules"),
            ("rules: [{}]", "rules[0].level: Required value"),
            (
                "rules: [{level: Some}]",
                "rules[0].level: Unsupported value: \"Some\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
            ),
            (
                "omitStages: [Sometime]\nrules: [{level: None}]",
                "omitStages[0]: Invalid value: \"Sometime\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [healthz]}]",
                "rules[0].nonResourceURLs[0]: Invalid value: \"healthz\": non-resource URL rules must begin with a '/' character",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [/a*/b]}]",
                "rules[0].nonResourceURLs[0]: Invalid value: \"/a*/b\": non-resource URL wildcards '*' must be the final character of the rule",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least one resource",
            ),
            (
                "rules: [{level: 5}]",
                "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type v1.Level",
            ),
        ] {
            assert_eq!(parse(given).expect_err("refused"), why, "{given}");
        }
        let group = parse("rules: [{level: None, resources: [{group: rbac/v1}]}]");
        let group = group.expect_err("refused");
        assert!(
            group.starts_with("rules[0].resources.group: Invalid value: \"rbac/v1\": "),
            "{group}"
        );
        assert!(
            parse("rules: [{level: None, other: 5}]").is_ok(),
            "unknown fields are logged"
        );
        assert!(
            Policy::parse(
                b"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]"
            )
            .is_err()
        );
    }
}
