//! Failures of storage as clients see them.

use crate::meta::{Gvr, Status};
use crate::storage::{self, Revision, StorageError};

/// Seconds after which a client should try again when storage could not be reached.
const RETRY_AFTER_SECONDS: u32 = 2;

/// Returns the Status for a failure of storage (apiserver `storage/errors`).
pub fn storage_status(error: StorageError, gvr: &Gvr, verb: &str) -> Status {
    match error {
        StorageError::Compacted { .. } | StorageError::Restored { .. } => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        StorageError::FutureRevision { asked, current } => {
            too_large_resource_version(asked.unsigned_abs(), current)
        }
        StorageError::TooLarge(_) => Status::failure(500, "", storage::TOO_LARGE),
        StorageError::NoSpace(_) => Status::failure(500, "", storage::NO_SPACE),
        StorageError::Unavailable(_) => {
            let resource = gvr.group_resource();
            let message = format!(
                "The {verb} operation against {resource} could not be completed at this time, please try again."
            );
            let mut status = Status::failure(500, "ServerTimeout", message);
            let details = status.details_mut();
            (details.name, details.group, details.kind) =
                (verb.to_owned(), gvr.group.clone(), gvr.resource.clone());
            details.retry_after_seconds = RETRY_AFTER_SECONDS;
            status
        }
        StorageError::Internal(why) | StorageError::NotEncrypted(why) => Status::internal(why),
    }
}

/// Returns the revision of a resourceVersion, 0 for `None`. A number beyond all revisions becomes
/// the greatest one, which no store reaches.
pub(super) fn revision_of(version: Option<u64>) -> Revision {
    Revision::try_from(version.unwrap_or(0)).unwrap_or(Revision::MAX)
}

/// Returns the 504 for a revision that has not been reached yet.
pub fn too_large_resource_version(asked: u64, current: Revision) -> Status {
    let mut status = Status::timeout(
        &format!("Too large resource version: {asked}, current: {current}"),
        1,
    );
    status.details_mut().causes = vec![crate::meta::status::Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }];
    status
}
