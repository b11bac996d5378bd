//! The parts of a request by which it is classified.

use crate::auth::User;

/// The parts of a request that flow schemas look at.
#[derive(Clone, Copy, Debug)]
pub struct RequestDigest<'a> {
    pub user: &'a User,
    pub is_resource: bool,
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: &'a str,
}

/// A request that can be described for as long as it waits or runs.
pub trait RequestDetails: Send + Sync {
    fn digest(&self) -> RequestDigest<'_>;
}

/// The way in which the requests of a flow schema are told apart into flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinguisher {
    #[default]
    None,
    ByUser,
    ByNamespace,
}

impl Distinguisher {
    /// The text that requests of one flow have in common.
    pub fn of<'a>(self, digest: &RequestDigest<'a>) -> &'a str {
        match self {
            Self::None => "",
            Self::ByUser => &digest.user.name,
            Self::ByNamespace => digest.namespace,
        }
    }
}
