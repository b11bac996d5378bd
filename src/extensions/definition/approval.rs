//! The approval that definitions in groups of Kubernetes' own need (apiextensions `apihelpers`).

use crate::extensions::definition::Condition;
use crate::meta::go::url;
use crate::meta::{ErrorList, FieldError, Object, Path};

/// The annotation of the approval.
const ANNOTATION: &str = "api-approved.kubernetes.io";
/// The condition that reports it.
const CONFORMANT: &str = "KubernetesAPIApprovalPolicyConformant";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

fn is_protected(object: &Object) -> bool {
    let group = object.str_at("/spec/group");
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")))
}

fn annotation(object: &Object) -> &str {
    object
        .annotations()
        .and_then(|all| all.get(ANNOTATION))
        .and_then(|one| one.as_str())
        .unwrap_or("")
}

fn approval(object: &Object) -> (Approval, String) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let text = annotation(object);
    let is_url = url::parse_request_uri(text)
        .is_ok_and(|url| !url.host.is_empty() && !url.scheme.is_empty());
    match text {
        "" => (
            Approval::Missing,
            format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}"),
        ),
        text if text.starts_with("unapproved") => {
            (Approval::Bypassed, format!("not approved: {text:?}"))
        }
        text if is_url => (Approval::Approved, format!("approved in {text}")),
        _ => {
            let why = "with either a URL or a reason starting with \"unapproved\"";
            (
                Approval::Invalid,
                format!(
                    "protected groups must have approval annotation {ANNOTATION:?} {why}, {SEE}"
                ),
            )
        }
    }
}

/// A protected group needs an approval; one that lacks it already may go on so.
pub fn validate(object: &Object, old: Option<&Object>) -> ErrorList {
    let (state, reason) = approval(object);
    if !is_protected(object) || old.is_some_and(|old| approval(old).0 == state) {
        return ErrorList::new();
    }
    let path = Path::new("metadata").child("annotations").key(ANNOTATION);
    match state {
        Approval::Missing => [FieldError::required(&path, reason)].into(),
        Approval::Invalid => [FieldError::invalid(&path, annotation(object), reason)].into(),
        Approval::Approved | Approval::Bypassed => ErrorList::new(),
    }
}

/// The condition of a definition in a protected group.
pub fn condition(object: &Object) -> Option<Condition> {
    if !is_protected(object) {
        return None;
    }
    let (state, message) = approval(object);
    let (status, reason) = match state {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
    };
    Some(Condition::new(CONFORMANT, status, reason, message))
}
