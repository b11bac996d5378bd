//! The order of groups and versions in discovery: the higher the rank, the earlier
//! (`cmd/kube-apiserver/app/aggregator.go`, kube-aggregator `apis/apiregistration/v1/helper`).

use std::cmp::Reverse;

use crate::extensions::compare_versions;

/// The rank of a group and version among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// `groupPriorityMinimum`: the highest one of the versions is the group's.
    pub group: i64,
    /// `versionPriority`: the rank within the group.
    pub version: i64,
}

const fn rank(group: i64, version: i64) -> Rank {
    Rank { group, version }
}

/// The rank of custom resources.
pub const CUSTOM: Rank = rank(1000, 100);
/// The group that no APIService lists, because it has the APIServices. It comes first.
pub const APIREGISTRATION: &str = "apiregistration.k8s.io";

/// A group, its rank, and those of its versions.
type GroupRank = (&'static str, i64, &'static [(&'static str, i64)]);

#[rustfmt::skip]
const BUILTIN: &[GroupRank] = &[
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

/// The rank of a built-in group and version; `None` for those without an APIService,
/// apiregistration.k8s.io among them.
pub fn builtin(group: &str, version: &str) -> Option<Rank> {
    let (_, minimum, versions) = BUILTIN.iter().find(|(name, ..)| *name == group)?;
    let (_, priority) = versions.iter().find(|(name, _)| *name == version)?;
    Some(rank(*minimum, *priority))
}

/// The rank of what this server serves itself.
pub fn local(group: &str, version: &str) -> Rank {
    match group {
        // Above the highest that an APIService may have.
        APIREGISTRATION => rank(20_001, 0),
        _ => builtin(group, version).unwrap_or(CUSTOM),
    }
}

/// Sorts versions: by rank, then v2 before v1 before v1beta1.
pub fn sort_versions<T>(versions: &mut [T], of: impl Fn(&T) -> (&str, i64)) {
    versions.sort_by(|a, b| {
        let ((a, a_rank), (b, b_rank)) = (of(a), of(b));
        Reverse(a_rank)
            .cmp(&Reverse(b_rank))
            .then_with(|| compare_versions(b, a))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_higher_rank_come_first() {
        let mut versions = [("v1", 15), ("v2beta1", 15), ("v1beta1", 20), ("v2", 15)];
        sort_versions(&mut versions, |(name, rank)| (*name, *rank));
        assert_eq!(
            versions.map(|(name, _)| name),
            ["v1beta1", "v2", "v1", "v2beta1"]
        );
    }

    #[test]
    fn groups_have_ranks_of_their_own() {
        assert_eq!(local("apps", "v1"), rank(17_800, 15));
        assert_eq!(local("example.com", "v1"), CUSTOM);
        assert_eq!(local(APIREGISTRATION, "v1").group, 20_001);
        assert_eq!(builtin(APIREGISTRATION, "v1"), None);
    }
}
