//! Tests of reviews: the checks of answers, which the wire tests show one of each kind of.

use super::configuration::{Hook, ReviewVersion};
use super::review::{Invalid, Response};
use crate::meta::{Object, Value, json};

const V1: &str = "admission.k8s.io/v1";
const V1BETA1: &str = "admission.k8s.io/v1beta1";

fn review(version: &str, response: Value) -> Value {
    json!({"apiVersion": version, "kind": "AdmissionReview", "response": response})
}

fn read(review: &Value, mutating: bool) -> Result<Response, String> {
    let read = Response::read(review, ReviewVersion::V1, "u", mutating);
    read.map_err(|why| match why {
        Invalid::Undecodable(why) => format!("undecodable: {why}"),
        Invalid::Response(why) => why,
    })
}

#[test]
fn answers_are_checked() {
    let patch = || json!("W10=");
    let kind =
        json!({"apiVersion": V1, "kind": "Other", "response": {"uid": "u", "allowed": true}});
    for (review, mutating, expected) in [
        (
            review(V1, json!({"uid": "u", "patch": patch()})),
            true,
            "webhook returned response.patch but not response.patchType",
        ),
        (
            review(V1, json!({"uid": "u", "patchType": "JSONPatch"})),
            true,
            "webhook returned response.patchType but not response.patch",
        ),
        (
            review(V1, json!({"uid": "u", "patch": patch(), "patchType": ""})),
            true,
            r#"webhook returned invalid response.patchType of """#,
        ),
        (
            review(V1, json!({"uid": "u", "patch": patch()})),
            false,
            "validating webhook may not return response.patch",
        ),
        (
            review(V1, json!({"uid": "u", "patchType": "JSONPatch"})),
            false,
            "validating webhook may not return response.patchType",
        ),
        (
            review(V1, json!({})),
            false,
            r#"expected response.uid="u", got """#,
        ),
        (
            review(V1BETA1, json!({"uid": "u"})),
            false,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (kind, false, "webhook response was absent"),
        (
            review(V1, json!({"uid": 1})),
            false,
            "undecodable: json: cannot unmarshal number into Go struct field AdmissionResponse.response.uid of type types.UID",
        ),
        (
            review(V1, json!({"uid": "u", "warnings": ["a", 1]})),
            false,
            "undecodable: json: cannot unmarshal number into Go struct field AdmissionResponse.response.warnings of type string",
        ),
    ] {
        assert_eq!(read(&review, mutating).map(drop), Err(expected.to_owned()));
    }
    let answer = review(
        V1,
        json!({"uid": "u", "allowed": true, "auditAnnotations": {"a": "b"}}),
    );
    let answer = read(&answer, true).expect("an answer");
    assert!(answer.allowed && answer.patch.is_empty());
    assert_eq!(answer.annotations, [("a".to_owned(), "b".to_owned())]);
}

#[test]
fn answers_of_v1beta1_may_leave_things_out() {
    let read = |mutating| {
        let review = review(V1BETA1, json!({"allowed": true, "patch": "W10="}));
        Response::read(&review, ReviewVersion::V1beta1, "u", mutating).expect("an answer")
    };
    let changed = read(true);
    assert_eq!(
        (changed.patch.as_slice(), changed.patch_type.as_str()),
        (&b"[]"[..], "JSONPatch")
    );
    assert!(read(false).patch.is_empty());
}

#[test]
fn refusals_have_codes_of_failures() {
    for (code, expected) in [(0, 400), (200, 400), (418, 418), (999, 999), (70_000, 500)] {
        let review = review(V1, json!({"uid": "u", "status": {"code": code}}));
        assert_eq!(
            read(&review, false).expect("an answer").refusal("a").code,
            expected
        );
    }
}

#[test]
fn the_first_known_version_of_reviews_is_used() {
    for (versions, expected) in [
        (json!(["v2", "v1beta1", "v1"]), Some(ReviewVersion::V1beta1)),
        (json!(["v1"]), Some(ReviewVersion::V1)),
        (json!(["v2"]), None),
    ] {
        let configuration =
            json!({"webhooks": [{"name": "a", "admissionReviewVersions": versions}]});
        let configuration = Object::from_value(configuration).expect("an object");
        assert_eq!(Hook::read_all(&configuration)[0].review, expected);
    }
}
