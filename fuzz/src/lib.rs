//! The bodies of the fuzz targets: each takes any bytes and panics where what must hold does not.
//! `tests/fuzz.rs` runs them over the seeds.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use keelson::internals::audit::Policy;
use keelson::internals::auth::{
    Attributes, Authentication, Authorization, CaBundle, Claims, PolicyList, certificate_request,
    jwt, untrusted_issuer, user, validate,
};
use keelson::internals::cel::{
    Environment, PER_CALL_LIMIT, Type, Value as CelValue, compile, estimate, plan,
};
use keelson::internals::codec::{Rules, json, normalize, protobuf, yaml};
use keelson::internals::merge::patch::strategic;
use keelson::internals::merge::{self, OneVersion, Set, Ty, Writer};
use keelson::internals::meta::{FieldSelector, Gvk, LabelSelector, Object, Value, json as value};
use keelson::internals::proxy::spdy::{self, Frame, FrameReader, FrameWriter};
use keelson::internals::schema;
use keelson::internals::storage::encryption::{Cipher, EncryptedObject, check_configuration};
use keelson::internals::storage::snapshots::{Entry, EtcdSnapshot, Reader};
use keelson::internals::webhook::KubeConfig;
use prost::Message;
use rustls_pki_types::CertificateDer;

/// Bodies of applies: YAML or JSON. Every one is answered; what is applied by force can be applied
/// again and changes nothing.
pub fn apply(bytes: &[u8]) {
    let Ok((Value::Object(mut config), _)) = yaml::to_value(bytes) else {
        return;
    };
    config.insert("apiVersion".to_owned(), "apps/v1".into());
    config.insert("kind".to_owned(), "Deployment".into());
    let gvk = Gvk::new("apps", "v1", "Deployment");
    let ty = Ty::from(schema::builtin().get(&gvk).expect("a built-in kind"));
    let now = Timestamp::UNIX_EPOCH;
    let writer = Writer {
        manager: "fuzz",
        api_version: "apps/v1",
        subresource: "",
        now,
        reset_fields: &["/status"],
        ty,
        versions: &OneVersion,
    };
    let Ok(once) = merge::apply(None, &config, &gvk, &writer, true) else {
        return;
    };
    let twice = merge::apply(Some(&once), &config, &gvk, &writer, true)
        .expect("what was applied once applies again");
    assert_eq!(once, twice);
}

/// Field sets: whatever reads as one is written and read back the same.
pub fn fields_v1(bytes: &[u8]) {
    let Ok((fields, _)) = json::parse(bytes) else {
        return;
    };
    let Ok(set) = Set::decode(&fields) else {
        return;
    };
    let written = Value::Object(set.encode());
    let again = Set::decode(&written).expect("what was written reads");
    assert_eq!(Value::Object(again.encode()), written);
}

/// Strategic merge patches: a patch and what it is applied to, on a line each. Every one is
/// answered, and what comes out of a patch that fits its type is in form.
pub fn strategic_patch(bytes: &[u8]) {
    let mut parts = bytes
        .splitn(2, |&byte| byte == b'\n')
        .map(|part| json::parse(part).map(|(value, _)| value));
    let (Some(Ok(Value::Object(patch))), Some(Ok(Value::Object(mut live)))) =
        (parts.next(), parts.next())
    else {
        return;
    };
    let ty = schema::builtin()
        .get(&Gvk::new("apps", "v1", "Deployment"))
        .expect("a built-in kind");
    if strategic::apply(&mut live, patch, ty).is_err()
        || !normalize(&mut live, ty, Rules::Unstructured)
    {
        return;
    }
    let once = Value::Object(live.clone()).to_string();
    assert!(
        normalize(&mut live, ty, Rules::Json),
        "what is in form stays so"
    );
    assert_eq!(Value::Object(live).to_string(), once);
}

/// YAML: whatever reads is written and read back the same.
pub fn yaml_text(bytes: &[u8]) {
    let Ok((value, _)) = yaml::to_value(bytes) else {
        return;
    };
    let written = yaml::encode(&value);
    let (again, issues) = yaml::to_value(&written).expect("what was written reads");
    assert_eq!((again, issues), (value, Vec::new()));
}

/// Pods in JSON: what decodes is written as protobuf and JSON, and both read back the same.
pub fn json_pod(bytes: &[u8]) {
    let ty = schema::builtin()
        .get(&Gvk::new("", "v1", "Pod"))
        .expect("a built-in kind");
    let Ok(decoded) = json::decode(bytes, ty) else {
        return;
    };
    let again = json::decode(&json::encode(&decoded.object), ty).expect("what was written reads");
    assert_eq!((&again.object, again.issues.len()), (&decoded.object, 0));
    protobuf_pod(&protobuf::wrap(
        "v1",
        "Pod",
        &protobuf::encode(&decoded.object, ty),
    ));
}

/// Pods in protobuf: what decodes is written, and then comes to the same however often it is read.
pub fn protobuf_pod(bytes: &[u8]) {
    let ty = schema::builtin()
        .get(&Gvk::new("", "v1", "Pod"))
        .expect("a built-in kind");
    let Ok(envelope) = protobuf::unwrap(bytes) else {
        return;
    };
    let Ok(object) = protobuf::decode(envelope.raw, ty) else {
        return;
    };
    let written = protobuf::encode(&object, ty);
    let again = protobuf::decode(&written, ty).expect("what was written reads");
    assert_eq!(protobuf::encode(&again, ty), written);
}

/// Label and field selectors: every text is answered, and many requirements come to what they come
/// to one by one.
pub fn selectors(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let _ = FieldSelector::parse(text)
        .map(|selector| selector.matches(|field| field.to_owned().into()));
    let Ok(selector) = LabelSelector::parse(text) else {
        return;
    };
    for labels in [
        value!({}),
        value!({"a": "1", "b": ""}),
        value!({"a": "x", "c": "7"}),
    ] {
        let object = Object::from_value(value!({"metadata": {}})).map(|mut object| {
            object.metadata_mut().insert("labels", labels);
            object
        });
        let object = object.expect("an object");
        assert_eq!(
            selector.selects(&object),
            selector.matches(object.labels()),
            "{text}"
        );
    }
}

/// Expressions on objects: an expression in the first line, JSON in the second. Every one is
/// answered within what it may cost, and the same when it is asked again.
pub fn expressions(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |&byte| byte == b'\n');
    let Some(Ok(text)) = lines.next().map(str::from_utf8) else {
        return;
    };
    let parsed = lines.next().and_then(|line| json::parse(line).ok());
    let object = parsed.map_or(Value::Null, |(object, _)| object);
    let environment = Environment::new().with_variable("self", Type::Dyn);
    let Ok(checked) = compile(text, &environment) else {
        return;
    };
    let range = estimate(&checked, None);
    assert!(range.min <= range.max, "{text}");
    let Ok(program) = plan(&checked, &environment) else {
        return;
    };
    let evaluate = || program.evaluate(&[CelValue::from_unknown(&object)], PER_CALL_LIMIT);
    let (once, twice) = (evaluate(), evaluate());
    assert_eq!(once.cost, twice.cost, "{text}");
    match (once.value, twice.value) {
        (Ok(once), Ok(twice)) => assert_eq!(once.shown(), twice.shown(), "{text}"),
        (once, twice) => assert_eq!(once.err(), twice.err(), "{text}"),
    }
}

/// Reads an audit policy, and asks one that is right about requests.
pub fn audit_policy(bytes: &[u8]) {
    let Ok(policy) = Policy::parse(bytes) else {
        return;
    };
    let resource = Attributes {
        verb: "get".to_owned(),
        resource: "pods".to_owned(),
        subresource: "status".to_owned(),
        namespace: "kube-system".to_owned(),
        resource_request: true,
        ..Attributes::default()
    };
    let path = Attributes {
        path: "/api/v1".to_owned(),
        ..Attributes::default()
    };
    policy.evaluate(&resource);
    policy.evaluate(&path);
}

/// Reads and checks an EncryptionConfiguration.
pub fn encryption_configuration(bytes: &[u8]) {
    let _ = check_configuration(bytes);
}

/// Reads encrypted values with every cipher.
pub fn encryption_envelope(bytes: &[u8]) {
    if let Ok(object) = EncryptedObject::decode(bytes) {
        if object.validate().is_ok() {
            object.source_id();
        }
        let again = EncryptedObject::decode(object.encode_to_vec().as_slice());
        assert_eq!(again.as_ref(), Ok(&object), "an envelope is what it was");
    }
    let key = [7; 32];
    let ciphers = [
        Cipher::aes_gcm(&key),
        Cipher::aes_cbc(&key),
        Cipher::secretbox(&key),
        Cipher::derived_aes_gcm(&key),
    ];
    for cipher in ciphers.into_iter().flatten() {
        let _ = cipher.decrypt("/registry/secrets/default/a", bytes);
        let mut sealed = Vec::new();
        let place = "/registry/secrets/default/b";
        let opened = cipher
            .encrypt(place, bytes, &mut sealed)
            .and_then(|()| cipher.decrypt(place, &sealed));
        assert_eq!(
            opened.as_deref(),
            Ok(bytes),
            "what is encrypted is decrypted"
        );
    }
}

/// Reads and checks the configuration files of authentication and authorization.
pub fn auth_configuration(bytes: &[u8]) {
    if let Ok(configuration) = Authentication::parse(bytes) {
        let _ = validate(&configuration, &["https://own".to_owned()]);
    }
    let _ = Authorization::parse(bytes, &[]);
    let _ = PolicyList::parse(&String::from_utf8_lossy(bytes), "file");
}

/// Reads tokens, and makes users of claims.
pub fn tokens(bytes: &[u8]) {
    const MAPPINGS: &str = r#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [{
        "issuer": {"url": "https://a", "audiences": ["a"]},
        "claimValidationRules": [{"expression": "has(claims.sub)"}, {"claim": "hd", "requiredValue": "x"}],
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": ""},
            "uid": {"expression": "claims.?uid.orValue('')"},
            "extra": [{"key": "a.b/c", "valueExpression": "claims.?roles.orValue([])"}]},
        "userValidationRules": [{"expression": "user.groups.all(group, group != 'x')"}]}]}"#;
    let text = String::from_utf8_lossy(bytes);
    untrusted_issuer(&text);
    if let Some(token) = jwt::parse(&text) {
        let _ = token.claims.check_times(Timestamp::UNIX_EPOCH);
    }
    let Ok(claims) = Claims::parse(bytes) else {
        return;
    };
    let _ = claims.check_sources();
    let _ = claims.source_of("groups");
    let configuration = Authentication::parse(MAPPINGS.as_bytes()).expect("a configuration");
    let mappers = validate(&configuration, &[]).expect("it is valid");
    for (one, mapper) in configuration.jwt.iter().zip(&mappers) {
        let _ = user(&claims, one, mapper);
    }
}

/// Reads frames of SPDY: what is read is bounded, no more than was sent, and read again as it is
/// when it is written.
pub fn spdy_frames(bytes: &[u8]) {
    let frames = spdy_read(bytes);
    let mut size = 0;
    let mut written = Vec::new();
    let mut writer = FrameWriter::new(&mut written);
    let mut kept = Vec::new();
    for frame in frames {
        match &frame {
            Frame::Data {
                stream,
                is_last,
                bytes,
            } => {
                assert!(bytes.len() <= spdy::MAX_DATA, "a part has a limit");
                size += bytes.len();
                ready(writer.data(*stream, bytes, *is_last)).expect("room");
            }
            Frame::SynStream { headers, .. } => {
                assert!(headers.len() <= spdy::MAX_CONTROL, "a frame has a limit");
                size += headers.len();
                continue;
            }
            Frame::Reset { stream, code } => ready(writer.reset(*stream, *code)).expect("room"),
            Frame::Ping(id) => ready(writer.ping(*id)).expect("room"),
            Frame::SynReply {
                stream,
                is_last: false,
            } => {
                ready(writer.reply(*stream)).expect("room");
            }
            Frame::SynReply { .. } | Frame::GoAway | Frame::Other => continue,
        }
        kept.push(frame);
    }
    assert!(size <= bytes.len(), "more is read than was sent");
    assert_eq!(spdy_read(&written), kept, "what is written is read again");
}

/// The frames before the end, or before what is no frame.
fn spdy_read(bytes: &[u8]) -> Vec<Frame> {
    let (mut reader, mut frames) = (FrameReader::new(bytes), Vec::new());
    while let Ok(Some(frame)) = ready(reader.next()) {
        frames.push(frame);
    }
    frames
}

/// The outcome of what waits for nothing.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("memory is always ready"),
    }
}

/// Verifies client certificates, in DER: one that is trusted itself and signs itself, and a chain
/// of it. Whoever is named once is named again.
pub fn certificates(bytes: &[u8]) {
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        BASE64_STANDARD.encode(bytes)
    );
    let Ok(trusted) = CaBundle::from_pem(pem.as_bytes()) else {
        return;
    };
    let certificate = CertificateDer::from(bytes);
    let now = Timestamp::from_second(1_900_000_000).expect("a time");
    let chain = vec![certificate; 3];
    let (once, twice) = (trusted.verify(&chain, now), trusted.verify(&chain, now));
    match (once, twice) {
        (Ok(once), Ok(twice)) => {
            assert_eq!(once.common_name, twice.common_name);
            assert!(once.fingerprint.len() == 64 && once.not_after >= now);
        }
        (once, twice) => assert_eq!(once.err(), twice.err()),
    }
}

/// Reads the subjects of certificate requests, in PEM, and of those in DER.
pub fn certificate_requests(bytes: &[u8]) {
    if let Ok(subject) = certificate_request::subject(bytes) {
        assert_eq!(certificate_request::subject(bytes), Ok(subject));
    }
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        BASE64_STANDARD.encode(bytes)
    );
    assert_eq!(
        certificate_request::der(pem.as_bytes()).as_deref(),
        Ok(bytes)
    );
    let _ = certificate_request::subject(pem.as_bytes());
}

/// Reads kubeconfig files of webhooks, which name a server if they are right.
pub fn kubeconfig(bytes: &[u8]) {
    if let Ok(config) = KubeConfig::parse(bytes, Path::new("/nonexistent")) {
        assert!(config.server.starts_with("http"), "{}", config.server);
    }
}

/// Snapshot files, of Keelson and of etcd: what is taken has revisions that agree, and no input
/// takes more memory than a few times its size.
pub fn snapshots(bytes: &[u8]) {
    if let Ok(mut reader) = Reader::new(bytes) {
        let revision = reader.revision();
        while let Ok(Some(entry)) = reader.next_entry() {
            assert!((1..=revision).contains(&entry.stored.mod_revision));
        }
    }
    let input = bytes::Bytes::copy_from_slice(bytes);
    let Ok(read) = EtcdSnapshot::parse(input, "/", true) else {
        return;
    };
    let mut held = 0;
    for Entry { stored, .. } in &read.entries {
        held += stored.key.len() + stored.value.len();
        assert!((1..=read.revision).contains(&stored.mod_revision));
        assert!((1..=stored.mod_revision).contains(&stored.create_revision));
    }
    assert!(held <= 2 * bytes.len(), "{held} of {}", bytes.len());
}
