//! The files of Kubernetes' documentation, as it has them, in one server on either store:
//! AuthenticationConfiguration, AuthorizationConfiguration, EncryptionConfiguration, an audit
//! policy, and the kubeconfig files of webhooks.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::support::oidc::{Key, Provider};
use super::support::webhook::{Reply, Seen, Webhook};
use super::support::{TestServer, USER};
use super::{ask, both};

const AUTHENTICATION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: ISSUER
    certificateAuthority: CA
    audiences:
    - my-app
    - my-other-app
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - expression: 'claims.hd == "example.com"'
    message: the hd claim must be set to example.com
  - expression: 'claims.exp - claims.nbf <= 86400'
    message: total token lifetime must not exceed 24 hours
  claimMappings:
    username:
      expression: 'claims.username + ":external-user"'
    groups:
      expression: 'claims.roles.split(",")'
    uid:
      expression: 'claims.sub'
    extra:
    - key: 'example.com/tenant'
      valueExpression: 'claims.tenant'
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: 'username cannot used reserved system: prefix'
  - expression: "user.groups.all(group, !group.startsWith('system:'))"
    message: 'groups cannot used reserved system: prefix'
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
"#;

const AUTHORIZATION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
  - type: Webhook
    name: webhook
    webhook:
      authorizedTTL: 30s
      cacheAuthorizedRequests: true
      unauthorizedTTL: 30s
      cacheUnauthorizedRequests: true
      timeout: 3s
      subjectAccessReviewVersion: v1
      matchConditionSubjectAccessReviewVersion: v1
      failurePolicy: Deny
      connectionInfo:
        type: KubeConfigFile
        kubeConfigFile: KUBECONFIG
      matchConditions:
      - expression: has(request.resourceAttributes)
      - expression: request.resourceAttributes.namespace == 'kube-system'
      - expression: "!('system:serviceaccounts:kube-system' in request.groups)"
  - type: Node
    name: node
  - type: RBAC
    name: rbac
"#;

const ENCRYPTION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources:
      - secrets
      - configmaps
      - pandas.awesome.bears.example
    providers:
      - identity: {}
      - aesgcm:
          keys:
            - name: key1
              secret: c2VjcmV0IGlzIHNlY3VyZQ==
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      - aescbc:
          keys:
            - name: key1
              secret: c2VjcmV0IGlzIHNlY3VyZQ==
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      - secretbox:
          keys:
            - name: key1
              secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=
  - resources:
      - events
    providers:
      - identity: {}
  - resources:
      - '*.apps'
    providers:
      - aescbc:
          keys:
          - name: key2
            secret: dGhpcyBpcyBwYXNzd29yZA==
  - resources:
      - '*.*'
    providers:
      - aescbc:
          keys:
          - name: key3
            secret: c2VjcmV0IGlzIHNlY3VyZQ==
"#;

const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages:
  - "RequestReceived"
rules:
  - level: RequestResponse
    resources:
    - group: ""
      resources: ["pods"]
  - level: Metadata
    resources:
    - group: ""
      resources: ["pods/log", "pods/status"]
  - level: None
    resources:
    - group: ""
      resources: ["configmaps"]
      resourceNames: ["controller-leader"]
  - level: None
    users: ["system:kube-proxy"]
    verbs: ["watch"]
    resources:
    - group: ""
      resources: ["endpoints", "services"]
  - level: None
    userGroups: ["system:authenticated"]
    nonResourceURLs:
    - "/api*"
    - "/version"
  - level: Request
    resources:
    - group: ""
      resources: ["configmaps"]
    namespaces: ["kube-system"]
  - level: Metadata
    resources:
    - group: ""
      resources: ["secrets", "configmaps"]
  - level: Request
    resources:
    - group: ""
    - group: "extensions"
  - level: Metadata
    omitStages:
      - "RequestReceived"
"#;

/// The kubeconfig of a webhook.
const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
clusters:
  - name: name-of-remote-service
    cluster:
      certificate-authority: ca.pem
      server: https://localhost:PORT/PATH
users:
  - name: name-of-api-server
    user:
      token: secret
current-context: webhook
contexts:
- context:
    cluster: name-of-remote-service
    user: name-of-api-server
  name: webhook
"#;

/// Knows one token, and keeps everybody out of the namespace that it is asked about.
fn answer(seen: &Seen) -> Reply {
    let body = &seen.body;
    let status = match body["kind"].as_str() {
        Some("TokenReview") if body["spec"]["token"] == "known" => {
            json!({"authenticated": true, "user": {"username": "janedoe@example.com", "uid": "42"}})
        }
        Some("TokenReview") => json!({"authenticated": false}),
        _ => json!({"allowed": false, "denied": true, "reason": "kube-system is closed"}),
    };
    Reply::Json(json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "status": status}))
}

/// Writes the files into a folder, and returns the flags that name them.
fn write(folder: &Path, provider: &Provider, webhook: &Webhook) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let kubeconfig = |path: &str| {
        let text = KUBECONFIG.replace("PORT", &webhook.port.to_string());
        text.replace("PATH", path)
    };
    let ca = json!(provider.server.ca).to_string();
    let authentication = AUTHENTICATION.replace("ISSUER", &provider.issuer());
    fs::write(file("ca.pem"), &webhook.ca).unwrap();
    for (name, text) in [
        ("tokens", kubeconfig("authenticate")),
        ("access", kubeconfig("authorize")),
        (
            "authn.yaml",
            authentication.replace("CA\n", &format!("{ca}\n")),
        ),
        (
            "authz.yaml",
            AUTHORIZATION.replace("KUBECONFIG", &file("access")),
        ),
        ("encryption.yaml", ENCRYPTION.to_owned()),
        ("audit.yaml", AUDIT.to_owned()),
    ] {
        fs::write(file(name), text).unwrap();
    }
    vec![
        format!("--authentication-config={}", file("authn.yaml")),
        format!(
            "--authentication-token-webhook-config-file={}",
            file("tokens")
        ),
        format!("--authorization-config={}", file("authz.yaml")),
        format!("--encryption-provider-config={}", file("encryption.yaml")),
        "--encryption-provider-config-automatic-reload=true".to_owned(),
        format!("--audit-policy-file={}", file("audit.yaml")),
        format!("--audit-log-path={}", file("audit.log")),
    ]
}

async fn user(server: &TestServer, token: &str) -> Value {
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, body) = ask("POST", path)
        .by(token)
        .json(&asked)
        .answer(server)
        .await;
    body["status"]["userInfo"].clone()
}

/// Checks who is known, and may do something.
async fn identities(server: &TestServer, webhook: &Webhook, token: &str) {
    // The keys of the provider are fetched when the server has started.
    let begun = std::time::Instant::now();
    let mut external = user(server, token).await;
    while external.is_null() && begun.elapsed() < super::PATIENCE {
        external = user(server, token).await;
    }
    assert_eq!(external["username"], "foo:external-user");
    assert_eq!(external["uid"], "auth");
    assert_eq!(
        external["groups"],
        json!(["user", "admin", "system:authenticated"])
    );
    assert_eq!(external["extra"]["example.com/tenant"], json!(["72f988bf"]));
    assert_eq!(
        user(server, "known").await["username"],
        "janedoe@example.com"
    );
    assert_eq!(user(server, "unknown").await, Value::Null);
    for (path, status) in [
        ("/readyz", 200),
        ("/livez", 200),
        ("/version", 401),
        ("/api", 401),
    ] {
        assert_eq!(
            ask("GET", path).by("").status(server).await,
            status,
            "{path}"
        );
    }
    webhook.take();
    let pods = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods");
    let (status, refused) = ask("GET", &pods("kube-system"))
        .by(USER)
        .answer(server)
        .await;
    assert_eq!(status, 403);
    let why = refused["message"].as_str().unwrap();
    assert!(why.ends_with(": kube-system is closed"), "{why}");
    assert_eq!(webhook.take().len(), 1);
    assert_eq!(
        ask("GET", &pods("default")).by(USER).status(server).await,
        403
    );
    assert_eq!(ask("GET", "/version").by(USER).status(server).await, 200);
    assert_eq!(webhook.take().len(), 0);
}

/// The requests that the log tells of, with their levels. A line that is not whole yet is left out.
fn told(folder: &Path) -> Vec<String> {
    let log = fs::read_to_string(folder.join("audit.log")).unwrap();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["user"]["username"] == "admin")
        .filter(|event| {
            ["version", "leader", "secrets", "pods", "nodes", "leases"]
                .contains(&event["auditID"].as_str().unwrap())
        })
        .map(|event| format!("{} {}", event["auditID"], event["level"]).replace('"', ""))
        .collect()
}

/// Checks which requests are told, and how much of them.
async fn events(server: &TestServer, folder: &Path) {
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let leader = format!("{}/controller-leader", maps("default"));
    for (id, path) in [
        ("version", "/version"),
        ("leader", leader.as_str()),
        ("secrets", "/api/v1/namespaces/default/secrets"),
        ("pods", "/api/v1/namespaces/default/pods"),
        ("nodes", "/api/v1/nodes"),
        ("leases", "/apis/coordination.k8s.io/v1/leases"),
    ] {
        let answer = ask("GET", path).header("Audit-ID", id).send(server).await;
        assert!(answer.status < 500, "{id}");
    }
    let wanted = [
        "secrets Metadata",
        "pods RequestResponse",
        "nodes Request",
        "leases Metadata",
    ];
    // An event is written when its answer has been sent.
    let begun = std::time::Instant::now();
    let mut levels = told(folder);
    while levels.len() < wanted.len() && begun.elapsed() < super::PATIENCE {
        levels = told(folder);
    }
    assert_eq!(levels, wanted);
    fs::write(folder.join("audit.log"), "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_files_work_on_both_stores() {
    let folder = tempfile::tempdir().unwrap();
    let (provider, webhook) = (Provider::start().await, Webhook::start(answer).await);
    let key = Key::rsa();
    provider.keys(&[("a", &key)]);
    let flags = write(folder.path(), &provider, &webhook);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({
        "iss": provider.issuer(), "aud": "my-app", "exp": now + 3600, "nbf": now - 60, "iat": now - 60,
        "sub": "auth", "username": "foo", "roles": "user,admin", "tenant": "72f988bf", "hd": "example.com",
    });
    let token = key.sign(&json!({"alg": "RS256", "typ": "JWT", "kid": "a"}), &claims);
    both(&flags, async |server| {
        identities(server, &webhook, &token).await;
        events(server, folder.path()).await;
        for (path, object) in [
            (
                "/api/v1/namespaces/default/secrets",
                json!({"metadata": {"name": "a"}}),
            ),
            (
                "/api/v1/namespaces/default/serviceaccounts",
                json!({"metadata": {"name": "a"}}),
            ),
        ] {
            assert_eq!(ask("POST", path).json(&object).status(server).await, 201);
            let one = format!("{path}/a");
            assert_eq!(ask("GET", &one).status(server).await, 200);
        }
    })
    .await;
}
