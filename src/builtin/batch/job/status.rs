//! The status of a job: how it may change (`pkg/apis/batch/validation`, validateJobStatus). A rule
//! is asked only where the fields it is about have changed, so that a status that breaks one can
//! still be written otherwise.

use super::indexes::{count_indexes, overlap};
use crate::meta::{ErrorList, Map, Object, Path, Value, json, time};
use crate::registry::validation::{Fields, invalid_unshown, not_negative, same};

/// Reports whether a condition is True.
pub fn is_true(object: &Object, kind: &str) -> bool {
    has_condition(object, kind, "True")
}

fn has_condition(object: &Object, kind: &str, status: &str) -> bool {
    object
        .array_at("/status/conditions")
        .iter()
        .any(|one| one.str("type") == kind && one.str("status") == status)
}

/// A new status beside the old one.
struct Change<'a> {
    job: &'a Object,
    old: &'a Object,
    new_status: &'a Map,
    path: Path,
}

impl Change<'_> {
    fn moved(&self, key: &str) -> bool {
        let old = self.old.map("status").and_then(|status| status.field(key));
        !same(self.new_status.field(key), old)
    }

    fn turned(&self, kind: &str) -> bool {
        is_true(self.job, kind) != is_true(self.old, kind)
    }

    fn at(&self, key: &str) -> Path {
        self.path.child(key)
    }

    fn int(&self, key: &str) -> i64 {
        self.new_status.int(key).unwrap_or(0)
    }

    fn value(&self, key: &str) -> Value {
        self.new_status.field(key).cloned().unwrap_or_default()
    }

    fn refuse_conditions(&self, errors: &mut ErrorList, detail: impl Into<String>) {
        errors.push(invalid_unshown(&self.at("conditions"), detail));
    }
}

fn is_finished(object: &Object) -> bool {
    is_true(object, "Complete") || is_true(object, "Failed")
}

pub fn check_status_update(errors: &mut ErrorList, job: &Object, old: &Object) {
    let change = Change {
        job,
        old,
        new_status: job.section("status"),
        path: Path::new("status"),
    };
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(errors, &change.at(key), change.int(key));
    }
    check_uncounted(errors, &change);
    check_completion(errors, &change);
    check_terminal_conditions(errors, &change);
    check_finished(errors, &change);
    check_indexes(errors, &change);
    check_counts(errors, &change);
    check_success_criteria(errors, &change);
    check_transition(errors, &change);
}

fn check_uncounted(errors: &mut ErrorList, change: &Change) {
    let Some(pods) = change.new_status.map("uncountedTerminatedPods") else {
        return;
    };
    let mut seen = std::collections::BTreeSet::new();
    for key in ["succeeded", "failed"] {
        for (index, uid) in pods.list(key).iter().enumerate() {
            let path = change.at("uncountedTerminatedPods").child(key).index(index);
            let uid = uid.as_str().unwrap_or("");
            if uid.is_empty() {
                errors.invalid(&path, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path, uid);
            }
        }
    }
}

/// Complete, and when.
fn check_completion(errors: &mut ErrorList, change: &Change) {
    let complete = is_true(change.job, "Complete");
    if (change.turned("Complete") || change.turned("Failed"))
        && complete
        && is_true(change.job, "Failed")
    {
        change.refuse_conditions(
            errors,
            "cannot set Complete=True and Failed=true conditions",
        );
    }
    if (change.turned("Complete") || change.turned("FailureTarget"))
        && complete
        && is_true(change.job, "FailureTarget")
    {
        change.refuse_conditions(
            errors,
            "cannot set Complete=True and FailureTarget=true conditions",
        );
    }
    let (start, completion) = (change.value("startTime"), change.value("completionTime"));
    let path = change.at("completionTime");
    if change.turned("Complete") || change.moved("completionTime") {
        if !completion.is_null() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(&path, completion.clone(), detail);
        }
        if completion.is_null() && complete {
            errors.required(&path, "completionTime is required for Complete jobs");
        }
    }
    let read = |value: &Value| value.as_str().and_then(|text| time::parse(text).ok());
    if (change.moved("startTime") || change.moved("completionTime"))
        && let (Some(start), Some(end)) = (read(&start), read(&completion))
        && end < start
    {
        errors.invalid(&path, completion, "must be equal to or after `startTime`");
    }
}

fn check_terminal_conditions(errors: &mut ErrorList, change: &Change) {
    let is = |kind: &str| is_true(change.job, kind);
    if (change.turned("Failed") || change.moved("failedIndexes"))
        && is("Failed")
        && !is("FailureTarget")
    {
        change.refuse_conditions(
            errors,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
    }
    let complete_or_met = change.turned("Complete") || change.turned("SuccessCriteriaMet");
    if complete_or_met && is("Complete") && !is("SuccessCriteriaMet") {
        change.refuse_conditions(
            errors,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
}

/// A finished job has started and has no pods left.
fn check_finished(errors: &mut ErrorList, change: &Change) {
    if !is_finished(change.job) {
        return;
    }
    let turned = is_finished(change.job) != is_finished(change.old);
    if (turned || change.moved("active")) && change.int("active") > 0 {
        errors.invalid(
            &change.at("active"),
            change.int("active"),
            "active>0 is invalid for finished job",
        );
    }
    let never_ran =
        change.job.bool_at("/spec/suspend") && change.job.i64_at("/spec/completions") == Some(0);
    if (turned || change.moved("startTime"))
        && !never_ran
        && change.new_status.field("startTime").is_none()
    {
        errors.required(
            &change.at("startTime"),
            "startTime is required for finished job",
        );
    }
    let Some(pods) = change.new_status.map("uncountedTerminatedPods") else {
        return;
    };
    let left = pods.list("failed").len() + pods.list("succeeded").len();
    if (turned || change.moved("uncountedTerminatedPods")) && left > 0 {
        let shown = json!({"Succeeded": pods.field("succeeded"), "Failed": pods.field("failed")});
        errors.invalid(
            &change.at("uncountedTerminatedPods"),
            shown,
            "must be empty for finished job",
        );
    }
}

fn check_indexes(errors: &mut ErrorList, change: &Change) {
    let completions = change.job.i64_at("/spec/completions");
    let per_index = change
        .job
        .at("/spec/backoffLimitPerIndex")
        .is_some_and(|limit| !limit.is_null());
    let (completed, failed) = (
        change.new_status.str("completedIndexes"),
        change.new_status.opt_str("failedIndexes"),
    );
    let (completed_moved, failed_moved) = (
        change.moved("completedIndexes"),
        change.moved("failedIndexes"),
    );
    let refuse = |errors: &mut ErrorList, key: &str, value: &str, detail: String| {
        errors.invalid(&change.at(key), value, detail);
    };
    if let (true, Some(Err(why))) = (
        completed_moved,
        completions.map(|completions| count_indexes(completed, completions)),
    ) {
        refuse(
            errors,
            "completedIndexes",
            completed,
            format!("error parsing completedIndexes: {why}"),
        );
    }
    if let (true, Some(completions), Some(failed)) =
        (failed_moved && per_index, completions, failed)
        && let Err(why) = count_indexes(failed, completions)
    {
        refuse(
            errors,
            "failedIndexes",
            failed,
            format!("error parsing failedIndexes: {why}"),
        );
    }
    if completed_moved
        && !completed.is_empty()
        && change.job.str_at("/spec/completionMode") != "Indexed"
    {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        refuse(errors, "completedIndexes", completed, detail.to_owned());
    }
    let Some(failed) = failed else { return };
    if failed_moved && !per_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        refuse(errors, "failedIndexes", failed, detail.to_owned());
    }
    if let (true, Some(completions)) = (failed_moved || completed_moved, completions) {
        let shared = if completed.is_empty() || failed.is_empty() {
            None
        } else {
            overlap(completed, failed, completions)
        };
        if let Some(index) = shared {
            refuse(
                errors,
                "failedIndexes",
                failed,
                format!("failedIndexes and completedIndexes overlap at index: {index}"),
            );
        }
    }
}

fn check_counts(errors: &mut ErrorList, change: &Change) {
    let finished_turned = is_finished(change.job) != is_finished(change.old);
    let terminating = change.int("terminating");
    if (finished_turned || change.moved("terminating"))
        && terminating > 0
        && is_finished(change.job)
    {
        errors.invalid(
            &change.at("terminating"),
            terminating,
            "terminating>0 is invalid for finished job",
        );
    }
    let ready = change.new_status.int("ready");
    let beyond = ready.filter(|ready| {
        (change.moved("ready") || change.moved("active")) && *ready > change.int("active")
    });
    if let Some(ready) = beyond {
        errors.invalid(
            &change.at("ready"),
            ready,
            "cannot set more ready pods than active",
        );
    }
}

fn check_success_criteria(errors: &mut ErrorList, change: &Change) {
    let is = |kind: &str| is_true(change.job, kind);
    let met = is("SuccessCriteriaMet");
    if met && is("Failed") {
        change.refuse_conditions(
            errors,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        );
    }
    if met && is("FailureTarget") {
        change.refuse_conditions(
            errors,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        );
    }
    let has_policy = change
        .job
        .at("/spec/successPolicy")
        .is_some_and(|policy| !policy.is_null());
    if has_policy && !met && is("Complete") {
        let detail =
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        change.refuse_conditions(errors, detail);
    }
}

/// Checks the conditions and counts that no update may take back.
fn check_transition(errors: &mut ErrorList, change: &Change) {
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(change.old, kind) && !is_true(change.job, kind) {
            change.refuse_conditions(
                errors,
                format!("cannot disable the terminal {kind}=True condition"),
            );
        }
    }
    let before = |key: &str| {
        change
            .old
            .map("status")
            .and_then(|status| status.int(key))
            .unwrap_or(0)
    };
    if change.int("failed") < before("failed") {
        errors.invalid(
            &change.at("failed"),
            change.int("failed"),
            "cannot decrease the failed counter",
        );
    }
    let spec = |key: &str| change.job.i64_at(&format!("/spec/{key}"));
    let may_shrink = change.job.str_at("/spec/completionMode") == "Indexed"
        && spec("completions") == spec("parallelism");
    if !may_shrink && change.int("succeeded") < before("succeeded") {
        errors.invalid(
            &change.at("succeeded"),
            change.int("succeeded"),
            "cannot decrease the succeeded counter",
        );
    }
    let old_time = |key: &str| {
        change
            .old
            .map("status")
            .and_then(|status| status.field(key))
    };
    let completion = change.value("completionTime");
    if !completion.is_null()
        && old_time("completionTime").is_some()
        && change.moved("completionTime")
    {
        errors.invalid(
            &change.at("completionTime"),
            completion,
            "field is immutable",
        );
    }
    let resuming =
        is_true(change.old, "Suspended") && has_condition(change.job, "Suspended", "False");
    let start_moved = change.moved("startTime") && old_time("startTime").is_some();
    if start_moved && !resuming && !change.job.bool_at("/spec/suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&change.at("startTime"), change.value("startTime"), detail);
    }
    let (was_met, met) = (
        is_true(change.old, "SuccessCriteriaMet"),
        is_true(change.job, "SuccessCriteriaMet"),
    );
    if was_met && !met {
        change.refuse_conditions(
            errors,
            "cannot disable the SuccessCriteriaMet=True condition",
        );
    }
    if is_true(change.old, "Complete") && !was_met && met {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        change.refuse_conditions(errors, detail);
    }
}
