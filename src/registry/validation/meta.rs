//! Validation of ObjectMeta and of its updates (apimachinery `api/validation/objectmeta.go`).

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use super::{Fields, IMMUTABLE, invalid_each, not_negative, same};
use crate::meta::names::{self, Problems};
use crate::meta::{ErrorList, Gvk, Map, Object, Path, Value};
use crate::registry::{MetaChecks, NameRule, Strategy};

/// Keys and values of all annotations of an object together, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
/// The longest `fieldManager`.
const MANAGER_MAX: usize = 128;
/// The longest name of a subresource in managedFields.
const SUBRESOURCE_MAX: usize = 256;
/// The finalizers without a domain that Kubernetes itself knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

fn metadata(object: &Object) -> &Map {
    static NONE: LazyLock<Map> = LazyLock::new(Map::new);
    object.metadata().unwrap_or(&NONE)
}

/// Checks a name by its rule. A `prefix` will get a suffix, so it may end with a dash.
pub fn name_problems(rule: NameRule, name: &str, prefix: bool) -> Problems {
    let masked = if prefix {
        mask_trailing_dash(name)
    } else {
        None
    };
    let text = masked.as_deref().unwrap_or(name);
    match rule {
        NameRule::DnsSubdomain => names::dns1123_subdomain(text),
        NameRule::DnsLabel => names::dns1123_label(text),
        NameRule::Dns1035Label => names::dns1035_label(text),
        NameRule::PathSegment if prefix => names::path_segment_prefix(name),
        NameRule::PathSegment => names::path_segment_name(name),
    }
}

/// Upstream overwrites the two last bytes of a prefix that ends with a dash, and so shortens it by
/// one.
fn mask_trailing_dash(name: &str) -> Option<String> {
    let kept = name.strip_suffix('-')?;
    kept.is_char_boundary(kept.len().checked_sub(1)?)
        .then(|| format!("{}a", &kept[..kept.len() - 1]))
}

/// Checks metadata that stands within an object, at `path`.
pub fn validate_generic_meta(
    object: &Object,
    namespaced: bool,
    rule: NameRule,
    path: &Path,
) -> ErrorList {
    generic_meta(object, namespaced, rule, path, &|_| Vec::new())
}

/// Checks the metadata of a new built-in object: the generic rules, and that finalizers are
/// standard or have a domain. The errors come before those of the rest of the object, in one list.
pub fn validate_object_meta(object: &Object, namespaced: bool, rule: NameRule) -> ErrorList {
    let mut errors = validate_generic_meta(object, namespaced, rule, &Path::new("metadata"));
    kube_finalizers(object, &mut errors);
    errors
}

/// The rules for the metadata of a resource's objects.
#[derive(Clone, Copy)]
pub struct MetaRules<'a> {
    pub namespaced: bool,
    pub strategy: &'a dyn Strategy,
}

impl MetaRules<'_> {
    /// Checks a new object. The errors come before those of the rest of the object, in one list.
    pub fn validate(&self, object: &Object) -> ErrorList {
        let (rule, path) = (self.strategy.name_rule(), Path::new("metadata"));
        let mut errors = generic_meta(object, self.namespaced, rule, &path, &|name| {
            self.strategy.name_problems(object, name)
        });
        if !self.strategy.takes_any_finalizer() {
            kube_finalizers(object, &mut errors);
        }
        errors
    }

    /// Everything that an update finds wrong with the metadata. Upstream checks metadata up to four
    /// times: each mistake is one cause for each time. `checks` says what the kind's own check of
    /// an update looks at.
    pub fn validate_update(&self, new: &Object, old: &Object, checks: MetaChecks) -> ErrorList {
        let mut errors = validate_generic_meta(
            new,
            self.namespaced,
            NameRule::PathSegment,
            &Path::new("metadata"),
        );
        let generic_update = generic_meta_update(new, old);
        let mut finalizers = ErrorList::new();
        let changes = matches!(checks, MetaChecks::Changes | MetaChecks::Everything);
        if !self.strategy.takes_any_finalizer() && changes {
            kube_finalizers(new, &mut finalizers);
        }
        if errors.is_empty() && generic_update.is_empty() && finalizers.is_empty() {
            return errors;
        }
        errors.extend(generic_update.clone());
        if changes {
            errors.extend(generic_update);
            errors.extend(finalizers);
        }
        if matches!(checks, MetaChecks::State | MetaChecks::Everything) {
            errors.extend(self.validate(new));
        }
        errors
    }
}

fn generic_meta(
    object: &Object,
    namespaced: bool,
    rule: NameRule,
    path: &Path,
    more: &dyn Fn(&str) -> Problems,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let meta = metadata(object);
    let generated = object.generate_name();
    if !generated.is_empty() {
        let mut problems = name_problems(rule, generated, true);
        problems.extend(more(generated));
        invalid_each(
            &mut errors,
            &path.child("generateName"),
            generated,
            problems,
        );
    }
    if object.name().is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        let mut problems = name_problems(rule, object.name(), false);
        problems.extend(more(object.name()));
        invalid_each(&mut errors, &path.child("name"), object.name(), problems);
    }
    match (namespaced, object.namespace()) {
        (true, "") => errors.required(&path.child("namespace"), ""),
        (true, namespace) => invalid_each(
            &mut errors,
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        ),
        (false, "") => {}
        (false, _) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
    }
    not_negative(&mut errors, &path.child("generation"), object.generation());
    validate_labels(&mut errors, &path.child("labels"), object.labels());
    validate_annotations(
        &mut errors,
        &path.child("annotations"),
        object.annotations(),
    );
    owner_references(&mut errors, &path.child("ownerReferences"), meta);
    finalizers(&mut errors, &path.child("finalizers"), object.finalizers());
    managed_fields(
        &mut errors,
        &path.child("managedFields"),
        meta.list("managedFields"),
    );
    errors
}

fn generic_meta_update(new: &Object, old: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("metadata");
    if old.deletion_timestamp().is_some() {
        no_new_finalizers(
            &mut errors,
            &path.child("finalizers"),
            new.finalizers(),
            old.finalizers(),
        );
    }
    if new.resource_version().is_empty() {
        errors.invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        );
    }
    if new.generation() < old.generation() {
        errors.invalid(
            &path.child("generation"),
            new.generation(),
            "must not be decremented",
        );
    }
    let (new_meta, old_meta) = (metadata(new), metadata(old));
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (new_meta.get(key), old_meta.get(key));
        let empty_string = |value: Option<&Value>| {
            value.is_none_or(|value| value.is_null() || value.as_str() == Some(""))
        };
        if !(same(new, old) || empty_string(new) && empty_string(old)) {
            let shown = match (new, key) {
                (None, "name" | "namespace" | "uid") => Value::from(""),
                (value, _) => value.cloned().unwrap_or_default(),
            };
            errors.invalid(&path.child(key), shown, IMMUTABLE);
        }
    }
    validate_labels(&mut errors, &path.child("labels"), new.labels());
    validate_annotations(&mut errors, &path.child("annotations"), new.annotations());
    owner_references(&mut errors, &path.child("ownerReferences"), new_meta);
    managed_fields(
        &mut errors,
        &path.child("managedFields"),
        new_meta.list("managedFields"),
    );
    errors
}

/// Checks the keys and values of labels.
pub fn validate_labels(errors: &mut ErrorList, path: &Path, labels: Option<&Map>) {
    for (key, value) in labels.into_iter().flatten() {
        invalid_each(errors, path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or("");
        invalid_each(errors, path, value, names::label_value(value));
    }
}

/// Checks the keys of annotations (in any case) and their size.
pub fn validate_annotations(errors: &mut ErrorList, path: &Path, annotations: Option<&Map>) {
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let problems = if key.bytes().any(|c| c.is_ascii_uppercase()) || !key.is_ascii() {
            names::qualified_name(&key.to_lowercase())
        } else {
            names::qualified_name(key)
        };
        invalid_each(errors, path, key, problems);
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}

fn owner_references(errors: &mut ErrorList, path: &Path, meta: &Map) {
    let mut controller: Option<String> = None;
    for owner in meta.list("ownerReferences") {
        owner_reference(errors, path, owner);
        if !owner.flag("controller") {
            continue;
        }
        let this = format!("{}/{}", owner.str("kind"), owner.str("name"));
        match &controller {
            None => controller = Some(this),
            // Each of these errors shows the whole list: the first says it all where it is long.
            Some(_) if errors.is_full() => {}
            Some(first) => {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                errors.invalid(path, meta.list("ownerReferences"), detail);
            }
        }
    }
}

fn owner_reference(errors: &mut ErrorList, path: &Path, owner: &Value) {
    let api_version = owner.str("apiVersion");
    // More than one slash parses as no group and version at all.
    let api_version_read = if api_version.matches('/').count() < 2 {
        api_version
    } else {
        ""
    };
    let gvk = Gvk::from_api_version(api_version_read, owner.str("kind"));
    if gvk.version.is_empty() {
        errors.invalid(
            &path.child("apiVersion"),
            api_version,
            "version must not be empty",
        );
    }
    check_not_empty(errors, path, owner, "kind");
    check_not_empty(errors, path, owner, "name");
    check_not_empty(errors, path, owner, "uid");
    if gvk == Gvk::new("", "v1", "Event") {
        errors.invalid(
            path,
            owner.clone(),
            format!("/v1, Kind={} is disallowed from being an owner", gvk.kind),
        );
    }
}

fn check_not_empty(errors: &mut ErrorList, path: &Path, owner: &Value, key: &str) {
    if owner.str(key).is_empty() {
        errors.invalid(&path.child(key), "", "must not be empty");
    }
}

fn finalizers(errors: &mut ErrorList, path: &Path, finalizers: &[Value]) {
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        invalid_each(errors, path, finalizer, names::qualified_name(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|one| one.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(
            path,
            finalizers,
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

/// A finalizer of a built-in kind is one of the standard names or carries a domain.
fn kube_finalizers(object: &Object, errors: &mut ErrorList) {
    for (index, finalizer) in object
        .finalizers()
        .iter()
        .filter_map(Value::as_str)
        .enumerate()
    {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let path = Path::new("metadata").child("finalizers").index(index);
            errors.invalid(
                &path,
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

fn no_new_finalizers(errors: &mut ErrorList, path: &Path, new: &[Value], old: &[Value]) {
    let before: HashSet<&str> = old.iter().filter_map(Value::as_str).collect();
    let added: BTreeSet<&str> = new
        .iter()
        .filter_map(Value::as_str)
        .filter(|one| !before.contains(one))
        .collect();
    if !added.is_empty() {
        let names: Vec<String> = added.into_iter().map(|name| format!("{name:?}")).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            names.join(", ")
        );
        errors.forbidden(path, detail);
    }
}

fn managed_fields(errors: &mut ErrorList, path: &Path, entries: &[Value]) {
    for (index, entry) in entries.iter().enumerate() {
        let operation = entry.str("operation");
        if operation != "Apply" && operation != "Update" {
            errors.invalid(
                &path.index(index).child("operation"),
                operation,
                "must be `Apply` or `Update`",
            );
        }
        let fields_type = entry.str("fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.invalid(
                &path.index(index).child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            );
        }
        let manager = entry.str("manager");
        if manager.len() > MANAGER_MAX {
            errors.too_long(&path.index(index).child("manager"), MANAGER_MAX);
        }
        for (at, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
            errors.invalid(&path.index(index).child("manager"), manager, detail);
        }
        if entry.str("subresource").len() > SUBRESOURCE_MAX {
            errors.too_long(&path.index(index).child("subresource"), SUBRESOURCE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn object(metadata: Value) -> Object {
        Object::from_value(json!({"metadata": metadata})).expect("an object")
    }

    fn lines(errors: ErrorList) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn new_objects() {
        let long = "x".repeat(ANNOTATIONS_MAX);
        let cases = [
            (json!({"name": "a", "namespace": "n"}), vec![]),
            (
                json!({"namespace": "n"}),
                vec!["metadata.name: Required value: name or generateName is required"],
            ),
            (
                json!({"name": "a"}),
                vec!["metadata.namespace: Required value"],
            ),
            (
                json!({"name": "a", "namespace": "n", "generateName": "p-"}),
                vec![],
            ),
            (
                json!({"name": "a", "namespace": "n", "annotations": {"K": long}}),
                vec!["metadata.annotations: Too long: may not be more than 262144 bytes"],
            ),
            (
                json!({"name": "a", "namespace": "n", "finalizers": ["x"]}),
                vec![
                    r#"metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#,
                ],
            ),
            (
                json!({"name": "a", "namespace": "n", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b", "uid": ""}]}),
                vec![r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#],
            ),
        ];
        for (metadata, want) in cases {
            assert_eq!(
                lines(validate_object_meta(
                    &object(metadata),
                    true,
                    NameRule::DnsSubdomain
                )),
                want
            );
        }
        let cluster_scoped = object(json!({"name": "a", "namespace": "n"}));
        assert_eq!(
            lines(validate_object_meta(
                &cluster_scoped,
                false,
                NameRule::DnsLabel
            )),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        for (prefix, fine) in [
            ("pre-", true),
            ("-", false),
            ("a-", true),
            ("Bad_", false),
            ("é-", false),
        ] {
            assert_eq!(
                name_problems(NameRule::DnsSubdomain, prefix, true).is_empty(),
                fine,
                "{prefix}"
            );
        }
    }

    #[test]
    fn each_mistake_of_an_update_is_a_cause_for_each_check() {
        let old = object(
            json!({"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1", "deletionTimestamp": "t"}),
        );
        let mut new = old.clone();
        new.metadata_mut().insert("finalizers", json!(["e.io/c"]));
        let want = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"e.io/c\"}";
        let rules = MetaRules {
            namespaced: true,
            strategy: &crate::builtin::DefaultStrategy,
        };
        assert_eq!(
            lines(rules.validate_update(&new, &old, MetaChecks::Everything)),
            [want, want]
        );
        let mut new = old.clone();
        new.set_meta_str("uid", "2");
        let want = r#"metadata.uid: Invalid value: "2": field is immutable"#;
        assert_eq!(
            lines(rules.validate_update(&new, &old, MetaChecks::Changes)),
            [want, want]
        );
        new = old.clone();
        new.metadata_mut()
            .insert("annotations", json!({"k": "x".repeat(ANNOTATIONS_MAX)}));
        assert_eq!(
            rules
                .validate_update(&new, &old, MetaChecks::Everything)
                .len(),
            4
        );
    }
}
