//! APIServices: the ranks of groups and versions in discovery
//! (`cmd/kube-apiserver/app/aggregator.go`).

use super::ObjectClient;
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Value, json};

/// A group, its rank, and those of its versions: the higher, the earlier.
type GroupRank = (&'static str, i64, &'static [(&'static str, i64)]);

#[rustfmt::skip]
const PRIORITIES: &[GroupRank] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15)]),
    ("authentication.k8s.io", 17700, &[("v1", 15)]),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    ("autoscaling", 17500, &[
        ("v1", 15),
        ("v2", 30),
    ]),
    ("batch", 17400, &[("v1", 15)]),
    ("certificates.k8s.io", 17300, &[("v1", 15)]),
    ("networking.k8s.io", 17200, &[("v1", 15)]),
    ("policy", 17100, &[("v1", 15)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    ("storage.k8s.io", 16800, &[("v1", 15)]),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16700, &[("v1", 15)]),
    ("scheduling.k8s.io", 16600, &[("v1", 15)]),
    ("coordination.k8s.io", 16500, &[("v1", 15)]),
    ("node.k8s.io", 16300, &[("v1", 15)]),
    ("discovery.k8s.io", 16200, &[("v1", 15)]),
    ("resource.k8s.io", 16200, &[("v1", 21)]),
    ("flowcontrol.apiserver.k8s.io", 16100, &[("v1", 21)]),
];

/// The rank of a group and version: (groupPriorityMinimum, versionPriority). `None` for those
/// without an APIService, apiregistration.k8s.io among them.
pub fn priority(group: &str, version: &str) -> Option<(i64, i64)> {
    let (_, minimum, versions) = PRIORITIES.iter().find(|(name, ..)| *name == group)?;
    let (_, rank) = versions.iter().find(|(name, _)| *name == version)?;
    Some((*minimum, *rank))
}

/// The mark of the APIServices that a server makes at its start, and takes away where it does not
/// serve their version.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Takes away the APIServices of built-in versions that are not among the served ones
/// (kube-aggregator's `autoregister`).
///
/// # Errors
/// Those of `client`.
pub async fn remove_unserved(served: &[(String, String)], client: &dyn ObjectClient) -> Result<()> {
    let gvr = Gvr::new("apiregistration.k8s.io", "v1", "apiservices");
    let mut unserved: Vec<String> = Vec::new();
    for (group, _, versions) in PRIORITIES {
        let is_served =
            |version: &str| served.iter().any(|one| one.0 == *group && one.1 == version);
        unserved.extend(
            versions
                .iter()
                .filter(|(version, _)| !is_served(version))
                .map(|(version, _)| format!("{version}.{group}")),
        );
    }
    for name in unserved {
        let Some(found) = client.get(&gvr, "", &name).await? else {
            continue;
        };
        if found
            .labels()
            .and_then(|labels| labels.get(AUTOMANAGED))
            .and_then(Value::as_str)
            == Some("onstart")
        {
            client.delete(&gvr, "", &name).await?;
        }
    }
    Ok(())
}

/// The APIService of a built-in group and version, `None` where it has none.
pub fn api_service(group: &str, version: &str) -> Option<(Gvr, Object)> {
    let (minimum, rank) = priority(group, version)?;
    let mut object = super::object(
        "apiregistration.k8s.io/v1",
        "APIService",
        "",
        &format!("{version}.{group}"),
    );
    object
        .metadata_mut()
        .insert("labels", json!({AUTOMANAGED: "onstart"}));
    let spec = match group {
        "" => json!({"version": version, "groupPriorityMinimum": minimum, "versionPriority": rank}),
        group => {
            json!({"group": group, "version": version, "groupPriorityMinimum": minimum, "versionPriority": rank})
        }
    };
    object.insert("spec", spec);
    Some((
        Gvr::new("apiregistration.k8s.io", "v1", "apiservices"),
        object,
    ))
}
