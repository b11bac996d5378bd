//! Values that kube-apiserver has encrypted, hostile bytes, and wrong configurations.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::cipher::Cipher;
use super::providers::{Configuration, Settings};
use super::resources::GroupResource;
use super::transformer::{Context, Transform};
use crate::base::clock::Clock;

const KEY: &str = "/registry/secrets/default/a";
const TEXT: &[u8] = b"a text of thirty-three characters";

/// Values of [`TEXT`] under [`KEY`], made by the transformers of kube-apiserver v1.36. Keys of `n`
/// bytes are `n` times the byte `n`; the seed is 32 times 7.
const VECTORS: [(&str, usize, &str); 8] = [
    (
        "aesgcm",
        16,
        "eb244b2f58f68c984797254ef2381749955abd239cc42dc38cb1e9dd160c6169c78da665ec647a3205a9edadba7668142955021efa99466ce7e50c473a",
    ),
    (
        "aesgcm",
        24,
        "fe0f2efd2aceb950f4c6dc02b612c0bcccbc4a472e965f5504af77584a84abf801909cfc4c9957ab4cbd0a2db8beea6a454a881897c58b6861f22fb4da",
    ),
    (
        "aesgcm",
        32,
        "367fc14d4aeb041527266f73c45855d1188b469dee2921b91034b83b81e04d36bddfbeb4daeba21e7b2158039fca922323a68def5ed4c5918271e70cdd",
    ),
    (
        "aescbc",
        16,
        "4a4819461025fe8f7b68d4d1d8e62c2d16c1ac17f54e390e6437e1f2ebe0fa78bbc490e77db0199175d26858f333908eac67fe2438036b35b474bce465d70307",
    ),
    (
        "aescbc",
        24,
        "e3313fb4a3b6ffb53c7e04bb23c1cba64c8997217da4c033e5ba6cd54aff08e3392bbad0455347a64e06a400d8f1a70959325b0e659ca187cc35ed0812ef2326",
    ),
    (
        "aescbc",
        32,
        "6b86a1a3ae3f2c14d20e5cecbbd8644b4ab7227847e7bcfd2af9a881fc069d5cf7dc22b0a23c84914c784da1c67728e06f157c2ab835c8a8161e1bd3948ea0eb",
    ),
    (
        "secretbox",
        32,
        "67be87c037f8a6619467c727ab1d98e4fca177817cf8e83419230f60b4247271c48e38c719ce9a0c85367c5b61069897c61104b4affd6fc563feb367bee92063e1ff8960b46045379d",
    ),
    (
        "derived",
        7,
        "a22d2db8c2efb4127a6295166d6800e36521c622e2246282c2f134a3f03f2c151c55c6bef7adaea527a59aaaf758b071f74018cdfde8cd3e2253924b440b7e65068893ae7e8cf6c39da560375600d1bbbcd1118cc5107c70b0badae0c1",
    ),
];
/// The last of them as a value of a KMS plugin: key `key-1`, encrypted seed `sealed seed`, an
/// annotation.
const ENVELOPE: &str = "0a5da22d2db8c2efb4127a6295166d6800e36521c622e2246282c2f134a3f03f2c151c55c6bef7adaea527a59aaaf758b071f74018cdfde8cd3e2253924b440b7e65068893ae7e8cf6c39da560375600d1bbbcd1118cc5107c70b0badae0c112056b65792d311a0b7365616c6564207365656422180a1376657273696f6e2e6578616d706c652e636f6d1201312801";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn cipher(name: &str, number: usize) -> Cipher {
    let key = vec![number as u8; number];
    let cipher = match name {
        "aesgcm" => Cipher::aes_gcm(&key),
        "aescbc" => Cipher::aes_cbc(&key),
        "secretbox" => Cipher::secretbox(&key),
        _ => Cipher::derived_aes_gcm(&[number as u8; 32]),
    };
    cipher.expect("a key")
}

#[test]
fn values_are_those_of_kube_apiserver() {
    for (name, number, vector) in VECTORS {
        let (cipher, stored) = (cipher(name, number), bytes(vector));
        let decrypted = cipher.decrypt(KEY, &stored);
        assert_eq!(decrypted.as_deref(), Ok(TEXT), "{name} {number}");
        for value in [TEXT, b"", &[7; 16], &[0; 1000]] {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            cipher.encrypt(KEY, value, &mut one).expect("encrypted");
            cipher.encrypt(KEY, value, &mut other).expect("encrypted");
            assert_ne!(one, other, "{name} {number}: a nonce is used once");
            assert_eq!(cipher.decrypt(KEY, &one).as_deref(), Ok(value));
            if value == TEXT {
                assert_eq!(one.len(), stored.len(), "{name} {number}");
            }
        }
    }
    let envelope = super::kms::EncryptedObject::decode(&*bytes(ENVELOPE)).expect("an envelope");
    assert_eq!(envelope.validate(), Ok(()));
    assert_eq!(envelope.key_id, "key-1");
    assert_eq!(envelope.encrypted_dek_source, "sealed seed");
    let data = cipher("derived", 7).decrypt(KEY, &envelope.encrypted_data);
    assert_eq!(data.as_deref(), Ok(TEXT));
    assert_eq!(envelope.encode_to_vec(), bytes(ENVELOPE));
}

#[test]
fn what_was_tampered_with_is_refused() {
    for (name, number, vector) in VECTORS {
        let (cipher, stored) = (cipher(name, number), bytes(vector));
        // No prefix of it is a value; CBC authenticates nothing, but its length must fit.
        for length in 0..stored.len() {
            let short = cipher.decrypt(KEY, &stored[..length]);
            assert!(
                short.as_deref() != Ok(TEXT),
                "{name} {number}: {length} bytes"
            );
        }
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 1;
            let changed = cipher.decrypt(KEY, &changed);
            assert!(changed.as_deref() != Ok(TEXT), "{name} {number}: at {at}");
        }
        let moved = cipher.decrypt("/registry/secrets/default/b", &stored);
        let authenticates_key = matches!(name, "aesgcm" | "derived");
        assert_eq!(moved.is_err(), authenticates_key, "{name} {number}");
    }
    let why = |name, number, data: &[u8]| {
        let outcome = cipher(name, number).decrypt(KEY, data);
        outcome.expect_err("refused").to_string()
    };
    let short = "the stored data was shorter than the required size";
    for (name, number, _) in VECTORS {
        assert_eq!(why(name, number, b"k"), short);
    }
    assert_eq!(
        why("aesgcm", 16, &[0; 40]),
        "cipher: message authentication failed"
    );
    assert_eq!(
        why("aescbc", 16, &[0; 17]),
        "the stored data is not a multiple of the block size"
    );
    assert_eq!(
        why("aescbc", 16, &[0; 16]),
        "invalid PKCS7 data (empty or not padded)"
    );
    assert_eq!(
        why("secretbox", 32, &[0; 41]),
        "output array was not large enough for encryption"
    );
}

fn settings(reload: bool) -> Settings {
    Settings {
        reload,
        kms_v1: false,
        server_hash: String::new(),
        clock: Clock::system(),
    }
}

async fn load(text: &str, reload: bool) -> Result<Configuration, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.yaml");
    fs::write(&path, text).expect("a file");
    let shown = path.display().to_string();
    Configuration::load(&path, &settings(reload))
        .await
        .map_err(|why| why.replace(&shown, "FILE"))
}

/// Resources of a configuration in flow style.
async fn load_resources(resources: &str) -> Result<Configuration, String> {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: ";
    load(&format!("{head}{resources}"), false).await
}

const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

#[tokio::test]
async fn wrong_configurations_are_refused_with_the_path_of_the_field() {
    let parsing = "error while parsing file: ";
    let field = |rest: &str| format!("{parsing}resources[0].{rest}");
    let kms = |fields: &str| format!("[{{resources: [a], providers: [{{kms: {{{fields}}}}}]}}]");
    let resource =
        |names: &str| format!("[{{resources: [{names}], providers: [{{identity: {{}}}}]}}]");
    let key = |secret: &str| {
        format!(
            "[{{resources: [a], providers: [{{aescbc: {{keys: [{{name: k, secret: '{secret}'}}]}}}}]}}]"
        )
    };
    let good = "name: a, endpoint: 'unix:///a', apiVersion: v2";
    for (given, why) in [
        ("[]".to_owned(), format!("{parsing}resources: Required value: at least one resources is required")),
        ("[{providers: [{identity: {}}]}]".to_owned(),
            field("resources: Required value: at least one resources[0].resources is required")),
        ("[{resources: [a]}]".to_owned(),
            field("providers: Required value: at least one resources[0].providers is required")),
        ("[{resources: [a], providers: [{}]}]".to_owned(),
            field("providers[0]: Invalid value: {\"AESGCM\":null,\"AESCBC\":null,\"Secretbox\":null,\"Identity\":null,\"KMS\":null}: \
                provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity")),
        (resource("Secrets"), field("resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters")),
        (resource("'*'"), field("resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")),
        (resource("serviceipallocations"), field("resources[0]: Invalid value: \"serviceipallocations\": resources which do not have REST API/s cannot be encrypted")),
        (resource("events.events.k8s.io"), field("resources[0]: Invalid value: \"events.events.k8s.io\": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file")),
        (resource("'a.*'"), field("resources[0]: Invalid value: \"a.*\": encrypting the same resource across groups is not supported")),
        (resource("a, a"), field("resources: Invalid value: [\"a\",\"a\"]: the same resource cannot be specified multiple times")),
        (resource("a, '*.'"), field("resources: Invalid value: [\"a\",\"*.\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked")),
        (key(""), field("providers[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key")),
        (key("?"), field("providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded")),
        (key("c2hvcnQ="), field("providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]")),
        (kms("name: 'a:b', endpoint: 'unix:///a', apiVersion: v2"),
            field("providers[0].kms.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'")),
        (kms("name: a, endpoint: 'http://a', apiVersion: v2"),
            field("providers[0].kms.endpoint: Invalid value: \"http://a\": unsupported scheme \"http\" for KMS provider, only unix is supported")),
        (kms("name: a, apiVersion: v2"), field("providers[0].kms.endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms")),
        (kms(&format!("{good}, timeout: 0s")), field("providers[0].kms.timeout: Invalid value: \"0s\": timeout should be a positive value")),
        (kms(&format!("{good}, cachesize: 5")), field("providers[0].kms.cachesize: Invalid value: 5: cachesize is not supported in v2")),
        (kms("name: a, endpoint: 'unix:///a', apiVersion: v3"),
            field("providers[0].kms.apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported")),
        (kms("name: a, endpoint: 'unix:///a'"),
            "error while building transformers: KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.".to_owned()),
        ("[{resources: ['*.*'], providers: [{identity: {}}]}, {resources: [a], providers: [{identity: {}}]}]".to_owned(),
            "error while building transformers: resource \"a\" is masked by earlier rule \"*.*\"".to_owned()),
        ("[{resources: ['*.'], providers: [{identity: {}}]}, {resources: [a], providers: [{identity: {}}]}]".to_owned(),
            "error while building transformers: resource \"a\" is masked by earlier rule \"*.\"".to_owned()),
        ("[{resources: [a], provider: []}]".to_owned(),
            format!("{parsing}error decoding encryption provider configuration file \"FILE\": strict decoding error: unknown field \"resources[0].provider\"")),
        (kms(&format!("{good}, timeout: soon")),
            format!("{parsing}error decoding encryption provider configuration file \"FILE\": time: invalid duration \"soon\"")),
    ] {
        assert_eq!(load_resources(&given).await.expect_err("refused"), why, "{given}");
    }
    let two = format!(
        "[{{resources: [a], providers: [{{identity: {{}}, aesgcm: {{keys: [{{name: k, secret: {SECRET}}}]}}}}]}}]"
    );
    let why = load_resources(&two).await.expect_err("refused");
    assert!(
        why.contains("more than one provider specified in a single element"),
        "{why}"
    );
    assert!(!why.contains(SECRET), "{why}");
    for (text, why) in [
        ("", "is empty"),
        ("a: [", "couldn't get version/kind"),
        ("apiVersion: v1\nkind: Pod", "no kind \"Pod\" is registered"),
    ] {
        let found = load(text, false).await.expect_err("refused");
        assert!(found.contains(why), "{text}: {found}");
    }
    let missing = Configuration::load(Path::new("/none"), &settings(false)).await;
    assert!(
        missing
            .expect_err("refused")
            .contains("error reading encryption provider")
    );
}

/// Encrypts under the first configuration and decrypts under the second.
async fn move_value(from: &str, to: &str, resource: &str) -> Result<bool, String> {
    let cx = Context {
        key: KEY,
        resource,
        may_wait: true,
    };
    let name = GroupResource::parse(resource);
    let (from, to) = (load_resources(from).await?, load_resources(to).await?);
    let mut stored = Vec::new();
    match from.of(&name) {
        Some(transformers) => transformers
            .encrypt(TEXT, &mut stored, cx)
            .await
            .map_err(|why| why.to_string())?,
        None => stored.extend_from_slice(TEXT),
    }
    let transformers = to.of(&name).ok_or("not configured")?;
    let decrypted = transformers.decrypt(Bytes::from(stored), cx).await;
    let decrypted = decrypted.map_err(|why| why.to_string())?;
    assert_eq!(&decrypted.value[..], TEXT);
    Ok(decrypted.stale)
}

#[tokio::test]
async fn the_first_provider_encrypts_and_the_others_make_stale_values() {
    let aes = |cipher: &str, names: &[&str]| {
        let secrets = ["MDEyMzQ1Njc4OWFiY2RlZg==", "ZmVkY2JhOTg3NjU0MzIxMA=="];
        let keys: Vec<String> = names
            .iter()
            .map(|name| {
                let secret = secrets[usize::from(*name != "one")];
                format!("{{name: {name}, secret: {secret}}}")
            })
            .collect();
        format!("{{{cipher}: {{keys: [{}]}}}}", keys.join(", "))
    };
    let of = |resources: &str, providers: &[&str]| {
        format!(
            "[{{resources: [{resources}], providers: [{}]}}]",
            providers.join(", ")
        )
    };
    let (one, both, two) = (
        aes("aesgcm", &["one"]),
        aes("aesgcm", &["two", "one"]),
        aes("aesgcm", &["two"]),
    );
    let (cbc, identity) = (aes("aescbc", &["one"]), "{identity: {}}");
    let secrets = |providers: &[&str]| of("secrets", providers);
    let no_key = "no matching key was found for the provided AES transformer";
    for (from, to, outcome) in [
        (secrets(&[&one]), secrets(&[&one]), Ok(false)),
        (secrets(&[&one]), secrets(&[&both]), Ok(true)),
        (secrets(&[&one]), secrets(&[&two, &one]), Ok(true)),
        (secrets(&[&one]), secrets(&[&two]), Err(no_key)),
        (
            secrets(&[&one]),
            secrets(&[&cbc]),
            Err("no matching prefix found"),
        ),
        (
            secrets(&[&one]),
            secrets(&[identity]),
            Err("no matching prefix found"),
        ),
        (secrets(&[&one]), secrets(&[identity, &one]), Ok(true)),
        (secrets(&[identity]), secrets(&[&one, identity]), Ok(true)),
        (secrets(&[identity]), secrets(&[identity, &one]), Ok(false)),
        (
            secrets(&[identity]),
            secrets(&[&one]),
            Err("no matching prefix found"),
        ),
        (of("'*.'", &[&one]), of("'*.*'", &[&one]), Ok(false)),
        (
            of("'*.apps'", &[&one]),
            of("'*.*'", &[&one, identity]),
            Ok(true),
        ),
        (
            of("'*.*'", &[&one]),
            of("'*.apps'", &[&one]),
            Err("not configured"),
        ),
    ] {
        let moved = move_value(&from, &to, "secrets").await;
        assert_eq!(moved, outcome.map_err(str::to_owned), "{from} -> {to}");
    }
    // Keys with the same name and other bytes.
    let other = one.replace("MDEyMzQ1Njc4OWFiY2RlZg==", "ZmVkY2JhOTg3NjU0MzIxMA==");
    assert_eq!(
        move_value(&secrets(&[&one]), &secrets(&[&other, &one]), "secrets").await,
        Ok(true)
    );
    assert_eq!(
        move_value(&secrets(&[&one]), &secrets(&[&other]), "secrets").await,
        Err("cipher: message authentication failed".to_owned())
    );
}

#[test]
fn envelopes_have_limits() {
    let good = super::kms::EncryptedObject::decode(&*bytes(ENVELOPE)).expect("an envelope");
    let refused = |change: &dyn Fn(&mut super::kms::EncryptedObject)| {
        let mut object = good.clone();
        change(&mut object);
        object.validate().expect_err("refused").to_string()
    };
    assert_eq!(
        refused(&|o| o.encrypted_data = Bytes::new()),
        "encrypted data is empty"
    );
    assert_eq!(
        refused(&|o| o.encrypted_dek_source_type = 2),
        "unknown encryptedDEKSourceType: 2"
    );
    assert_eq!(
        refused(&|o| o.encrypted_dek_source = Bytes::new()),
        "failed to validate encrypted DEK source: encrypted DEK source is empty"
    );
    assert_eq!(
        refused(&|o| o.encrypted_dek_source = vec![0; 1025].into()),
        "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of 1024"
    );
    assert_eq!(
        refused(&|o| o.key_id = String::new()),
        "failed to validate key id: keyID is empty"
    );
    assert_eq!(
        refused(&|o| o.key_id = "k".repeat(1025)),
        "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024"
    );
    assert_eq!(
        refused(&|o| drop(o.annotations.insert("panda".to_owned(), Bytes::new()))),
        "failed to validate annotations: annotations: Invalid value: \"panda\": should be a domain with at least two segments separated by dots"
    );
    assert_eq!(
        refused(&|o| drop(
            o.annotations
                .insert("a.b".to_owned(), vec![0; 32 << 10].into())
        )),
        "failed to validate annotations: total size of annotations is 32791, which exceeds the max size of 32768"
    );
}
