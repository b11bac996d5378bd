//! The discovery documents of other servers, brought into the form in which this one passes them
//! on: what is not a field of theirs, or of another type, is left out.

use std::collections::HashMap;

use super::autoregister::GroupVersion;
use crate::meta::{Map, Value, array_at, bool_at, json, str_at, value_at};

/// Reads an `APIGroupDiscoveryList`: the resources of each group and version.
pub fn read_aggregated(list: &Value) -> HashMap<GroupVersion, Value> {
    let mut found = HashMap::new();
    for group in array_at(list, "/items") {
        let name = str_at(group, "/metadata/name");
        for version in array_at(group, "/versions") {
            let resources: Vec<Value> = array_at(version, "/resources")
                .iter()
                .map(resource)
                .collect();
            let key = (name.to_owned(), str_at(version, "/version").to_owned());
            found.insert(key, resources.into());
        }
    }
    found
}

fn resource(read: &Value) -> Value {
    let mut out = Map::new();
    put_text(&mut out, "resource", read);
    out.insert("responseKind", kind(value_at(read, "/responseKind")));
    put_text(&mut out, "scope", read);
    put_text(&mut out, "singularResource", read);
    out.insert("verbs", texts(read, "/verbs").into());
    for key in ["shortNames", "categories"] {
        let list = texts(read, &format!("/{key}"));
        if !list.is_empty() {
            out.insert(key.to_owned(), list.into());
        }
    }
    let subresources: Vec<Value> = array_at(read, "/subresources")
        .iter()
        .map(|sub| {
            json!({
                "subresource": str_at(sub, "/subresource"),
                "responseKind": kind(value_at(sub, "/responseKind")),
                "verbs": texts(sub, "/verbs"),
            })
        })
        .collect();
    if !subresources.is_empty() {
        out.insert("subresources", subresources.into());
    }
    out.into()
}

/// A kind; old clients break where there is none.
fn kind(read: Option<&Value>) -> Value {
    let part = |key: &str| read.map_or("", |read| str_at(read, key));
    json!({"group": part("/group"), "version": part("/version"), "kind": part("/kind")})
}

fn put_text(out: &mut Map, key: &'static str, read: &Value) {
    out.insert(key, str_at(read, &format!("/{key}")).into());
}

fn texts(read: &Value, path: &str) -> Vec<String> {
    let texts = array_at(read, path).iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Turns an `APIResourceList` into the resources of an aggregated document (apiserver
/// `ConvertGroupVersionIntoToDiscovery`).
///
/// # Errors
/// A subresource that is of another scope than its resource.
pub fn read_legacy(list: &Value) -> Result<Value, String> {
    let listed = array_at(list, "/resources");
    let is_sub = |one: &&Value| str_at(one, "/name").contains('/');
    let mut resources: Vec<Map> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for one in listed.iter().filter(|one| !is_sub(one)) {
        let name = str_at(one, "/name");
        let mut out = Map::new();
        out.insert("resource", name.into());
        out.insert("responseKind", kind(Some(one)));
        out.insert("scope", scope(one).into());
        out.insert("singularResource", str_at(one, "/singularName").into());
        out.insert("verbs", texts(one, "/verbs").into());
        for key in ["shortNames", "categories"] {
            let list = texts(one, &format!("/{key}"));
            if !list.is_empty() {
                out.insert(key.to_owned(), list.into());
            }
        }
        at.insert(name.to_owned(), resources.len());
        resources.push(out);
    }
    for one in listed.iter().filter(is_sub) {
        let Some((parent, sub)) = str_at(one, "/name").split_once('/') else {
            continue;
        };
        let index = *at.entry(parent.to_owned()).or_insert_with(|| {
            let parent = json!({
                "resource": parent, "responseKind": kind(None), "scope": scope(one),
                "singularResource": "", "verbs": Vec::<String>::new(),
            });
            resources.push(parent.as_object().cloned().unwrap_or_default());
            resources.len() - 1
        });
        let Some(resource) = resources.get_mut(index) else {
            continue;
        };
        let of_parent = resource
            .get("scope")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if of_parent != scope(one) {
            return Err(format!(
                "Error: Parent {parent} (scope: {of_parent}) and subresource {sub} (scope: {}) scope do not match",
                scope(one)
            ));
        }
        let of_sub = Some(one).filter(|one| !str_at(one, "/kind").is_empty());
        let sub = json!({"subresource": sub, "responseKind": kind(of_sub), "verbs": texts(one, "/verbs")});
        if let Some(all) = resource
            .entry("subresources")
            .or_insert_with(|| json!([]))
            .as_array_mut()
        {
            all.push(sub);
        }
    }
    Ok(resources
        .into_iter()
        .map(Value::Object)
        .collect::<Vec<_>>()
        .into())
}

fn scope(listed: &Value) -> &'static str {
    match bool_at(listed, "/namespaced") {
        true => "Namespaced",
        false => "Cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_other_servers_are_brought_into_form() {
        let list = json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [{
            "resource": "things", "scope": "Namespaced", "singularResource": "thing", "verbs": ["get", 7], "evil": "<html>",
            "shortNames": "none", "subresources": [{"subresource": "status", "responseKind": {"kind": "Thing"}}],
        }]}, "garbage"]}, 3]});
        let found = read_aggregated(&list);
        let want = json!([{
            "resource": "things", "responseKind": {"group": "", "version": "", "kind": ""}, "scope": "Namespaced",
            "singularResource": "thing", "verbs": ["get"],
            "subresources": [{"subresource": "status", "responseKind": {"group": "", "version": "", "kind": "Thing"}, "verbs": []}],
        }]);
        assert_eq!(found.get(&("g".to_owned(), "v1".to_owned())), Some(&want));
        assert!(read_aggregated(&json!("garbage")).is_empty());
    }

    #[test]
    fn resource_lists_become_aggregated_documents() {
        let list = json!({"resources": [
            {"name": "things/status", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"], "shortNames": ["t"]},
            {"name": "orphans/scale", "namespaced": false, "verbs": ["update"]},
        ]});
        let no_kind = json!({"group": "", "version": "", "kind": ""});
        let thing = json!({"group": "", "version": "", "kind": "Thing"});
        let want = json!([
            {"resource": "things", "responseKind": thing, "scope": "Namespaced", "singularResource": "thing", "verbs": ["get"],
             "shortNames": ["t"], "subresources": [{"subresource": "status", "responseKind": thing, "verbs": ["get"]}]},
            {"resource": "orphans", "responseKind": no_kind, "scope": "Cluster", "singularResource": "", "verbs": [],
             "subresources": [{"subresource": "scale", "responseKind": no_kind, "verbs": ["update"]}]},
        ]);
        assert_eq!(read_legacy(&list), Ok(want));
        let odd = json!({"resources": [{"name": "a", "namespaced": true}, {"name": "a/b"}]});
        assert!(read_legacy(&odd).is_err_and(|why| why.contains("scope do not match")));
    }
}
