//! Tables of the groups that decide about requests: admissionregistration, rbac.authorization,
//! flowcontrol.

use std::cmp::Ordering;

use super::{
    AGE, Cell, Column, NAME, NONE, Printer, TablePrinter, UNSET, condition, integer, join, labels,
    text, wide,
};
use crate::meta::{Object, str_at};

pub fn printer(resource: &str) -> Option<&'static dyn TablePrinter> {
    Some(match resource {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => &WEBHOOKS,
        "mutatingadmissionpolicies" => &MUTATING_POLICY,
        "validatingadmissionpolicies" => &VALIDATING_POLICY,
        "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings" => &POLICY_BINDING,
        "clusterrolebindings" | "rolebindings" => &ROLE_BINDING,
        "flowschemas" => &FlowSchemas,
        "prioritylevelconfigurations" => &PRIORITY_LEVEL,
        _ => return None,
    })
}

static WEBHOOKS: Printer = Printer {
    columns: &[NAME, integer("Webhooks", "The number of webhooks"), AGE],
    fill: |row| {
        row.name().count("/webhooks").age();
    },
};

const PARAM_KIND: Column = text("ParamKind", "The kind of its parameters");

static MUTATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        integer("Mutations", "The number of mutations"),
        PARAM_KIND,
        AGE,
    ],
    fill: |row| {
        let kind = param_kind(row.object);
        row.name().count("/spec/mutations").cell(kind).age();
    },
};

static VALIDATING_POLICY: Printer = Printer {
    columns: &[
        NAME,
        integer("Validations", "The number of validations"),
        PARAM_KIND,
        AGE,
    ],
    fill: |row| {
        let kind = param_kind(row.object);
        row.name().count("/spec/validations").cell(kind).age();
    },
};

fn param_kind(object: &Object) -> String {
    match object.at("/spec/paramKind").filter(|kind| kind.is_object()) {
        Some(kind) => format!("{}/{}", str_at(kind, "/apiVersion"), str_at(kind, "/kind")),
        None => UNSET.to_owned(),
    }
}

static POLICY_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text("PolicyName", "The policy that is bound"),
        text("ParamRef", "The parameters that it gets"),
        AGE,
    ],
    fill: |row| {
        let parameters = param_ref(row.object);
        row.name().text("/spec/policyName").cell(parameters).age();
    },
};

fn param_ref(object: &Object) -> String {
    let Some(reference) = object
        .at("/spec/paramRef")
        .filter(|reference| reference.is_object())
    else {
        return UNSET.to_owned();
    };
    match (
        str_at(reference, "/name"),
        str_at(reference, "/namespace"),
        reference.get("selector"),
    ) {
        ("", _, Some(selector)) if selector.is_object() => {
            labels::selector_as_go_prints_it(selector)
        }
        ("", _, _) => UNSET.to_owned(),
        // Nothing here says whether the kind is namespaced.
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    }
}

static ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        text("Role", "The role that is granted"),
        AGE,
        wide("Users", "The users who get it"),
        wide("Groups", "The groups that get it"),
        wide("ServiceAccounts", "The service accounts that get it"),
    ],
    fill: |row| {
        let object = row.object;
        let named = |kind| {
            let subjects = object
                .array_at("/subjects")
                .iter()
                .filter(move |subject| str_at(subject, "/kind") == kind);
            join(subjects.map(|subject| str_at(subject, "/name")), ", ")
        };
        let accounts = object
            .array_at("/subjects")
            .iter()
            .filter(|subject| str_at(subject, "/kind") == "ServiceAccount");
        let accounts: Vec<String> = accounts
            .map(|one| format!("{}/{}", str_at(one, "/namespace"), str_at(one, "/name")))
            .collect();
        row.name()
            .cell(format!(
                "{}/{}",
                object.str_at("/roleRef/kind"),
                object.str_at("/roleRef/name")
            ))
            .age();
        row.cell(named("User"))
            .cell(named("Group"))
            .cell(accounts.join(", "));
    },
};

/// Lists of flow schemas are shown in the order in which they are tried.
struct FlowSchemas;

static FLOW_SCHEMA: Printer = Printer {
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

impl TablePrinter for FlowSchemas {
    fn columns(&self) -> &[Column] {
        FLOW_SCHEMA.columns()
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

static PRIORITY_LEVEL: Printer = Printer {
    columns: &[
        NAME,
        text("Type", "Exempt or Limited"),
        text(
            "NominalConcurrencyShares",
            "Its share of the server's concurrency",
        ),
        text("Queues", "The number of queues"),
        text("HandSize", "The number of queues a flow may use"),
        text(
            "QueueLengthLimit",
            "The greatest number of requests in a queue",
        ),
        AGE,
    ],
    fill: |row| {
        row.name()
            .text("/spec/type")
            .int_or("/spec/limited/nominalConcurrencyShares", NONE);
        row.int_or("/spec/limited/limitResponse/queuing/queues", NONE)
            .int_or("/spec/limited/limitResponse/queuing/handSize", NONE);
        row.int_or("/spec/limited/limitResponse/queuing/queueLengthLimit", NONE)
            .age();
    },
};
