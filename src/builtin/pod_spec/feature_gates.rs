//! Fields whose feature gates are off in v1.36: what a new pod or template says there is dropped;
//! an object that has some already may keep and change them (upstream `pkg/api/pod/util.go`,
//! dropDisabledFields).

use crate::builtin::defaulting::{part, parts};
use crate::meta::{Map, Object, Value};
use crate::registry::validation::Fields;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const STATUSES: [&str; 3] = [
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Projections of volumes, and their gates: ClusterTrustBundleProjection, PodCertificateRequest.
const PROJECTIONS: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// Drops them from the spec at `path`.
pub fn drop_gated_fields(object: &mut Object, old: Option<&Object>, path: &str) {
    let Some(spec) = object.at(path).and_then(Value::as_object) else {
        return;
    };
    let old = old.and_then(|old| old.at(path)).and_then(Value::as_object);
    let new_in = |uses: fn(&Map) -> bool| uses(spec) && !old.is_some_and(uses);
    let signals = new_in(uses_stop_signals);
    let group = new_in(|spec| spec.field("schedulingGroup").is_some());
    let dropped: Vec<&str> = PROJECTIONS
        .into_iter()
        .filter(|key| {
            uses_projection(spec, key) && !old.is_some_and(|old| uses_projection(old, key))
        })
        .collect();
    if !signals && !group && dropped.is_empty() {
        return;
    }
    let Some(Value::Object(spec)) = object.at_mut(path) else {
        return;
    };
    if signals {
        drop_stop_signals(spec);
    }
    if group {
        spec.shift_remove("schedulingGroup");
    }
    for volume in parts(spec, "volumes") {
        let Some(projected) = part(volume, "projected") else {
            continue;
        };
        for source in parts(projected, "sources") {
            for key in &dropped {
                source.shift_remove(key);
            }
        }
    }
}

/// ContainerStopSignals.
fn uses_stop_signals(spec: &Map) -> bool {
    let signal = |container: &Value| {
        container
            .map("lifecycle")
            .is_some_and(|lifecycle| lifecycle.field("stopSignal").is_some())
    };
    CONTAINERS
        .iter()
        .any(|key| spec.list(key).iter().any(signal))
}

fn drop_stop_signals(spec: &mut Map) {
    for key in CONTAINERS {
        for container in parts(spec, key) {
            let Some(lifecycle) = part(container, "lifecycle") else {
                continue;
            };
            if lifecycle.shift_remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.shift_remove("lifecycle");
            }
        }
    }
}

fn uses_projection(spec: &Map, key: &str) -> bool {
    let sources = spec
        .list("volumes")
        .iter()
        .filter_map(|volume| volume.map("projected"))
        .flat_map(|projected| projected.list("sources"));
    sources
        .into_iter()
        .any(|source| source.field(key).is_some())
}

/// Drops them from the status of a pod: ImageVolumeWithDigest, DRANodeAllocatableResources.
pub fn drop_gated_status(object: &mut Object, old: &Object) {
    const CLAIMS: &str = "nodeAllocatableResourceClaimStatuses";
    let (new, before) = (object.section("status"), old.section("status"));
    let volumes = uses_volume_status(new) && !uses_volume_status(before);
    let claims = new.field(CLAIMS).is_some() && before.list(CLAIMS).is_empty();
    if !volumes && !claims {
        return;
    }
    let status = object.section_mut("status");
    if claims {
        status.shift_remove(CLAIMS);
    }
    if volumes {
        for key in STATUSES {
            for mount in parts(status, key).flat_map(|container| parts(container, "volumeMounts")) {
                mount.shift_remove("volumeStatus");
            }
        }
    }
}

fn uses_volume_status(status: &Map) -> bool {
    let mounts = STATUSES
        .iter()
        .flat_map(|key| status.list(key))
        .flat_map(|container| container.list("volumeMounts"));
    mounts
        .into_iter()
        .any(|mount| mount.field("volumeStatus").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    fn dropped(spec: Value, old: Option<Value>) -> Value {
        let mut new = object(json!({"spec": spec}));
        let old = old.map(|spec| object(json!({"spec": spec})));
        drop_gated_fields(&mut new, old.as_ref(), "/spec");
        new.remove_section("spec")
    }

    trait Take {
        fn remove_section(self, key: &str) -> Value;
    }

    impl Take for Object {
        fn remove_section(mut self, key: &str) -> Value {
            self.shift_remove(key).unwrap_or_default()
        }
    }

    #[test]
    fn fields_of_gates_that_are_off_are_dropped_unless_they_were_there() {
        let spec = json!({
            "schedulingGroup": {"podGroupName": "g"},
            "containers": [
                {"name": "a", "lifecycle": {"stopSignal": "SIGTERM"}},
                {"name": "b", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}},
            ],
            "volumes": [{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"path": "a"}}, {"podCertificate": {"keyType": "ED25519"}}, {"secret": {"name": "s"}},
            ]}}],
        });
        let bare = json!({
            "containers": [{"name": "a"}, {"name": "b", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
            "volumes": [{"name": "v", "projected": {"sources": [{}, {}, {"secret": {"name": "s"}}]}}],
        });
        assert_eq!(dropped(spec.clone(), None), bare);
        assert_eq!(dropped(spec.clone(), Some(bare.clone())), bare);
        assert_eq!(dropped(spec.clone(), Some(spec.clone())), spec);
        assert_eq!(dropped(bare.clone(), Some(spec)), bare);
    }

    #[test]
    fn so_are_those_of_the_status() {
        let mount =
            json!({"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "i"}}});
        let with = object(json!({"status": {
            "containerStatuses": [{"name": "a", "volumeMounts": [mount]}],
            "nodeAllocatableResourceClaimStatuses": [{"containers": ["a"]}],
        }}));
        let without = object(
            json!({"status": {"containerStatuses": [{"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}}),
        );
        let mut new = with.clone();
        drop_gated_status(&mut new, &without);
        assert_eq!(new, without);
        let mut new = with.clone();
        drop_gated_status(&mut new, &with);
        assert_eq!(new, with);
    }
}
