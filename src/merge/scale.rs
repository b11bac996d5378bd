//! Managed fields of an object and its scale subresource: the owners of the replicas of one own
//! those of the other (apimachinery `util/managedfields/scalehandler.go`).

use crate::meta::Value;

use super::managers::{Entry, Managed};
use super::path::PathElement;
use super::set::Set;

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS_IN_SCALE: [PathElement<'static>; 2] =
    [PathElement::Field("spec"), PathElement::Field("replicas")];

/// The path of the replicas in each version of a kind: `apps/v1`, `spec` `replicas`. A version
/// without a scale subresource has `None`; entries of versions that are not listed are dropped.
pub type ReplicasPaths = [(String, Option<Vec<String>>)];

fn replicas_path<'a>(
    paths: &'a ReplicasPaths,
    version: &str,
) -> Option<Option<Vec<PathElement<'a>>>> {
    let (_, path) = paths.iter().find(|(listed, _)| listed == version)?;
    Some(
        path.as_ref()
            .map(|path| path.iter().map(|name| PathElement::Field(name)).collect()),
    )
}

fn set_of<'a>(path: &[PathElement<'a>]) -> Set<'a> {
    let mut set = Set::default();
    set.insert(path);
    set
}

/// The managed fields of the Scale of an object with the managed fields `parent`.
///
/// # Errors
/// The managed fields of `parent` are broken.
pub fn to_scale(parent: Option<&Value>, paths: &ReplicasPaths) -> Result<Option<Value>, String> {
    let mut scale = Managed::default();
    for entry in Managed::decode(parent)?.entries {
        let path = replicas_path(paths, &entry.api_version).flatten();
        if path.is_some_and(|path| entry.set.has(&path)) {
            scale.entries.push(Entry {
                api_version: SCALE_VERSION.into(),
                set: set_of(&REPLICAS_IN_SCALE),
                ..entry
            });
        }
    }
    Ok(scale.encode())
}

/// The managed fields of the object after its Scale was written through the version `api_version`:
/// `parent` before, and `scale` of the Scale after. Who owns the replicas in the Scale only gets an
/// entry without a time.
///
/// # Errors
/// The managed fields of either are broken.
pub fn to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    paths: &ReplicasPaths,
    api_version: &str,
) -> Result<Option<Value>, String> {
    let parent = Managed::decode(parent)?;
    let mut scale = Managed::decode(scale)?;
    let mut out = Managed::default();
    for mut entry in parent.entries {
        let Some(path) = replicas_path(paths, &entry.api_version) else {
            continue;
        };
        if let Some(path) = path.filter(|path| entry.set.has(path)) {
            match scale.entries.iter().position(|other| other.id == entry.id) {
                Some(at) => {
                    scale.entries.remove(at);
                }
                None => entry.set.subtract(&set_of(&path)),
            }
        }
        if !entry.set.is_empty() {
            out.put(entry);
        }
    }
    let path = replicas_path(paths, api_version)
        .flatten()
        .unwrap_or_default();
    for entry in scale
        .entries
        .into_iter()
        .filter(|entry| entry.set.has(&REPLICAS_IN_SCALE))
    {
        out.put(Entry {
            api_version: api_version.into(),
            time: None,
            set: set_of(&path),
            ..entry
        });
    }
    Ok(out.encode())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::meta::json;

    fn paths() -> Vec<(String, Option<Vec<String>>)> {
        vec![
            (
                "apps/v1".to_owned(),
                Some(vec!["spec".to_owned(), "replicas".to_owned()]),
            ),
            ("apps/v2".to_owned(), None),
        ]
    }

    fn entry(
        manager: &str,
        operation: &str,
        api_version: &str,
        subresource: &str,
        fields: Value,
    ) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    }

    #[test]
    fn an_autoscaler_takes_the_replicas_over() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let parent = json!([
            entry("hand", "Apply", "apps/v1", "", replicas.clone()),
            entry(
                "m",
                "Apply",
                "apps/v1",
                "",
                json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})
            ),
            entry("old", "Update", "apps/v1beta9", "", replicas.clone()),
        ]);
        let scale = to_scale(Some(&parent), &paths()).expect("sound");
        let both = [
            entry("hand", "Apply", SCALE_VERSION, "", replicas.clone()),
            entry("m", "Apply", SCALE_VERSION, "", replicas.clone()),
        ];
        assert_eq!(scale, Some(json!(both)));

        let after = json!([entry(
            "kcm",
            "Update",
            SCALE_VERSION,
            "scale",
            replicas.clone()
        )]);
        let back = to_parent(Some(&parent), Some(&after), &paths(), "apps/v1").expect("sound");
        let want = json!([
            entry(
                "m",
                "Apply",
                "apps/v1",
                "",
                json!({"f:spec": {"f:paused": {}}})
            ),
            entry("kcm", "Update", "apps/v1", "scale", replicas),
        ]);
        assert_eq!(back, Some(want));
    }

    #[test]
    fn appliers_that_keep_the_replicas_keep_their_entries() {
        let parent = json!([entry(
            "m",
            "Apply",
            "apps/v1",
            "",
            json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})
        )]);
        let scale = to_scale(Some(&parent), &paths()).expect("sound");
        assert_eq!(
            to_parent(Some(&parent), scale.as_ref(), &paths(), "apps/v1").expect("sound"),
            Some(parent)
        );
    }
}
