//! authentication.k8s.io: reviews of who somebody is (`pkg/registry/authentication`). A review is
//! answered, never stored.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::auth::User;
use crate::auth::authn::Annotations;
use crate::meta::status::Result;
use crate::meta::{Map, Object, Status, Value, json};

/// The result of a token's review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenVerdict {
    /// The user, `None` where the token is not valid.
    pub user: Option<User>,
    /// Those of the audiences asked for that the token is for.
    pub audiences: Vec<String>,
    /// The reason the token is not valid, as far as any authenticator could tell.
    pub error: String,
    /// The warnings for whoever uses the token.
    pub warnings: Vec<&'static str>,
    pub annotations: Annotations,
}

/// Checks tokens that are not those of the request itself.
#[async_trait]
pub trait TokenReviewer: Send + Sync {
    /// Checks `token` for `audiences`, those of the server where empty.
    async fn review(&self, token: &str, audiences: &[String]) -> TokenVerdict;
}

/// A UserInfo, empty members left out.
fn user_info(user: &User) -> Value {
    let mut out = Map::new();
    for (key, value) in [("username", &user.name), ("uid", &user.uid)] {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        out.insert("groups", json!(user.groups));
    }
    if !user.extra.is_empty() {
        out.insert("extra", json!(user.extra));
    }
    Value::Object(out)
}

/// Answers a TokenReview, with the verdict that it shows.
///
/// # Errors
/// 400 if the review has no token.
pub async fn token_review(
    mut object: Object,
    reviewer: &dyn TokenReviewer,
) -> Result<(Object, TokenVerdict)> {
    let token = object.str_at("/spec/token");
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences: Vec<String> = object
        .array_at("/spec/audiences")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let verdict = reviewer.review(token, &audiences).await;
    let mut status = Map::new();
    if verdict.user.is_some() {
        status.insert("authenticated", true.into());
    }
    status.insert(
        "user",
        verdict.user.as_ref().map_or_else(|| json!({}), user_info),
    );
    if verdict.user.is_some() && !verdict.audiences.is_empty() {
        status.insert("audiences", json!(verdict.audiences));
    }
    if !verdict.error.is_empty() {
        status.insert("error", verdict.error.as_str().into());
    }
    object.insert("status", Value::Object(status));
    Ok((object, verdict))
}

/// Answers a SelfSubjectReview: who asks.
pub fn self_subject_review(object: &Object, user: &User, now: Timestamp) -> Object {
    let mut out = Object::default();
    for key in ["kind", "apiVersion"] {
        out.insert(key.to_owned(), object.get(key).cloned().unwrap_or_default());
    }
    out.set_meta_str(
        "creationTimestamp",
        &now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    );
    out.insert("status", json!({"userInfo": user_info(user)}));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    #[async_trait]
    impl TokenReviewer for Known {
        async fn review(&self, token: &str, audiences: &[String]) -> TokenVerdict {
            match token {
                "good" => TokenVerdict {
                    user: Some(User {
                        name: "u".to_owned(),
                        groups: vec!["g".to_owned()],
                        ..User::default()
                    }),
                    audiences: audiences.to_vec(),
                    ..TokenVerdict::default()
                },
                _ => TokenVerdict {
                    error: "[invalid bearer token, why]".to_owned(),
                    ..TokenVerdict::default()
                },
            }
        }
    }

    #[tokio::test]
    async fn tokens_are_told_apart() {
        let user = json!({"username": "u", "groups": ["g"]});
        let cases = [
            (
                json!({"token": "good"}),
                Ok(json!({"authenticated": true, "user": user})),
            ),
            (
                json!({"token": "good", "audiences": ["a"]}),
                Ok(json!({"authenticated": true, "user": user, "audiences": ["a"]})),
            ),
            (
                json!({"token": "bad", "audiences": ["a"]}),
                Ok(json!({"user": {}, "error": "[invalid bearer token, why]"})),
            ),
            (
                json!({}),
                Err("token is required for TokenReview in authentication".to_owned()),
            ),
        ];
        for (spec, want) in cases {
            let object = Object::from_value(json!({"spec": spec})).expect("an object");
            let got = token_review(object, &Known)
                .await
                .map(|(object, _)| object.get("status").cloned().unwrap_or_default());
            assert_eq!(got.map_err(|status| status.message), want);
        }
    }

    #[test]
    fn one_is_told_who_one_is() {
        let user = User {
            name: "u".to_owned(),
            uid: "1".to_owned(),
            ..User::default()
        };
        let answer = self_subject_review(&Object::default(), &user, Timestamp::UNIX_EPOCH);
        assert_eq!(
            answer.at("/status/userInfo"),
            Some(&json!({"username": "u", "uid": "1"}))
        );
        assert_eq!(answer.creation_timestamp(), "1970-01-01T00:00:00Z");
    }
}
