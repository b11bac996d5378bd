//! Bootstrap tokens: secrets in kube-system with which new nodes join (kube-apiserver
//! `token/bootstrap`).

use jiff::Timestamp;

use super::{same, secret_data};
use crate::auth::{ObjectSource, User};
use crate::meta::{Gvr, Object};

const NAMESPACE: &str = "kube-system";
const SECRET_PREFIX: &str = "bootstrap-token-";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const DEFAULT_GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest name of a group behind its prefix.
const MAX_GROUP: usize = 256;

/// The user of a token such as `abcdef.0123456789abcdef`; `None` if it is none, or no longer valid.
pub async fn authenticate(token: &str, objects: &dyn ObjectSource, now: Timestamp) -> Option<User> {
    let (id, secret) = split(token)?;
    // Anybody can make up ids: they must not cost a read of the store each.
    let found = objects
        .known(
            &Gvr::new("", "v1", "secrets"),
            NAMESPACE,
            &format!("{SECRET_PREFIX}{id}"),
        )
        .await?;
    match check(&found, id, secret, now) {
        Ok(groups) => Some(User {
            name: format!("system:bootstrap:{id}"),
            groups,
            ..User::default()
        }),
        Err(why) => {
            tracing::debug!(
                "bootstrap secret {NAMESPACE}/{SECRET_PREFIX}{id} matching bearer token {why}"
            );
            None
        }
    }
}

/// The id and secret of a well-formed token.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH && plain(id) && plain(secret))
        .then_some((id, secret))
}

/// The groups of the token that a secret holds.
fn check(
    object: &Object,
    id: &str,
    secret: &str,
    now: Timestamp,
) -> Result<Vec<String>, &'static str> {
    let data = |key: &str| secret_data(object, key).unwrap_or_default();
    let text = |key: &str| String::from_utf8(data(key)).unwrap_or_default();
    if object.deletion_timestamp().is_some() {
        return Err("is deleted and awaiting removal");
    }
    if object.str_at("/type") != SECRET_TYPE {
        return Err("has an invalid type");
    }
    if !same(&data("token-secret"), secret.as_bytes()) || data("token-id") != id.as_bytes() {
        return Err("has another id or secret");
    }
    let expiration = text("expiration");
    if !expiration.is_empty()
        && expiration
            .parse::<Timestamp>()
            .map_or(true, |end| now > end)
    {
        return Err("has expired");
    }
    if data("usage-bootstrap-authentication") != b"true" {
        return Err("is not marked usage-bootstrap-authentication=true");
    }
    let extra = text("auth-extra-groups");
    let mut groups: Vec<String> = extra
        .split(',')
        .filter(|_| !extra.is_empty())
        .map(str::to_owned)
        .collect();
    if !groups.iter().all(|group| is_group(group)) {
        return Err("has an invalid group in auth-extra-groups");
    }
    groups.push(DEFAULT_GROUP.to_owned());
    groups.sort();
    groups.dedup();
    Ok(groups)
}

/// Reports whether a group may be given to bootstrap tokens: `system:bootstrappers:` and letters,
/// digits, colons and dashes.
fn is_group(name: &str) -> bool {
    let Some(rest) = name
        .strip_prefix(DEFAULT_GROUP)
        .and_then(|rest| rest.strip_prefix(':'))
    else {
        return false;
    };
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= MAX_GROUP
        && rest
            .bytes()
            .all(|byte| letter(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(letter)
}

#[cfg(test)]
mod tests {
    use super::super::fake::Objects;
    use super::*;
    use crate::meta::{Map, Value, json};
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = Map::new();
        let basics = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in basics.iter().chain(changes) {
            data.insert((*key).to_owned(), BASE64_STANDARD.encode(value).into());
        }
        json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": SECRET_TYPE, "data": data})
    }

    async fn user(token: &str, changes: &[(&str, &str)]) -> Option<User> {
        let objects = Objects::default();
        objects.put("secrets", NAMESPACE, secret(changes));
        authenticate(
            token,
            &objects,
            "2026-01-01T00:00:00Z".parse().expect("a time"),
        )
        .await
    }

    #[tokio::test]
    async fn valid_bootstrap_token_is_a_bootstrapper() {
        let plain = user(TOKEN, &[]).await.expect("valid");
        assert_eq!(
            (plain.name.as_str(), plain.groups),
            ("system:bootstrap:abcdef", vec![DEFAULT_GROUP.to_owned()])
        );
        let grouped = user(
            TOKEN,
            &[(
                "auth-extra-groups",
                "system:bootstrappers:b,system:bootstrappers:a",
            )],
        )
        .await
        .expect("valid");
        assert_eq!(
            grouped.groups,
            [
                "system:bootstrappers",
                "system:bootstrappers:a",
                "system:bootstrappers:b"
            ]
        );
        assert!(
            user(TOKEN, &[("expiration", "2026-01-02T00:00:00Z")])
                .await
                .is_some()
        );
    }

    /// A store that must not be asked.
    struct Unasked;

    #[async_trait::async_trait]
    impl ObjectSource for Unasked {
        async fn get(&self, _gvr: &Gvr, _namespace: &str, name: &str) -> Option<Object> {
            panic!("the store was asked for {name}")
        }

        async fn known(&self, _gvr: &Gvr, _namespace: &str, _name: &str) -> Option<Object> {
            None
        }
    }

    #[tokio::test]
    async fn made_up_bootstrap_tokens_cost_no_read_of_the_store() {
        assert_eq!(authenticate(TOKEN, &Unasked, Timestamp::now()).await, None);
    }

    #[tokio::test]
    async fn invalid_bootstrap_tokens_are_nobody() {
        for (token, changes) in [
            ("abcdef.0123456789abcdee", ("", "")),
            ("ABCDEF.0123456789abcdef", ("", "")),
            ("abcdef", ("", "")),
            (TOKEN, ("expiration", "2025-12-31T00:00:00Z")),
            (TOKEN, ("expiration", "soon")),
            (TOKEN, ("usage-bootstrap-authentication", "false")),
            (TOKEN, ("auth-extra-groups", "system:masters")),
            (TOKEN, ("token-id", "fedcba")),
        ] {
            assert_eq!(user(token, &[changes]).await, None, "{token} {changes:?}");
        }
    }
}
