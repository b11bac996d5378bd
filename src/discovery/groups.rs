//! The discovery objects: APIVersions, APIGroup(List), APIResourceList, and the aggregated
//! APIGroupDiscoveryList.

use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::ranks::{self, Rank};
use super::{ListedVersion, RemoteVersion};
use crate::meta::gvk::api_version;
use crate::meta::{Gvk, Map, Value, json};
use crate::schema::{ResourceDecl, SubresourceDecl};

/// The resources of one API group.
pub struct Group<'a> {
    pub name: &'a str,
    /// The preferred version first.
    pub versions: Vec<Version<'a>>,
}

/// The resources of one version of an API group.
pub struct Version<'a> {
    pub name: &'a str,
    pub resources: Vec<&'a ResourceDecl>,
}

/// The names of a group and its versions, the preferred one first.
#[derive(Clone)]
pub struct ListedGroup<'a> {
    pub name: &'a str,
    pub versions: Vec<&'a str>,
}

impl<'a> ListedGroup<'a> {
    /// The names of a group of this server.
    pub fn of(group: &Group<'a>) -> Self {
        Self {
            name: group.name,
            versions: group.versions.iter().map(|version| version.name).collect(),
        }
    }
}

/// Returns the groups of `/apis`: the one of the APIServices, then those that they list, by rank
/// (kube-aggregator `apiserver/handler_apis.go`).
pub fn listed<'a>(groups: &[Group<'a>], listed: &'a [ListedVersion]) -> Vec<ListedGroup<'a>> {
    let own = groups
        .iter()
        .filter(|group| group.name == ranks::APIREGISTRATION);
    let mut found: Vec<ListedGroup> = own.map(ListedGroup::of).collect();
    let mut services: Vec<&ListedVersion> = listed
        .iter()
        .filter(|one| !matches!(one.group.as_str(), "" | ranks::APIREGISTRATION))
        .collect();
    services.sort_by_cached_key(|one| {
        let name = format!("{}.{}", one.version, one.group);
        (std::cmp::Reverse(one.rank.group), name)
    });
    let mut versions: Vec<(&str, Vec<(&str, i64)>)> = Vec::new();
    for one in services {
        let group = find_or_push(
            &mut versions,
            |(name, _)| *name == one.group,
            || (&one.group, Vec::new()),
        );
        group.1.push((&one.version, one.rank.version));
    }
    for (name, mut versions) in versions {
        ranks::sort_versions(&mut versions, |one| *one);
        let versions = versions.into_iter().map(|(version, _)| version).collect();
        found.push(ListedGroup { name, versions });
    }
    found
}

/// Collects resources into groups and versions. Groups and versions keep the order in which they
/// first appear.
pub fn collect<'a>(resources: impl IntoIterator<Item = &'a ResourceDecl>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for resource in resources {
        let group = find_or_push(
            &mut groups,
            |one| one.name == resource.group,
            || Group {
                name: &resource.group,
                versions: Vec::new(),
            },
        );
        let version = find_or_push(
            &mut group.versions,
            |one| one.name == resource.version,
            || Version {
                name: &resource.version,
                resources: Vec::new(),
            },
        );
        version.resources.push(resource);
    }
    groups
}

fn find_or_push<T>(list: &mut Vec<T>, is: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

/// `GET /api`. `server_address` is the host and port that clients reach this server at.
pub fn api_versions(groups: &[Group], server_address: &str) -> Value {
    let versions: Vec<&str> = groups
        .iter()
        .filter(|group| group.name.is_empty())
        .flat_map(|group| group.versions.iter().map(|version| version.name))
        .collect();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `GET /apis`: the named groups.
pub fn api_group_list(groups: &[ListedGroup]) -> Value {
    let groups: Vec<Value> = groups
        .iter()
        .map(|group| Value::Object(group_body(group)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/GROUP`.
pub fn api_group(group: &ListedGroup) -> Value {
    let mut out = Map::from_iter([
        ("kind".to_owned(), "APIGroup".into()),
        ("apiVersion".to_owned(), "v1".into()),
    ]);
    out.extend(group_body(group));
    Value::Object(out)
}

fn group_body(group: &ListedGroup) -> Map {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(
            |version| json!({"groupVersion": api_version(group.name, version), "version": version}),
        )
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    Map::from_iter([
        ("name".to_owned(), group.name.into()),
        ("versions".to_owned(), versions.into()),
        ("preferredVersion".to_owned(), preferred),
    ])
}

/// `GET /api/v1` and `GET /apis/GROUP/VERSION`. The core group's list has no apiVersion, as ever.
pub fn api_resource_list(group: &str, version: &Version) -> Value {
    let mut out = Map::new();
    out.insert("kind", "APIResourceList".into());
    if !group.is_empty() {
        out.insert("apiVersion", "v1".into());
    }
    out.insert("groupVersion", api_version(group, version.name).into());
    let mut resources = Vec::new();
    for resource in &version.resources {
        resources.push(api_resource(resource));
        resources.extend(
            resource
                .subresources
                .iter()
                .map(|sub| api_subresource(resource, sub)),
        );
    }
    out.insert("resources", resources.into());
    Value::Object(out)
}

fn api_resource(resource: &ResourceDecl) -> Value {
    let mut out = Map::new();
    out.insert("name", resource.resource.as_str().into());
    out.insert("singularName", resource.singular.as_str().into());
    out.insert("namespaced", resource.namespaced.into());
    out.insert("kind", resource.kind.as_str().into());
    out.insert("verbs", resource.verbs.as_slice().into());
    put_list(&mut out, "shortNames", &resource.short_names);
    put_list(&mut out, "categories", &resource.categories);
    if !resource.storage_prefix.is_empty() {
        out.insert("storageVersionHash", storage_version_hash(resource).into());
    }
    Value::Object(out)
}

fn api_subresource(parent: &ResourceDecl, sub: &SubresourceDecl) -> Value {
    let mut out = Map::new();
    out.insert("name", format!("{}/{}", parent.resource, sub.name).into());
    out.insert("singularName", "".into());
    out.insert("namespaced", parent.namespaced.into());
    for (key, value) in [("group", &sub.kind.group), ("version", &sub.kind.version)] {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.as_str().into());
        }
    }
    out.insert("kind", sub.kind.kind.as_str().into());
    out.insert("verbs", sub.verbs.as_slice().into());
    Value::Object(out)
}

/// Returns the hash of the kind that is stored (apiserver `discovery.StorageVersionHash`).
fn storage_version_hash(resource: &ResourceDecl) -> String {
    let stored = match &resource.storage_gvk {
        Some(stored) => format!("{}/{}/{}", stored.group, stored.version, stored.kind),
        None => format!("{}/{}/{}", resource.group, resource.version, resource.kind),
    };
    BASE64_STANDARD.encode(&digest::digest(&digest::SHA256, stored.as_bytes()).as_ref()[..8])
}

/// A version in the aggregated document.
struct DiscoveryVersion<'a> {
    name: &'a str,
    rank: Rank,
    document: Value,
}

/// The aggregated document: of `/api` the core group alone, of `/apis` the others. A version that
/// another server serves is that server's (apiserver `discovery/aggregated`).
pub fn discovery_list(groups: &[Group], remote: &[RemoteVersion], core: bool) -> Value {
    let remote = remote
        .iter()
        .map(|one| (one.group.as_str(), remote_version(one)));
    let local = groups.iter().flat_map(|group| {
        let versions = group.versions.iter();
        versions.map(|version| (group.name, local_version(group.name, version)))
    });
    let mut all: Vec<(&str, Vec<DiscoveryVersion>)> = Vec::new();
    for (group, version) in remote
        .chain(local)
        .filter(|(group, _)| group.is_empty() == core)
    {
        let (_, versions) =
            find_or_push(&mut all, |(name, _)| *name == group, || (group, Vec::new()));
        if versions.iter().all(|known| known.name != version.name) {
            versions.push(version);
        }
    }
    let rank = |versions: &[DiscoveryVersion]| versions.iter().map(|one| one.rank.group).max();
    all.sort_by(|(a, a_versions), (b, b_versions)| {
        rank(b_versions).cmp(&rank(a_versions)).then(a.cmp(b))
    });
    let items: Vec<Value> = all
        .into_iter()
        .map(|(name, mut versions)| {
            ranks::sort_versions(&mut versions, |one| (one.name, one.rank.version));
            let versions: Vec<Value> = versions.into_iter().map(|one| one.document).collect();
            let metadata = if name.is_empty() {
                json!({})
            } else {
                json!({ "name": name })
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn local_version<'a>(group: &str, version: &Version<'a>) -> DiscoveryVersion<'a> {
    let resources: Vec<Value> = version
        .resources
        .iter()
        .map(|resource| discovery_resource(resource))
        .collect();
    DiscoveryVersion {
        name: version.name,
        rank: ranks::local(group, version.name),
        document: json!({"version": version.name, "resources": resources, "freshness": "Current"}),
    }
}

fn remote_version(remote: &RemoteVersion) -> DiscoveryVersion<'_> {
    let mut document = Map::from_iter([("version".to_owned(), remote.version.as_str().into())]);
    if remote
        .resources
        .as_array()
        .is_some_and(|all| !all.is_empty())
    {
        document.insert("resources", remote.resources.clone());
    }
    let freshness = if remote.is_current {
        "Current"
    } else {
        "Stale"
    };
    document.insert("freshness", freshness.into());
    DiscoveryVersion {
        name: &remote.version,
        rank: remote.rank,
        document: document.into(),
    }
}

fn discovery_resource(resource: &ResourceDecl) -> Value {
    let mut out = Map::new();
    out.insert("resource", resource.resource.as_str().into());
    out.insert(
        "responseKind",
        response_kind(&Gvk {
            kind: resource.kind.clone(),
            ..Gvk::default()
        }),
    );
    out.insert(
        "scope",
        if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        }
        .into(),
    );
    out.insert("singularResource", resource.singular.as_str().into());
    out.insert("verbs", resource.verbs.as_slice().into());
    put_list(&mut out, "shortNames", &resource.short_names);
    put_list(&mut out, "categories", &resource.categories);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| json!({"subresource": sub.name, "responseKind": response_kind(&sub.kind), "verbs": sub.verbs}))
        .collect();
    if !subresources.is_empty() {
        out.insert("subresources", subresources.into());
    }
    Value::Object(out)
}

/// Group and version are empty where they are the document's own.
fn response_kind(kind: &Gvk) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn put_list(out: &mut Map, key: &str, list: &[String]) {
    if !list.is_empty() {
        out.insert(key.to_owned(), list.into());
    }
}
