//! EncryptionConfigurations as they are written (apiserver `apis/apiserver/v1`).

use std::time::Duration;

use crate::codec::config_file::{self, Fields};
use crate::meta::{Map, Path, Value, go, json};

const TYPE: (&str, &str) = ("apiserver.config.k8s.io/v1", "EncryptionConfiguration");
/// The time that a plugin has to answer unless the configuration says otherwise.
const DEFAULT_TIMEOUT: &str = "3s";

/// A resource list with the providers for it, the first of which encrypts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceConfiguration {
    pub resources: Vec<String>,
    pub providers: Vec<ProviderConfiguration>,
}

/// A provider: exactly one of the fields is set in a valid one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderConfiguration {
    pub aesgcm: Option<Vec<Key>>,
    pub aescbc: Option<Vec<Key>>,
    pub secretbox: Option<Vec<Key>>,
    pub identity: bool,
    pub kms: Option<KmsConfiguration>,
}

/// A named key.
#[derive(Clone, Default, PartialEq)]
pub struct Key {
    pub name: String,
    /// The key in base64.
    pub secret: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name: {}, Secret: [REDACTED]", self.name)
    }
}

/// A KMS plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KmsConfiguration {
    pub api_version: String,
    pub name: String,
    pub cache_size: Option<i64>,
    pub endpoint: String,
    /// As it is written.
    pub timeout: String,
}

impl KmsConfiguration {
    /// Returns the time that the plugin has to answer; `None` if it is not positive.
    pub fn timeout(&self) -> Option<Duration> {
        let nanos = go::parse_duration(&self.timeout).ok()?;
        let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0)?;
        Some(Duration::from_nanos(nanos))
    }
}

impl ProviderConfiguration {
    /// Returns the number of fields that are set.
    pub fn count(&self) -> usize {
        [
            self.kms.is_some(),
            self.aesgcm.is_some(),
            self.aescbc.is_some(),
            self.secretbox.is_some(),
            self.identity,
        ]
        .into_iter()
        .filter(|set| *set)
        .count()
    }

    /// Returns the provider as errors show it, without its secrets.
    pub fn shown(&self) -> Value {
        let keys = |keys: &Option<Vec<Key>>| match keys {
            None => Value::Null,
            Some(keys) => {
                let shown = keys
                    .iter()
                    .map(|key| json!({"Name": key.name.as_str(), "Secret": "[REDACTED]"}));
                json!({"Keys": shown.collect::<Value>()})
            }
        };
        let kms = self.kms.as_ref().map_or(Value::Null, |kms| {
            json!({
                "APIVersion": kms.api_version.as_str(),
                "Name": kms.name.as_str(),
                "CacheSize": kms.cache_size.map_or(Value::Null, Value::from),
                "Endpoint": kms.endpoint.as_str(),
                "Timeout": kms.timeout.as_str(),
            })
        });
        let identity = if self.identity {
            json!({})
        } else {
            Value::Null
        };
        json!({
            "AESGCM": keys(&self.aesgcm),
            "AESCBC": keys(&self.aescbc),
            "Secretbox": keys(&self.secretbox),
            "Identity": identity,
            "KMS": kms,
        })
    }
}

/// Reads a configuration, and sets defaults.
///
/// # Errors
/// The bytes are no such object, or hold fields that it does not have.
pub fn read(bytes: &[u8]) -> Result<Vec<ResourceConfiguration>, String> {
    let (value, mut fields) = config_file::document(bytes, &[TYPE])?;
    let root = Path::default();
    let known = ["apiVersion", "kind", "resources"];
    let mut resources = Vec::new();
    if let Some(map) = fields.object(Some(&value), &root, &known) {
        for (path, item) in fields.items(map, &root, "resources") {
            resources.push(resource(&mut fields, item, &path));
        }
    }
    fields.finish()?;
    Ok(resources)
}

fn resource(fields: &mut Fields, item: &Value, path: &Path) -> ResourceConfiguration {
    let Some(map) = fields.object(Some(item), path, &["resources", "providers"]) else {
        return ResourceConfiguration::default();
    };
    let resources = fields.texts(map, path, "resources");
    let providers = fields.items(map, path, "providers");
    ResourceConfiguration {
        resources,
        providers: providers
            .into_iter()
            .map(|(path, item)| provider(fields, item, &path))
            .collect(),
    }
}

fn provider(fields: &mut Fields, item: &Value, path: &Path) -> ProviderConfiguration {
    let known = ["aesgcm", "aescbc", "secretbox", "identity", "kms"];
    let Some(map) = fields.object(Some(item), path, &known) else {
        return ProviderConfiguration::default();
    };
    let identity = fields.object(map.get("identity"), &path.child("identity"), &[]);
    ProviderConfiguration {
        identity: identity.is_some(),
        aesgcm: keys(fields, map, path, "aesgcm"),
        aescbc: keys(fields, map, path, "aescbc"),
        secretbox: keys(fields, map, path, "secretbox"),
        kms: kms(fields, map.get("kms"), &path.child("kms")),
    }
}

fn keys(fields: &mut Fields, map: &Map, path: &Path, field: &str) -> Option<Vec<Key>> {
    let path = path.child(field);
    let map = fields.object(map.get(field), &path, &["keys"])?;
    let mut keys = Vec::new();
    for (path, item) in fields.items(map, &path, "keys") {
        let map = fields.object(Some(item), &path, &["name", "secret"]);
        keys.push(map.map_or_else(Key::default, |map| Key {
            name: fields.text(map, &path, "name"),
            secret: fields.text(map, &path, "secret"),
        }));
    }
    Some(keys)
}

fn kms(fields: &mut Fields, value: Option<&Value>, path: &Path) -> Option<KmsConfiguration> {
    let known = ["apiVersion", "name", "cachesize", "endpoint", "timeout"];
    let map = fields.object(value, path, &known)?;
    let or_default = |text: String, default: &str| match text.as_str() {
        "" => default.to_owned(),
        _ => text,
    };
    let timeout = or_default(fields.text(map, path, "timeout"), DEFAULT_TIMEOUT);
    if let Err(why) = go::parse_duration(&timeout) {
        fields.wrong(&path.child("timeout"), &why);
    }
    Some(KmsConfiguration {
        api_version: or_default(fields.text(map, path, "apiVersion"), "v1"),
        name: fields.text(map, path, "name"),
        cache_size: fields.integer(map, path, "cachesize"),
        endpoint: fields.text(map, path, "endpoint"),
        timeout,
    })
}
