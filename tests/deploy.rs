//! The manifests under `deploy` and the chart start a server that understands every flag they pass.

use std::fs;
use std::path::Path;

use keelson::internals::options::check;

/// The flags that a manifest passes: list items that begin with two dashes. Template expressions
/// become a value.
fn flags(path: &str) -> Vec<String> {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a manifest");
    let flags = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .filter(|item| item.starts_with("--"));
    flags
        .map(|flag| match flag.split_once("={{") {
            Some(("--service-cluster-ip-range", _)) => {
                "--service-cluster-ip-range=10.96.0.0/16".to_owned()
            }
            Some(("--etcd-servers", _)) => "--etcd-servers=https://127.0.0.1:2379".to_owned(),
            Some((name, _)) => format!("{name}=/value"),
            None => flag.to_owned(),
        })
        .collect()
}

#[test]
fn manifests_pass_flags_that_are_understood() {
    for (path, least) in [
        ("deploy/kubeadm/kube-apiserver.yaml", 27),
        ("helm/keelson/templates/statefulset.yaml", 16),
    ] {
        let flags = flags(path);
        assert!(flags.len() >= least, "{path}: {flags:?}");
        check(flags).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
