//! Flow schemas: which requests go to which priority level.

use std::cmp::Ordering;

use super::status_conditions::{EXEMPT, FLOW_CONTROL, check_conditions, has_wildcard};
use crate::builtin::columns::{AGE, ColumnPrinter, NAME, NONE, condition, text};
use crate::builtin::defaulting::fill_number;
use crate::builtin::resource_traits::ResourceEntry;
use crate::meta::{ErrorList, FieldError, Map, Object, Path, Value, json, names, str_at};
use crate::registry::cells::Cell;
use crate::registry::table::{Column, TablePrinter};
use crate::registry::validation::{Fields, invalid_each, one_of};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `flowschemas`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "flowschemas",
    traits: FLOW_CONTROL,
    strategy: &FlowSchemaStrategy,
    printer: &FlowSchemaPrinter,
};

/// The last precedence of a schema.
const PRECEDENCE_MAX: i64 = 10_000;
const METHODS: &[&str] = &["ByNamespace", "ByUser"];
/// Kinds of subjects, with the member of each.
const SUBJECTS: [(&str, &str); 3] = [
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
    ("Group", "group"),
];
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

pub struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn default(&self, object: &mut Object) {
        fill_number(object.section_mut("spec"), "matchingPrecedence", 1000);
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_spec(&mut errors, object);
        check_conditions(&mut errors, object);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, _old: &Object) -> ErrorList {
        if ctx.subresource != Subresource::Status {
            return self.validate(ctx, object);
        }
        let mut errors = ErrorList::new();
        check_conditions(&mut errors, object);
        errors
    }
}

fn check_spec(errors: &mut ErrorList, object: &Object) {
    let spec = object.section("spec");
    let path = Path::new("spec");
    let precedence = spec.int("matchingPrecedence").unwrap_or(0);
    let mut refuse =
        |detail: String| errors.invalid(&path.child("matchingPrecedence"), precedence, detail);
    if precedence <= 0 {
        refuse("must be a positive value".to_owned());
    }
    if precedence > PRECEDENCE_MAX {
        refuse(format!("must not be greater than {PRECEDENCE_MAX}"));
    }
    if precedence == 1 && object.name() != EXEMPT {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
    if let Some(method) = spec
        .map("distinguisherMethod")
        .filter(|method| !METHODS.contains(&method.str("type")))
    {
        let path = path.child("distinguisherMethod").child("type");
        errors.not_supported(&path, json!({"Type": method.str("type")}), METHODS);
    }
    let level = spec
        .map("priorityLevelConfiguration")
        .map_or("", |level| level.str("name"));
    let level_path = path.child("priorityLevelConfiguration").child("name");
    if level.is_empty() {
        errors.required(&level_path, "must reference a priority level");
    } else {
        invalid_each(errors, &level_path, level, names::dns1123_subdomain(level));
    }
    for (index, rule) in spec.list("rules").iter().enumerate() {
        check_rule(errors, &path.child("rules").index(index), rule);
    }
}

fn check_rule(errors: &mut ErrorList, path: &Path, rule: &Value) {
    let subjects = rule.list("subjects");
    if subjects.is_empty() {
        errors.required(
            &path.child("subjects"),
            "subjects must contain at least one value",
        );
    }
    for (index, subject) in subjects.iter().enumerate() {
        check_subject(errors, &path.child("subjects").index(index), subject);
    }
    let (resources, others) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        );
    }
    for (index, rule) in resources.iter().enumerate() {
        check_resource_rule(errors, &path.child("resourceRules").index(index), rule);
    }
    for (index, rule) in others.iter().enumerate() {
        check_path_rule(errors, &path.child("nonResourceRules").index(index), rule);
    }
}

fn check_subject(errors: &mut ErrorList, path: &Path, subject: &Value) {
    let kind = subject.str("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(one, _)| *one == kind) else {
        return one_of(
            errors,
            &path.child("kind"),
            kind,
            &["Group", "ServiceAccount", "User"],
        );
    };
    let own_path = path.child(own);
    match subject.map(own) {
        None => errors.required(
            &own_path,
            format!("{own} is required when subject kind is '{kind}'"),
        ),
        Some(member) => check_member(errors, &own_path, member, kind == "ServiceAccount"),
    }
    for (kind, other) in SUBJECTS
        .iter()
        .filter(|(_, other)| other != own && subject.map(other).is_some())
    {
        let detail = format!("{other} is forbidden when subject kind is not '{kind}'");
        errors.forbidden(&path.child(other), detail);
    }
}

fn check_member(errors: &mut ErrorList, path: &Path, member: &Map, account: bool) {
    let name = member.str("name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if account && name != "*" {
        invalid_each(
            errors,
            &path.child("name"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    if !account {
        return;
    }
    let namespace = member.str("namespace");
    if namespace.is_empty() {
        errors.required(
            &path.child("namespace"),
            "must specify namespace for service account",
        );
    } else {
        invalid_each(
            errors,
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
}

fn check_verbs(errors: &mut ErrorList, path: &Path, rule: &Value) {
    let verbs = rule.list("verbs");
    let path = path.child("verbs");
    if verbs.is_empty() {
        errors.required(&path, "verbs must contain at least one value");
    } else if has_wildcard(verbs) {
        alone(errors, &path, verbs, "verbs");
    } else if !verbs
        .iter()
        .all(|verb| VERBS.contains(&verb.as_str().unwrap_or("")))
    {
        errors.not_supported(&path, verbs, VERBS);
    }
}

/// A wildcard stands alone.
fn alone(errors: &mut ErrorList, path: &Path, list: &[Value], what: &str) {
    if list.len() > 1 && has_wildcard(list) {
        errors.invalid(
            path,
            list,
            format!("if '*' is present, must not specify other {what}"),
        );
    }
}

fn check_resource_rule(errors: &mut ErrorList, path: &Path, rule: &Value) {
    check_verbs(errors, path, rule);
    for (key, one, others) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        let list = rule.list(key);
        if list.is_empty() {
            errors.required(
                &path.child(key),
                format!("resource rules must supply at least one {one}"),
            );
        }
        alone(errors, &path.child(key), list, others);
    }
    let namespaces = rule.list("namespaces");
    let path = path.child("namespaces");
    if namespaces.is_empty() && !rule.flag("clusterScope") {
        let detail =
            "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&path, detail);
    } else if has_wildcard(namespaces) {
        alone(errors, &path, namespaces, "namespaces");
    } else {
        for (index, namespace) in namespaces.iter().filter_map(Value::as_str).enumerate() {
            let problems = names::dns1123_label(namespace).into_iter();
            let told = problems.map(|problem| {
                format!("each member of this list must be '*' or a DNS-1123 label; {problem}")
            });
            invalid_each(errors, &path.index(index), namespace, told.collect());
        }
    }
}

fn check_path_rule(errors: &mut ErrorList, path: &Path, rule: &Value) {
    check_verbs(errors, path, rule);
    let urls = rule.list("nonResourceURLs");
    let path = path.child("nonResourceURLs");
    if urls.is_empty() {
        errors.required(&path, "nonResourceURLs must contain at least one value");
    } else if has_wildcard(urls) {
        alone(errors, &path, urls, "non-resource URLs");
    } else {
        for (index, url) in urls.iter().filter_map(Value::as_str).enumerate() {
            errors.extend(
                path_problem(url)
                    .map(|problem| FieldError::invalid(&path.index(index), url, problem)),
            );
        }
    }
}

fn path_problem(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    if url.is_empty() {
        Some("must not be empty")
    } else if !url.starts_with('/') {
        Some("must start with slash")
    } else if url.contains(' ') {
        Some("must not contain white-space")
    } else if url.contains("//") {
        Some("must not contain double slash")
    } else if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) {
        Some("wildcard can only do suffix matching")
    } else {
        None
    }
}

/// Lists of flow schemas are shown in the order in which they are tried.
struct FlowSchemaPrinter;

static FLOW_SCHEMA: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("PriorityLevel", "The priority level of its requests"),
        text("MatchingPrecedence", "The lower, the earlier it is tried"),
        text(
            "DistinguisherMethod",
            "How its requests are divided into flows",
        ),
        AGE,
        text("MissingPL", "Whether its priority level does not exist"),
    ],
    paths: "spec.priorityLevelConfiguration spec.matchingPrecedence \
        spec.distinguisherMethod status.conditions.type status.conditions.status",
    fill: |row| {
        let dangling = condition(row.object, "/status/conditions", "Dangling")
            .map_or("?", |condition| str_at(condition, "/status"));
        row.name()
            .text("/spec/priorityLevelConfiguration/name")
            .int("/spec/matchingPrecedence");
        row.text_or("/spec/distinguisherMethod/type", NONE)
            .age()
            .cell(dangling);
    },
};

impl TablePrinter for FlowSchemaPrinter {
    fn columns(&self) -> &[Column] {
        FLOW_SCHEMA.columns()
    }

    fn paths(&self) -> &'static str {
        FLOW_SCHEMA.paths
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        FLOW_SCHEMA.cells(object)
    }

    fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        Some(by_precedence)
    }
}

fn by_precedence(a: &Object, b: &Object) -> Ordering {
    let key = |object: &Object| object.i64_at("/spec/matchingPrecedence").unwrap_or(0);
    key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
}
