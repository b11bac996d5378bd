//! The kinds that the registry serves, as admission asks for them.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::admission::kinds::{KindResource, KindType, Kinds, Unfit};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::normalize::{Rules, normalize};
use crate::codec::{self, json};
use crate::endpoints::handlers::resolve_kind;
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status, Value};
use crate::registry::{Custom, Registry, Store};
use crate::schema::{self, ResourceDecl};

/// The kinds of a registry.
pub struct ServedKinds(Arc<Registry>);

impl ServedKinds {
    pub fn new(registry: Arc<Registry>) -> Self {
        Self(registry)
    }

    fn store(&self, gvr: &Gvr) -> Result<Arc<Store>> {
        self.0
            .get(gvr)
            .ok_or_else(|| Status::internal(format!("{} is not served", gvr.group_resource())))
    }

    /// Calls `look` with every declaration that clients are served, until it returns something.
    fn find<T>(&self, mut look: impl FnMut(&ResourceDecl) -> Option<T>) -> Option<T> {
        let found = self.0.decls().find_map(&mut look);
        found.or_else(|| {
            let custom = self.0.custom();
            custom.values().find_map(|store| look(&store.resource.decl))
        })
    }
}

fn gvr(decl: &ResourceDecl) -> Gvr {
    Gvr::new(&decl.group, &decl.version, &decl.resource)
}

/// The kind that a resource shows, or that its subresource does; `None` where it has none.
fn shown_kind(decl: &ResourceDecl, subresource: &str) -> Option<Gvk> {
    let own = Gvk::new(&decl.group, &decl.version, &decl.kind);
    if subresource.is_empty() {
        return Some(own);
    }
    let sub = decl
        .subresources
        .iter()
        .find(|sub| sub.name == subresource)?;
    Some(match sub.kind.version.as_str() {
        "" => Gvk::new(&decl.group, &decl.version, &sub.kind.kind),
        _ => sub.kind.clone(),
    })
}

/// Reports whether an object says that it is of a kind.
fn is_of(object: &Object, gvk: &Gvk) -> bool {
    let (group, version) = object
        .api_version()
        .split_once('/')
        .unwrap_or(("", object.api_version()));
    object.kind() == gvk.kind && group == gvk.group && version == gvk.version
}

#[async_trait]
impl Kinds for ServedKinds {
    fn generation(&self) -> u64 {
        self.0.version()
    }

    fn resource_of(&self, gvk: &Gvk) -> Option<KindResource> {
        self.find(|decl| {
            let same =
                decl.kind == gvk.kind && decl.group == gvk.group && decl.version == gvk.version;
            (same && !decl.storage_prefix.is_empty()).then(|| KindResource {
                gvr: gvr(decl),
                namespaced: decl.namespaced,
            })
        })
    }

    fn equivalents(&self, asked: &Gvr, subresource: &str) -> Vec<(Gvr, Gvk)> {
        let Some(store) = self.0.get(asked) else {
            return Vec::new();
        };
        let prefix = &store.resource.decl.storage_prefix;
        let mut found = Vec::new();
        if !prefix.is_empty() {
            self.find(|decl| -> Option<()> {
                let other = decl.storage_prefix == *prefix
                    && (&decl.group, &decl.version) != (&asked.group, &asked.version);
                let kind = other.then(|| shown_kind(decl, subresource)).flatten();
                found.extend(kind.map(|kind| (gvr(decl), kind)));
                None
            });
        }
        found.sort();
        found
    }

    async fn versioned<'o>(
        &self,
        object: &'o Object,
        gvr: &Gvr,
        gvk: &Gvk,
    ) -> Result<Cow<'o, Object>> {
        if is_of(object, gvk) {
            return Ok(Cow::Borrowed(object));
        }
        let store = self.store(gvr)?;
        let Some(custom) = &store.resource.custom else {
            return Ok(match store.codec.served(object) {
                Cow::Borrowed(_) => Cow::Borrowed(object),
                Cow::Owned(served) => Cow::Owned(served),
            });
        };
        let unknown = || Status::internal(format!("unable to convert to {gvk}: unknown kind"));
        let (versions, api_version) = (custom.versions(), gvk.api_version());
        let failed = |why| Status::failure(500, "", why);
        if let Some(converter) = custom.converter() {
            let converted = converter.convert(vec![object.clone()], &api_version);
            let converted = converted.await.map_err(failed)?.into_iter().next();
            return converted.map(Cow::Owned).ok_or_else(unknown);
        }
        versions
            .convert(&object.0, &api_version)
            .map_err(failed)?
            .map(|converted| Cow::Owned(Object(converted)))
            .ok_or_else(unknown)
    }

    async fn completed(
        &self,
        shown: Object,
        gvr: &Gvr,
        gvk: &Gvk,
        original: &Object,
    ) -> std::result::Result<Object, Unfit> {
        let store = self.store(gvr);
        let store = store.map_err(|why| Unfit::Unconvertible(why.message))?;
        let is_own_kind = *gvk == store.resource.gvk;
        let large = shown.is_larger_than(LARGE_BYTES);
        if let Some(custom) = store.resource.custom.as_deref().filter(|_| is_own_kind) {
            let object = run_blocking_if(large, || completed_custom(shown, custom))?;
            return converted(object, custom, original.api_version()).await;
        }
        run_blocking_if(large, || {
            let mut object = completed_builtin(shown, gvk)?;
            if is_own_kind {
                store.codec.to_storage(&mut object);
            }
            Ok(object)
        })
    }

    fn type_of(&self, gvr: &Gvr, gvk: &Gvk) -> Option<KindType> {
        let store = self.0.get(gvr)?;
        match &store.resource.custom {
            Some(_) if *gvk == store.resource.gvk => KindType::custom(&store.resource.schema, gvk),
            _ => KindType::builtin(gvk),
        }
    }
}

/// Reads a changed object as one of a built-in kind.
fn completed_builtin(mut object: Object, gvk: &Gvk) -> std::result::Result<Object, Unfit> {
    let schema = schema::builtin();
    resolve_kind(schema, gvk, object.api_version(), object.kind()).map_err(|why| {
        let version = match object.api_version() {
            "" => gvk.api_version(),
            version => version.to_owned(),
        };
        match schema.get(&Gvk::from_api_version(&version, object.kind())) {
            Some(_) => Unfit::Unconvertible(why),
            None => Unfit::Unreadable(why),
        }
    })?;
    if let Some(ty) = schema.get(gvk) {
        let mut form = object.clone();
        object = if normalize(&mut form, ty, Rules::Json) {
            form
        } else {
            let read = codec::from_value(&Value::Object(object.0), ty);
            read.map_err(|why| Unfit::Unreadable(why.0))?.object
        };
    }
    object.insert("kind", gvk.kind.clone().into());
    object.insert("apiVersion", gvk.api_version().into());
    Ok(object)
}

/// Reads a changed object of a custom kind, in the version that it names itself.
fn completed_custom(mut object: Object, custom: &dyn Custom) -> std::result::Result<Object, Unfit> {
    for (key, shown) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if object
            .get(key)
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            let text = String::from_utf8_lossy(&json::encode(&object)).into_owned();
            let why = format!("Object '{shown}' is missing in '{text}'");
            return Err(Unfit::Unreadable(why));
        }
    }
    custom.read(&mut object).map_err(Unfit::Unreadable)?;
    Ok(object)
}

/// Converts an object of a custom kind to the version `to`.
async fn converted(
    object: Object,
    custom: &dyn Custom,
    to: &str,
) -> std::result::Result<Object, Unfit> {
    let from = object.api_version();
    if from == to {
        return Ok(object);
    }
    let unknown = || {
        let why = format!("request to convert CR to an invalid group/version: {to}");
        Unfit::Unconvertible(why)
    };
    if let Some(converter) = custom.converter() {
        let converted = converter.convert(vec![object], to).await;
        let converted = converted.map_err(Unfit::Unconvertible)?;
        return converted.into_iter().next().ok_or_else(unknown);
    }
    let versions = custom.versions();
    if versions.type_of(from).is_none() {
        let why = format!("request to convert CR from an invalid group/version: {from}");
        return Err(Unfit::Unconvertible(why));
    }
    let converted = versions.convert(&object.0, to);
    let converted = converted.map_err(Unfit::Unconvertible)?;
    converted.map(Object).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::builtin::{self, autoscaling};
    use crate::meta::json;
    use crate::registry::Resource;
    use crate::storage::Storage;
    use crate::storage::embedded::Embedded;

    fn kinds() -> (ServedKinds, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let storage: Arc<dyn Storage> =
            Arc::new(Embedded::open(folder.path()).expect("an empty store"));
        let plurals = ["configmaps", "deployments", "horizontalpodautoscalers"];
        let decls = crate::schema::builtin().resources.iter();
        let decls = decls.filter(|decl| plurals.contains(&decl.resource.as_str()));
        let stores = decls.map(|decl| {
            let strategy = builtin::strategy(&decl.group, &decl.resource);
            let mut resource = Resource::builtin(decl, strategy);
            if decl.group == "autoscaling" && decl.version == "v1" {
                resource.conversion = Some(&autoscaling::AutoscalerConversion);
            }
            Store::new(
                Arc::new(resource),
                storage.clone(),
                Clock::system(),
                "/registry",
            )
        });
        let registry = Registry::new(stores, []);
        (ServedKinds::new(Arc::new(registry)), folder)
    }

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    async fn completed(
        shown: Value,
        (gvr, gvk): (&Gvr, &Gvk),
        original: Value,
    ) -> std::result::Result<Value, Unfit> {
        let (kinds, _folder) = kinds();
        let done = kinds
            .completed(object(shown), gvr, gvk, &object(original))
            .await?;
        Ok(Value::Object(done.0))
    }

    #[tokio::test]
    async fn a_changed_object_is_defaulted_and_its_fields_are_in_order() {
        let names = (
            &Gvr::new("apps", "v1", "deployments"),
            &Gvk::new("apps", "v1", "Deployment"),
        );
        let shown = json!({
            "spec": {
                "template": {"spec": {"containers": [{"image": "a:1", "name": "a"}]}},
                "selector": {"matchLabels": {"a": "b"}}, "unknown": 1,
            },
            "metadata": {"name": "web"}, "apiVersion": "apps/v1", "kind": "Deployment",
        });
        let original = json!({"kind": "Deployment", "apiVersion": "apps/v1"});
        let done = completed(shown, names, original)
            .await
            .expect("a deployment");
        let text = done.to_string();
        assert!(
            text.starts_with(r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":"#),
            "{text}"
        );
        let expected = [
            ("/spec/replicas", json!(1)),
            ("/spec/strategy/type", json!("RollingUpdate")),
            (
                "/spec/template/spec/containers/0/imagePullPolicy",
                json!("IfNotPresent"),
            ),
        ];
        for (path, value) in expected {
            assert_eq!(done.pointer(path), Some(&value), "{path}");
        }
        assert_eq!(done.pointer("/spec/unknown"), None);
    }

    #[tokio::test]
    async fn an_object_changed_in_another_version_is_converted_back() {
        let names = (
            &Gvr::new("autoscaling", "v1", "horizontalpodautoscalers"),
            &Gvk::new("autoscaling", "v1", "HorizontalPodAutoscaler"),
        );
        let stored = json!({
            "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
            "metadata": {"name": "a"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        });
        let (kinds, _folder) = kinds();
        let stored = object(stored);
        let mut shown = kinds
            .versioned(&stored, names.0, names.1)
            .await
            .expect("the other version")
            .into_owned();
        let spec = shown.section_mut("spec");
        assert_eq!(spec.get("targetCPUUtilizationPercentage"), Some(&json!(50)));
        spec.insert("targetCPUUtilizationPercentage", json!(60));
        let done = kinds
            .completed(shown, names.0, names.1, &stored)
            .await
            .expect("an autoscaler");
        assert_eq!(done.api_version(), "autoscaling/v2");
        let target = "/spec/metrics/0/resource/target/averageUtilization";
        assert_eq!(done.i64_at(target), Some(60));
        assert_eq!(done.i64_at("/spec/minReplicas"), Some(1));
    }

    #[tokio::test]
    async fn an_object_that_a_change_made_unfit_is_refused() {
        let names = (
            &Gvr::new("", "v1", "configmaps"),
            &Gvk::new("", "v1", "ConfigMap"),
        );
        let original = || json!({"kind": "ConfigMap", "apiVersion": "v1"});
        let unreadable = |why: &str| Err(Unfit::Unreadable(why.to_owned()));
        let cases = [
            (
                json!({"data": {"a": 1}}),
                unreadable(
                    "json: cannot unmarshal number into Go struct field ConfigMap.data of type \
                     string",
                ),
            ),
            (
                json!({"kind": "Secret"}),
                Err(Unfit::Unconvertible(
                    "converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned(),
                )),
            ),
            (
                json!({"kind": "Nothing"}),
                unreadable(
                    "no kind \"Nothing\" is registered for version \"v1\" in scheme \
                     \"pkg/api/legacyscheme/scheme.go:30\"",
                ),
            ),
        ];
        for (shown, expected) in cases {
            let text = shown.to_string();
            let done = completed(shown, names, original()).await;
            assert_eq!(done, expected, "{text}");
        }
    }

    #[test]
    fn kinds_of_resources_and_subresources_have_types() {
        let (kinds, _folder) = kinds();
        let deployments = Gvr::new("apps", "v1", "deployments");
        for (gvk, known) in [
            (Gvk::new("apps", "v1", "Deployment"), true),
            (Gvk::new("autoscaling", "v1", "Scale"), true),
            (Gvk::new("apps", "v1", "Nothing"), false),
        ] {
            let ty = kinds.type_of(&deployments, &gvk);
            assert_eq!(
                ty.map(|ty| ty.patch_types().native.is_some()),
                known.then_some(true),
                "{gvk:?}"
            );
        }
    }
}
