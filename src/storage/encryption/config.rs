//! EncryptionConfigurations as they are written (apiserver `apis/apiserver/v1`).

use std::time::Duration;

use crate::codec::configuration::FileType;
use crate::meta::{Value, array_at, go, json, str_at, texts_at};

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
    let object = FileType::ENCRYPTION.decode(bytes)?;
    object.array_at("/resources").iter().map(resource).collect()
}

fn resource(item: &Value) -> Result<ResourceConfiguration, String> {
    let providers = array_at(item, "/providers").iter();
    Ok(ResourceConfiguration {
        resources: texts_at(item, "/resources"),
        providers: providers.map(provider).collect::<Result<_, _>>()?,
    })
}

fn provider(item: &Value) -> Result<ProviderConfiguration, String> {
    let given = |field: &str| item.get(field).filter(|value| !value.is_null());
    Ok(ProviderConfiguration {
        identity: given("identity").is_some(),
        aesgcm: given("aesgcm").map(keys),
        aescbc: given("aescbc").map(keys),
        secretbox: given("secretbox").map(keys),
        kms: given("kms").map(kms).transpose()?,
    })
}

fn keys(value: &Value) -> Vec<Key> {
    let key = |item: &Value| Key {
        name: str_at(item, "/name").to_owned(),
        secret: str_at(item, "/secret").to_owned(),
    };
    array_at(value, "/keys").iter().map(key).collect()
}

fn kms(value: &Value) -> Result<KmsConfiguration, String> {
    let or_default = |field: &str, default: &str| match str_at(value, field) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    let timeout = or_default("/timeout", DEFAULT_TIMEOUT);
    go::parse_duration(&timeout)?;
    Ok(KmsConfiguration {
        api_version: or_default("/apiVersion", "v1"),
        name: str_at(value, "/name").to_owned(),
        cache_size: value.get("cachesize").and_then(Value::as_i64),
        endpoint: str_at(value, "/endpoint").to_owned(),
        timeout,
    })
}
