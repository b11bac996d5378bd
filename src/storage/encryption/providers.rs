//! The transformers of a configuration, which can be exchanged while the server runs (apiserver
//! `server/options/encryptionconfig/config.go`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;

use crate::base::clock::Clock;
use crate::base::files;

use super::cipher::Cipher;
use super::config::{self, Key, KmsConfiguration, ProviderConfiguration, ResourceConfiguration};
use super::kms::{Kms, KmsV1};
use super::metrics;
use super::resources::GroupResource;
use super::transformer::{Prefixed, Provider};
use super::validation::{decode_secret, validate};
use super::{ENCRYPTED, TransformError};

const AESCBC_PREFIX: &str = "k8s:enc:aescbc:v1:";
const AESGCM_PREFIX: &str = "k8s:enc:aesgcm:v1:";
const SECRETBOX_PREFIX: &str = "k8s:enc:secretbox:v1:";
const KMS_V1_PREFIX: &str = "k8s:enc:kms:v1:";
const KMS_PREFIX: &str = "k8s:enc:kms:v2:";

const NO_PREFIX: &str = "no matching prefix found";
const NO_AES_KEY: &str = "no matching key was found for the provided AES transformer";
const NO_SECRETBOX_KEY: &str = "no matching key was found for the provided Secretbox transformer";

/// The largest configuration file that is read.
const MAX_FILE_BYTES: u64 = 3 << 20;

/// The keys of a plugin of version 1 that are kept, unless the configuration says otherwise.
const KMS_V1_CACHE_SIZE: i64 = 1000;
/// The error for such plugins where the gate is off.
const KMS_V1: &str = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.";

/// The settings of a server that configurations are read with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True if the configuration is read again when it changes.
    pub reload: bool,
    /// True if plugins of version 1 are allowed (the gate KMSv1).
    pub kms_v1: bool,
    /// The hash of the server's identity, for metrics.
    pub server_hash: String,
    pub clock: Clock,
}

/// A plugin of either version.
#[derive(Clone, Debug)]
enum Plugin {
    V1(Arc<KmsV1>),
    V2(Arc<Kms>),
}

impl Plugin {
    async fn check(&self) -> Result<(), String> {
        match self {
            Self::V1(kms) => kms.check().await,
            Self::V2(kms) => kms.check().await,
        }
    }
}

/// A configuration in force.
#[derive(Debug)]
pub struct Configuration {
    transformers: HashMap<GroupResource, Arc<Prefixed<Provider>>>,
    /// The plugins, in the order of the configuration.
    plugins: Vec<Plugin>,
    /// The hash of the file, so that keys are not kept in memory.
    pub hash: String,
}

/// Reads a file, and returns it with its hash.
///
/// # Errors
/// The file cannot be read or is empty.
pub fn read_file(path: &Path) -> Result<(Bytes, String), String> {
    let shown = path.display().to_string();
    let bytes = files::read_bounded(path, MAX_FILE_BYTES).map_err(|why| {
        format!("error reading encryption provider configuration file {shown:?}: {why}")
    })?;
    if bytes.is_empty() {
        return Err(format!(
            "encryption provider configuration file {shown:?} is empty"
        ));
    }
    let hash = metrics::hash_bytes(&bytes);
    Ok((bytes.into(), hash))
}

/// Checks the text of a configuration, and calls no plugin.
///
/// # Errors
/// Says what is wrong, with the path of the field.
pub fn check_configuration(bytes: &[u8]) -> Result<(), String> {
    check(&config::read(bytes)?, true)
}

fn check(read: &[ResourceConfiguration], reload: bool) -> Result<(), String> {
    let errors = validate(read, reload);
    let errors = errors
        .iter()
        .map(|error| TransformError::permanent(error.to_string()));
    match TransformError::aggregate(errors.collect()) {
        Some(why) => Err(why.to_string()),
        None => Ok(()),
    }
}

impl Configuration {
    /// Reads and checks a configuration, and asks its plugins once.
    ///
    /// # Errors
    /// Says what is wrong, with the path of the field.
    pub async fn load(path: &Path, settings: &Settings) -> Result<Self, String> {
        let parsing = |why: String| format!("error while parsing file: {why}");
        let (bytes, hash) =
            read_file(path).map_err(|why| parsing(format!("error while loading file: {why}")))?;
        let read = config::read(&bytes).map_err(|why| {
            let shown = path.display().to_string();
            parsing(format!(
                "error decoding encryption provider configuration file {shown:?}: {why}"
            ))
        })?;
        check(&read, settings.reload).map_err(parsing)?;
        let mut builder = Builder::new(settings);
        for item in &read {
            builder
                .add(item)
                .map_err(|why| format!("error while building transformers: {why}"))?;
        }
        let configuration = builder.build(hash);
        for plugin in &configuration.plugins {
            if let Plugin::V2(kms) = plugin {
                kms.start().await;
            }
        }
        Ok(configuration)
    }

    /// Returns the transformers of a resource; `None` if nothing encrypts it.
    pub fn of(&self, resource: &GroupResource) -> Option<&Arc<Prefixed<Provider>>> {
        self.transformers
            .get(resource)
            .or_else(|| {
                self.transformers
                    .get(&GroupResource::all_of(&resource.group))
            })
            .or_else(|| self.transformers.get(&GroupResource::all_of("*")))
    }

    /// Returns the number of plugins.
    pub fn plugin_count(&self) -> usize {
        self.plugins.len()
    }

    /// Reports whether a plugin has the interface of version 1.
    pub fn has_old_plugins(&self) -> bool {
        let mut plugins = self.plugins.iter();
        plugins.any(|plugin| matches!(plugin, Plugin::V1(_)))
    }

    /// Checks that a plugin is healthy.
    ///
    /// # Errors
    /// Says why it is not.
    pub async fn check_plugin(&self, at: usize) -> Result<(), String> {
        match self.plugins.get(at) {
            Some(plugin) => plugin.check().await,
            None => Ok(()),
        }
    }

    /// Checks that the plugins are healthy, one after the other.
    ///
    /// # Errors
    /// Says which are not, and why.
    pub async fn check(&self) -> Result<(), String> {
        let mut errors = Vec::new();
        for at in 0..self.plugins.len() {
            if let Err(why) = self.check_plugin(at).await {
                errors.push(TransformError::permanent(format!(
                    "kms-provider-{at}: {why}"
                )));
            }
        }
        match TransformError::aggregate(errors) {
            Some(why) => Err(why.to_string()),
            None => Ok(()),
        }
    }
}

/// A configuration that is being put together.
struct Builder<'a> {
    settings: &'a Settings,
    transformers: HashMap<GroupResource, Prefixed<Provider>>,
    plugins: Vec<Plugin>,
}

impl<'a> Builder<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            transformers: HashMap::new(),
            plugins: Vec::new(),
        }
    }

    fn build(self, hash: String) -> Configuration {
        let transformers = self.transformers.into_iter();
        Configuration {
            transformers: transformers
                .map(|(resource, prefixed)| (resource, Arc::new(prefixed)))
                .collect(),
            plugins: self.plugins,
            hash,
        }
    }

    /// Adds the providers of some resources behind those that the resources have.
    fn add(&mut self, item: &ResourceConfiguration) -> Result<(), String> {
        let plugins = item
            .providers
            .iter()
            .map(|provider| {
                provider
                    .kms
                    .as_ref()
                    .map(|kms| self.plugin(kms))
                    .transpose()
            })
            .collect::<Result<Vec<_>, _>>()?;
        for name in &item.resources {
            let resource = GroupResource::parse(name);
            for mask in [
                GroupResource::all_of(&resource.group),
                GroupResource::all_of("*"),
            ] {
                if self.transformers.contains_key(&mask) {
                    return Err(format!(
                        "resource {:?} is masked by earlier rule {:?}",
                        resource.to_string(),
                        mask.to_string()
                    ));
                }
            }
            let mut entries = Vec::with_capacity(plugins.len());
            for (provider, plugin) in item.providers.iter().zip(&plugins) {
                entries.push(entry(provider, plugin.as_ref())?);
            }
            self.transformers
                .entry(resource)
                .or_insert_with(|| Prefixed::new(Vec::new(), NO_PREFIX))
                .extend(entries);
        }
        self.plugins.extend(plugins.into_iter().flatten());
        Ok(())
    }

    fn plugin(&self, kms: &KmsConfiguration) -> Result<Plugin, String> {
        let timeout = kms.timeout().unwrap_or_default();
        if kms.api_version == "v1" {
            if !self.settings.kms_v1 {
                return Err(KMS_V1.to_owned());
            }
            tracing::info!(
                "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead."
            );
            let cache_size = kms.cache_size.unwrap_or(KMS_V1_CACHE_SIZE);
            return KmsV1::new(&kms.name, &kms.endpoint, timeout, cache_size).map(Plugin::V1);
        }
        let (server, clock) = (&self.settings.server_hash, self.settings.clock.clone());
        Kms::new(&kms.name, &kms.endpoint, timeout, server, clock).map(Plugin::V2)
    }
}

/// Returns the transformer of a provider with its prefix.
fn entry(
    provider: &ProviderConfiguration,
    plugin: Option<&Plugin>,
) -> Result<(String, Provider), String> {
    if let Some(keys) = &provider.aesgcm {
        let keys = named(keys, NO_AES_KEY, Cipher::aes_gcm)?;
        Ok((AESGCM_PREFIX.to_owned(), Provider::Keys(keys)))
    } else if let Some(keys) = &provider.aescbc {
        let keys = named(keys, NO_AES_KEY, Cipher::aes_cbc)?;
        Ok((AESCBC_PREFIX.to_owned(), Provider::Keys(keys)))
    } else if let Some(keys) = &provider.secretbox {
        let keys = named(keys, NO_SECRETBOX_KEY, Cipher::secretbox)?;
        Ok((SECRETBOX_PREFIX.to_owned(), Provider::Keys(keys)))
    } else if let (Some(kms), Some(plugin)) = (&provider.kms, plugin) {
        Ok(match plugin {
            Plugin::V1(plugin) => (
                format!("{KMS_V1_PREFIX}{}:", kms.name),
                Provider::KmsV1(plugin.clone()),
            ),
            Plugin::V2(plugin) => (
                format!("{KMS_PREFIX}{}:", kms.name),
                Provider::Kms(plugin.clone()),
            ),
        })
    } else {
        Ok((String::new(), Provider::Identity))
    }
}

fn named(
    keys: &[Key],
    no_match: &'static str,
    cipher: impl Fn(&[u8]) -> Result<Cipher, TransformError>,
) -> Result<Prefixed<Cipher>, String> {
    let mut entries = Vec::with_capacity(keys.len());
    for Key { name, secret } in keys {
        let secret = decode_secret(secret)
            .ok_or_else(|| format!("could not obtain secret for named key {name}"))?;
        let cipher = cipher(&secret)
            .map_err(|why| format!("error while creating cipher for named key {name}: {why}"))?;
        entries.push((format!("{name}:"), cipher));
    }
    Ok(Prefixed::new(entries, no_match))
}

/// The configuration that is in force now.
#[derive(Debug)]
pub struct Transformers {
    current: ArcSwap<Configuration>,
    /// Counts the configurations.
    generation: watch::Sender<u64>,
}

impl Transformers {
    pub fn new(configuration: Configuration) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::from_pointee(configuration),
            generation: watch::Sender::new(0),
        })
    }

    /// Returns the configuration that is in force.
    pub fn current(&self) -> Arc<Configuration> {
        self.current.load_full()
    }

    /// Brings another configuration into force. The one before ends with the last use of it.
    pub fn replace(&self, configuration: Configuration) {
        self.current.store(Arc::new(configuration));
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Returns a receiver that tells when the configuration has been replaced.
    pub fn replaced(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

/// Reports whether stored bytes are encrypted.
pub fn is_encrypted(value: &[u8]) -> bool {
    value.starts_with(ENCRYPTED)
}
