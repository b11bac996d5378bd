//! Shared resources that a write holds from before its validation until its outcome is known.

use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::registry::resource::Reservation;
use crate::storage::StorageError;

use super::{Store, WriteContext};

/// The reason a write was not done, as far as it is known.
#[derive(Debug)]
pub(super) struct Failure {
    pub status: Status,
    /// Storage did not say what became of the transaction: it may have been done, or may yet be.
    pub maybe_done: bool,
}

impl Failure {
    /// A transaction that ended with an error of storage.
    pub fn of_transaction(error: &StorageError, status: Status) -> Self {
        Self {
            status,
            maybe_done: !matches!(
                error,
                StorageError::TooLarge(_) | StorageError::NotEncrypted(_)
            ),
        }
    }
}

/// A refusal before there was a transaction.
impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self {
            status,
            maybe_done: false,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        failure.status
    }
}

/// The reservation of one attempt to write. If it is dropped, the resources stay taken.
#[must_use]
#[derive(Default)]
pub(super) struct HeldReservation<'a>(Option<Box<dyn Reservation + 'a>>);

impl HeldReservation<'_> {
    /// Gives everything back: nothing was written.
    pub async fn release(self) {
        if let Some(reservation) = self.0 {
            reservation.release().await;
        }
    }

    /// Gives everything back, unless the object may have been written all the same: then what it
    /// names stays taken, and whoever repairs allocations finds out.
    pub async fn fail(self, failure: &Failure) {
        if !failure.maybe_done {
            self.release().await;
        }
    }
}

impl Store {
    /// Takes what the object needs, before it is validated.
    pub(super) async fn reserve(
        &self,
        ctx: &WriteContext<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<HeldReservation<'_>> {
        match &self.resource.hooks {
            Some(hooks) => hooks.reserve(ctx, object, old).await.map(HeldReservation),
            None => Ok(HeldReservation::default()),
        }
    }

    /// Notifies the hooks that `object` has replaced `old`.
    pub(super) async fn settle(
        &self,
        ctx: &WriteContext<'_>,
        held: HeldReservation<'_>,
        object: &Object,
        old: Option<&Object>,
    ) {
        let Some(hooks) = self.resource.hooks.as_ref().filter(|_| !ctx.dry_run) else {
            return;
        };
        if let Some(reservation) = held.0 {
            reservation.keep(object).await;
        }
        hooks.written(object, old).await;
    }
}
