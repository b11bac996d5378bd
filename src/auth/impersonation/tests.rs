//! Tests of impersonation, as conversations with an authorizer.

use async_trait::async_trait;

use super::*;
use crate::auth::authz::Decision;

/// Allows the requests it has a line for (`verb group/resource name`), and has no opinion on the
/// rest.
struct Lines(Vec<&'static str>);

#[async_trait]
impl Authorizer for Lines {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let Attributes {
            verb,
            group,
            resource,
            subresource,
            name,
            ..
        } = attributes;
        let resource = if subresource.is_empty() {
            resource.clone()
        } else {
            format!("{resource}/{subresource}")
        };
        let line = format!("{verb} {group}/{resource} {name}");
        if self.0.contains(&line.as_str()) {
            Decision::allow("")
        } else {
            Decision::no_opinion("")
        }
    }
}

fn named(name: &str) -> User {
    User {
        name: name.to_owned(),
        ..User::default()
    }
}

fn in_groups(name: &str, groups: &[&str]) -> User {
    User {
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..named(name)
    }
}

fn with_extra(user: User, key: &str, values: &[&str]) -> User {
    User {
        extra: [(
            key.to_owned(),
            values.iter().map(|value| (*value).to_owned()).collect(),
        )]
        .into(),
        ..user
    }
}

fn may(lines: &[&'static str]) -> Impersonation {
    Impersonation::new(Arc::new(Lines(lines.to_vec())), true)
}

/// Lists ConfigMaps as `by` impersonating `wanted`: the groups of the result, or the refusal.
async fn listing(
    impersonation: &Impersonation,
    by: &User,
    wanted: &User,
) -> std::result::Result<Vec<String>, String> {
    let (verb, resource) = ("list".to_owned(), "configmaps".to_owned());
    let attributes = Attributes {
        user: by.clone().into(),
        verb,
        version: "v1".to_owned(),
        resource,
        resource_request: true,
        ..Attributes::default()
    };
    impersonation
        .impersonate(wanted, &attributes)
        .await
        .map(|(user, _)| user.groups)
        .map_err(|status| status.message)
}

fn refusal(
    what: &str,
    verb: &str,
    resource: &str,
    group: &str,
) -> std::result::Result<Vec<String>, String> {
    Err(format!(
        "{what} is forbidden: User \"bob\" cannot {verb} resource \"{resource}\" in API group \"{group}\" at the cluster scope"
    ))
}

fn allowed(groups: &[&str]) -> std::result::Result<Vec<String>, String> {
    Ok(groups.iter().map(|group| (*group).to_owned()).collect())
}

const GROUPS: &str = "authentication.k8s.io";

#[tokio::test]
async fn impersonation_is_limited_to_the_allowed_verbs() {
    let (bob, carol) = (named("bob"), named("carol"));
    let both = may(&[
        "impersonate-on:user-info:list /configmaps ",
        "impersonate:user-info authentication.k8s.io/users carol",
    ]);
    assert_eq!(
        listing(&both, &bob, &carol).await,
        allowed(&["system:authenticated"])
    );
    assert_eq!(
        listing(&both, &bob, &named("dave")).await,
        refusal(
            "users.authentication.k8s.io \"dave\"",
            "impersonate:user-info",
            "users",
            GROUPS
        )
    );
    let only_whom = may(&["impersonate:user-info authentication.k8s.io/users carol"]);
    assert_eq!(
        listing(&only_whom, &bob, &carol).await,
        refusal(
            "configmaps",
            "impersonate-on:user-info:list",
            "configmaps",
            ""
        )
    );
}

#[tokio::test]
async fn impersonation_checks_groups_and_extras_singly_or_all_at_once() {
    let bob = named("bob");
    let lines = [
        "impersonate-on:user-info:list /configmaps ",
        "impersonate:user-info authentication.k8s.io/users carol",
    ];
    let some = may(&[
        &lines[..],
        &["impersonate:user-info authentication.k8s.io/groups g1"],
    ]
    .concat());
    assert_eq!(
        listing(&some, &bob, &in_groups("carol", &["g1"])).await,
        allowed(&["g1", "system:authenticated"])
    );
    let refused = refusal(
        "groups.authentication.k8s.io \"g2\"",
        "impersonate:user-info",
        "groups",
        GROUPS,
    );
    assert_eq!(
        listing(&some, &bob, &in_groups("carol", &["g1", "g2"])).await,
        refused
    );
    let all = may(&[
        &lines[..],
        &["impersonate:user-info authentication.k8s.io/groups *"],
    ]
    .concat());
    let four = ["a", "b", "c", "d"];
    assert_eq!(
        listing(&all, &bob, &in_groups("carol", &four)).await,
        allowed(&["a", "b", "c", "d", "system:authenticated"])
    );
    assert!(
        listing(&all, &bob, &in_groups("carol", &four[..3]))
            .await
            .is_err(),
        "so few are asked for each"
    );
    let extras = may(&[
        &lines[..],
        &["impersonate:user-info authentication.k8s.io/userextras/acme.io/a 1"],
    ]
    .concat());
    assert!(
        listing(
            &extras,
            &bob,
            &with_extra(named("carol"), "acme.io/a", &["1"])
        )
        .await
        .is_ok()
    );
    assert!(
        listing(
            &extras,
            &bob,
            &with_extra(named("carol"), "acme.io/a", &["2"])
        )
        .await
        .is_err()
    );
}

#[tokio::test]
async fn impersonation_of_reserved_identities_is_refused() {
    let lines = [
        "impersonate-on:user-info:list /configmaps ",
        "impersonate:user-info authentication.k8s.io/users carol",
    ];
    let any = may(&[
        &lines[..],
        &["impersonate:user-info authentication.k8s.io/groups system:masters"],
    ]
    .concat());
    for (wanted, reason) in [
        (
            in_groups("carol", &["system:masters"]),
            "impersonating the system:masters group is not allowed",
        ),
        (
            in_groups("carol", &[""]),
            "impersonating the empty string group is not allowed",
        ),
        (
            with_extra(named("carol"), "", &["1"]),
            "impersonating the empty string key in extra is not allowed",
        ),
        (
            with_extra(named("carol"), "acme.io/a", &[""]),
            "impersonating the empty string value in extra is not allowed",
        ),
        (
            with_extra(named("carol"), "acme.io/A", &["1"]),
            "impersonating a non-lowercase key in extra is not allowed: \"acme.io/A\"",
        ),
        (
            with_extra(named("carol"), "scopes", &["1"]),
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path \
             (such as \"acme.io/foo\")",
        ),
    ] {
        let why = listing(&any, &named("bob"), &wanted)
            .await
            .expect_err("refused");
        assert!(
            why.ends_with(&format!("at the cluster scope: {reason}")),
            "{why}"
        );
    }
}

#[tokio::test]
async fn impersonation_has_modes_for_nodes_and_service_accounts() {
    let bob = named("bob");
    let node = named("system:node:n1");
    let any_node = may(&[
        "impersonate-on:arbitrary-node:list /configmaps ",
        "impersonate:arbitrary-node authentication.k8s.io/nodes n1",
    ]);
    assert_eq!(
        listing(&any_node, &bob, &node).await,
        allowed(&["system:nodes", "system:authenticated"])
    );
    let grouped = in_groups("system:node:n1", &["g"]);
    assert_eq!(
        listing(&any_node, &bob, &grouped).await,
        refusal("users \"system:node:n1\"", "impersonate", "users", ""),
        "legacy alone"
    );

    let lines = [
        "impersonate-on:associated-node:list /configmaps ",
        "impersonate:associated-node authentication.k8s.io/nodes *",
    ];
    let own_node = may(&lines);
    let agent = |on: &str| {
        with_extra(
            named("system:serviceaccount:ns:agent"),
            service_account::NODE_NAME,
            &[on],
        )
    };
    assert_eq!(
        listing(&own_node, &agent("n1"), &node).await,
        allowed(&["system:nodes", "system:authenticated"])
    );
    assert!(listing(&own_node, &agent("n2"), &node).await.is_err());
    assert!(
        listing(
            &own_node,
            &with_extra(bob.clone(), service_account::NODE_NAME, &["n1"]),
            &node
        )
        .await
        .is_err(),
        "no service account"
    );

    let account = named("system:serviceaccount:ns:sa");
    let accounts = may(&[
        "impersonate-on:serviceaccount:list /configmaps ",
        "impersonate:serviceaccount authentication.k8s.io/serviceaccounts sa",
    ]);
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    ];
    assert_eq!(listing(&accounts, &bob, &account).await, allowed(&groups));
    assert!(
        listing(&accounts, &bob, &named("system:serviceaccount:ns:sa:x"))
            .await
            .is_err(),
        "no name of a service account"
    );
}

#[tokio::test]
async fn impersonation_tries_the_last_mode_first() {
    let (bob, carol, dave) = (named("bob"), named("carol"), named("dave"));
    let legacy = may(&[
        "impersonate /users carol",
        "impersonate /users system:anonymous",
    ]);
    let constrained = refusal(
        "configmaps",
        "impersonate-on:user-info:list",
        "configmaps",
        "",
    );
    assert_eq!(listing(&legacy, &bob, &dave).await, constrained);
    assert_eq!(
        listing(&legacy, &bob, &carol).await,
        allowed(&["system:authenticated"])
    );
    assert_eq!(
        listing(&legacy, &bob, &dave).await,
        refusal("users \"dave\"", "impersonate", "users", "")
    );
    assert_eq!(
        listing(&legacy, &bob, &named("system:anonymous")).await,
        allowed(&["system:unauthenticated"])
    );

    let off = Impersonation::new(
        Arc::new(Lines(vec!["impersonate-on:user-info:list /configmaps "])),
        false,
    );
    assert_eq!(
        listing(&off, &bob, &carol).await,
        refusal("users \"carol\"", "impersonate", "users", "")
    );
}

#[test]
fn impersonation_headers_name_a_user_or_nothing() {
    let headers = |pairs: &[(&'static str, &'static str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, http::HeaderValue::from_static(value));
        }
        headers
    };
    assert_eq!(
        parse_headers(&headers(&[("accept", "*/*"), (UID, "")])).expect("nothing"),
        None
    );
    let all = headers(&[
        (USER, "carol"),
        (UID, "u1"),
        (GROUP, "a"),
        (GROUP, "b"),
        ("impersonate-extra-acme.io%2fa", "1"),
    ]);
    let user = User {
        uid: "u1".to_owned(),
        ..with_extra(in_groups("carol", &["a", "b"]), "acme.io/a", &["1"])
    };
    assert_eq!(parse_headers(&all).expect("a user"), Some(user));
    for (pairs, said) in [
        (
            &[(GROUP, "a"), (GROUP, "b")][..],
            r#"Name:"", UID:"", Groups:[]string{"a", "b"}, Extra:map[string][]string(nil)"#,
        ),
        (
            &[(UID, "u1")][..],
            r#"Name:"", UID:"u1", Groups:[]string(nil), Extra:map[string][]string(nil)"#,
        ),
        (
            &[("impersonate-extra-a", "1")][..],
            r#"Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"1"}}"#,
        ),
    ] {
        let status = parse_headers(&headers(pairs)).expect_err("no user");
        assert_eq!(
            (status.code, status.message),
            (
                400,
                format!("requested &user.DefaultInfo{{{said}}} without impersonating a user name")
            )
        );
    }
}
