//! The patches of the API other than apply: JSON patch, JSON merge patch and strategic merge patch,
//! on trees.
//!
//! All take a parsed patch; [`crate::codec`] reports errors of its bytes. They sort the keys of the
//! maps they touch as Go writes them, since errors show the result.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::meta::Status;

/// The reason a patch could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400 with this message.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object, for this reason: 422, with a message that does not
    /// contain it.
    #[error("{0}")]
    Unfit(String),
    /// 413.
    #[error("{0}")]
    TooLarge(String),
    /// An error that upstream does not classify: 500 with this message.
    #[error("{0}")]
    Other(String),
}

/// Answers as `handlers/patch.go` does.
impl From<PatchError> for Status {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(message) => Self::bad_request(message),
            PatchError::Unfit(_) => {
                let mut status = Self::failure(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                );
                status.details_mut();
                status
            }
            PatchError::TooLarge(message) => Self::too_large(&message),
            PatchError::Other(message) => Self::failure(500, "", message),
        }
    }
}

/// Puts the keys of one map in the order of their bytes.
fn sort_keys(map: &mut crate::meta::Map) {
    if !map.keys().is_sorted() {
        map.sort_keys();
    }
}
