//! Storage on an etcd v3 cluster.
