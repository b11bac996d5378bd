//! certificates.k8s.io: CertificateSigningRequests (`pkg/registry/certificates`,
//! `pkg/apis/certificates/validation`).

pub mod columns;
pub mod metrics;
pub mod pem;

use std::collections::{BTreeSet, HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::builtin::pod_spec::projected::check_signer_name;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WITH_STATUS};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, time};
use crate::registry::validation::{Fields, one_of};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `certificatesigningrequests`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "certificatesigningrequests",
    traits: ResourceTraits {
        meta_checks: MetaChecks::Everything,
        status_meta_checks: MetaChecks::Everything,
        selectable: &["spec.signerName"],
        status_resets: &["/spec", "/status/conditions"],
        ..WITH_STATUS
    },
    strategy: &CertificateSigningRequestStrategy,
    printer: &columns::PRINTER,
};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// The shortest life of a certificate that may be asked for, in seconds.
const LIFE_MIN: i64 = 600;
/// Conditions that never go away and are True or absent.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];
/// The conditions that only the approval subresource sets.
const APPROVAL: [&str; 2] = ["Approved", "Denied"];
/// Every usage that a certificate may be requested for, sorted.
pub const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub struct CertificateSigningRequestStrategy;

impl Strategy for CertificateSigningRequestStrategy {
    fn prepare_for_create(&self, ctx: &Context, object: &mut Object) {
        let spec = object.section_mut("spec");
        for key in ["username", "uid", "groups", "extra"] {
            spec.shift_remove(key);
        }
        let user = ctx.user;
        for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
            if !text.is_empty() {
                spec.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !user.groups.is_empty() {
            spec.insert("groups", json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.insert("extra", json!(user.extra));
        }
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, old: &Object) {
        match ctx.subresource {
            Subresource::Main => copy(object, old, "spec"),
            Subresource::Status => {
                for kind in APPROVAL {
                    keep_conditions(object, old, kind);
                }
                date_conditions(ctx, object, old);
            }
            Subresource::Other(_) => {
                date_conditions(ctx, object, old);
                let conditions = object.at("/status/conditions").cloned();
                copy(object, old, "spec");
                copy(object, old, "status");
                let status = object.section_mut("status");
                match conditions {
                    Some(conditions) => status.insert("conditions", conditions),
                    None => status.shift_remove("conditions"),
                };
            }
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        let spec = Path::new("spec");
        let request = object.str_at("/spec/request");
        if let Some(problem) = pem::request_problem(&decode(request)) {
            let shown = if request.is_empty() {
                Value::Null
            } else {
                request.into()
            };
            errors.invalid(&spec.child("request"), shown, problem);
        }
        check(&mut errors, object, None);
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        // The request itself cannot have changed.
        check(&mut errors, object, Some(old));
        check_changes(&mut errors, ctx.subresource, object, old);
        errors
    }

    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match sub {
            Subresource::Main => &["/spec", "/status"],
            Subresource::Status => &["/spec", "/status/conditions"],
            Subresource::Other(_) => &["/spec", "/status/certificate"],
        }
    }
}

fn copy(object: &mut Object, old: &Object, key: &str) {
    match old.get(key) {
        Some(value) => object.insert(key.to_owned(), value.clone()),
        None => object.shift_remove(key),
    };
}

fn decode(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).unwrap_or_default()
}

fn of_kind<'a>(object: &'a Object, kind: &str) -> Vec<&'a Value> {
    object
        .array_at("/status/conditions")
        .iter()
        .filter(|condition| condition.str("type") == kind)
        .collect()
}

fn conditions_mut(object: &mut Object) -> impl Iterator<Item = &mut Map> {
    object
        .at_mut("/status/conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Conditions of a kind stay what they were, unless some came or went: then the checks refuse the
/// change.
fn keep_conditions(object: &mut Object, old: &Object, kind: &str) {
    let before = of_kind(old, kind);
    if before.len() == of_kind(object, kind).len() {
        for (condition, before) in conditions_mut(object)
            .filter(|condition| condition.str("type") == kind)
            .zip(before)
        {
            *condition = before.as_object().cloned().unwrap_or_default();
        }
    }
}

/// Dates the conditions that came without: one that was there before with the same status keeps its
/// time of transition.
fn date_conditions(ctx: &Context, object: &mut Object, old: &Object) {
    let now = time::format(ctx.now.as_second());
    let mut transitions = HashMap::new();
    for before in old.array_at("/status/conditions") {
        let since = before.str("lastTransitionTime");
        if !since.is_empty() {
            transitions
                .entry((before.str("type"), before.str("status")))
                .or_insert(since);
        }
    }
    for condition in conditions_mut(object) {
        if condition.str("lastUpdateTime").is_empty() {
            condition.insert("lastUpdateTime", now.as_str().into());
        }
        if condition.str("lastTransitionTime").is_empty() {
            let key = (condition.str("type"), condition.str("status"));
            let since = transitions.get(&key).copied().unwrap_or(&now).to_owned();
            condition.insert("lastTransitionTime", since.into());
        }
    }
}

fn repeats<'a>(mut list: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    list.any(|one| !seen.insert(one))
}

fn check(errors: &mut ErrorList, object: &Object, old: Option<&Object>) {
    let path = Path::new("spec");
    let usages = |object: &Object| -> Vec<String> {
        object
            .array_at("/spec/usages")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let (asked, before) = (usages(object), old.map(usages).unwrap_or_default());
    if asked.is_empty() {
        errors.required(&path.child("usages"), "");
    }
    if before.iter().all(|usage| USAGES.contains(&usage.as_str())) {
        for (index, usage) in asked.iter().enumerate() {
            one_of(errors, &path.child("usages").index(index), usage, USAGES);
        }
    }
    if !repeats(before.iter().map(String::as_str)) {
        let mut seen = HashSet::new();
        for (index, usage) in asked
            .iter()
            .enumerate()
            .filter(|(_, usage)| !seen.insert(*usage))
        {
            errors.duplicate(&path.child("usages").index(index), usage.as_str());
        }
    }
    let signer = object.str_at("/spec/signerName");
    let signer_path = path.child("signerName");
    if signer == LEGACY_SIGNER
        && old.is_none_or(|old| old.str_at("/spec/signerName") != LEGACY_SIGNER)
    {
        errors.invalid(
            &signer_path,
            signer,
            "the legacy signerName is not allowed via this API version",
        );
    } else {
        check_signer_name(errors, &signer_path, signer);
    }
    if let Some(seconds) = object
        .i64_at("/spec/expirationSeconds")
        .filter(|seconds| *seconds < LIFE_MIN)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), seconds, detail);
    }
    check_conditions(
        errors,
        &Path::new("status").child("conditions"),
        object,
        old,
    );
    let certificate = object.str_at("/status/certificate");
    let unchanged = old.is_some_and(|old| old.str_at("/status/certificate") == certificate);
    if let Some(problem) = pem::chain_problem(&decode(certificate)).filter(|_| !unchanged) {
        errors.invalid(
            &Path::new("status").child("certificate"),
            "<certificate data>",
            problem,
        );
    }
}

fn check_conditions(errors: &mut ErrorList, path: &Path, object: &Object, old: Option<&Object>) {
    let before = || {
        old.into_iter()
            .flat_map(|old| old.array_at("/status/conditions"))
            .map(|condition| condition.str("type"))
    };
    let both = APPROVAL.iter().all(|kind| before().any(|one| one == *kind));
    let (had_repeats, had_empty) = (repeats(before()), before().any(str::is_empty));
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, condition) in object.array_at("/status/conditions").iter().enumerate() {
        let item = path.index(index);
        let (kind, status) = (condition.str("type"), condition.str("status"));
        if kind.is_empty() && !had_empty {
            errors.required(&item.child("type"), "");
        }
        let allowed: &[&str] = if FINAL.contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.required(&item.child("status"), "");
        } else {
            one_of(errors, &item.child("status"), status, allowed);
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !both && !opposite.is_empty() && seen.contains(opposite) {
            errors.invalid(
                path,
                kind,
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if seen.contains(kind) && !had_repeats {
            errors.duplicate(&item.child("type"), kind);
        }
        seen.insert(kind);
    }
}

fn check_changes(errors: &mut ErrorList, sub: Subresource, object: &Object, old: &Object) {
    let path = Path::new("status").child("conditions");
    for kind in FINAL {
        if of_kind(object, kind).len() < of_kind(old, kind).len() {
            errors.forbidden(
                &path,
                format!("updates may not remove a condition of type {kind:?}"),
            );
        }
    }
    if !matches!(sub, Subresource::Other(_)) {
        for kind in APPROVAL {
            let (new, before) = (of_kind(object, kind), of_kind(old, kind));
            if new.len() > before.len() {
                errors.forbidden(
                    &path,
                    format!("updates may not add a condition of type {kind:?}"),
                );
            }
        }
    }
    let (new, before) = (
        object.str_at("/status/certificate"),
        old.str_at("/status/certificate"),
    );
    if new != before {
        let path = Path::new("status").child("certificate");
        if sub != Subresource::Status {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::Timestamp;

    use super::*;
    use crate::auth::User;

    fn request(conditions: Vec<Value>) -> Object {
        Object::from_value(json!({"status": {"conditions": conditions}})).unwrap()
    }

    fn date(new: &mut Object, old: &Object) {
        let user = User::default();
        let ctx = Context {
            now: Timestamp::UNIX_EPOCH,
            user: &user,
            allow_privileged: true,
            subresource: Subresource::Status,
            warnings: &crate::registry::store::Warnings::default(),
        };
        date_conditions(&ctx, new, old);
    }

    #[test]
    fn conditions_keep_the_first_transition_of_the_same_status() {
        let before = |status: &str, since: &str| json!({"type": "Failed", "status": status, "lastTransitionTime": since});
        let old = request(vec![
            before("True", ""),
            before("False", "2020-01-01T00:00:00Z"),
            before("True", "2021-01-01T00:00:00Z"),
            before("True", "2022-01-01T00:00:00Z"),
        ]);
        let mut new = request(vec![
            json!({"type": "Failed", "status": "True"}),
            json!({"type": "Failed", "status": "Unknown"}),
        ]);
        date(&mut new, &old);
        let conditions = new.array_at("/status/conditions");
        assert_eq!(
            conditions[0].str("lastTransitionTime"),
            "2021-01-01T00:00:00Z"
        );
        assert_eq!(
            conditions[1].str("lastTransitionTime"),
            "1970-01-01T00:00:00Z"
        );
        assert_eq!(conditions[0].str("lastUpdateTime"), "1970-01-01T00:00:00Z");
    }

    /// Compared each with each, so many conditions take minutes.
    #[test]
    fn many_conditions_are_dated_in_one_pass() {
        let count = 30_000;
        let many = |letter: &str, since: &str| -> Vec<Value> {
            (0..count)
                .map(|at| json!({"type": format!("{letter}{at}"), "status": "True", "lastTransitionTime": since}))
                .collect()
        };
        let old = request(many("a", "2020-01-01T00:00:00Z"));
        let mut new = request(many("b", ""));
        let begin = Instant::now();
        date(&mut new, &old);
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}
