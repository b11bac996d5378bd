//! Service account tokens: issuing, and authentication, which checks that the objects they are
//! bound to still exist and records the use of those that are kept in secrets.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};

use super::external_signer::ExternalSigner;
use super::jwt::{self, Claims, Ref};
use super::keys::{KeySet, SigningKey};
use super::{Annotations, AuthnError, CREDENTIAL_ID, TokenUser};
use crate::auth::{ObjectSource, User};
use crate::base::clock::Clock;
use crate::base::random;
use crate::meta::go;
use crate::meta::names::{dns1123_label, dns1123_subdomain};
use crate::meta::{Gvr, Map, Object, Value, json};
use crate::telemetry::metrics::{Counter, Declared};

/// The issuer of the tokens that are kept in secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// The extra that names the node of a token.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
/// The label of a secret whose token is no longer accepted.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The label of a secret with the day on which its token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
/// The warning for clients with a token that nobody asked for.
const AUTO_GENERATED: &str = "Use tokens from the TokenRequest API or manually created \
     secret-based tokens instead of auto-generated secret-based tokens.";

static LEGACY_TOKENS: Counter = Counter::new(
    "serviceaccount_legacy_tokens_total",
    "[ALPHA] Cumulative legacy service account tokens used",
    &[],
);
static MANUAL_TOKENS: Counter = Counter::new(
    "serviceaccount_legacy_manual_token_uses_total",
    "[ALPHA] Cumulative manually created legacy tokens used",
    &[],
);
static AUTO_TOKENS: Counter = Counter::new(
    "serviceaccount_legacy_auto_token_uses_total",
    "[ALPHA] Cumulative auto-generated legacy tokens used",
    &[],
);
static INVALID_TOKENS: Counter = Counter::new(
    "serviceaccount_invalid_legacy_auto_token_uses_total",
    "[ALPHA] Cumulative invalid auto-generated legacy tokens used",
    &[],
);
static STALE_TOKENS: Counter = Counter::new(
    "serviceaccount_stale_tokens_total",
    "[ALPHA] Cumulative stale projected service account tokens used",
    &[],
);
static VALID_TOKENS: Counter = Counter::new(
    "serviceaccount_valid_tokens_total",
    "[ALPHA] Cumulative valid projected service account tokens used",
    &[],
);

pub static METRICS: &[&dyn Declared] = &[
    &LEGACY_TOKENS,
    &MANUAL_TOKENS,
    &AUTO_TOKENS,
    &INVALID_TOKENS,
    &STALE_TOKENS,
    &VALID_TOKENS,
];

/// The prefix of the user names of service accounts.
const USER_PREFIX: &str = "system:serviceaccount:";

/// The user name of a service account.
pub fn username(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// The namespace and name of the service account that a user name is of (apiserver
/// `authentication/serviceaccount.SplitUsername`).
pub fn of_username(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(USER_PREFIX)?.split_once(':')?;
    (dns1123_label(namespace).is_empty() && dns1123_subdomain(name).is_empty())
        .then_some((namespace, name))
}

/// The groups of a service account, less `system:authenticated`.
pub fn groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// Verifies service account tokens.
#[derive(Clone)]
pub struct ServiceAccounts {
    /// The issuers of tokens that expire; the first is this server.
    pub issuers: Vec<String>,
    pub keys: KeySet,
    /// The plugin that knows the keys in their place.
    pub external: Option<Arc<ExternalSigner>>,
    /// The audiences that stand for this server.
    pub api_audiences: Vec<String>,
    /// True if the secret of a legacy token must exist.
    pub lookup: bool,
    pub objects: Arc<dyn ObjectSource>,
}

impl ServiceAccounts {
    /// The user of a token that is meant for one of `audiences`; `None` if it is not a service
    /// account's.
    ///
    /// # Errors
    /// It is, but is not (or no longer) valid.
    pub async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Option<TokenUser>, AuthnError> {
        let Some(token_parts) = jwt::parse(token) else {
            return Ok(None);
        };
        let issuer = &token_parts.claims.iss;
        let legacy = issuer == LEGACY_ISSUER;
        if !legacy && !self.issuers.contains(issuer) {
            return Ok(None);
        }
        let verified = match &self.external {
            Some(external) => {
                let keys = external.keys(token_parts.key_id()).await;
                token_parts.verify(&keys)
            }
            None => token_parts.verify(&self.keys),
        };
        let claims = verified.map_err(AuthnError::new)?;
        // Tokens without an audience are for this server.
        let own = if claims.aud.is_empty() {
            LEGACY_TOKENS.inc(&[]);
            &self.api_audiences
        } else {
            &claims.aud
        };
        let matching: Vec<String> = audiences
            .iter()
            .filter(|audience| own.contains(audience))
            .cloned()
            .collect();
        if matching.is_empty() && !self.api_audiences.is_empty() {
            let message = format!(
                "token audiences {} is invalid for the target audiences {}",
                go::quote_all(own),
                go::quote_all(audiences)
            );
            return Err(AuthnError::new(message));
        }
        let found = if legacy {
            self.legacy_user(token, &claims, now).await
        } else {
            self.user(&claims, now).await.map(|user| (user, Vec::new()))
        };
        let (user, warnings) = found.map_err(AuthnError::new)?;
        Ok(Some(TokenUser {
            annotations: self.annotations(&claims, legacy, !warnings.is_empty(), now),
            user: user.into(),
            audiences: matching,
            warnings,
        }))
    }

    /// The annotations about a token that is old, or of an old kind (kube-apiserver
    /// `serviceaccount/{jwt,legacy,claims}.go`).
    fn annotations(
        &self,
        claims: &Claims,
        legacy: bool,
        auto_generated: bool,
        now: Timestamp,
    ) -> Annotations {
        let mut annotations = Annotations::new();
        if claims.aud.is_empty() {
            annotations.push(("authentication.k8s.io/legacy-token", claims.sub.clone()));
        }
        if legacy && self.lookup {
            let key = match auto_generated {
                true => "authentication.k8s.io/legacy-token-autogenerated-secret",
                false => "authentication.k8s.io/legacy-token-manual-secret",
            };
            annotations.push((key, claims.legacy_secret.clone()));
        }
        let warn_after = claims.kubernetes.warnafter.filter(|after| *after != 0.0);
        let late = warn_after.map(|after| now.as_second() as f64 - after);
        if let Some(late) = late.filter(|late| *late > 0.0 && !legacy) {
            let text = format!(
                "subject: {}, seconds after warning threshold: {}",
                claims.sub,
                late.trunc()
            );
            annotations.push(("authentication.k8s.io/stale-token", text));
        }
        annotations
    }

    async fn user(&self, claims: &Claims, now: Timestamp) -> Result<User, String> {
        claims.check_times(now)?;
        let private = &claims.kubernetes;
        let (namespace, account) = (&private.namespace, &private.serviceaccount);
        let deleted = |object: &Object| is_deleted(object, now);
        let found = self.get("serviceaccounts", namespace, &account.name).await;
        let found =
            found.ok_or_else(|| format!("serviceaccounts \"{}\" not found", account.name))?;
        if found.uid() != account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                found.uid(),
                account.uid
            ));
        }
        if deleted(&found) {
            return Err(format!(
                "service account {namespace}/{} has been deleted",
                account.name
            ));
        }
        let mut user = User {
            name: username(namespace, &account.name),
            uid: account.uid.clone(),
            groups: groups(namespace),
            ..User::default()
        };
        if let Some(secret) = &private.secret {
            self.check_bound("secret", "secrets", namespace, secret, now)
                .await?;
        }
        if let Some(pod) = &private.pod {
            self.check_bound("pod", "pods", namespace, pod, now).await?;
            if !pod.name.is_empty() && !pod.uid.is_empty() {
                user.extra
                    .insert(POD_NAME.to_owned(), vec![pod.name.clone()]);
                user.extra.insert(POD_UID.to_owned(), vec![pod.uid.clone()]);
            }
        }
        if let Some(node) = &private.node {
            // The node of a pod may go before the pod does.
            if private.pod.is_none() {
                self.check_bound("node", "nodes", "", node, now).await?;
            }
            if !node.name.is_empty() {
                user.extra
                    .insert(NODE_NAME.to_owned(), vec![node.name.clone()]);
                if !node.uid.is_empty() {
                    user.extra
                        .insert(NODE_UID.to_owned(), vec![node.uid.clone()]);
                }
            }
        }
        match private.warnafter {
            Some(after) if after != 0.0 && now.as_second() as f64 > after => STALE_TOKENS.inc(&[]),
            Some(after) if after != 0.0 => VALID_TOKENS.inc(&[]),
            _ => {}
        }
        if !claims.jti.is_empty() {
            user.extra.insert(
                CREDENTIAL_ID.to_owned(),
                vec![format!("JTI={}", claims.jti)],
            );
        }
        Ok(user)
    }

    /// Checks whether the object that a token is bound to is still the same and there.
    async fn check_bound(
        &self,
        kind: &str,
        resource: &str,
        namespace: &str,
        bound: &Ref,
        now: Timestamp,
    ) -> Result<(), String> {
        let gone = || "service account token has been invalidated".to_owned();
        let found = self
            .get(resource, namespace, &bound.name)
            .await
            .ok_or_else(gone)?;
        if found.uid() != bound.uid {
            return Err(format!(
                "{kind} UID ({}) does not match service account {kind} ref claim ({})",
                found.uid(),
                bound.uid
            ));
        }
        if is_deleted(&found, now) {
            Err(gone())
        } else {
            Ok(())
        }
    }

    /// The user of a token that is kept in a secret (kube-apiserver `serviceaccount/legacy.go`),
    /// with warnings.
    async fn legacy_user(
        &self,
        token: &str,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<(User, Vec<&'static str>), String> {
        for (value, name) in [
            (&claims.sub, "sub"),
            (&claims.legacy_namespace, "namespace"),
            (&claims.legacy_secret, "secretName"),
            (&claims.legacy_account_name, "serviceAccountName"),
            (&claims.legacy_account_uid, "serviceAccountUID"),
        ] {
            if value.is_empty() {
                return Err(format!("{name} claim is missing"));
            }
        }
        let (namespace, name, uid) = (
            &claims.legacy_namespace,
            &claims.legacy_account_name,
            &claims.legacy_account_uid,
        );
        if namespace.contains(':') || name.contains(':') || claims.sub != username(namespace, name)
        {
            return Err("sub claim is invalid".to_owned());
        }
        let warnings = if self.lookup {
            self.check_legacy(token, claims, now).await?
        } else {
            Vec::new()
        };
        let user = User {
            name: username(namespace, name),
            uid: uid.clone(),
            groups: groups(namespace),
            ..User::default()
        };
        Ok((user, warnings))
    }

    async fn check_legacy(
        &self,
        token: &str,
        claims: &Claims,
        now: Timestamp,
    ) -> Result<Vec<&'static str>, String> {
        let (namespace, name) = (&claims.legacy_namespace, &claims.legacy_account_name);
        let secret = self.get("secrets", namespace, &claims.legacy_secret).await;
        let secret = secret
            .filter(|secret| secret.deletion_timestamp().is_none())
            .ok_or("Token has been invalidated")?;
        if super::secret_data(&secret, "token")
            .is_none_or(|kept| !super::same(&kept, token.as_bytes()))
        {
            return Err("Token does not match server's copy".to_owned());
        }
        let account = self.get("serviceaccounts", namespace, name).await;
        let account = account.ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
        if account.deletion_timestamp().is_some() {
            return Err(format!(
                "ServiceAccount {namespace}/{name} has been deleted"
            ));
        }
        if account.uid() != claims.legacy_account_uid {
            return Err(format!(
                "ServiceAccount UID ({}) does not match claim ({})",
                account.uid(),
                claims.legacy_account_uid
            ));
        }
        self.track_use(&secret, now).await;
        if !label(&secret, INVALID_SINCE).is_empty() {
            INVALID_TOKENS.inc(&[]);
            return Err(format!(
                "the token in secret {namespace}/{} for service account {namespace}/{name} has been marked invalid. Use tokens from the \
                 TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to \
                 temporarily allow use of this token",
                claims.legacy_secret
            ));
        }
        let named = account.get("secrets").and_then(Value::as_array);
        let is_secret =
            |one: &Value| one.get("name").and_then(Value::as_str) == Some(secret.name());
        if named.is_some_and(|named| named.iter().any(is_secret)) {
            AUTO_TOKENS.inc(&[]);
            return Ok(vec![AUTO_GENERATED]);
        }
        MANUAL_TOKENS.inc(&[]);
        Ok(Vec::new())
    }

    /// Labels a secret with the day of its use, unless it has that of today, or of tomorrow, which
    /// another server's clock may show.
    async fn track_use(&self, secret: &Object, now: Timestamp) {
        let day = |hours| {
            let then = now.saturating_add(SignedDuration::from_hours(hours));
            then.unwrap_or(now).strftime("%Y-%m-%d").to_string()
        };
        let (today, used) = (day(0), label(secret, LAST_USED));
        if used == today || used == day(24) {
            return;
        }
        let gvr = Gvr::new("", "v1", "secrets");
        if let Err(status) = self
            .objects
            .set_label(&gvr, secret, LAST_USED, &today)
            .await
        {
            tracing::error!(
                "labelling the legacy service account token {}/{} with the day of its use: {}",
                secret.namespace(),
                secret.name(),
                status.message
            );
        }
    }

    async fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        self.objects
            .get(&Gvr::new("", "v1", resource), namespace, name)
            .await
    }
}

/// Returns the value of a label; empty without it.
fn label<'a>(object: &'a Object, key: &str) -> &'a str {
    let value = object.labels().and_then(|labels| labels.get(key));
    value.and_then(Value::as_str).unwrap_or("")
}

/// Reports whether an object was deleted longer ago than clocks may differ.
fn is_deleted(object: &Object, now: Timestamp) -> bool {
    let Some(deleted) = object.deletion_timestamp() else {
        return false;
    };
    let leeway = SignedDuration::from_secs(jwt::LEEWAY_SECONDS as i64);
    deleted
        .parse::<Timestamp>()
        .is_ok_and(|deleted| deleted < now.saturating_sub(leeway).unwrap_or(now))
}

/// The contents of a new token. At most one of pod, secret and node is what it is bound to; a pod's
/// token may name the node, too.
#[derive(Clone, Debug, Default)]
pub struct TokenSpec<'a> {
    pub namespace: &'a str,
    pub account: Ref,
    pub pod: Option<Ref>,
    pub secret: Option<Ref>,
    pub node: Option<Ref>,
    pub audiences: &'a [String],
    pub expiration_seconds: i64,
    /// The time after which its use is warned of, in seconds from now; 0 for never.
    pub warn_after_seconds: i64,
}

/// A new token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    pub token: String,
    /// Its `jti`, which is how it is traced.
    pub id: String,
    pub expires: Timestamp,
}

/// Issues tokens (for TokenRequest).
pub struct Issuer {
    issuer: String,
    signer: Signer,
    clock: Clock,
}

/// The one who signs tokens.
enum Signer {
    Key(ArcSwap<SigningKey>),
    External(Arc<ExternalSigner>),
}

impl Issuer {
    pub fn new(issuer: impl Into<String>, key: SigningKey, clock: Clock) -> Self {
        Self {
            issuer: issuer.into(),
            signer: Signer::Key(ArcSwap::from_pointee(key)),
            clock,
        }
    }

    /// Returns one whose tokens a plugin signs.
    pub fn external(issuer: &str, signer: Arc<ExternalSigner>, clock: Clock) -> Self {
        Self {
            issuer: issuer.to_owned(),
            signer: Signer::External(signer),
            clock,
        }
    }

    /// Signs with another key from now on.
    pub fn replace_key(&self, key: SigningKey) {
        if let Signer::Key(current) = &self.signer {
            current.store(Arc::new(key));
        }
    }

    /// Makes a token.
    ///
    /// # Errors
    /// The text of the reason: the cryptographic library fails, or the plugin does not sign.
    pub async fn issue(&self, spec: &TokenSpec<'_>) -> Result<IssuedToken, String> {
        let now = self.clock.now().as_second();
        let expires = now.saturating_add(spec.expiration_seconds);
        let id = random::uuid();
        let reference = |of: &Ref| json!({ "name": of.name, "uid": of.uid });
        // Names are in the order of the alphabet, as upstream's JSON has them.
        let mut private = Map::new();
        private.insert("namespace", spec.namespace.into());
        for (name, bound) in [
            ("node", &spec.node),
            ("pod", &spec.pod),
            ("secret", &spec.secret),
        ] {
            if let Some(bound) = bound {
                private.insert(name.to_owned(), reference(bound));
            }
        }
        private.insert("serviceaccount", reference(&spec.account));
        if spec.warn_after_seconds != 0 {
            private.insert(
                "warnafter",
                now.saturating_add(spec.warn_after_seconds).into(),
            );
        }
        let mut claims = Map::new();
        claims.insert("aud", spec.audiences.into());
        claims.insert("exp", expires.into());
        claims.insert("iat", now.into());
        claims.insert("iss", self.issuer.as_str().into());
        claims.insert("jti", id.as_str().into());
        claims.insert("kubernetes.io".to_owned(), Value::Object(private));
        claims.insert("nbf", now.into());
        claims.insert("sub", username(spec.namespace, &spec.account.name).into());
        let token = match &self.signer {
            Signer::Key(key) => jwt::sign(&key.load(), &claims).ok_or("the key does not sign")?,
            Signer::External(signer) => signer.sign(&claims).await?,
        };
        Ok(IssuedToken {
            token,
            id,
            expires: Timestamp::from_second(expires).unwrap_or(Timestamp::MAX),
        })
    }

    /// Makes the token of a secret, which is valid for as long as the secret is there
    /// (`pkg/serviceaccount/legacy.go`).
    ///
    /// # Errors
    /// The text of the reason: there is no key to sign with, or the cryptographic library fails.
    pub fn issue_legacy(
        &self,
        namespace: &str,
        account: &Ref,
        secret: &str,
    ) -> Result<String, String> {
        let Signer::Key(key) = &self.signer else {
            return Err("a plugin signs tokens, but none without an end".to_owned());
        };
        let mut claims = Map::new();
        claims.insert("iss", LEGACY_ISSUER.into());
        for (name, value) in [
            ("namespace", namespace),
            ("secret.name", secret),
            ("service-account.name", account.name.as_str()),
            ("service-account.uid", account.uid.as_str()),
        ] {
            claims.insert(format!("kubernetes.io/serviceaccount/{name}"), value.into());
        }
        claims.insert("sub", username(namespace, &account.name).into());
        jwt::sign(&key.load(), &claims).ok_or_else(|| "the key does not sign".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Objects;
    use super::super::keys::tests::private_keys;
    use super::*;
    use futures::FutureExt;

    const API: &str = "https://kubernetes.default.svc.cluster.local";

    struct World {
        objects: Arc<Objects>,
        accounts: ServiceAccounts,
        issuer: Issuer,
        clock: Clock,
        key: String,
    }

    fn world() -> World {
        let objects = Arc::new(Objects::default());
        for (resource, name, uid) in [
            ("serviceaccounts", "bob", "u1"),
            ("pods", "p", "u2"),
            ("secrets", "s", "u3"),
        ] {
            objects.put(
                resource,
                "ns",
                json!({"metadata": {"name": name, "uid": uid}}),
            );
        }
        objects.put("nodes", "", json!({"metadata": {"name": "n", "uid": "u4"}}));
        let (_, key) = private_keys().remove(0);
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().expect("a time"));
        let accounts = ServiceAccounts {
            issuers: vec![API.to_owned()],
            keys: KeySet::from_pem(&[&key]).expect("keys"),
            external: None,
            api_audiences: vec![API.to_owned()],
            lookup: true,
            objects: objects.clone(),
        };
        let issuer = Issuer::new(
            API,
            SigningKey::from_pem(key.as_bytes()).expect("a key"),
            clock.clone(),
        );
        World {
            objects,
            accounts,
            issuer,
            clock,
            key,
        }
    }

    fn reference(name: &str, uid: &str) -> Option<Ref> {
        Some(Ref {
            name: name.to_owned(),
            uid: uid.to_owned(),
        })
    }

    impl World {
        fn token(&self, change: impl FnOnce(&mut TokenSpec<'_>)) -> String {
            self.token_for(&[API.to_owned()], change)
        }

        fn token_for(
            &self,
            audiences: &[String],
            change: impl FnOnce(&mut TokenSpec<'_>),
        ) -> String {
            let account = Ref {
                name: "bob".to_owned(),
                uid: "u1".to_owned(),
            };
            let mut spec = TokenSpec {
                namespace: "ns",
                account,
                audiences,
                expiration_seconds: 3600,
                ..TokenSpec::default()
            };
            change(&mut spec);
            self.issuer
                .issue(&spec)
                .now_or_never()
                .expect("no plugin")
                .expect("a token")
                .token
        }

        async fn authenticate(&self, token: &str) -> Result<Option<TokenUser>, String> {
            let audiences = [API.to_owned()];
            self.accounts
                .authenticate(token, &audiences, self.clock.now())
                .await
                .map_err(|why| why.to_string())
        }
    }

    #[tokio::test]
    async fn pod_token_names_pod_and_node() {
        let world = world();
        let token = world
            .token(|spec| (spec.pod, spec.node) = (reference("p", "u2"), reference("gone", "u9")));
        let user = world
            .authenticate(&token)
            .await
            .expect("valid")
            .expect("a service account")
            .user;
        assert_eq!(
            (user.name.as_str(), user.uid.as_str()),
            ("system:serviceaccount:ns:bob", "u1")
        );
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns"]
        );
        let extra: Vec<_> = user
            .extra
            .iter()
            .map(|(key, values)| (key.rsplit('/').next().unwrap_or(""), values[0].as_str()))
            .collect();
        assert!(extra[0].1.starts_with("JTI="), "{extra:?}");
        assert_eq!(
            extra[1..],
            [
                ("node-name", "gone"),
                ("node-uid", "u9"),
                ("pod-name", "p"),
                ("pod-uid", "u2")
            ]
        );
    }

    #[tokio::test]
    async fn bound_objects_of_a_token_must_exist() {
        let world = world();
        let (plain, secret) = (
            world.token(|_| {}),
            world.token(|spec| spec.secret = reference("s", "u3")),
        );
        let node = world.token(|spec| spec.node = reference("n", "other"));
        assert!(
            world.authenticate(&plain).await.is_ok() && world.authenticate(&secret).await.is_ok()
        );
        let fails = async |token: &str| world.authenticate(token).await.expect_err("not valid");
        assert_eq!(
            fails(&node).await,
            "node UID (u4) does not match service account node ref claim (other)"
        );
        world.objects.remove("secrets", "ns", "s");
        assert_eq!(
            fails(&secret).await,
            "service account token has been invalidated"
        );
        world.objects.put(
            "serviceaccounts",
            "ns",
            json!({"metadata": {"name": "bob", "uid": "new"}}),
        );
        assert_eq!(
            fails(&plain).await,
            "service account UID (new) does not match claim (u1)"
        );
        world.objects.remove("serviceaccounts", "ns", "bob");
        assert_eq!(fails(&plain).await, "serviceaccounts \"bob\" not found");
    }

    #[tokio::test]
    async fn service_account_token_times_and_audiences_are_checked() {
        let world = world();
        let other = ["other".to_owned()];
        let foreign = world.token_for(&other, |_| {});
        let why = world
            .authenticate(&foreign)
            .await
            .expect_err("for someone else");
        assert_eq!(
            why,
            format!("token audiences [\"other\"] is invalid for the target audiences [\"{API}\"]")
        );
        let review = world
            .accounts
            .authenticate(&foreign, &other, world.clock.now())
            .await
            .expect("valid")
            .expect("known");
        assert_eq!(review.audiences, other);

        let token = world.token(|_| {});
        world.clock.advance(std::time::Duration::from_secs(3661));
        assert_eq!(
            world.authenticate(&token).await.expect_err("old"),
            "service account token has expired"
        );
    }

    #[tokio::test]
    async fn tokens_of_other_issuers_are_ignored() {
        let world = world();
        assert_eq!(
            world.authenticate("abcdef.0123456789abcdef").await,
            Ok(None)
        );
        let (_, other_key) = private_keys().remove(0);
        let forger = Issuer::new(
            API,
            SigningKey::from_pem(other_key.as_bytes()).expect("a key"),
            world.clock.clone(),
        );
        let forged = forger
            .issue(&TokenSpec {
                namespace: "ns",
                expiration_seconds: 60,
                ..TokenSpec::default()
            })
            .now_or_never()
            .expect("no plugin")
            .expect("a token")
            .token;
        assert_eq!(
            world.authenticate(&forged).await.expect_err("forged"),
            "invalid signature, no keys found"
        );
        let stranger = Issuer::new(
            "https://else",
            SigningKey::from_pem(world.key.as_bytes()).expect("a key"),
            world.clock.clone(),
        );
        let strange = stranger
            .issue(&TokenSpec::default())
            .now_or_never()
            .expect("no plugin")
            .expect("a token")
            .token;
        assert_eq!(world.authenticate(&strange).await, Ok(None));
    }

    #[tokio::test]
    async fn legacy_token_must_be_in_its_secret() {
        use base64::Engine;
        let world = world();
        let mut claims = Map::new();
        for (name, value) in [
            ("iss", LEGACY_ISSUER),
            ("sub", "system:serviceaccount:ns:bob"),
            ("kubernetes.io/serviceaccount/namespace", "ns"),
            ("kubernetes.io/serviceaccount/secret.name", "s"),
            ("kubernetes.io/serviceaccount/service-account.name", "bob"),
            ("kubernetes.io/serviceaccount/service-account.uid", "u1"),
        ] {
            claims.insert(name.to_owned(), value.into());
        }
        let token = jwt::sign(
            &SigningKey::from_pem(world.key.as_bytes()).expect("a key"),
            &claims,
        )
        .expect("a token");
        assert_eq!(
            world.authenticate(&token).await.expect_err("no copy"),
            "Token does not match server's copy"
        );
        let data = base64::prelude::BASE64_STANDARD.encode(&token);
        let secret = |labels: Value| json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u3", "labels": labels}, "data": {"token": data}});
        let last_used = async || {
            let gvr = Gvr::new("", "v1", "secrets");
            let secret = world.objects.get(&gvr, "ns", "s").await.expect("a secret");
            label(&secret, LAST_USED).to_owned()
        };
        for (before, after) in [
            ("", "2026-01-01"),
            ("2025-12-31", "2026-01-01"),
            ("2026-01-02", "2026-01-02"),
            ("2026-01-03", "2026-01-01"),
        ] {
            world
                .objects
                .put("secrets", "ns", secret(json!({LAST_USED: before})));
            let known = world
                .authenticate(&token)
                .await
                .expect("valid")
                .expect("known");
            assert_eq!(
                (known.user.name.as_str(), known.user.extra.len()),
                ("system:serviceaccount:ns:bob", 0)
            );
            assert_eq!(
                (known.warnings.len(), last_used().await),
                (0, after.to_owned())
            );
        }
        let account = json!({"metadata": {"name": "bob", "uid": "u1"}, "secrets": [{"name": "s"}]});
        world.objects.put("serviceaccounts", "ns", account);
        let known = world
            .authenticate(&token)
            .await
            .expect("valid")
            .expect("known");
        assert_eq!(known.warnings, [AUTO_GENERATED]);

        world.objects.put(
            "secrets",
            "ns",
            secret(json!({INVALID_SINCE: "2025-12-01"})),
        );
        let why = world.authenticate(&token).await.expect_err("marked");
        assert!(why.contains("has been marked invalid"), "{why}");
        assert_eq!(last_used().await, "2026-01-01");
    }

    #[test]
    fn token_claims_are_in_upstreams_order() {
        use base64::Engine;
        let world = world();
        let token =
            world.token(|spec| (spec.pod, spec.warn_after_seconds) = (reference("p", "u2"), 3607));
        let payload = base64::prelude::BASE64_URL_SAFE_NO_PAD
            .decode(token.split('.').nth(1).expect("a payload"))
            .expect("base64");
        let mut claims: Value = serde_json::from_slice(&payload).expect("JSON");
        claims["jti"] = "id".into();
        assert_eq!(
            claims.to_string(),
            r#"{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1767229200,"iat":1767225600,"iss":"https://kubernetes.default.svc.cluster.local","jti":"id","kubernetes.io":{"namespace":"ns","pod":{"name":"p","uid":"u2"},"serviceaccount":{"name":"bob","uid":"u1"},"warnafter":1767229207},"nbf":1767225600,"sub":"system:serviceaccount:ns:bob"}"#
        );
    }
}
