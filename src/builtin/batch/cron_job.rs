//! CronJobs: jobs on a schedule (`pkg/registry/batch/cronjob`).

use super::job::default_pods;
use crate::builtin::batch::job::spec::{check_job_spec, spec_warnings};
use crate::builtin::columns::{
    AGE, CONTAINERS, ColumnPrinter, IMAGES, NAME, NONE, SELECTOR, UNSET, boolean, integer, text,
};
use crate::builtin::defaulting::{fill, fill_text, part_or_new};
use crate::builtin::pod_spec::validation_options::PodValidationOptions;
use crate::builtin::resource_traits::{ResourceEntry, ResourceTraits, WORKLOAD};
use crate::builtin::workload::pod_name_warning;
use crate::meta::go::cron::{is_time_zone, schedule_problem};
use crate::meta::{ErrorList, Map, Object, Path, Value};
use crate::registry::validation::{Fields, not_negative, not_negative_field, required_one_of};
use crate::registry::{Context, MetaChecks, Strategy, Subresource};

/// The entry of `cronjobs`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "cronjobs",
    traits: ResourceTraits {
        status_meta_checks: MetaChecks::None,
        pod_spec: Some("/spec/jobTemplate/spec/template/spec"),
        ..WORKLOAD
    },
    strategy: &CronJobStrategy,
    printer: &PRINTER,
};

/// The longest name: jobs get it with eleven characters more.
const NAME_MAX: usize = 52;
/// The longest part of a time zone's name.
const ZONE_PART_MAX: usize = 14;

pub struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn default(&self, object: &mut Object) {
        let spec = object.section_mut("spec");
        fill_text(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        default_pods(part_or_new(part_or_new(spec, "jobTemplate"), "spec"));
    }

    fn validate(&self, ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = check_spec(ctx, object, None);
        if object.name().len() > NAME_MAX {
            let path = Path::new("metadata").child("name");
            errors.invalid(
                &path,
                object.name(),
                format!("must be no more than {NAME_MAX} characters"),
            );
        }
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Status {
            ErrorList::new()
        } else {
            check_spec(ctx, object, Some(old))
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let path = Path::new("spec").child("jobTemplate").child("spec");
        let mut warnings = Vec::new();
        if old.is_none() {
            warnings.extend(pod_name_warning(object));
        }
        if old.is_none_or(|old| old.generation() != object.generation()) {
            warnings.extend(spec_warnings(
                &path,
                object
                    .at("/spec/jobTemplate/spec")
                    .and_then(Value::as_object),
            ));
        }
        if old.is_some() && object.str_at("/spec/schedule").contains("TZ") {
            warnings.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn check_spec(ctx: &Context, object: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = object.section("spec");
    let before = old.and_then(|old| old.map("spec"));
    let path = Path::new("spec");
    let zone = spec.opt_str("timeZone");
    check_schedule(&mut errors, &path.child("schedule"), spec, before);
    not_negative_field(&mut errors, &path, "startingDeadlineSeconds", spec);
    if let Some(zone) =
        zone.filter(|_| before.is_none_or(|before| before.opt_str("timeZone") != zone))
    {
        check_time_zone(&mut errors, &path.child("timeZone"), zone);
    }
    let policy = spec.str("concurrencyPolicy");
    required_one_of(
        &mut errors,
        &path.child("concurrencyPolicy"),
        policy,
        &["Allow", "Forbid", "Replace"],
    );
    let template = |spec: &Map| {
        spec.map("jobTemplate")
            .and_then(|template| template.map("spec"))
            .cloned()
    };
    let (job, old_job) = (
        template(spec).unwrap_or_default(),
        before.and_then(template).unwrap_or_default(),
    );
    let options =
        PodValidationOptions::of_templates(ctx, job.field("template"), old_job.field("template"));
    check_job_template(
        &mut errors,
        &path.child("jobTemplate").child("spec"),
        &job,
        &options,
    );
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&mut errors, &path.child(key), spec.int(key).unwrap_or(0));
    }
    errors
}

fn check_job_template(
    errors: &mut ErrorList,
    path: &Path,
    job: &Map,
    options: &PodValidationOptions,
) {
    check_job_spec(errors, path, job, options);
    if let Some(selector) = job.field("selector") {
        errors.invalid(
            &path.child("selector"),
            selector.clone(),
            "`selector` will be auto-generated",
        );
    }
    if job.flag("manualSelector") {
        errors.not_supported(&path.child("manualSelector"), true, &["nil", "false"]);
    }
}

fn check_schedule(errors: &mut ErrorList, path: &Path, spec: &Map, old: Option<&Map>) {
    let schedule = spec.str("schedule");
    if schedule.is_empty() {
        errors.required(path, "");
        return;
    }
    if let Some(problem) = schedule_problem(schedule) {
        errors.invalid(path, schedule, problem);
    }
    if !schedule.contains("TZ") {
        return;
    }
    if !old.is_some_and(|old| old.str("schedule").contains("TZ")) {
        errors.invalid(
            path,
            schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    } else if spec.opt_str("timeZone").is_some() {
        errors.invalid(
            path,
            schedule,
            "cannot use both timeZone field and TZ or CRON_TZ in schedule",
        );
    }
}

fn check_time_zone(errors: &mut ErrorList, path: &Path, zone: &str) {
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let fine = |part: &str| {
        let characters = part
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".-_+".contains(&c));
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= ZONE_PART_MAX
            && characters
    };
    let unknown = format!("unknown time zone {zone}");
    if !zone.split('/').all(fine) {
        errors.invalid(path, zone, unknown);
    } else if zone.eq_ignore_ascii_case("Local") {
        let detail =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
        if zone != "Local" {
            errors.invalid(path, zone, unknown);
        }
    } else if zone.contains("..") {
        let detail = "time: invalid location name";
        errors.invalid(path, zone, detail);
    } else if !is_time_zone(zone) {
        errors.invalid(path, zone, unknown);
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("Schedule", "When it runs, in cron's format"),
        text("Timezone", "The time zone of the schedule"),
        boolean("Suspend", "Whether it is suspended"),
        integer("Active", "The number of its jobs that are running"),
        text("Last Schedule", "The time since a job was last started"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    paths: "spec.schedule spec.timeZone spec.suspend spec.jobTemplate.spec.selector \
        spec.jobTemplate.spec.template.spec.containers.name \
        spec.jobTemplate.spec.template.spec.containers.image status.active \
        status.lastScheduleTime",
    fill: |row| {
        let suspend = match row.object.at("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => UNSET,
        };
        row.name()
            .text("/spec/schedule")
            .text_or("/spec/timeZone", NONE)
            .cell(suspend)
            .count("/status/active");
        row.since_or("/status/lastScheduleTime", NONE).age();
        row.containers("/spec/jobTemplate/spec/template/spec/containers")
            .selector("/spec/jobTemplate/spec/selector");
    },
};
