//! The chain of authenticators, in upstream's order (kube-apiserver
//! `kubeapiserver/authenticator/config.go`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::cache::{self, TokenCache};
use super::metrics;
use super::openid::JwtAuthenticators;
use super::openid::configuration::Anonymous;
use super::request_header::{self, FrontProxy};
use super::service_account::ServiceAccounts;
use super::static_token::StaticTokens;
use super::token_webhook::TokenWebhook;
use super::x509::{CaBundle, Verified};
use super::{
    Authenticated, Authenticator, AuthnError, CREDENTIAL_ID, Credentials, Peer, Purpose, TokenUser,
    bootstrap_token,
};
use crate::auth::{ANONYMOUS, AUTHENTICATED, ObjectSource, UNAUTHENTICATED, User};
use crate::base::clock::Clock;

/// The error for a bearer token that no authenticator knows.
const INVALID_TOKEN: &str = "invalid bearer token";
/// The WebSocket subprotocol that carries a token, for browsers, which cannot set headers.
const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// The authenticators that are on.
#[derive(Clone, Default)]
pub struct Options {
    pub front_proxy: Option<FrontProxy>,
    pub client_authorities: Option<CaBundle>,
    /// True if a certificate's subject may name the user's UID (the gate
    /// AllowParsingUserUIDFromCertAuth).
    pub uid_from_certificate: bool,
    pub static_tokens: Option<StaticTokens>,
    pub service_accounts: Option<ServiceAccounts>,
    /// The source of bootstrap tokens; `None` if they are not accepted.
    pub bootstrap_tokens: Option<Arc<dyn ObjectSource>>,
    /// The audiences that stand for this server.
    pub api_audiences: Vec<String>,
    /// The issuers of other tokens.
    pub jwt: Option<Arc<JwtAuthenticators>>,
    pub token_webhook: Option<Arc<TokenWebhook>>,
    /// The requests without credentials that are let in as `system:anonymous`.
    pub anonymous: Anonymous,
}

/// The authenticator of a server.
pub struct Chain {
    state: ArcSwap<State>,
    /// Held by whoever changes the state.
    changing: Mutex<()>,
    clock: Clock,
}

/// The options in force, and the tokens that were found valid by them.
struct State {
    options: Options,
    cache: TokenCache,
}

impl Chain {
    pub fn new(options: Options, clock: Clock) -> Self {
        Self {
            state: ArcSwap::from_pointee(State {
                options,
                cache: TokenCache::default(),
            }),
            changing: Mutex::default(),
            clock,
        }
    }

    /// Judges requests by changed options from now on, also those on connections that there are;
    /// what was found valid is looked at again.
    ///
    /// # Errors
    /// Those of `change`; then nothing is changed.
    pub fn change<E>(&self, change: impl FnOnce(&mut Options) -> Result<(), E>) -> Result<(), E> {
        let _changing = self.changing.lock();
        let mut options = self.state.load().options.clone();
        change(&mut options)?;
        self.state.store(Arc::new(State {
            options,
            cache: TokenCache::default(),
        }));
        Ok(())
    }

    /// Returns the user of a token, if it is meant for one of `audiences` (this server's if empty),
    /// as TokenReview asks it.
    ///
    /// # Errors
    /// Nobody knows the token, or it is no longer valid; the text is what TokenReview shows.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<TokenUser, AuthnError> {
        let state = self.state.load_full();
        let audiences = if audiences.is_empty() {
            &state.options.api_audiences
        } else {
            audiences
        };
        let found = state
            .token(token, audiences, self.clock.now())
            .await
            .and_then(|user| user.ok_or_else(|| AuthnError::new(INVALID_TOKEN)));
        match found {
            Ok(found) => Ok((*found).clone()),
            Err(why) => {
                let mut error = AuthnError::new(INVALID_TOKEN);
                error.add(why);
                Err(error)
            }
        }
    }

    /// Removes the credentials that authentication read from a request, so that nothing behind it
    /// can misuse it.
    pub fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        request_header::strip_standard(headers);
        if let Some(proxy) = &self.state.load().options.front_proxy {
            proxy.strip(headers);
        }
        strip_websocket_token(headers);
    }
}

impl State {
    fn client_certificate(
        &self,
        peer: &Peer,
        now: Timestamp,
    ) -> Result<Option<Arc<User>>, AuthnError> {
        let Some(authorities) = &self.options.client_authorities else {
            return Ok(None);
        };
        let verified = peer.verified(Purpose::Client, authorities, now)?;
        if let Some(verified) = &verified {
            let left = verified.own_not_after.as_second() - now.as_second();
            metrics::certificate_expires(left);
        }
        match verified {
            Some(verified) if !verified.common_name.is_empty() => {
                let user = || certificate_user(&verified, self.options.uid_from_certificate);
                verified.user.get_or_init(user).clone().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The user of a token, with its groups complete, from the cache if it was asked for a moment
    /// ago.
    async fn token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Option<Arc<TokenUser>>, AuthnError> {
        let options = &self.options;
        // The tokens that are not made for anyone in particular are this server's.
        let agnostic = || -> Option<Vec<String>> {
            let common: Vec<String> = audiences
                .iter()
                .filter(|audience| options.api_audiences.contains(audience))
                .cloned()
                .collect();
            (!common.is_empty() || audiences.is_empty()).then_some(common)
        };
        if let (Some(tokens), Some(audiences)) = (&options.static_tokens, agnostic())
            && let Some(user) = tokens.authenticate(token)
        {
            return Ok(Some(Arc::new(TokenUser {
                user: with_authenticated(user.clone()).into(),
                audiences,
                ..TokenUser::default()
            })));
        }
        let key = cache::key(token, audiences);
        if let Some(user) = self.cache.get(&key, now) {
            metrics::token_hit();
            return Ok(Some(user));
        }
        let fetch = metrics::fetch_token();
        // Apart: nearly all are cached.
        let found = Box::pin(self.look_up(token, audiences, agnostic(), now)).await;
        fetch.end(found.is_ok());
        let Some(mut found) = found? else {
            return Ok(None);
        };
        if !tells_authenticated(&found.user) {
            let complete = Arc::make_mut(&mut found);
            complete.user = with_authenticated((*complete.user).clone()).into();
        }
        self.cache.put(key, found.clone(), now);
        Ok(Some(found))
    }

    /// The user of a token by those authenticators for which it takes some work. `agnostic` are
    /// the audiences of tokens that are made for nobody in particular.
    async fn look_up(
        &self,
        token: &str,
        audiences: &[String],
        agnostic: Option<Vec<String>>,
        now: Timestamp,
    ) -> Result<Option<Arc<TokenUser>>, AuthnError> {
        let options = &self.options;
        let mut errors = AuthnError::default();
        let known = |user: User, audiences| {
            Ok(Some(Arc::new(TokenUser {
                user: user.into(),
                audiences,
                ..TokenUser::default()
            })))
        };
        if let Some(accounts) = &options.service_accounts {
            match accounts.authenticate(token, audiences, now).await {
                Ok(Some(user)) => return Ok(Some(Arc::new(user))),
                Ok(None) => {}
                Err(why) => errors.add(why),
            }
        }
        if let (Some(objects), Some(audiences)) = (&options.bootstrap_tokens, &agnostic) {
            let user = bootstrap_token::authenticate(token, objects.as_ref(), now).await;
            if let Some(user) = user {
                return known(user, audiences.clone());
            }
        }
        // Behind the server's own tokens: these may have keys fetched.
        if let (Some(jwt), Some(audiences)) = (&options.jwt, &agnostic) {
            match jwt.authenticate(token).await {
                Ok(Some(user)) => return known(user, audiences.clone()),
                Ok(None) => {}
                Err(why) => errors.add(why),
            }
        }
        if let Some(webhook) = &options.token_webhook {
            match webhook.authenticate(token, audiences).await {
                Ok(Some(user)) => return Ok(Some(user)),
                Ok(None) => {}
                Err(why) => errors.add(why),
            }
        }
        match errors.is_empty() {
            true => Ok(None),
            false => Err(errors),
        }
    }

    async fn known_token(&self, token: &str, now: Timestamp) -> Result<Authenticated, AuthnError> {
        let found = self.token(token, &self.options.api_audiences, now).await?;
        let found = found.ok_or_else(|| AuthnError::new(INVALID_TOKEN))?;
        Ok(Authenticated {
            user: found.user.clone(),
            warnings: found.warnings.clone(),
            annotations: found.annotations.clone(),
        })
    }
}

#[async_trait]
impl Authenticator for Chain {
    async fn authenticate(
        &self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Authenticated>, AuthnError> {
        let (state, now) = (self.state.load_full(), self.clock.now());
        let mut errors = AuthnError::default();
        let front_proxy = match &state.options.front_proxy {
            Some(proxy) => proxy.authenticate(credentials, now),
            None => Ok(None),
        };
        let front_proxy = front_proxy.map(|user| user.map(|user| with_authenticated(user).into()));
        for attempt in [front_proxy, state.client_certificate(credentials.peer, now)] {
            match attempt {
                Ok(Some(user)) => return Ok(Some(user.into())),
                Ok(None) => {}
                Err(why) if why.is_last() => return Err(why),
                Err(why) => errors.add(why),
            }
        }
        if let Some(token) = bearer_token(credentials.headers) {
            let known = match std::str::from_utf8(token) {
                Ok(token) => state.known_token(token, now).await,
                // No token is anything but ASCII.
                Err(_) => Err(AuthnError::new(INVALID_TOKEN)),
            };
            match known {
                Ok(known) => return Ok(Some(known)),
                Err(why) => errors.add(why),
            }
        }
        match websocket_token(credentials.headers) {
            Ok(Some(token)) => match state.known_token(&token, now).await {
                Ok(known) => return Ok(Some(known)),
                Err(why) => errors.add(why),
            },
            Ok(None) => {}
            Err(why) => errors.add(why),
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let anonymous = || User {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..User::default()
        };
        let allowed = state.options.anonymous.allows(credentials.path);
        Ok(allowed.then(|| Arc::new(anonymous()).into()))
    }
}

/// The user that a certificate names (apiserver `x509.CommonNameUserConversion`).
fn certificate_user(verified: &Verified, with_uid: bool) -> Result<Arc<User>, AuthnError> {
    let uid = match verified.uids.as_slice() {
        _ if !with_uid => String::new(),
        [] => String::new(),
        [uid] if uid.is_empty() => return Err(AuthnError::new("UID cannot be an empty string")),
        [uid] => uid.clone(),
        many => {
            return Err(AuthnError::new(format!(
                "expected 1 UID, but found multiple: {many:?}"
            )));
        }
    };
    let mut user = User {
        name: verified.common_name.clone(),
        uid,
        groups: verified.organizations.clone(),
        ..User::default()
    };
    user.extra.insert(
        CREDENTIAL_ID.to_owned(),
        vec![format!("X509SHA256={}", verified.fingerprint)],
    );
    Ok(with_authenticated(user).into())
}

/// Adds `system:authenticated` to a user's groups, unless it tells that already.
fn with_authenticated(mut user: User) -> User {
    if !tells_authenticated(&user) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Reports whether a user is anonymous or states whether it is authenticated.
fn tells_authenticated(user: &User) -> bool {
    let tells = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    user.name == ANONYMOUS || user.groups.iter().any(tells)
}

/// The token of an `Authorization: Bearer` header.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let scheme = parts.next()?;
    parts
        .next()
        .filter(|token| scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty())
}

/// The subprotocols that a WebSocket handshake offers; none for other requests.
fn subprotocols(headers: &HeaderMap) -> Vec<&[u8]> {
    let has = |name, token: &str| {
        let values = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        values
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL)
        || !has(UPGRADE, "websocket")
        || !has(CONNECTION, "upgrade")
    {
        return Vec::new();
    }
    let values = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .map(HeaderValue::as_bytes);
    values
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect()
}

/// The token among the subprotocols of a WebSocket handshake (apiserver `request/websocket`).
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, AuthnError> {
    let protocols = subprotocols(headers);
    let mut tokens = protocols
        .iter()
        .filter_map(|protocol| protocol.strip_prefix(WEBSOCKET_TOKEN.as_bytes()));
    let Some(encoded) = tokens.next() else {
        return Ok(None);
    };
    if tokens.next().is_some() {
        return Err(AuthnError::new(
            "multiple base64.bearer.authorization tokens specified",
        ));
    }
    let bytes = BASE64_URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_| AuthnError::new("invalid base64.bearer.authorization token encoding"))?;
    let token = String::from_utf8(bytes)
        .map_err(|_| AuthnError::new("invalid base64.bearer.authorization token"))?;
    if !token.is_empty() && protocols.len() < 2 {
        return Err(AuthnError::new("missing additional subprotocol"));
    }
    Ok(Some(token).filter(|token| !token.is_empty()))
}

fn strip_websocket_token(headers: &mut HeaderMap) {
    let protocols = subprotocols(headers);
    let is_token = |protocol: &&[u8]| protocol.starts_with(WEBSOCKET_TOKEN.as_bytes());
    if !protocols.iter().any(is_token) {
        return;
    }
    let rest: Vec<&[u8]> = protocols
        .into_iter()
        .filter(|protocol| !is_token(protocol))
        .collect();
    match HeaderValue::from_bytes(&rest.join(&b","[..])) {
        Ok(value) => headers.insert(SEC_WEBSOCKET_PROTOCOL, value),
        Err(_) => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn chain() -> Chain {
        let options = Options {
            client_authorities: Some(
                CaBundle::from_pem(include_bytes!("testdata/v1-ca.crt")).expect("a bundle"),
            ),
            static_tokens: Some(StaticTokens::from_csv("t,alice,uid,devs\n").expect("tokens")),
            api_audiences: vec!["api".to_owned()],
            anonymous: Anonymous::everywhere(),
            ..Options::default()
        };
        Chain::new(
            options,
            Clock::manual("2027-06-01T00:00:00Z".parse().expect("a time")),
        )
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    value.parse().expect("a value"),
                )
            })
            .collect()
    }

    fn peer(pem: &[u8]) -> Peer {
        use rustls_pki_types::pem::PemObject;
        Peer::new(vec![
            rustls_pki_types::CertificateDer::from_pem_slice(pem).expect("a certificate"),
        ])
    }

    async fn ask(pairs: &[(&'static str, &str)], peer: &Peer) -> Result<Option<Arc<User>>, String> {
        chain()
            .authenticate(&Credentials {
                path: "/",
                headers: &headers(pairs),
                peer,
            })
            .await
            .map(|known| known.map(|known| known.user))
            .map_err(|why| why.to_string())
    }

    #[tokio::test]
    async fn authenticators_return_their_users() {
        let nobody = Peer::default();
        let anonymous = ask(&[], &nobody).await.expect("let in").expect("a user");
        assert_eq!(
            (anonymous.name.as_str(), anonymous.groups.clone()),
            (ANONYMOUS, vec![UNAUTHENTICATED.to_owned()])
        );

        let alice = ask(&[("authorization", "bearer t")], &nobody)
            .await
            .expect("known")
            .expect("a user");
        assert_eq!(
            (alice.name.as_str(), alice.groups.clone()),
            ("alice", vec!["devs".to_owned(), AUTHENTICATED.to_owned()])
        );

        let admin = ask(&[], &peer(include_bytes!("testdata/v1-leaf.crt")))
            .await
            .expect("known")
            .expect("a user");
        assert_eq!(
            (admin.name.as_str(), admin.groups.clone()),
            (
                "admin",
                vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()]
            )
        );
        assert!(admin.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));

        let token = format!("v1.channel.k8s.io, {WEBSOCKET_TOKEN}dA");
        let offer = [
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-protocol", token.as_str()),
        ];
        assert_eq!(
            ask(&offer, &nobody)
                .await
                .expect("known")
                .map(|user| user.name.clone()),
            Some("alice".to_owned())
        );
        let mut stripped = headers(&offer);
        chain().strip(&mut stripped);
        assert_eq!(stripped[SEC_WEBSOCKET_PROTOCOL], "v1.channel.k8s.io");
    }

    #[tokio::test]
    async fn invalid_credentials_are_not_anonymous() {
        let nobody = Peer::default();
        assert_eq!(
            ask(&[("authorization", "Bearer nope")], &nobody).await,
            Err(INVALID_TOKEN.to_owned())
        );
        // The authority's own certificate: trusted, but of nobody with a group, so it is just a
        // user; a stranger's is not.
        let key = rcgen::KeyPair::generate().expect("a key");
        let stranger = rcgen::CertificateParams::default()
            .self_signed(&key)
            .expect("a certificate");
        assert!(
            ask(&[], &Peer::new(vec![stranger.der().clone()]))
                .await
                .is_err()
        );
        // A good token makes up for it.
        let both = ask(
            &[("authorization", "Bearer t")],
            &Peer::new(vec![stranger.der().clone()]),
        )
        .await
        .expect("known");
        assert_eq!(both.map(|user| user.name.clone()), Some("alice".to_owned()));
        // What is no bearer token is no credential.
        assert!(
            ask(&[("authorization", "Basic dDp0")], &nobody)
                .await
                .expect("let in")
                .is_some()
        );
    }

    #[tokio::test]
    async fn token_review_returns_user_and_audiences() {
        let chain = chain();
        let known = chain.review("t", &[]).await.expect("known");
        assert_eq!(
            (known.user.name.as_str(), known.audiences),
            ("alice", vec!["api".to_owned()])
        );
        assert_eq!(
            chain
                .review("t", &["other".to_owned()])
                .await
                .expect_err("for others")
                .to_string(),
            INVALID_TOKEN
        );
        assert_eq!(
            chain
                .review("nope", &[])
                .await
                .expect_err("unknown")
                .to_string(),
            INVALID_TOKEN
        );
    }

    /// A certificate authority, and a client's certificate by it that is valid for a day from noon
    /// on.
    fn authority_and_client() -> (CaBundle, Vec<rustls_pki_types::CertificateDer<'static>>) {
        use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let bundle = CaBundle::from_pem(
            ca.self_signed(&ca_key)
                .expect("a certificate")
                .pem()
                .as_bytes(),
        )
        .expect("a bundle");
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name.push(DnType::CommonName, "alice");
        (leaf.not_before, leaf.not_after) = (
            rcgen::date_time_ymd(2027, 6, 2),
            rcgen::date_time_ymd(2027, 6, 3),
        );
        let leaf = leaf
            .signed_by(
                &KeyPair::generate().expect("a key"),
                &Issuer::new(ca, ca_key),
            )
            .expect("a certificate");
        (bundle, vec![leaf.der().clone()])
    }

    #[tokio::test]
    async fn certificate_verdict_ends_with_the_authorities_and_the_certificate() {
        const HOUR: std::time::Duration = std::time::Duration::from_secs(60 * 60);
        let (bundle, certificates) = authority_and_client();
        let clock = Clock::manual("2027-06-01T23:59:00Z".parse().expect("a time"));
        let options = Options {
            client_authorities: Some(bundle.clone()),
            ..Options::default()
        };
        let (chain, peer, none) = (
            Chain::new(options, clock.clone()),
            Peer::new(certificates),
            HeaderMap::new(),
        );
        let ask = async || {
            let user = chain
                .authenticate(&Credentials {
                    path: "/",
                    headers: &none,
                    peer: &peer,
                })
                .await;
            user.map(|known| known.expect("a user").user.name.clone())
                .map_err(|why| why.to_string())
        };
        let expired =
            "verifying certificate failed: x509: certificate has expired or is not yet valid"
                .to_owned();
        assert_eq!(ask().await, Err(expired.clone()));
        // The same connection, a minute later.
        clock.advance(HOUR);
        assert_eq!(ask().await, Ok("alice".to_owned()));

        let trust = |bundle: CaBundle| {
            chain.change(|options| {
                options.client_authorities = Some(bundle);
                Ok::<_, ()>(())
            })
        };
        assert_eq!(trust(authority_and_client().0), Ok(()));
        assert_eq!(
            ask().await,
            Err(
                "verifying certificate failed: x509: certificate signed by unknown authority"
                    .to_owned()
            )
        );
        assert_eq!(trust(bundle), Ok(()));
        assert_eq!(ask().await, Ok("alice".to_owned()));
        assert_eq!(chain.change(|_| Err(7)), Err(7));

        clock.advance(24 * HOUR);
        assert_eq!(ask().await, Err(expired));
    }

    #[tokio::test]
    async fn changed_options_clear_the_token_cache() {
        let chain = chain();
        let token = "t".to_owned();
        chain.state.load().cache.put(
            cache::key("old", &["api".to_owned()]),
            Arc::new(TokenUser::default()),
            chain.clock.now(),
        );
        assert!(chain.review("old", &[]).await.is_ok() && chain.review(&token, &[]).await.is_ok());
        let changed = chain.change(|options| {
            options.static_tokens = Some(StaticTokens::from_csv("u,alice,uid\n").expect("tokens"));
            Ok::<_, ()>(())
        });
        assert_eq!(changed, Ok(()));
        assert!(
            chain.review("old", &[]).await.is_err() && chain.review(&token, &[]).await.is_err()
        );
        assert!(chain.review("u", &[]).await.is_ok());
    }
}
