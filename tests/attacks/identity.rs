//! Clients that pretend to be somebody else, or to have rights that nobody granted.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rcgen::string::{BmpString, TeletexString};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use serde_json::{Value, json};

use crate::flags::secret_token;
use crate::paths::create;
use crate::support::TestServer;
use crate::{Ask, ask, both};

const MERGE: &str = "application/merge-patch+json";
const REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
/// The longest grace that a client can ask for, and some whose end no clock reaches.
const GRACES: [i64; 5] = [
    999_999_999_999,
    9_223_372_036,
    9_223_372_037,
    i64::MAX,
    i64::MIN,
];

/// A request by a kubelet.
fn kubelet<'a>(method: &'a str, path: &'a str, user: &'a str) -> Ask<'a> {
    ask(method, path)
        .header("Impersonate-User", user)
        .header("Impersonate-Group", "system:nodes")
}

/// Returns the user that the server takes the request to be from.
async fn name(request: Ask<'_>, server: &TestServer) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (status, answer) = request.json(&review).answer(server).await;
    assert_eq!(status, 201, "{answer}");
    answer["status"]["userInfo"]["username"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn pod(name: &str, node: &str, grace: i64) -> Value {
    let container = json!({"name": "c", "image": "i"});
    let spec = json!({"containers": [container], "nodeName": node, "terminationGracePeriodSeconds": grace});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// A namespace is of use to pods when its service account is there.
async fn account(server: &TestServer) {
    create(
        server,
        "/api/v1/namespaces/default/serviceaccounts",
        &json!({"metadata": {"name": "default"}}),
    )
    .await;
}

/// Makes a request for a certificate, in PEM.
fn request(names: &[(DnType, DnValue)]) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in names {
        params.distinguished_name.push(kind.clone(), value.clone());
    }
    params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap()
}

fn text(value: &str) -> DnValue {
    DnValue::Utf8String(value.to_owned())
}

fn signing_request(name: &str, signer: &str, pem: &str) -> Value {
    let server = signer.ends_with("serving");
    let usages = json!([
        "digital signature",
        if server { "server auth" } else { "client auth" }
    ]);
    let spec =
        json!({"request": BASE64_STANDARD.encode(pem), "signerName": signer, "usages": usages});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_not_ascii_are_names() {
    both(&[], async |server| {
        let as_user = |name: &str| ask("POST", REVIEW).header("Impersonate-User", name.as_bytes());
        for wanted in ["jürgen", "管理员", "system:node:ü"] {
            assert_eq!(name(as_user(wanted), server).await, wanted);
        }
        create(
            server,
            "/api/v1/namespaces",
            &json!({"metadata": {"name": "prod"}}),
        )
        .await;
        let delete = || ask("DELETE", "/api/v1/namespaces/prod");
        assert_eq!(
            delete()
                .header("Impersonate-User", "jürgen".as_bytes())
                .status(server)
                .await,
            403
        );
        for (header, value) in [
            ("Impersonate-User", &b"j\xfcrgen"[..]),
            ("Impersonate-User", b"\xff"),
            ("Impersonate-Group", b"\xff"),
            ("Impersonate-Uid", b"\xff"),
            ("Impersonate-Extra-A", b"\xff"),
            ("Impersonate-Extra-%ff", b"a"),
        ] {
            assert_eq!(
                delete().header(header, value).status(server).await,
                400,
                "{header}"
            );
            let named = delete()
                .header("Impersonate-User", "bob")
                .header(header, value)
                .status(server)
                .await;
            assert_eq!(named, 400, "bob and {header}");
        }
        assert_eq!(
            ask("GET", "/api/v1/namespaces/prod").status(server).await,
            200
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_names_the_first_counts() {
    both(&[], async |server| {
        let twice = |first: &'static str, second: &'static str| {
            ask("POST", REVIEW)
                .header("Impersonate-User", first)
                .header("Impersonate-User", second)
        };
        assert_eq!(name(twice("bob", "admin"), server).await, "bob");
        assert_eq!(name(twice("bob", ""), server).await, "bob");
        // As upstream: an empty name is none.
        assert_eq!(name(twice("", "bob"), server).await, "admin");
        for (header, value) in [
            ("Impersonate-Group", "system:masters"),
            ("Impersonate-Uid", "1"),
            ("Impersonate-Extra-A", ""),
        ] {
            assert_eq!(
                twice("", "bob").header(header, value).status(server).await,
                400,
                "{header}"
            );
        }
        let both = ask("POST", REVIEW)
            .header("Impersonate-User", "bob")
            .header("Impersonate-Uid", "1")
            .header("Impersonate-Uid", "2");
        let (_, answer) = both.json(&json!({})).answer(server).await;
        assert_eq!(answer["status"]["userInfo"]["uid"], "1");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_cannot_be_read_are_not_nobodys() {
    both(&[], async |server| {
        // What anybody may see is not shown to who fails to prove who it is.
        let version = || ask("GET", "/version").by("");
        assert_eq!(version().status(server).await, 200);
        for value in [
            &b"Bearer \xff"[..],
            "Bearer tökén".as_bytes(),
            b"Bearer nope",
            b"bEaReR \xff x",
        ] {
            assert_eq!(
                version()
                    .header("Authorization", value)
                    .status(server)
                    .await,
                401
            );
        }
        let protocol = |value: &[u8]| {
            let upgrade = version()
                .header("Connection", "Upgrade")
                .header("Upgrade", "websocket");
            upgrade.header(
                "Sec-WebSocket-Protocol",
                [
                    b"base64url.bearer.authorization.k8s.io.",
                    value,
                    b",v4.channel.k8s.io",
                ]
                .concat(),
            )
        };
        let unknown = BASE64_URL_SAFE_NO_PAD.encode("nope");
        for value in [
            &b"\xff"[..],
            b"=",
            unknown.as_bytes(),
            BASE64_URL_SAFE_NO_PAD.encode(b"\xff").as_bytes(),
        ] {
            assert_eq!(protocol(value).status(server).await, 401);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_tokens_that_nobody_made_are_refused() {
    both(&["--enable-bootstrap-token-auth=true"], async |server| {
        let by = |token: &'static str| ask("POST", REVIEW).by(token);
        let data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
        let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "stringData": data});
        create(server, "/api/v1/namespaces/kube-system/secrets", &secret).await;
        // A token counts as soon as it is written, and no longer than it is there.
        assert_eq!(name(by("abcdef.0123456789abcdef"), server).await, "system:bootstrap:abcdef");
        for token in ["abcdef.0123456789abcdee", "aaaaaa.0123456789abcdef", "abcdeg.0123456789abcdef"] {
            assert_eq!(by(token).json(&json!({})).status(server).await, 401, "{token}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_requests_for_disguised_masters_are_refused() {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    both(&[], async |server| {
        let masters = "system:masters";
        let disguises = [
            text(masters),
            DnValue::TeletexString(TeletexString::try_from(masters).unwrap()),
            DnValue::BmpString(BmpString::try_from(masters).unwrap()),
            DnValue::BmpString(BmpString::try_from("system:masters\0").unwrap()),
        ];
        for (index, disguise) in disguises.into_iter().enumerate() {
            let pem = request(&[
                (DnType::CommonName, text("eve")),
                (DnType::OrganizationName, disguise),
            ]);
            let (status, answer) = ask("POST", REQUESTS)
                .json(&signing_request(&format!("m{index}"), CLIENT, &pem))
                .answer(server)
                .await;
            assert_eq!(status, 403, "{answer}");
        }
        let good = request(&[
            (DnType::CommonName, text("eve")),
            (DnType::OrganizationName, text("devs")),
        ]);
        let evil = request(&[
            (DnType::CommonName, text("eve")),
            (DnType::OrganizationName, text(masters)),
        ]);
        for pem in [
            format!("{good}{evil}"),
            format!(
                "{}{evil}",
                good.replace("END CERTIFICATE REQUEST", "END OTHER")
            ),
        ] {
            assert_eq!(
                ask("POST", REQUESTS)
                    .json(&signing_request("two", CLIENT, &pem))
                    .status(server)
                    .await,
                422
            );
        }
        assert_eq!(
            ask("POST", REQUESTS)
                .json(&signing_request("good", CLIENT, &good))
                .status(server)
                .await,
            201
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_asks_for_certificates_of_its_own() {
    both(&[], async |server| {
        let post = |name: &'static str, names: &[&str]| {
            let mut all = vec![(DnType::OrganizationName, text("system:nodes"))];
            // rcgen keeps one value for each type: the second has an own type of the same object
            // identifier.
            let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
            all.extend(kinds.into_iter().zip(names.iter().map(|name| text(name))));
            let object = signing_request(
                name,
                "kubernetes.io/kube-apiserver-client-kubelet",
                &request(&all),
            );
            kubelet("POST", REQUESTS, "system:node:n").json(&object)
        };
        assert_eq!(post("own", &["system:node:n"]).status(server).await, 201);
        assert_eq!(post("other", &["system:node:m"]).status(server).await, 403);
        assert_eq!(
            post("both", &["system:node:n", "system:node:m"])
                .status(server)
                .await,
            403,
            "the last name is who is asked for"
        );
        assert_eq!(post("none", &[]).status(server).await, 403);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_is_shown_no_pods_of_others() {
    both(&[], async |server| {
        account(server).await;
        for (name, node) in [("mine", "n"), ("theirs", "m"), ("ending", "m")] {
            create(server, PODS, &pod(name, node, 300)).await;
        }
        assert_eq!(ask("DELETE", &format!("{PODS}/ending")).status(server).await, 200);
        for name in ["theirs", "ending"] {
            let path = format!("{PODS}/{name}");
            for options in [
                json!({}),
                json!({"gracePeriodSeconds": 1000}),
                json!({"preconditions": {"uid": "x"}}),
                json!({"preconditions": {"resourceVersion": "1"}}),
                json!({"dryRun": ["All"]}),
            ] {
                let (status, answer) = kubelet("DELETE", &path, "system:node:n").json(&options).answer(server).await;
                assert_eq!(status, 403, "{name} {options}: {answer}");
                assert!(answer["metadata"]["uid"].is_null(), "{answer}");
            }
            let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            let path = format!("{path}/eviction");
            for named in [name, "mine"] {
                let status = kubelet("POST", &path, "system:node:n").json(&eviction(named)).status(server).await;
                assert_eq!(status, 403, "{path} of {named}");
            }
        }
        let collection = kubelet("DELETE", PODS, "system:node:n").status(server).await;
        assert_eq!(collection, 403);
        let own =
            kubelet("DELETE", &format!("{PODS}/mine"), "system:node:n").json(&json!({"preconditions": {"uid": "x"}})).status(server).await;
        assert_eq!(own, 409);
        assert_eq!(kubelet("DELETE", &format!("{PODS}/mine"), "system:node:n").status(server).await, 200);
        assert_eq!(ask("GET", &format!("{PODS}/theirs")).status(server).await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graces_that_no_clock_reaches_end_some_time() {
    both(&[], async |server| {
        account(server).await;
        for (index, grace) in GRACES.into_iter().enumerate() {
            // By an option, by the pod itself, and by an eviction; a second delete shortens what is
            // left.
            let names = ["option", "spec", "eviction"].map(|kind| format!("{kind}{index}"));
            let graces = [30, grace.max(0), grace.max(0)];
            for (name, grace) in names.iter().zip(graces) {
                create(server, PODS, &pod(name, "n", grace)).await;
            }
            let path = format!("{PODS}/{}", names[0]);
            let (status, answer) = ask("DELETE", &path).json(&json!({"gracePeriodSeconds": grace})).answer(server).await;
            assert_eq!((status, &answer["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(if grace < 0 { 1 } else { grace })));
            let (status, answer) = ask("DELETE", &format!("{PODS}/{}", names[1])).answer(server).await;
            assert_eq!(status, 200, "{answer}");
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names[2]}});
            assert_eq!(ask("POST", &format!("{PODS}/{}/eviction", names[2])).json(&eviction).status(server).await, 201);
            for name in &names {
                for shorter in [i64::MAX - 1, 9_223_372_035, 5] {
                    let path = format!("{PODS}/{name}?gracePeriodSeconds={shorter}");
                    assert!(matches!(ask("DELETE", &path).status(server).await, 200 | 404), "{path}");
                }
                let status = ask("DELETE", &format!("{PODS}/{name}?gracePeriodSeconds=0")).status(server).await;
                assert!(matches!(status, 200 | 404), "{name}: {status}");
                assert_eq!(ask("GET", &format!("{PODS}/{name}")).status(server).await, 404, "{name}");
            }
        }
        // A generation that has no next one.
        let meta = json!({"name": "last", "generation": i64::MAX, "finalizers": ["example.com/f"]});
        create(server, "/api/v1/namespaces/default/configmaps", &json!({"metadata": meta})).await;
        assert_eq!(ask("DELETE", "/api/v1/namespaces/default/configmaps/last").status(server).await, 200);
    })
    .await;
}

/// Sends a request, which may be refused, but not by a panic.
async fn assert_no_panic(shown: &str, request: Ask<'_>, server: &TestServer) {
    let answer = request.send(server).await;
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("panic"), "{shown}: {} {text}", answer.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_in_queries_may_be_any() {
    both(&[], async |server| {
        let numbers = [
            "0",
            "-1",
            "1",
            "2147483648",
            "4294967296",
            "9223372036",
            "9223372037",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "18446744073709551615",
            "1e9",
            "",
        ];
        let mut requests = Vec::new();
        for number in numbers {
            let namespaces = [
                format!("limit={number}"),
                format!("resourceVersion={number}&limit=1"),
                format!("resourceVersion={number}&resourceVersionMatch=Exact"),
                format!(
                    "resourceVersion={number}&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
                ),
                format!("watch=1&resourceVersion={number}&timeoutSeconds=1"),
                format!("timeout={number}s"),
            ];
            requests.extend(namespaces.map(|query| ("GET", format!("/api/v1/namespaces?{query}"))));
            let one = [
                "/api/v1/namespaces/default",
                "/api/v1/watch/namespaces/default",
            ];
            requests.extend(one.map(|path| {
                (
                    "GET",
                    format!("{path}?resourceVersion={number}&timeoutSeconds=1"),
                )
            }));
            let delete = format!(
                "/api/v1/namespaces/default/configmaps?gracePeriodSeconds={number}&dryRun=All"
            );
            requests.push(("DELETE", delete));
        }
        // Some are watches, which last a second.
        let all = requests
            .iter()
            .map(|(method, path)| assert_no_panic(path, ask(method, path), server));
        futures::future::join_all(all).await;
        // A time of this length would not end the test in time if it were waited for, and a
        // negative one is over at once.
        let path = "/api/v1/namespaces?watch=1&timeoutSeconds=9223372037";
        assert_eq!(ask("GET", path).status(server).await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audiences_are_granted_for_the_account_of_the_path() {
    both(&[], async |server| {
        account(server).await;
        let pod = create(server, PODS, &pod("p", "n", 30)).await;
        let rule = json!({"apiGroups": [""], "verbs": ["request-serviceaccounts-token-audience"], "resources": ["vault"], "resourceNames": ["default"]});
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        create(server, roles, &json!({"metadata": {"name": "vault"}, "rules": [rule]})).await;
        let subject = json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"});
        let role_ref = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "vault"});
        let binding = json!({"metadata": {"name": "vault"}, "subjects": [subject], "roleRef": role_ref});
        create(server, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let token = |named: &str, audience: &str| {
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]});
            let meta = if named.is_empty() { json!({}) } else { json!({"name": named}) };
            let spec = json!({"audiences": [audience], "boundObjectRef": bound});
            let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": meta, "spec": spec});
            kubelet("POST", path, "system:node:n").json(&body)
        };
        // Who is bound and where the pod runs is known as soon as the reflector has told it.
        let mut status = 0;
        for _ in 0..1000 {
            status = token("", "vault").status(server).await;
            if status != 403 {
                break;
            }
        }
        assert_eq!(status, 201);
        assert_eq!(token("default", "vault").status(server).await, 201);
        assert_eq!(token("", "other").status(server).await, 403);
        // The name in the body gives nothing.
        let spec = json!({"audiences": ["vault"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": "default"}, "spec": spec});
        let other = "/api/v1/namespaces/default/serviceaccounts/other/token";
        assert_eq!(kubelet("POST", other, "system:node:n").json(&body).status(server).await, 403);
    })
    .await;
}

fn claim(name: &str, admin: bool) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "adminAccess": admin});
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_administered_from_labelled_namespaces_only() {
    const WHY: &str = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the \
                       `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    both(&[], async |server| {
        create(server, CLAIMS, &claim("plain", false)).await;
        let templates = CLAIMS.replace("claims", "claimtemplates");
        let template = |name: &str| json!({"metadata": {"name": name}, "spec": {"spec": claim(name, true)["spec"]}});
        for (path, object) in [(CLAIMS, claim("a", true)), (&templates, template("a"))] {
            let (status, answer) = ask("POST", path).json(&object).answer(server).await;
            assert_eq!(status, 422, "{answer}");
            assert!(answer["message"].as_str().unwrap().contains(WHY), "{answer}");
        }
        let apply = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": claim("a", true)["spec"]});
        let path = format!("{CLAIMS}/a?fieldManager=m");
        assert_eq!(ask("PATCH", &path).body("application/apply-patch+yaml", apply.to_string()).status(server).await, 422);
        let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "d", "adminAccess": true});
        let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}}).to_string();
        let path = format!("{CLAIMS}/plain/status");
        assert_eq!(ask("PATCH", &path).body(MERGE, status.clone()).status(server).await, 422);
        for (label, want) in [("false", 422), ("true", 201)] {
            let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": label}}}).to_string();
            assert_eq!(ask("PATCH", "/api/v1/namespaces/default").body(MERGE, labels).status(server).await, 200);
            assert_eq!(ask("POST", CLAIMS).json(&claim("a", true)).status(server).await, want, "{label}");
            assert_eq!(ask("POST", &templates).json(&template("a")).status(server).await, want, "{label}");
        }
        assert_eq!(ask("PATCH", &path).body(MERGE, status).status(server).await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_claims_status_have_rights_of_their_own() {
    both(&[], async |server| {
        create(server, CLAIMS, &claim("c", false)).await;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let rule = |resource: &str, verbs: Value| json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs});
        let mut named = rule("resourceclaims/driver", json!(["arbitrary-node:patch"]));
        named["resourceNames"] = json!(["d.example.com"]);
        for (role, rules) in [
            ("status", json!([rule("resourceclaims/status", json!(["patch"]))])),
            ("binder", json!([rule("resourceclaims/status", json!(["patch"])), rule("resourceclaims/binding", json!(["patch"]))])),
            ("driver", json!([rule("resourceclaims/status", json!(["patch"])), named])),
        ] {
            create(server, &format!("{rbac}/clusterroles"), &json!({"metadata": {"name": role}, "rules": rules})).await;
            let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": role});
            let role_ref = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role});
            let binding = json!({"metadata": {"name": role}, "subjects": [subject], "roleRef": role_ref});
            create(server, &format!("{rbac}/clusterrolebindings"), &binding).await;
        }
        let path = format!("{CLAIMS}/c/status");
        let patch = |user: &'static str, status: Value| {
            ask("PATCH", &path).header("Impersonate-User", user).body(MERGE, json!({"status": status}).to_string())
        };
        for user in ["status", "binder", "driver"] {
            let mut status = 0;
            for _ in 0..1000 {
                status = patch(user, json!({})).status(server).await;
                if status == 200 {
                    break;
                }
            }
            assert_eq!(status, 200, "{user}");
        }
        let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"});
        let allocation = json!({"allocation": {"devices": {"results": [result]}}});
        let (status, answer) = patch("status", allocation.clone()).answer(server).await;
        let want = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
                    resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: \
                    User \"status\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
        assert_eq!(status, 422, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(want), "{answer}");
        assert_eq!(patch("driver", allocation.clone()).status(server).await, 422);
        assert_eq!(patch("binder", allocation).status(server).await, 200);
        let devices = |driver: &str| json!({"devices": [{"driver": driver, "pool": "p", "device": "d", "data": {"a": 1}}]});
        assert_eq!(patch("binder", devices("d.example.com")).status(server).await, 422);
        assert_eq!(patch("driver", devices("e.example.com")).status(server).await, 422);
        assert_eq!(patch("driver", devices("d.example.com")).status(server).await, 200);
        let users = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]});
        assert_eq!(patch("driver", users.clone()).status(server).await, 422);
        assert_eq!(patch("binder", users).status(server).await, 200);
        // Devices that are no longer allocated are forgotten, by whomever.
        let (status, answer) = patch("binder", json!({"reservedFor": null, "allocation": null})).answer(server).await;
        assert_eq!((status, &answer["status"]["devices"]), (200, &Value::Null), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_that_are_stored_in_another_version_are_patched_in_the_served_one() {
    both(&[], async |server| {
        let group = "/apis/admissionregistration.k8s.io/v1";
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}});
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "mutations": [mutation]});
        for (resource, kind, spec) in [
            ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", spec),
            ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", json!({"policyName": "m"})),
        ] {
            create(server, &format!("{group}/{resource}"), &json!({"metadata": {"name": "m"}, "spec": spec})).await;
            let path = format!("{group}/{resource}/m?fieldManager=m");
            let apply = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"labels": {"apply": "a"}}});
            for (media, body) in [
                (MERGE, json!({"metadata": {"labels": {"merge": "a"}}})),
                ("application/json-patch+json", json!([{"op": "test", "path": "/apiVersion", "value": "admissionregistration.k8s.io/v1"}, {"op": "add", "path": "/metadata/labels/json", "value": "a"}])),
                ("application/strategic-merge-patch+json", json!({"metadata": {"labels": {"strategic": "a"}}})),
                ("application/apply-patch+yaml", apply),
            ] {
                let (status, answer) = ask("PATCH", &path).body(media, body.to_string()).answer(server).await;
                assert_eq!((status, &answer["apiVersion"]), (200, &json!("admissionregistration.k8s.io/v1")), "{media}: {answer}");
            }
            let (_, answer) = ask("GET", &path).answer(server).await;
            assert_eq!(answer["metadata"]["labels"], json!({"merge": "a", "json": "a", "strategic": "a", "apply": "a"}));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_addresses_of_a_pod_are_a_field_without_a_value() {
    both(&[], async |server| {
        account(server).await;
        create(server, PODS, &pod("p", "n", 30)).await;
        let status =
            json!({"status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}}).to_string();
        assert_eq!(
            ask("PATCH", &format!("{PODS}/p/status"))
                .body(MERGE, status)
                .status(server)
                .await,
            200
        );
        // As upstream, which takes the label and never looks.
        for (selector, want) in [
            ("podIP%3D10.0.0.7", 1),
            ("podIPs%3D10.0.0.7", 0),
            ("podIPs%3D", 1),
            ("podIPs!%3D10.0.0.7", 1),
        ] {
            let path = format!("{PODS}?fieldSelector=status.{selector}");
            let (status, answer) = ask("GET", &path).answer(server).await;
            assert_eq!(
                (status, answer["items"].as_array().map(Vec::len)),
                (200, Some(want)),
                "{path}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_permission_does_not_allow_connecting_to_pods() {
    both(&[], async |server| {
        account(server).await;
        create(server, PODS, &json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})).await;
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        for (role, verbs) in [("looks", json!(["get"])), ("reaches", json!(["get", "create"]))] {
            let rule = json!({"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": verbs});
            create(server, &format!("{rbac}/clusterroles"), &json!({"metadata": {"name": role}, "rules": [rule]})).await;
            let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": role});
            let role_ref = json!({"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": role});
            let binding = json!({"metadata": {"name": role}, "subjects": [subject], "roleRef": role_ref});
            create(server, &format!("{rbac}/clusterrolebindings"), &binding).await;
        }
        for subresource in ["exec", "attach", "portforward"] {
            let path = format!("{PODS}/p/{subresource}?container=c&command=id");
            let by = |user: &'static str| {
                let request = ask("GET", &path).header("Impersonate-User", user);
                request.header("Connection", "Upgrade").header("Upgrade", "websocket")
            };
            let mut status = 0;
            for _ in 0..1000 {
                status = by("reaches").status(server).await;
                if status != 403 {
                    break;
                }
            }
            assert_eq!(status, 400, "{subresource}: there is no node to reach");
            assert_eq!(by("looks").status(server).await, 403, "{subresource}");
        }
    })
    .await;
}

/// An authority and a certificate by it for a client.
struct Proxy {
    folder: tempfile::TempDir,
    certificate: String,
    key: String,
}

impl Proxy {
    fn new() -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("ca.crt"),
            authority.self_signed(&authority_key).unwrap().pem(),
        )
        .unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "front-proxy-client");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params
            .signed_by(&key, &rcgen::Issuer::new(authority, authority_key))
            .unwrap();
        Self {
            folder,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// The same authority is trusted for clients, so that the proxy could be let in as itself.
    fn flags(&self) -> Vec<String> {
        let ca = self.folder.path().join("ca.crt").display().to_string();
        let flag = |name: &str, value: &str| format!("--{name}={value}");
        vec![
            flag("client-ca-file", &ca),
            flag("requestheader-client-ca-file", &ca),
            flag("requestheader-allowed-names", "front-proxy-client"),
            flag("requestheader-username-headers", "X-Remote-User"),
            flag("requestheader-uid-headers", "X-Own-Uid,X-Remote-Uid"),
            flag("requestheader-group-headers", "X-Remote-Group"),
            flag("requestheader-extra-headers-prefix", "X-Own-Extra-"),
        ]
    }

    /// The status of a GET of who is asking, and who that is.
    async fn ask(&self, server: &TestServer, headers: &[(&str, &[u8])]) -> (u16, Value) {
        use kube::client::ConfigExt;
        let mut config = kube::Config::new(http::Uri::from_static("https://127.0.0.1"));
        config.accept_invalid_certs = true;
        config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(&self.certificate));
        config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(&self.key).into());
        let tls = tokio_rustls::TlsConnector::from(std::sync::Arc::new(
            config.rustls_client_config().unwrap(),
        ));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .unwrap();
        let stream = tls
            .connect("127.0.0.1".try_into().unwrap(), stream)
            .await
            .unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let mut request = http::Request::post(REVIEW)
            .header("Host", "localhost")
            .header("Content-Type", crate::JSON);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
            .to_string();
        let answer = sender
            .send_request(
                request
                    .body(http_body_util::Full::new(bytes::Bytes::from(body)))
                    .unwrap(),
            )
            .await
            .unwrap();
        let status = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body())
            .await
            .unwrap()
            .to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_speaks_in_the_headers_of_the_flags() {
    let proxy = Proxy::new();
    let flags = proxy.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    both(&flags, async |server| {
        let headers: [(&str, &[u8]); 5] = [
            ("X-Remote-User", b"alice"),
            ("X-Own-Uid", b"7"),
            ("X-Remote-Uid", b"8"),
            ("X-Own-Extra-Team", b"red"),
            ("X-Remote-Extra-Team", b"blue"),
        ];
        let (_, answer) = proxy.ask(server, &headers).await;
        let user = &answer["status"]["userInfo"];
        assert_eq!(user["uid"], "7", "{answer}");
        assert_eq!(user["extra"], json!({"team": ["red"]}), "{answer}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_is_never_taken_for_whom_it_speaks_for() {
    let proxy = Proxy::new();
    let flags = proxy.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    both(&flags, async |server| {
        for name in ["alice", "jürgen"] {
            let (status, answer) = proxy
                .ask(
                    server,
                    &[
                        ("X-Remote-User", name.as_bytes()),
                        ("X-Remote-Group", b"devs"),
                    ],
                )
                .await;
            assert_eq!(
                (status, &answer["status"]["userInfo"]["username"]),
                (201, &json!(name)),
                "{answer}"
            );
        }
        let (_, answer) = proxy
            .ask(server, &[("X-Remote-User", b"a"), ("X-Remote-User", b"b")])
            .await;
        assert_eq!(answer["status"]["userInfo"]["username"], "a");
        for header in [
            "X-Remote-User",
            "X-Own-Uid",
            "X-Remote-Group",
            "X-Own-Extra-A",
            "X-Own-Extra-%ff",
        ] {
            let named = proxy
                .ask(server, &[("X-Remote-User", b"alice"), (header, b"\xff")])
                .await;
            // The first name counts, so a second one is not looked at.
            let want = if header == "X-Remote-User" { 201 } else { 401 };
            assert_eq!(named.0, want, "{header}: {}", named.1);
        }
        assert_eq!(
            proxy
                .ask(server, &[("X-Remote-User", b"j\xfcrgen")])
                .await
                .0,
            401
        );
        // Who shows no certificate is nobody, whatever the headers say.
        let forged = ask("POST", REVIEW)
            .by("")
            .header("X-Remote-User", "admin")
            .header("X-Remote-Group", "system:masters");
        assert_eq!(forged.json(&json!({})).status(server).await, 403);
        let user = ask("POST", REVIEW)
            .by(crate::support::USER)
            .header("X-Remote-User", "admin")
            .header("X-Remote-Group", "system:masters");
        assert_eq!(name(user, server).await, "alice");
    })
    .await;
}

/// A token that is kept in a secret is known by its last day of use, and can be revoked without
/// being deleted.
#[tokio::test]
async fn tokens_of_secrets_leave_a_trace_and_can_be_revoked() {
    let (folder, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
    let file = folder.path().join("robots.key");
    std::fs::write(&file, key.serialize_pem()).unwrap();
    let flag = format!("--service-account-key-file={}", file.display());
    both(&[&flag], async |server| {
        let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}, "secrets": [{"name": "auto-token"}]});
        let (secrets, accounts) = (
            "/api/v1/namespaces/default/secrets",
            "/api/v1/namespaces/default/serviceaccounts",
        );
        for (name, warned) in [("auto", 1), ("manual", 0)] {
            let (_, made) = ask("POST", accounts).json(&account(name)).answer(server).await;
            let uid = made["metadata"]["uid"].as_str().unwrap();
            let token = secret_token(&key, name, uid);
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {"name": format!("{name}-token"), "annotations": {"kubernetes.io/service-account.name": name}},
                "stringData": {"token": token},
            });
            assert_eq!(ask("POST", secrets).json(&secret).status(server).await, 201);
            // The second answer is from the cache of tokens.
            for _ in 0..2 {
                let answer = ask("GET", "/api").by(&token).send(server).await;
                let warnings = answer.headers.get_all("warning").iter().count();
                assert_eq!((answer.status, warnings), (200, warned), "{name}");
            }
            let review = json!({"spec": {"token": token}});
            let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
            let answer = ask("POST", reviews).json(&review).send(server).await;
            let warnings = answer.headers.get_all("warning").iter().count();
            assert_eq!((answer.status, warnings), (201, warned), "{name}");
            let path = format!("{secrets}/{name}-token");
            let (_, used) = ask("GET", &path).answer(server).await;
            let made = &used["metadata"]["creationTimestamp"].as_str().unwrap()[..10];
            let label = &used["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"];
            assert!(label.as_str().is_some_and(|day| day >= made), "{used}");
            let writers = used["metadata"]["managedFields"].as_array().unwrap();
            assert!(writers.iter().any(|writer| writer["manager"] == "kube-apiserver"));

            let label = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
            let merge = "application/merge-patch+json";
            assert_eq!(ask("PATCH", &path).body(merge, label.to_string()).status(server).await, 200);
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": ["https://kubernetes.default.svc.cluster.local", "others"]}});
            let (_, refused) = ask("POST", reviews).json(&review).answer(server).await;
            let why = refused["status"]["error"].as_str().unwrap_or("");
            assert!(why.contains("has been marked invalid"), "{refused}");
        }
        let answer = ask("GET", "/metrics").send(server).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        for series in [
            "serviceaccount_legacy_auto_token_uses_total 1",
            "serviceaccount_legacy_manual_token_uses_total 1",
            "serviceaccount_invalid_legacy_auto_token_uses_total 2",
        ] {
            assert!(text.lines().any(|line| line == series), "{series}");
        }
    })
    .await;
}
