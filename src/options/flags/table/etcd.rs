//! Flags of the section "Etcd".

use super::{Flag, ignored, refused, used};
use crate::options::flags::Kind::{Duration, Int, List, Switch, Text};

#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    used(Int, "delete-collection-workers", "1",
        "how many objects of a collection are deleted at once"),
    refused(Switch, "enable-garbage-collector", "true",
        "deletes always mark objects for the garbage collector"),
    used(Text, "encryption-provider-config", "",
        "the file with an EncryptionConfiguration: the providers that encrypt resources in the store"),
    used(Switch, "encryption-provider-config-automatic-reload", "false",
        "read that file again when it changes"),
    used(Text, "etcd-cafile", "", "the certificate authority of etcd"),
    used(Text, "etcd-certfile", "", "the client certificate for etcd"),
    used(Duration, "etcd-compaction-interval", "5m0s",
        "how often old revisions are compacted away; 0 for never"),
    used(Duration, "etcd-count-metric-poll-period", "1m0s",
        "how often the stored objects are counted for the metrics; 0 for never"),
    ignored(Duration, "etcd-db-metric-poll-interval", "30s",
        "the metric that it is about is hidden in kube-apiserver; apiserver_storage_size_bytes is always current"),
    used(Duration, "etcd-healthcheck-timeout", "2s",
        "how long the store may take to prove its health"),
    used(Text, "etcd-keyfile", "", "the key of the client certificate for etcd"),
    used(Text, "etcd-prefix", "/registry", "what every key in the store begins with"),
    used(Duration, "etcd-readycheck-timeout", "2s",
        "how long the store may take to prove that it is ready"),
    used(List, "etcd-servers", "",
        "the etcd servers (scheme://ip:port); without any, the embedded store in --data-dir is used"),
    used(List, "etcd-servers-overrides", "",
        "group/resource#server;server of resources (events, mostly) that are in an etcd of their own"),
    used(Int, "lease-reuse-duration-seconds", "60",
        "how much longer than asked events may live in etcd, so that many can share a lease"),
    refused(Text, "storage-backend", "etcd3",
        "the only backend is etcd3 (or none, for the embedded store)"),
    refused(Text, "storage-media-type", "application/vnd.kubernetes.protobuf",
        "objects are stored as protobuf"),
    used(Switch, "watch-cache", "true", "serve reads and watches from memory"),
    used(List, "watch-cache-sizes", "",
        "resource[.group]#0 for each resource that is not to be cached; other sizes mean nothing"),
];
