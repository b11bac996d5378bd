//! Flags of this server that kube-apiserver does not have.

use super::{Flag, used};
use crate::options::flags::Kind::{Int, List, Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(List, "controllers", "",
        "the controllers of kube-controller-manager that run inside this server: namespace, garbagecollector, serviceaccount, \
         serviceaccount-token, root-ca, resourcequota; * for all, -NAME for all but one. Not for clusters that have a controller manager"),
    used(Text, "data-dir", "./keelson-data",
        "where the embedded store is, and the certificates and keys that the server makes itself"),
    used(Int, "encoded-object-cache-bytes", "201326592",
        "memory for objects of the watch cache as clients get them, encoded once for all; 0 for none"),
    used(Switch, "in-memory", "false",
        "keep the embedded store in memory alone: it is empty at each start; certificates and keys are in --data-dir as ever"),
    used(Switch, "unsafe-no-fsync", "false",
        "do not wait for the disk: what was acknowledged, or the whole embedded store, may be gone after a failure of the machine"),
    used(Int, "worker-threads", "0",
        "how many threads answer requests, at least 2; 0 for one on each processor"),
];
