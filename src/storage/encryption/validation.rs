//! Validation of EncryptionConfigurations (apiserver
//! `apis/apiserver/validation/validation_encryption.go`).

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::meta::{ErrorList, Path, Value, go};

use super::config::{Key, KmsConfiguration, ProviderConfiguration, ResourceConfiguration};
use super::resources::GroupResource;

const NO_PROVIDER: &str = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";
const SEVERAL_PROVIDERS: &str = "more than one provider specified in a single element, should split into different list elements";
const OVERLAP: &str = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
const DUPLICATE: &str = "the same resource cannot be specified multiple times";
const CAPITALS: &str = "resource name should not contain capital letters";
const STAR: &str =
    "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources";
const NO_REST: &str = "resources which do not have REST API/s cannot be encrypted";
const EVENTS: &str = "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file";
const EXTENSIONS: &str = "'extensions' group has been removed and cannot be used for encryption";
const ACROSS_GROUPS: &str = "encrypting the same resource across groups is not supported";

/// The keys of the server's own, which are never encrypted.
const OWN: [&str; 3] = [
    "apiserveripinfo",
    "serviceipallocations",
    "servicenodeportallocations",
];
const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];

/// Checks a configuration. `reload` is true if it is read again when it changes.
pub fn validate(configuration: &[ResourceConfiguration], reload: bool) -> ErrorList {
    let (mut errors, root) = (ErrorList::new(), Path::new("resources"));
    if configuration.is_empty() {
        errors.required(&root, format!("at least one {root} is required"));
    }
    let mut plugins = HashSet::new();
    for (at, item) in configuration.iter().enumerate() {
        let path = root.index(at).child("resources");
        if item.resources.is_empty() {
            errors.required(&path, format!("at least one {path} is required"));
        }
        overlap(&mut errors, &item.resources, &path);
        for (at, name) in item.resources.iter().enumerate() {
            if let Some(why) = wrong_resource(name) {
                errors.invalid(&path.index(at), name.as_str(), why);
            }
        }
        let path = root.index(at).child("providers");
        if item.providers.is_empty() {
            errors.required(&path, format!("at least one {path} is required"));
        }
        for (at, item) in item.providers.iter().enumerate() {
            provider(&mut errors, item, &path.index(at), &mut plugins, reload);
        }
    }
    errors
}

fn overlap(errors: &mut ErrorList, resources: &[String], path: &Path) {
    let parsed: Vec<GroupResource> = resources
        .iter()
        .map(|name| GroupResource::parse(name))
        .collect();
    let pairs = || {
        parsed.iter().enumerate().flat_map(|(i, one)| {
            let others = parsed.iter().enumerate().filter(move |(j, _)| i != *j);
            others.map(move |(_, other)| (one, other))
        })
    };
    let all = || resources.iter().map(String::as_str).collect::<Value>();
    // As upstream's: the first of equal pairs is counted as a duplicate alone.
    let mut equal = pairs().filter(|(one, other)| one == other).count();
    if equal > 0 {
        errors.invalid(path, all(), DUPLICATE);
    }
    equal = 0;
    let overlaps = pairs().any(|(one, other)| {
        if one == other {
            equal += 1;
            if equal == 1 {
                return false;
            }
        }
        one.is_everything()
            || (one.group == other.group && (one.resource == "*" || other.resource == "*"))
    });
    if overlaps {
        errors.invalid(path, all(), OVERLAP);
    }
}

fn wrong_resource(name: &str) -> Option<&'static str> {
    let parsed = GroupResource::parse(name);
    if name.to_lowercase() != name {
        Some(CAPITALS)
    } else if name == "*" {
        Some(STAR)
    } else if OWN.contains(&name) {
        Some(NO_REST)
    } else if parsed.group == "events.k8s.io" {
        Some(EVENTS)
    } else if parsed.group == "extensions" {
        Some(EXTENSIONS)
    } else if parsed.group == "*" && parsed.resource != "*" {
        Some(ACROSS_GROUPS)
    } else {
        None
    }
}

fn provider(
    errors: &mut ErrorList,
    provider: &ProviderConfiguration,
    path: &Path,
    plugins: &mut HashSet<String>,
    reload: bool,
) {
    match provider.count() {
        0 => errors.invalid(path, provider.shown(), NO_PROVIDER),
        1 => {}
        _ => errors.invalid(path, provider.shown(), SEVERAL_PROVIDERS),
    }
    if let Some(item) = &provider.kms {
        kms(errors, item, &path.child("kms"), plugins, reload);
        plugins.insert(item.name.clone());
    } else if let Some(items) = &provider.aesgcm {
        keys(
            errors,
            items,
            &path.child("aesgcm").child("keys"),
            AES_KEY_BYTES,
        );
    } else if let Some(items) = &provider.aescbc {
        keys(
            errors,
            items,
            &path.child("aescbc").child("keys"),
            AES_KEY_BYTES,
        );
    } else if let Some(items) = &provider.secretbox {
        let path = path.child("secretbox").child("keys");
        keys(errors, items, &path, SECRETBOX_KEY_BYTES);
    }
}

fn keys(errors: &mut ErrorList, keys: &[Key], path: &Path, lengths: &[usize]) {
    if keys.is_empty() {
        errors.required(path, "at least one keys is required");
    }
    for (at, key) in keys.iter().enumerate() {
        let path = path.index(at);
        if key.name.is_empty() {
            errors.required(&path.child("name"), "name is a mandatory field for a key");
        }
        let path = path.child("secret");
        if key.secret.is_empty() {
            errors.required(&path, "secret is a mandatory field for a key");
            continue;
        }
        match decode_secret(&key.secret) {
            None => errors.invalid(&path, "REDACTED", "secrets must be base64 encoded"),
            Some(secret) if !lengths.contains(&secret.len()) => {
                let expected: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                let why = format!(
                    "secret is not of the expected length, got {}, expected one of [{}]",
                    secret.len(),
                    expected.join(" ")
                );
                errors.invalid(&path, "REDACTED", why);
            }
            Some(_) => {}
        }
    }
}

/// Decodes a secret as Go does, which does not mind line breaks.
pub fn decode_secret(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    BASE64_STANDARD.decode(text).ok()
}

fn kms(
    errors: &mut ErrorList,
    kms: &KmsConfiguration,
    path: &Path,
    plugins: &HashSet<String>,
    reload: bool,
) {
    let (name, is_v1) = (&kms.name, kms.api_version == "v1");
    let at = path.child("name");
    if name.is_empty() {
        errors.required(&at, "name is a mandatory field for a provider");
    }
    if !is_v1 && name.contains(':') {
        let why = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.invalid(&at, name.as_str(), why);
    }
    if (reload || !is_v1) && plugins.contains(name) {
        let why = format!("duplicate KMS provider name {name}, names must be unique");
        errors.invalid(&at, name.as_str(), why);
    }
    if kms.timeout().is_none() {
        let why = "timeout should be a positive value";
        errors.invalid(&path.child("timeout"), kms.timeout.as_str(), why);
    }
    endpoint(errors, &kms.endpoint, &path.child("endpoint"));
    let at = path.child("cachesize");
    match kms.cache_size {
        Some(size) if !is_v1 => errors.invalid(&at, size, "cachesize is not supported in v2"),
        Some(0) => {
            let why = "cachesize should be a positive value, or negative to disable";
            errors.invalid(&at, 0, why);
        }
        _ => {}
    }
    if !is_v1 && kms.api_version != "v2" {
        let why =
            "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        errors.invalid(&path.child("apiVersion"), kms.api_version.as_str(), why);
    }
}

fn endpoint(errors: &mut ErrorList, endpoint: &str, path: &Path) {
    if endpoint.is_empty() {
        errors.invalid(path, "", "endpoint is a mandatory field for a kms");
        return;
    }
    // A relative reference has no scheme either.
    let scheme = match go::url::parse_request_uri(endpoint) {
        Ok(url) => url.scheme,
        Err(_) if !endpoint.contains(':') => String::new(),
        Err(why) => {
            let why = format!("invalid endpoint for kms provider, error: {why}");
            errors.invalid(path, endpoint, why);
            return;
        }
    };
    if scheme != "unix" {
        let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
        errors.invalid(path, endpoint, why);
    }
}
