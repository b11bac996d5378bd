//! Tables of the small groups: apiregistration, certificates, coordination, node, scheduling.

use jiff::SignedDuration;

use super::{AGE, NAME, NONE, Printer, TablePrinter, boolean, condition, integer, text};
use crate::meta::{Object, str_at};
use crate::registry::duration;

pub fn printer(group: &str, resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match (group, resource) {
        ("apiregistration.k8s.io", "apiservices") => &API_SERVICE,
        ("certificates.k8s.io", "certificatesigningrequests") => &CERTIFICATE_SIGNING_REQUEST,
        ("coordination.k8s.io", "leases") => &LEASE,
        ("node.k8s.io", "runtimeclasses") => &RUNTIME_CLASS,
        ("scheduling.k8s.io", "priorityclasses") => &PRIORITY_CLASS,
        _ => return None,
    })
}

static API_SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text("Service", "The service that serves the group"),
        text("Available", "Whether it can be reached"),
        AGE,
    ],
    fill: |row| {
        let object = row.object;
        let service = match object
            .at("/spec/service")
            .filter(|service| service.is_object())
        {
            Some(service) => format!(
                "{}/{}",
                str_at(service, "/namespace"),
                str_at(service, "/name")
            ),
            None => "Local".to_owned(),
        };
        let available = match condition(object, "/status/conditions", "Available")
            .map(|one| (str_at(one, "/status"), str_at(one, "/reason")))
        {
            None => "Unknown".to_owned(),
            Some(("True", _)) => "True".to_owned(),
            Some((status, "")) => status.to_owned(),
            Some((status, reason)) => format!("{status} ({reason})"),
        };
        row.name().cell(service).cell(available).age();
    },
};

static CERTIFICATE_SIGNING_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        text("SignerName", "Who is asked to sign"),
        text("Requestor", "Who asks"),
        text(
            "RequestedDuration",
            "How long the certificate should be valid",
        ),
        text("Condition", "What became of the request"),
    ],
    fill: |row| {
        let seconds = row.object.i64_at("/spec/expirationSeconds");
        let requested = seconds.map_or(NONE.to_owned(), |seconds| {
            duration::human(SignedDuration::from_secs(seconds))
        });
        let condition = signing_condition(row.object);
        row.name()
            .age()
            .text_unless_empty("/spec/signerName", NONE)
            .text("/spec/username")
            .cell(requested)
            .cell(condition);
    },
};

fn signing_condition(object: &Object) -> String {
    let has = |kind| condition(object, "/status/conditions", kind).is_some();
    let mut text = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !object.str_at("/status/certificate").is_empty() {
        text.push_str(",Issued");
    }
    text
}

static LEASE: Printer = Printer {
    columns: &[NAME, text("Holder", "Who holds it"), AGE],
    fill: |row| {
        row.name().text("/spec/holderIdentity").age();
    },
};

static RUNTIME_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text("Handler", "What the container runtime calls it"),
        AGE,
    ],
    fill: |row| {
        row.name().text("/handler").age();
    },
};

static PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        integer("Value", "The greater, the more important"),
        boolean("Global-Default", "Whether pods without a class get it"),
        AGE,
        text("PreemptionPolicy", "Whether its pods may displace others"),
    ],
    fill: |row| {
        row.name()
            .int("/value")
            .bool_or("/globalDefault", false)
            .age()
            .text("/preemptionPolicy");
    },
};
