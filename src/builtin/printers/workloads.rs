//! Tables of the groups apps, batch and policy.

use crate::meta::Value;

use super::{
    AGE, CONTAINERS, Cell, IMAGES, NAME, NONE, Printer, Row, SELECTOR, TablePrinter, UNSET,
    boolean, condition, integer, labels, text,
};
use crate::meta::{Object, str_at};

pub fn printer(resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match resource {
        "controllerrevisions" => &CONTROLLER_REVISION,
        "daemonsets" => &DAEMON_SET,
        "deployments" => &DEPLOYMENT,
        "replicasets" => &REPLICA_SET,
        "statefulsets" => &STATEFUL_SET,
        "cronjobs" => &CRON_JOB,
        "jobs" => &JOB,
        "poddisruptionbudgets" => &POD_DISRUPTION_BUDGET,
        _ => return None,
    })
}

/// Where a template keeps its containers.
const TEMPLATE: &str = "/spec/template/spec/containers";

static CONTROLLER_REVISION: Printer = Printer {
    columns: &[
        NAME,
        text("Controller", "The object it is a revision of"),
        text("Revision", "The number of the revision"),
        AGE,
    ],
    fill: |row| {
        let owners = row.object.array_at("/metadata/ownerReferences");
        let controller = owners
            .iter()
            .find(|owner| crate::meta::bool_at(owner, "/controller"))
            .map_or(NONE.to_owned(), |owner| {
                let group = str_at(owner, "/apiVersion")
                    .rsplit_once('/')
                    .map_or(String::new(), |(group, _)| format!(".{group}"));
                format!(
                    "{}/{}",
                    format!("{}{group}", str_at(owner, "/kind")).to_lowercase(),
                    str_at(owner, "/name")
                )
            });
        row.name().cell(controller).int("/revision").age();
    },
};

static DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired", "The number of nodes that should run its pod"),
        integer("Current", "The number of those nodes that run it"),
        integer("Ready", "The number of nodes on which it is ready"),
        integer(
            "Up-to-date",
            "The number of nodes that run the current template",
        ),
        integer("Available", "The number of nodes on which it is available"),
        text("Node Selector", "The labels of the nodes that are meant"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fill: |row| {
        row.name()
            .int("/status/desiredNumberScheduled")
            .int("/status/currentNumberScheduled")
            .int("/status/numberReady");
        row.int("/status/updatedNumberScheduled")
            .int("/status/numberAvailable")
            .labels("/spec/template/spec/nodeSelector")
            .age();
        row.containers(TEMPLATE).selector("/spec/selector");
    },
};

static DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", "How many of its pods are ready"),
        text("Up-to-date", "The number of pods of the current template"),
        text("Available", "The number of pods that are available"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fill: |row| {
        row.name()
            .ratio("/status/readyReplicas", "/spec/replicas")
            .int("/status/updatedReplicas")
            .int("/status/availableReplicas")
            .age();
        let selector = labels::selector_text(row.object.at("/spec/selector"))
            .unwrap_or_else(|| "<invalid>".to_owned());
        row.containers(TEMPLATE).cell(selector);
    },
};

static REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        integer("Desired", "The number of pods that is wanted"),
        integer("Current", "The number of pods that exist"),
        integer("Ready", "The number of pods that are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fill: |row| {
        row.name()
            .int("/spec/replicas")
            .int("/status/replicas")
            .int("/status/readyReplicas")
            .age();
        row.containers(TEMPLATE).selector("/spec/selector");
    },
};

static STATEFUL_SET: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", "How many of its pods are ready"),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    fill: |row| {
        row.name()
            .ratio("/status/readyReplicas", "/spec/replicas")
            .age()
            .containers(TEMPLATE);
    },
};

static CRON_JOB: Printer = Printer {
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

static JOB: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "How far the job is"),
        text("Completions", "How many of its pods have succeeded"),
        text("Duration", "How long it ran, or has been running"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    fill: |row| {
        let (status, completions, duration) = (
            job_status(row.object),
            completions(row.object),
            job_duration(row),
        );
        row.name()
            .cell(status)
            .cell(completions)
            .cell(duration)
            .age()
            .containers(TEMPLATE)
            .selector("/spec/selector");
    },
};

fn job_status(object: &Object) -> &'static str {
    let holds = |kind| {
        condition(object, "/status/conditions", kind)
            .is_some_and(|condition| str_at(condition, "/status") == "True")
    };
    match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if object.deletion_timestamp().is_some() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(object: &Object) -> String {
    let succeeded = object.i64_at("/status/succeeded").unwrap_or(0);
    match (
        object.i64_at("/spec/completions"),
        object.i64_at("/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(row: &Row) -> Cell {
    match (
        row.object.str_at("/status/startTime"),
        row.object.str_at("/status/completionTime").parse(),
    ) {
        ("", _) => "".into(),
        (start, Ok(end)) => Cell::since(start).at(end).into(),
        (start, Err(_)) => Cell::since(start),
    }
}

static POD_DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        text(
            "Min Available",
            "The number or share of pods that must stay",
        ),
        text(
            "Max Unavailable",
            "The number or share of pods that may be missing",
        ),
        integer(
            "Allowed Disruptions",
            "The number of pods that may be evicted now",
        ),
        AGE,
    ],
    fill: |row| {
        let object = row.object;
        let limit = |path| match object.at(path) {
            Some(Value::String(share)) => share.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => "N/A".to_owned(),
        };
        row.name()
            .cell(limit("/spec/minAvailable"))
            .cell(limit("/spec/maxUnavailable"))
            .int("/status/disruptionsAllowed")
            .age();
    },
};
