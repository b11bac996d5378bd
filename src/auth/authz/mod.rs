//! Authorization: what is asked, the chain of authorizers, and their answer.

use async_trait::async_trait;

use super::User;

/// What a user wants to do (apiserver `authorization/authorizer.Attributes`).
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub user: User,
    /// get, list, watch, create, update, patch, delete, deletecollection, proxy, ...; for paths the lower-case HTTP method.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// False for paths such as `/healthz`.
    pub resource_request: bool,
    pub path: String,
}

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(String),
    /// Final: no later authorizer is asked.
    Deny(String),
    NoOpinion(String),
}

/// One authorizer of the chain.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, attributes: &Attributes) -> Decision;
}
