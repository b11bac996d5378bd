//! Every flag of kube-apiserver v1.36 with its type, its default and its effect on this server, one
//! file for each section of `--help`.

mod admission;
mod api_enablement;
mod auditing;
mod authentication;
mod authorization;
mod etcd;
mod features;
mod generic;
mod global;
mod keelson;
mod kube_apiserver;
mod logs;
mod metrics;
mod secure_serving;
mod traces;

use super::{Effect, Flag, Kind};

/// The sections of `--help` with their flags.
pub const SECTIONS: &[(&str, &[Flag])] = &[
    ("Keelson", keelson::FLAGS),
    ("Generic", generic::FLAGS),
    ("Etcd", etcd::FLAGS),
    ("Secure serving", secure_serving::FLAGS),
    ("Auditing", auditing::FLAGS),
    ("Features", features::FLAGS),
    ("Authentication", authentication::FLAGS),
    ("Authorization", authorization::FLAGS),
    ("API enablement", api_enablement::FLAGS),
    ("Admission", admission::FLAGS),
    ("Metrics", metrics::FLAGS),
    ("Logs", logs::FLAGS),
    ("Traces", traces::FLAGS),
    ("Misc", kube_apiserver::FLAGS),
    ("Global", global::FLAGS),
];

/// Returns a flag that has its effect.
const fn used(kind: Kind, name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Used,
        text: help,
    }
}

/// Returns a flag that is accepted and changes nothing that a client could see, because `why`.
const fn ignored(kind: Kind, name: &'static str, default: &'static str, why: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Ignored,
        text: why,
    }
}

/// Returns a flag that is refused with any value but its default, because `why`: accepted, the
/// server would not do what it was told to.
const fn refused(kind: Kind, name: &'static str, default: &'static str, why: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        effect: Effect::Refused,
        text: why,
    }
}
