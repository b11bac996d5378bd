//! The discovery objects: APIVersions, APIGroup(List), APIResourceList, and the aggregated
//! APIGroupDiscoveryList.

use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

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
pub fn api_group_list(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(|group| Value::Object(group_body(group)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/GROUP`.
pub fn api_group(group: &Group) -> Value {
    let mut out = Map::from_iter([
        ("kind".to_owned(), "APIGroup".into()),
        ("apiVersion".to_owned(), "v1".into()),
    ]);
    out.extend(group_body(group));
    Value::Object(out)
}

fn group_body(group: &Group) -> Map {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": api_version(group.name, version.name), "version": version.name}))
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

/// The aggregated document: of `/api` the core group alone, of `/apis` the others.
pub fn discovery_list(groups: &[Group], core: bool) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(discovery_group)
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn discovery_group(group: &Group) -> Value {
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({"name": group.name})
    };
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = version
                .resources
                .iter()
                .map(|resource| discovery_resource(resource))
                .collect();
            json!({"version": version.name, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": metadata, "versions": versions})
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
