//! Defaults of a pod's volumes.

use super::image::is_latest;
use crate::builtin::defaulting::{fill, fill_text, part, parts};
use crate::builtin::quantities::round_requirements;
use crate::meta::{Map, json};
use crate::registry::validation::Fields;

/// rw-r--r--
const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

/// Fills in one volume; one without a source becomes an empty directory.
pub fn default_volume(volume: &mut Map) {
    let Some(kind) = volume
        .iter()
        .find(|(key, value)| *key != "name" && value.is_object())
        .map(|(key, _)| key.clone())
    else {
        volume.insert("emptyDir", json!({}));
        return;
    };
    let Some(source) = part(volume, &kind) else {
        return;
    };
    match kind.as_str() {
        "secret" | "configMap" => fill(source, "defaultMode", FILE_MODE),
        "downwardAPI" => {
            fill(source, "defaultMode", FILE_MODE);
            parts(source, "items").for_each(default_field_ref);
        }
        "projected" => {
            fill(source, "defaultMode", FILE_MODE);
            parts(source, "sources").for_each(default_projection);
        }
        "hostPath" => fill(source, "type", ""),
        "image" if source.str("pullPolicy").is_empty() => {
            let policy = if is_latest(source.str("reference")) {
                "Always"
            } else {
                "IfNotPresent"
            };
            source.insert("pullPolicy", policy.into());
        }
        "ephemeral" => {
            if let Some(spec) =
                part(source, "volumeClaimTemplate").and_then(|template| part(template, "spec"))
            {
                fill(spec, "volumeMode", "Filesystem");
                round_requirements(spec, "resources");
            }
        }
        _ => default_storage(&kind, source),
    }
}

fn default_projection(projection: &mut Map) {
    if let Some(downward) = part(projection, "downwardAPI") {
        parts(downward, "items").for_each(default_field_ref);
    }
    if let Some(token) = part(projection, "serviceAccountToken") {
        fill(token, "expirationSeconds", TOKEN_SECONDS);
    }
}

/// The storage systems that pods and persistent volumes have in common.
pub fn default_storage(kind: &str, source: &mut Map) {
    match kind {
        "iscsi" => fill_text(source, "iscsiInterface", "default"),
        "rbd" => {
            fill_text(source, "pool", "rbd");
            fill_text(source, "user", "admin");
            fill_text(source, "keyring", "/etc/ceph/keyring");
        }
        "azureDisk" => {
            fill(source, "cachingMode", "ReadWrite");
            fill(source, "fsType", "ext4");
            fill(source, "readOnly", false);
            fill(source, "kind", "Shared");
        }
        "scaleIO" => {
            fill_text(source, "storageMode", "ThinProvisioned");
            fill_text(source, "fsType", "xfs");
        }
        "hostPath" => fill(source, "type", ""),
        _ => {}
    }
}

/// The version of the fields that a downward API reference names.
pub fn default_field_ref(source: &mut Map) {
    if let Some(field) = part(source, "fieldRef") {
        fill_text(field, "apiVersion", "v1");
    }
}
