//! Tokens of OpenID providers: whom they name, which of them are refused, and what providers can do
//! to a server.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::support::oidc::{Key, Provider, encode};
use super::support::webhook::Reply;
use super::support::{Store, TestServer};
use super::{ask, start};

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Claims that are valid, with some more.
fn claims(provider: &Provider, more: Value) -> Value {
    let mut claims = json!({
        "iss": provider.issuer(), "aud": "kubernetes", "sub": "jane", "exp": now() + 600,
    });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn rs256(kid: &str) -> Value {
    json!({"alg": "RS256", "typ": "JWT", "kid": kid})
}

/// A folder with the configuration of a server.
struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, config: &Value) {
        let mut config = config.clone();
        config["apiVersion"] = "apiserver.config.k8s.io/v1".into();
        config["kind"] = "AuthenticationConfiguration".into();
        fs::write(self.path("new"), config.to_string()).unwrap();
        fs::rename(self.path("new"), self.path("authn.yaml")).unwrap();
    }

    fn flag(&self) -> String {
        let path = self.path("authn.yaml");
        format!("--authentication-config={}", path.display())
    }

    async fn start(&self, config: &Value) -> TestServer {
        self.write(config);
        start(self.0.path(), Store::Embedded, &[&self.flag()]).await
    }
}

/// A provider as a configuration names it.
fn jwt(provider: &Provider, more: Value) -> Value {
    let mut jwt = json!({
        "issuer": {
            "url": provider.issuer(),
            "certificateAuthority": provider.server.ca,
            "audiences": ["kubernetes"],
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
    });
    for (name, value) in more.as_object().unwrap() {
        jwt[name] = value.clone();
    }
    jwt
}

/// The status and the user of a request with a token.
async fn user(server: &TestServer, token: &str) -> (u16, Value) {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = ask("POST", WHOAMI).by(token).json(&asked);
    let (status, body) = ask.answer(server).await;
    (status, body["status"]["userInfo"].clone())
}

/// The reason why a token is refused.
async fn refusal(server: &TestServer, token: &str) -> String {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let (_, body) = ask("POST", REVIEWS).json(&asked).answer(server).await;
    let status = &body["status"];
    assert_ne!(status["authenticated"], true, "{token}");
    status["error"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn issuers_name_users_as_their_mappings_say() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    let (rsa, ec) = (Key::rsa(), Key::ec());
    one.keys(&[("a", &rsa)]);
    two.keys(&[("b", &ec)]);
    // The document of the second is elsewhere.
    let document = json!({"issuer": two.issuer(), "jwks_uri": format!("{}/keys", two.issuer())});
    two.page(
        "/.well-known/openid-configuration",
        Reply::Raw(404, vec![], vec![]),
    );
    two.page("/elsewhere", Reply::Json(document));
    let config = json!({"jwt": [
        jwt(&one, json!({"claimMappings": {
            "username": {"claim": "sub", "prefix": ""},
            "groups": {"claim": "roles", "prefix": "g:"},
            "uid": {"claim": "uid"},
        }})),
        jwt(&two, json!({
            "issuer": {
                "url": two.issuer(), "discoveryURL": format!("{}/elsewhere", two.issuer()),
                "certificateAuthority": two.server.ca,
                "audiences": ["my-app", "my-other-app"], "audienceMatchPolicy": "MatchAny",
            },
            // As the documentation has it.
            "claimValidationRules": [
                {"expression": "claims.hd == 'example.com'", "message": "the hd claim must be set to example.com"},
                {"expression": "claims.exp - claims.nbf <= 86400", "message": "total token lifetime must not exceed 24 hours"},
            ],
            "claimMappings": {
                "username": {"expression": "claims.username + ':external-user'"},
                "groups": {"expression": "claims.roles.split(',')"},
                "uid": {"expression": "claims.sub"},
                "extra": [
                    {"key": "example.com/tenant", "valueExpression": "claims.tenant"},
                    {"key": "example.com/none", "valueExpression": "''"},
                ],
            },
            "userValidationRules": [
                {"expression": "!user.username.startsWith('system:')", "message": "username cannot used reserved system: prefix"},
                {"expression": "user.groups.all(group, !group.startsWith('system:'))", "message": "groups cannot used reserved system: prefix"},
            ],
        })),
    ]});
    let world = World::new();
    let server = world.start(&config).await;
    let first = claims(&one, json!({"roles": ["x", "y"], "uid": "7", "jti": "id"}));
    let token = rsa.sign(&rs256("a"), &first);
    server
        .hang_up_until("no keys", async || user(&server, &token).await.0 == 201)
        .await;
    let want = json!({"username": "jane", "uid": "7",
        "groups": ["g:x", "g:y", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=id"]}});
    assert_eq!(user(&server, &token).await.1, want);
    // A key without a name in the token, another algorithm of the same key, one role as a text.
    let header = json!({"alg": "PS384"});
    let token = rsa.sign(&header, &claims(&one, json!({"roles": "z", "uid": "8"})));
    assert_eq!(
        user(&server, &token).await.1["groups"],
        json!(["g:z", "system:authenticated"])
    );

    let more = json!({"aud": ["x", "my-other-app"], "username": "foo", "roles": "user,admin",
        "tenant": "72f988bf", "hd": "example.com", "nbf": now() - 10, "exp": now() + 600});
    let es256 = json!({"alg": "ES256", "kid": "b"});
    let token = ec.sign(&es256, &claims(&two, more.clone()));
    let want = json!({"username": "foo:external-user", "uid": "jane",
        "groups": ["user", "admin", "system:authenticated"], "extra": {"example.com/tenant": ["72f988bf"]}});
    assert_eq!(user(&server, &token).await, (201, want));

    let with = |name: &str, value: Value| {
        let mut more = more.clone();
        more[name] = value;
        ec.sign(&es256, &claims(&two, more))
    };
    for (token, why) in [
        (
            with("hd", json!("evil.com")),
            "oidc: error evaluating claim validation expression: validation expression 'claims.hd == 'example.com'' failed: the hd claim must be set to example.com",
        ),
        (
            with("exp", json!(now() + 100_000)),
            "total token lifetime must not exceed 24 hours",
        ),
        (
            with("username", json!("system:x")),
            "username cannot used reserved system: prefix",
        ),
        (
            with("roles", json!("a,system:masters")),
            "groups cannot used reserved system: prefix",
        ),
        (
            with("username", Value::Null),
            "oidc: error evaluating username claim expression",
        ),
        (
            with("sub", json!(3)),
            "uid claim expression must return a string",
        ),
        (
            with("tenant", json!({})),
            "expression must return a string or a list of strings",
        ),
        (
            with("aud", json!("kubernetes")),
            r#"oidc: verify token: oidc: expected audience in ["my-app" "my-other-app"] got ["kubernetes"]"#,
        ),
    ] {
        let found = refusal(&server, &token).await;
        assert!(found.contains(why), "{found}\n{why}");
    }
    // Each issuer has its own keys.
    let token = ec.sign(&rs256("a"), &claims(&one, json!({})));
    assert_eq!(user(&server, &token).await.0, 401);
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let provider = Provider::start().await;
    let (key, other) = (Key::rsa(), Key::rsa());
    provider.keys(&[("a", &key)]);
    let world = World::new();
    let server = world
        .start(&json!({"jwt": [jwt(&provider, json!({}))]}))
        .await;
    let good = key.sign(&rs256("a"), &claims(&provider, json!({})));
    server
        .hang_up_until("no keys", async || user(&server, &good).await.0 == 201)
        .await;
    assert_eq!(user(&server, &good).await.1["username"], "oidc:jane");

    let valid = claims(&provider, json!({}));
    let (message, signature) = good.rsplit_once('.').unwrap();
    let with = |more: Value| key.sign(&rs256("a"), &claims(&provider, more));
    // The public key as the secret of a symmetric signature.
    let forged = {
        let message = format!(
            "{}.{}",
            encode(r#"{"alg":"HS256","kid":"a"}"#),
            encode(valid.to_string())
        );
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &key.public_der());
        let tag = aws_lc_rs::hmac::sign(&secret, message.as_bytes());
        format!("{message}.{}", encode(tag.as_ref()))
    };
    let none = format!(
        "{}.{}.",
        encode(r#"{"alg":"none"}"#),
        encode(valid.to_string())
    );
    let moved = format!(
        "{}.{}.{signature}",
        encode(rs256("a").to_string()),
        encode(claims(&provider, json!({"sub": "root"})).to_string())
    );
    let unsupported =
        "oidc: verify token: oidc: id token signed with unsupported algorithm, expected";
    let unsigned =
        "oidc: verify token: failed to verify signature: failed to verify id token signature";
    let refused = [
        (none, unsupported),
        (forged, unsupported),
        (moved, unsigned),
        (format!("{message}."), unsigned),
        (other.sign(&rs256("a"), &valid), unsigned),
        (key.sign(&rs256("b"), &valid), unsigned),
        (
            key.sign(&json!({"alg": "ES256", "kid": "a"}), &valid),
            unsigned,
        ),
        (
            key.sign(
                &json!({"alg": "RS256", "kid": "a", "crit": ["x"], "x": 1}),
                &valid,
            ),
            unsigned,
        ),
        (
            with(json!({"exp": now() - 1})),
            "oidc: verify token: oidc: token is expired (Token Expiry: ",
        ),
        (
            with(json!({"exp": null})),
            "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)",
        ),
        (with(json!({"exp": {}})), "exp is no number"),
        (
            with(json!({"nbf": now() + 120})),
            "before the nbf (not before) time",
        ),
        (
            with(json!({"aud": "other"})),
            r#"oidc: verify token: oidc: expected audience "kubernetes" got ["other"]"#,
        ),
        (
            with(json!({"aud": []})),
            r#"oidc: expected audience "kubernetes" got []"#,
        ),
        (
            with(json!({"sub": 1})),
            "oidc: parse username claims \"sub\": json: cannot unmarshal",
        ),
    ];
    for (token, why) in refused {
        assert_eq!(user(&server, &token).await.0, 401, "{token}");
        let found = refusal(&server, &token).await;
        assert!(found.contains(why), "{token}: {found}\n{why}");
    }
    // What is nobody's is not even looked at.
    let elsewhere = with(json!({"iss": "https://elsewhere"}));
    let long = format!(
        "{}.{}.x",
        encode(rs256("a").to_string()),
        "A".repeat(1 << 20)
    );
    for token in [elsewhere, "a.b.c".to_owned(), "..".to_owned(), long.clone()] {
        assert_eq!(refusal(&server, &token).await, "invalid bearer token");
    }
    let status = ask("GET", "/version").by(&long).send(&server).await.status;
    assert!(matches!(status, 401 | 431), "{status}");
    let log = server.log();
    assert!(!log.contains(signature), "{log}");
}

#[tokio::test]
async fn keys_are_rotated_and_cannot_be_made_to_be_fetched_all_the_time() {
    let provider = Provider::start().await;
    let (old, new) = (Key::rsa(), Key::ec());
    provider.keys(&[("old", &old)]);
    let world = World::new();
    let server = world
        .start(&json!({"jwt": [jwt(&provider, json!({}))]}))
        .await;
    let by_old = |sub: &str| old.sign(&rs256("old"), &claims(&provider, json!({"sub": sub})));
    let es256 = json!({"alg": "ES256", "kid": "new"});
    let by_new = |sub: &str| new.sign(&es256, &claims(&provider, json!({"sub": sub})));
    let first = by_old("first");
    server
        .hang_up_until("no keys", async || user(&server, &first).await.0 == 201)
        .await;
    provider.fetches();
    assert_eq!(user(&server, &by_old("second")).await.0, 201);
    assert_eq!(provider.fetches(), 0);

    provider.keys(&[("old", &old), ("new", &new)]);
    assert_eq!(user(&server, &by_new("first")).await.0, 201);
    assert_eq!(provider.fetches(), 1);
    provider.keys(&[("new", &new)]);
    // Known keys are good until they are looked at again.
    let unknown = |number: usize| {
        let header = rs256(&format!("key{number}"));
        old.sign(&header, &claims(&provider, json!({})))
    };
    assert_eq!(user(&server, &unknown(0)).await.0, 401);
    assert_eq!(user(&server, &by_old("third")).await.0, 401);

    let start = Instant::now();
    for number in 0..40 {
        assert_eq!(user(&server, &unknown(number)).await.0, 401);
    }
    let allowed = 12 + start.elapsed().as_secs() as usize;
    assert!(provider.fetches() <= allowed, "{allowed}");
    assert_eq!(user(&server, &by_new("second")).await.0, 201);
    // A provider that is down does not matter to tokens of known keys.
    provider.page("/keys", Reply::Close);
    assert_eq!(user(&server, &by_new("third")).await.0, 201);
}

#[tokio::test]
async fn keys_that_are_to_be_kept_are_kept() {
    let provider = Provider::start().await;
    let (old, new) = (Key::ec(), Key::ec());
    let keys = json!({"keys": [old.jwk("k")]}).to_string().into_bytes();
    let kept = vec![("Cache-Control", "max-age=3600".to_owned())];
    provider.page("/keys", Reply::Raw(200, kept, keys));
    let world = World::new();
    let server = world
        .start(&json!({"jwt": [jwt(&provider, json!({}))]}))
        .await;
    let header = json!({"alg": "ES256", "kid": "k"});
    let good = old.sign(&header, &claims(&provider, json!({})));
    server
        .hang_up_until("no keys", async || user(&server, &good).await.0 == 201)
        .await;
    provider.keys(&[("k", &new)]);
    provider.fetches();
    let other = new.sign(&header, &claims(&provider, json!({})));
    assert_eq!(user(&server, &other).await.0, 401);
    assert_eq!(provider.fetches(), 0);
}

#[tokio::test]
async fn a_provider_that_is_down_or_lies_stops_nothing_else() {
    let (down, liar) = (Provider::start().await, Provider::start().await);
    let key = Key::ec();
    down.keys(&[("k", &key)]);
    liar.keys(&[("k", &key)]);
    let path = "/.well-known/openid-configuration";
    down.page(path, Reply::Raw(503, vec![], b"later".to_vec()));
    let keys = format!("{}/keys", liar.issuer());
    liar.page(
        path,
        Reply::Json(json!({"issuer": "https://other", "jwks_uri": keys})),
    );
    let world = World::new();
    let config = json!({"jwt": [jwt(&down, json!({})), jwt(&liar, json!({}))]});
    let server = world.start(&config).await;
    let header = json!({"alg": "ES256", "kid": "k"});
    let (of_down, of_liar) = (
        key.sign(&header, &claims(&down, json!({}))),
        key.sign(&header, &claims(&liar, json!({}))),
    );
    for token in [&of_down, &of_liar] {
        let why = refusal(&server, token).await;
        assert!(why.contains("oidc: authenticator not initialized"), "{why}");
    }
    server
        .hang_up_until("nothing is said", async || {
            let log = server.log();
            log.contains("503 Service Unavailable: later")
                && log.contains("oidc: issuer did not match the issuer returned by provider")
        })
        .await;
    // Keys that are huge, or no keys at all.
    down.discover();
    down.page("/keys", Reply::Endless(64 << 20));
    server
        .hang_up_until("it stays down", async || {
            refusal(&server, &of_down).await.contains("fetching keys")
        })
        .await;
    down.page("/keys", Reply::Raw(200, vec![], b"[]".to_vec()));
    let why = refusal(&server, &of_down).await;
    assert!(
        why.contains("failed to decode keys")
            || why.contains("failed to verify id token signature"),
        "{why}"
    );
    assert_eq!(ask("GET", "/readyz").status(&server).await, 200);
}

#[tokio::test]
async fn the_flags_of_openid_are_obeyed() {
    let provider = Provider::start().await;
    let key = Key::ec();
    provider.keys(&[("k", &key)]);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, &provider.server.ca).unwrap();
    let issuer = format!("--oidc-issuer-url={}", provider.issuer());
    let ca = format!("--oidc-ca-file={}", ca.display());
    let flags = [
        issuer.as_str(),
        ca.as_str(),
        "--oidc-client-id=kubernetes",
        "--oidc-username-claim=name",
        "--oidc-username-prefix=u:",
        "--oidc-groups-claim=teams",
        "--oidc-groups-prefix=t:",
        "--oidc-required-claim=region=eu",
        "--oidc-signing-algs=ES256",
    ];
    let server = start(folder.path(), Store::Embedded, &flags).await;
    let header = json!({"alg": "ES256", "kid": "k"});
    let with = |region: &str| {
        let more = json!({"name": "joe", "teams": ["a"], "region": region});
        key.sign(&header, &claims(&provider, more))
    };
    let good = with("eu");
    server
        .hang_up_until("no keys", async || user(&server, &good).await.0 == 201)
        .await;
    let found = user(&server, &good).await.1;
    assert_eq!(found["username"], "u:joe");
    assert_eq!(found["groups"], json!(["t:a", "system:authenticated"]));
    let why = refusal(&server, &with("us")).await;
    let want = "oidc: required claim region value does not match. Got = us, want = eu";
    assert!(why.contains(want), "{why}");
    // A key of the provider, but not an algorithm of the flag.
    let why = refusal(
        &server,
        &key.sign(&rs256("k"), &claims(&provider, json!({}))),
    )
    .await;
    assert!(
        why.contains(r#"unsupported algorithm, expected ["ES256"] got "RS256""#),
        "{why}"
    );
}

#[tokio::test]
async fn groups_may_be_with_another_server() {
    let provider = Provider::start().await;
    let key = Key::ec();
    provider.keys(&[("k", &key)]);
    let header = json!({"alg": "ES256", "kid": "k"});
    let page = |path: &str, token: String| {
        provider.page(path, Reply::Raw(200, vec![], token.into_bytes()));
    };
    page(
        "/groups",
        key.sign(&header, &claims(&provider, json!({"groups": ["far"]}))),
    );
    page(
        "/stolen",
        Key::ec().sign(&header, &claims(&provider, json!({"groups": ["root"]}))),
    );
    page("/none", key.sign(&header, &claims(&provider, json!({}))));
    let mappings = json!({"username": {"claim": "sub", "prefix": ""}, "groups": {"claim": "groups", "prefix": ""}});
    let world = World::new();
    let config = json!({"jwt": [jwt(&provider, json!({"claimMappings": mappings}))]});
    let server = world.start(&config).await;
    let from = |path: &str| {
        let source =
            json!({"endpoint": format!("{}{path}", provider.issuer()), "access_token": "s3cr3t"});
        let more = json!({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": source}});
        key.sign(&header, &claims(&provider, more))
    };
    let good = from("/groups");
    server
        .hang_up_until("no keys", async || user(&server, &good).await.0 == 201)
        .await;
    assert_eq!(
        user(&server, &good).await.1["groups"],
        json!(["far", "system:authenticated"])
    );
    let seen = provider.server.take();
    let asked = seen.iter().find(|seen| seen.uri == "/groups").unwrap();
    assert_eq!(asked.headers["authorization"], "Bearer s3cr3t");
    for (path, want) in [
        (
            "/stolen",
            "verify distributed claim token: failed to verify signature",
        ),
        ("/none", "did not contain claim: groups"),
        (
            "/absent",
            "error while getting distributed claim JWT: 404 Not Found",
        ),
    ] {
        let why = refusal(&server, &from(path)).await;
        assert!(
            why.contains("oidc: could not expand distributed claims: "),
            "{why}"
        );
        assert!(why.contains(want), "{why}");
    }
    let lost = key.sign(
        &header,
        &claims(
            &provider,
            json!({"_claim_names": {"groups": "x"}, "_claim_sources": {}}),
        ),
    );
    let why = refusal(&server, &lost).await;
    assert!(why.contains("oidc: source does not exist"), "{why}");
}

#[tokio::test]
async fn anonymous_requests_are_let_in_for_some_paths() {
    let world = World::new();
    let paths = json!([{"path": "/livez"}, {"path": "/readyz"}]);
    let config = json!({"anonymous": {"enabled": true, "conditions": paths}});
    let server = world.start(&config).await;
    for (path, want) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/readyz/ping", 401),
        ("/version", 401),
    ] {
        assert_eq!(
            ask("GET", path).by("").status(&server).await,
            want,
            "{path}"
        );
    }
    assert_eq!(ask("GET", "/version").status(&server).await, 200);
}

#[tokio::test]
async fn a_configuration_that_is_wrong_is_refused_at_the_start() {
    let provider = Provider::start().await;
    let world = World::new();
    let mut own = jwt(&provider, json!({}));
    own["issuer"]["url"] = "https://kubernetes.default.svc.cluster.local".into();
    let mut egress = jwt(&provider, json!({}));
    egress["issuer"]["egressSelectorType"] = "cluster".into();
    let wrong = [
        (
            json!({"jwt": [jwt(&provider, json!({"claimMappings": {}}))]}),
            "invalid authentication configuration: jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            json!({"jwt": [own]}),
            "jwt[0].issuer.url: Invalid value: \"https://kubernetes.default.svc.cluster.local\": URL must not overlap with disallowed issuers",
        ),
        (
            json!({"jwt": [egress]}),
            "oidc: egress lookup required with egress selector type \"cluster\"",
        ),
        (
            json!({"jwt": [jwt(&provider, json!({"claims": []}))]}),
            "strict decoding error: unknown field \"jwt[0].claims\"",
        ),
    ];
    for (config, want) in wrong {
        world.write(&config);
        let log = refused(&world, &[world.flag()]).await;
        assert!(log.contains(want), "{want} is not in\n{log}");
    }
    world.write(&json!({"anonymous": {"enabled": true}}));
    let flags = [world.flag(), "--anonymous-auth=true".to_owned()];
    let log = refused(&world, &flags).await;
    assert!(
        log.contains("anonymous: Forbidden: --anonymous-auth flag cannot be set"),
        "{log}"
    );
}

/// Starts a server that must not start, and returns its log.
async fn refused(world: &World, flags: &[String]) -> String {
    let mut all = flags.to_vec();
    all.push(format!("--data-dir={}", world.path("data").display()));
    all.push("--secure-port=0".to_owned());
    let mut process = TestServer::run(world.0.path(), &all);
    assert!(!process.ends().await, "it started");
    process.log()
}

#[tokio::test]
async fn a_configuration_that_changes_is_taken_unless_it_is_wrong() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    let key = Key::ec();
    one.keys(&[("k", &key)]);
    two.keys(&[("k", &key)]);
    let header = json!({"alg": "ES256", "kid": "k"});
    let by =
        |provider: &Provider, sub: &str| key.sign(&header, &claims(provider, json!({"sub": sub})));
    let world = World::new();
    let server = world.start(&json!({"jwt": [jwt(&one, json!({}))]})).await;
    let first = by(&one, "first");
    server
        .hang_up_until("no keys", async || user(&server, &first).await.0 == 201)
        .await;
    assert_eq!(user(&server, &by(&two, "first")).await.0, 401);
    let controller = "apiserver_authentication_config_controller";
    let count = async |status: &str| {
        let name = format!("{controller}_automatic_reloads_total{{");
        let found = server.metrics().await;
        let mut lines = found
            .lines()
            .filter(|line| line.starts_with(&name) && line.contains(status));
        lines
            .next()
            .and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok())
    };
    let rules = json!({"userValidationRules": [{"expression": "user.nope"}]});
    for (failures, config, why) in [
        (
            1,
            json!({"jwt": [jwt(&two, rules)]}),
            "jwt[0].userValidationRules[0].expression",
        ),
        (
            2,
            json!({"jwt": [jwt(&two, json!({}))], "anonymous": {"enabled": true}}),
            "anonymous: Forbidden: changed from initial configuration file",
        ),
    ] {
        world.write(&config);
        server
            .hang_up_until(why, async || count("failure").await == Some(failures))
            .await;
        assert!(server.log().contains(why), "{}", server.log());
        assert_eq!(user(&server, &by(&one, why)).await.0, 201, "{why}");
    }
    world.write(&json!({"jwt": [jwt(&two, json!({}))]}));
    let second = by(&two, "second");
    server
        .hang_up_until("it is not taken", async || {
            user(&server, &second).await.0 == 201
        })
        .await;
    assert_eq!(user(&server, &by(&one, "last")).await.0, 401);
    assert_eq!(user(&server, &first).await.0, 401);
    assert_eq!(count("success").await, Some(1));
    let found = server.metrics().await;
    for name in [
        &format!("{controller}_last_config_info{{apiserver_id_hash=\"sha256:"),
        "apiserver_authentication_jwt_authenticator_latency_seconds_count{",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds{",
        "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info{",
    ] {
        assert!(found.contains(name), "{name}\n{found}");
    }
}
