//! Validation rules of CustomResourceDefinitions hold, report violations in upstream's words, and
//! terminate.

use serde_json::{Value, json};

use super::support::TestServer;
use super::{ask, both};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE_PATCH: &str = "application/merge-patch+json";
const WIDGETS: &str = "/apis/rules.example.com/v1/namespaces/default/widgets";

/// A definition whose `spec` has a schema.
fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.rules.example.com"},
        "spec": {
            "group": "rules.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
            }}],
        },
    })
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "rules.example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": spec,
    })
}

/// Writes a definition and waits until its objects are served.
async fn define(server: &TestServer, spec: &Value) {
    let answer = ask("POST", DEFINITIONS)
        .json(&definition(spec))
        .answer(server)
        .await;
    assert_eq!(answer.0, 201, "{answer:?}");
    let begun = std::time::Instant::now();
    while ask("GET", WIDGETS).status(server).await == 404 {
        assert!(begun.elapsed() < super::PATIENCE, "widgets are not served");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The status and message of a create.
async fn create(server: &TestServer, object: &Value) -> (u16, String) {
    let (status, answer) = ask("POST", WIDGETS).json(object).answer(server).await;
    (status, answer["message"].as_str().unwrap_or("").to_owned())
}

#[tokio::test]
async fn an_object_that_breaks_a_rule_is_refused() {
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "messageExpression": "'not in ' + self.unit"},
            {"rule": "self.max == oldSelf.max", "message": "max stays", "fieldPath": ".max"},
        ],
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "unit": {"type": "string", "maxLength": 9},
        },
    });
    both(&[], async |server| {
        define(server, &spec).await;
        let (status, why) = create(
            server,
            &widget("a", &json!({"min": 2, "max": 1, "unit": "m"})),
        )
        .await;
        assert_eq!(status, 422);
        assert!(why.ends_with("spec: Invalid value: not in m"), "{why}");
        let made = create(
            server,
            &widget("a", &json!({"min": 1, "max": 2, "unit": "m"})),
        )
        .await;
        assert_eq!(made.0, 201, "{made:?}");
        let path = format!("{WIDGETS}/a");
        let patch = json!({"spec": {"max": 3}});
        let (status, answer) = ask("PATCH", &path)
            .body(MERGE_PATCH, patch.to_string())
            .answer(server)
            .await;
        let why = answer["message"].as_str().unwrap_or("");
        assert_eq!(status, 422);
        assert!(why.ends_with("spec.max: Invalid value: max stays"), "{why}");
    })
    .await;
}

/// A value that was invalid before the rule existed yields a warning, and does not block changes to
/// other fields.
#[tokio::test]
async fn an_unchanged_value_that_breaks_a_new_rule_is_warned_of() {
    let lax = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string"},
    }});
    let mut strict = lax.clone();
    strict["properties"]["a"]["x-kubernetes-validations"] =
        json!([{"rule": "self == 'good'", "message": "must be good"}]);
    strict["properties"]["b"]["x-kubernetes-validations"] = json!([{"rule": "self != 'other'"}]);
    both(&[], async |server| {
        define(server, &lax).await;
        let bad = widget("a", &json!({"a": "bad", "b": "1"}));
        assert_eq!(create(server, &bad).await.0, 201);
        let place = format!("{DEFINITIONS}/widgets.rules.example.com");
        let (_, mut stored) = ask("GET", &place).answer(server).await;
        stored["spec"] = definition(&strict)["spec"].clone();
        let changed = ask("PUT", &place).json(&stored).answer(server).await;
        assert_eq!(changed.0, 200, "{changed:?}");
        let begun = std::time::Instant::now();
        while create(server, &widget("b", &json!({"a": "bad"}))).await.0 != 422 {
            assert!(begun.elapsed() < super::PATIENCE, "the rule does not hold");
            let gone = format!("{WIDGETS}/b");
            ask("DELETE", &gone).status(server).await;
        }
        let path = format!("{WIDGETS}/a");
        let answer = ask("PATCH", &path)
            .body(MERGE_PATCH, json!({"spec": {"b": "2"}}).to_string())
            .send(server)
            .await;
        assert_eq!(answer.status, 200);
        let warning = answer.headers["warning"].to_str().unwrap();
        assert!(warning.contains("must be good"), "{warning}");
        let worse = json!({"spec": {"a": "worse"}});
        let refused = ask("PATCH", &path)
            .body(MERGE_PATCH, worse.to_string())
            .status(server)
            .await;
        assert_eq!(refused, 422);
        // What was wrong before is told even if the update is refused for something else.
        let other = json!({"spec": {"b": "other"}});
        let refused = ask("PATCH", &path)
            .body(MERGE_PATCH, other.to_string())
            .send(server)
            .await;
        assert_eq!(refused.status, 422);
        let warning = refused.headers["warning"].to_str().unwrap();
        assert!(warning.contains("must be good"), "{warning}");
    })
    .await;
}

/// A rule that does not compile is shown as upstream prints it.
#[tokio::test]
async fn a_rule_that_does_not_compile_is_shown() {
    let spec = json!({
        "type": "object", "x-kubernetes-validations": [{"rule": "self.nothing == 1"}],
    });
    both(&[], async |server| {
        let (status, answer) = ask("POST", DEFINITIONS)
            .json(&definition(&spec))
            .answer(server)
            .await;
        assert_eq!(status, 422, "{answer}");
        let message = answer["message"].as_str().unwrap_or("");
        let shown = r#"{"Rule":"self.nothing == 1","Message":"","MessageExpression":"","#;
        assert!(message.contains(shown), "{message}");
    })
    .await;
}

/// Rules that could run away are refused when they are defined; those that do, when they run.
#[tokio::test]
async fn rules_that_cost_too_much_end() {
    let squared = json!([{"rule": "self.all(a, self.all(b, a == b))"}]);
    let unbounded = json!({
        "type": "array", "items": {"type": "string"}, "x-kubernetes-validations": squared,
    });
    // An estimate of what is of no known type is not made.
    let loop_of = json!([{"rule":
        "[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, [1,2,3,4,5,6,7,8].all(c, \
         [1,2,3,4,5,6,7,8].all(d, [1,2,3,4,5,6,7,8].all(e, [1,2,3,4,5,6,7,8].all(f, \
         a + b + c + d + e + f > 0))))))"
    }]);
    let looping = json!({"type": "object", "x-kubernetes-validations": loop_of});
    both(&[], async |server| {
        let place = format!("{DEFINITIONS}?dryRun=All");
        let broken = [
            (
                &unbounded,
                "estimated rule cost exceeds budget by factor of more than 100x",
            ),
            (&looping, ""),
        ];
        for (spec, why) in broken {
            let (status, answer) = ask("POST", &place)
                .json(&definition(spec))
                .answer(server)
                .await;
            let message = answer["message"].as_str().unwrap_or("");
            assert!(status == 201 || status == 422, "{answer}");
            assert!(message.contains(why), "{message}");
        }
        define(server, &looping).await;
        let (status, why) = create(server, &widget("a", &json!({}))).await;
        assert_eq!(status, 422);
        assert!(
            why.contains("operation cancelled: actual cost limit exceeded"),
            "{why}"
        );
    })
    .await;
}
