//! Flags of this server that kube-apiserver does not have.

use super::{Flag, used};
use crate::options::flags::Kind::{Duration, Int, List, Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(List, "controllers", "",
        "the controllers of kube-controller-manager that run inside this server: namespace, garbagecollector, serviceaccount, \
         serviceaccount-token, root-ca, resourcequota; * for all, -NAME for all but one. Not for clusters that have a controller manager"),
    used(Text, "data-dir", "./keelson-data",
        "where the embedded store is, and the certificates and keys that the server makes itself"),
    used(Int, "decoded-body-memory-bytes", "-1",
        "memory for what the bodies of requests are decoded to; -1 for a quarter of the memory limit"),
    used(Int, "encoded-object-cache-bytes", "-1",
        "memory for objects of the watch cache as clients get them, encoded once for all; 0 for none, -1 for an eighth of the memory limit, at most 192 MiB"),
    used(Switch, "in-memory", "false",
        "keep the embedded store in memory alone: it is empty at each start; certificates and keys are in --data-dir as ever"),
    used(Int, "memory-limit-bytes", "0",
        "the memory of which budgets are shares; 0 for the limit of the control group, or what the machine has"),
    used(Int, "request-body-memory-bytes", "-1",
        "memory for the bodies of requests; -1 for a sixteenth of the memory limit, at most 256 MiB"),
    used(Switch, "unsafe-no-fsync", "false",
        "do not wait for the disk: what was acknowledged, or the whole embedded store, may be gone after a failure of the machine"),
    used(Int, "quota-backend-bytes", "0",
        "bytes of keys and values in the embedded store, old revisions included, beyond which it takes only deletions; 0 for any number"),
    used(Text, "snapshot-dir", "",
        "the folder of the snapshots that the server takes of the embedded store; snapshots in --data-dir if empty"),
    used(Duration, "snapshot-interval", "0s",
        "how often it takes one; 0 for never"),
    used(Int, "snapshot-retention", "5",
        "how many of them are kept"),
    used(Int, "worker-threads", "0",
        "how many threads answer requests, at least 2; 0 for one on each processor"),
];
