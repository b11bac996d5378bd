//! Delete: preconditions, graceful deletion, finalizers, and the end (apiserver `Store.Delete`,
//! `rest.BeforeDelete`).

use futures::{TryStreamExt, stream};

use crate::meta::Value;

use crate::meta::options::{DeleteOptions, ListOptions, Propagation};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object, Status, time};
use crate::storage::{Stored, WriteOutcome};

use super::key_writer::CurrentState;
use super::{AdmissionValidator, Page, Store, StoredObject, WriteContext};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Number of retries of a delete that conflicts with other writes.
const CONFLICT_RETRIES: usize = 100;
/// The nanoseconds of a second.
const NANOS: i128 = 1_000_000_000;
/// Number of objects that a deletecollection reads at once.
const COLLECTION_PAGE: i64 = 10_000;

/// The outcome of a delete.
#[derive(Debug)]
pub struct Deleted {
    /// The object as it was last (or still is).
    pub last: StoredObject,
    /// True if it is gone, rather than waiting for finalizers or its grace period.
    pub gone: bool,
}

/// The verb: delete or deletecollection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    One,
    Collection,
}

/// An attempt came to nothing: somebody else was faster.
struct DeleteConflict {
    /// The object as it is stored now.
    standing: Option<Stored>,
    /// The object as this delete marked it, if it came that far. Who writes such an object may be
    /// the one to remove it (apiserver `updateForGracefulDeletionAndFinalizers`): that it is gone
    /// then is a success.
    marked: Option<StoredObject>,
}

impl DeleteConflict {
    fn by(standing: Option<Stored>) -> Self {
        Self {
            standing,
            marked: None,
        }
    }
}

/// The next step of a delete.
enum Step {
    /// It is already on its way; nothing changes.
    Pending,
    /// It stays, marked as deleted.
    Mark { graceful: bool },
    /// Nothing holds it.
    Remove,
}

impl Store {
    /// Deletes an object, or marks it as deleted where finalizers or a grace period hold it.
    ///
    /// # Errors
    /// 404, 409 for preconditions or too many conflicts, a refusal of the validator, and the
    /// store's.
    pub async fn delete(
        &self,
        ctx: &WriteContext<'_>,
        name: &str,
        options: &DeleteOptions,
        validator: &dyn AdmissionValidator,
    ) -> Result<Deleted> {
        let operation = DeleteOperation {
            store: self,
            ctx,
            name,
            options,
            validator,
            scope: Scope::One,
        };
        operation.run().await
    }

    /// Deletes every object that the list options select, as many at a time as there are workers,
    /// and answers with them as they were.
    ///
    /// # Errors
    /// The first delete that fails.
    pub async fn delete_collection(
        &self,
        ctx: &WriteContext<'_>,
        list: &ListOptions,
        options: &DeleteOptions,
        validator: &dyn AdmissionValidator,
        workers: usize,
    ) -> Result<Page> {
        self.warn_of_dependents(ctx, options);
        let mut list = list.clone();
        let limited = list.limit > 0;
        if !limited {
            list.limit = COLLECTION_PAGE;
        }
        let (mut all, mut items) = (Page::default(), Vec::new());
        loop {
            let page = self.list(ctx.namespace, &list).await?;
            let begin = items.len();
            for stored in page.items {
                items.push(stored?);
            }
            let page_items = items.get(begin..).unwrap_or_default();
            stream::iter(page_items.iter().map(Ok))
                .try_for_each_concurrent(workers, |stored| async move {
                    let object = self.codec.decode_shared(stored)?;
                    let ctx = WriteContext {
                        namespace: object.namespace(),
                        ..*ctx
                    };
                    let operation = DeleteOperation {
                        store: self,
                        ctx: &ctx,
                        name: object.name(),
                        options,
                        validator,
                        scope: Scope::Collection,
                    };
                    match operation.run().await {
                        Err(status) if status.code != 404 => Err(status),
                        _ => Ok(()),
                    }
                })
                .await?;
            all.revision = page.revision;
            if limited || page.continue_token.is_empty() {
                all.items = items.into();
                (all.continue_token, all.remaining) = (page.continue_token, page.remaining);
                return Ok(all);
            }
            list.continue_token = page.continue_token;
            list.resource_version.clear();
            list.resource_version_match.clear();
        }
    }

    fn warn_of_dependents(&self, ctx: &WriteContext<'_>, options: &DeleteOptions) {
        if let (None, None, Some(warning)) = (
            &options.propagation,
            &options.orphan_dependents,
            self.resource.strategy.delete_warning(),
        ) {
            ctx.warnings.add(warning);
        }
    }

    /// Checks that an object is the one, and in the state, that the options ask for.
    ///
    /// # Errors
    /// 409 if the object is another one, or in another state.
    pub fn check_preconditions(&self, options: &DeleteOptions, old: &Object) -> Result<()> {
        let gvk = &self.resource.gvk;
        let kind = Gvr::new(&gvk.group, &gvk.version, &gvk.kind);
        if let (true, Some(uid)) = (
            self.resource.strategy.begins_deletion(),
            options.uid.as_deref().filter(|uid| *uid != old.uid()),
        ) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.uid()
            );
            return Err(Status::conflict(&self.resource.gvr, old.name(), &why));
        }
        if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != old.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). \
                 The object might have been deleted and then recreated",
                old.uid()
            );
            return Err(Status::conflict(&kind, old.name(), &why));
        }
        if let Some(version) = options
            .resource_version
            .as_deref()
            .filter(|version| *version != old.resource_version())
        {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                old.resource_version()
            );
            return Err(Status::conflict(&kind, old.name(), &why));
        }
        Ok(())
    }
}

/// A delete of one object.
struct DeleteOperation<'a> {
    store: &'a Store,
    ctx: &'a WriteContext<'a>,
    name: &'a str,
    options: &'a DeleteOptions,
    validator: &'a dyn AdmissionValidator,
    scope: Scope,
}

impl DeleteOperation<'_> {
    async fn run(&self) -> Result<Deleted> {
        if let Some(why) = self.store.resource.strategy.delete_refusal(self.name) {
            return Err(Status::forbidden(&self.store.resource.gvr, self.name, why));
        }
        self.store.warn_of_dependents(self.ctx, self.options);
        let key = self.store.key(self.ctx.namespace, self.name)?;
        let writer = self.store.key_writer(&key);
        let mut current = writer.current_state("delete").await?;
        let mut marked = None;
        for _ in 0..CONFLICT_RETRIES {
            let Some(stored) = current.stored else {
                return marked
                    .map(|last| Deleted { last, gone: true })
                    .ok_or_else(|| Status::not_found(&self.store.resource.gvr, self.name));
            };
            let read_at = stored.mod_revision;
            let outcome = match self.delete_once(stored).await {
                Ok(Err(conflict)) => {
                    marked = conflict.marked.or(marked);
                    // Another object of the name is not the one that was to be deleted.
                    let same = |now: &Stored| {
                        marked.as_ref().is_none_or(|marked: &StoredObject| {
                            marked.stored.create_revision == now.create_revision
                        })
                    };
                    current = CurrentState {
                        stored: conflict.standing.filter(same),
                        fresh: true,
                    };
                    continue;
                }
                Ok(Ok(deleted)) if deleted.gone || deleted.last.stored.mod_revision != read_at => {
                    return Ok(deleted);
                }
                Ok(Ok(deleted)) => Ok(deleted),
                Err(status) => Err(status),
            };
            // Nothing was written, so nothing has shown yet that this was the object's latest
            // state.
            if !current.fresh {
                current = writer.read_current("delete").await?;
                if current
                    .stored
                    .as_ref()
                    .is_none_or(|stored| stored.mod_revision != read_at)
                {
                    continue;
                }
            }
            return outcome;
        }
        Err(Status::modified(&self.store.resource.gvr, self.name))
    }

    /// One attempt.
    async fn delete_once(
        &self,
        stored: Stored,
    ) -> Result<std::result::Result<Deleted, DeleteConflict>> {
        let old = self.store.decode(&stored).await?;
        // Before anything is told of the object. Upstream checks preconditions first, and admits
        // nothing where the object is on its way already, so that a kubelet sees pods of other
        // nodes.
        self.validator.validate(None, Some(&old)).await?;
        self.store.check_preconditions(self.options, &old)?;
        let mut object = old.clone();
        match self.plan(&mut object) {
            Step::Pending => Ok(Ok(Deleted {
                last: StoredObject {
                    object: old,
                    stored,
                },
                gone: false,
            })),
            Step::Mark { graceful } => self.mark(object, stored, graceful).await,
            Step::Remove => self.remove(object, stored).await,
        }
    }

    /// Writes the marked object; one whose grace is over at once goes right after.
    async fn mark(
        &self,
        mut object: Object,
        stored: Stored,
        graceful: bool,
    ) -> Result<std::result::Result<Deleted, DeleteConflict>> {
        let held = !object.finalizers().is_empty()
            || self.store.resource.strategy.blocks_deletion(&object);
        let over = graceful && !held && object.deletion_grace_period_seconds() == Some(0);
        self.store.codec.restore_field_order(&mut object);
        let value = self.store.encode(&mut object).await?;
        let mut revision = stored.mod_revision;
        if !self.ctx.dry_run && value != stored.value {
            match self
                .store
                .key_writer(&stored.key)
                .put(value.clone(), Some(revision))
                .await?
            {
                WriteOutcome::Committed(done) => revision = done,
                WriteOutcome::Conflict(standing) => return Ok(Err(DeleteConflict::by(standing))),
            }
        }
        object.set_resource_version(&revision.to_string());
        let stored = Stored {
            value,
            mod_revision: revision,
            ..stored
        };
        if over {
            // Watchers hear of the mark before they hear of the end.
            let marked = StoredObject {
                object: object.clone(),
                stored: stored.clone(),
            };
            let removed = self.remove(object, stored).await?;
            return Ok(removed.map_err(|conflict| DeleteConflict {
                marked: Some(marked),
                ..conflict
            }));
        }
        Ok(Ok(Deleted {
            last: StoredObject { object, stored },
            gone: false,
        }))
    }

    async fn remove(
        &self,
        mut object: Object,
        stored: Stored,
    ) -> Result<std::result::Result<Deleted, DeleteConflict>> {
        if !self.ctx.dry_run {
            match self
                .store
                .key_writer(&stored.key)
                .delete(stored.mod_revision)
                .await?
            {
                WriteOutcome::Committed(revision) => {
                    object.set_resource_version(&revision.to_string())
                }
                WriteOutcome::Conflict(standing) => return Ok(Err(DeleteConflict::by(standing))),
            }
            if let Some(hooks) = &self.store.resource.hooks {
                hooks.deleted(&object).await;
            }
        }
        Ok(Ok(Deleted {
            last: StoredObject { object, stored },
            gone: true,
        }))
    }

    /// Changes the object into what a delete leaves of it for now, and returns the next step.
    fn plan(&self, object: &mut Object) -> Step {
        let strategy = &self.store.resource.strategy;
        if self.scope == Scope::One
            && strategy.begins_deletion()
            && object.deletion_timestamp().is_none()
        {
            strategy.begin_deletion(object, &self.store.now_text());
            return Step::Mark { graceful: false };
        }
        let requested = self
            .options
            .grace_period_seconds
            .map(|seconds| if seconds < 0 { 1 } else { seconds });
        let graceful = strategy.grace_period(object, requested);
        let mut marked = false;
        if object.deletion_timestamp().is_none() {
            if let Some(seconds) = graceful {
                let at = moved(self.store.clock.now().as_nanosecond(), seconds);
                self.set_deletion(object, time::format(whole_seconds(at)), seconds);
                marked = true;
            }
        } else if graceful.is_some() && object.deletion_grace_period_seconds().unwrap_or(0) != 0 {
            match self.shorten_grace(object, requested) {
                false => return Step::Pending,
                true => marked = true,
            }
        }
        set_dependents_finalizers(
            object,
            self.options,
            strategy.orphans_by_default(),
            strategy.ignores_dependents(),
        );
        if marked {
            return Step::Mark { graceful: true };
        }
        if object.finalizers().is_empty() && !strategy.blocks_deletion(object) {
            return Step::Remove;
        }
        let now = self.store.now_text();
        let at = match object.deletion_timestamp() {
            Some(at) if at <= now.as_str() => at.to_owned(),
            _ => now,
        };
        self.set_deletion(object, at, 0);
        Step::Mark { graceful: false }
    }

    /// Sets when and after which grace the object goes; the first time counts as a change of
    /// generation.
    fn set_deletion(&self, object: &mut Object, at: String, grace: i64) {
        if object.deletion_timestamp().is_none() && object.generation() > 0 {
            object.set_generation(object.generation().wrapping_add(1));
        }
        object.set_meta_str("deletionTimestamp", &at);
        object
            .metadata_mut()
            .insert("deletionGracePeriodSeconds", grace.into());
        self.store.resource.strategy.mark_deleting(object);
    }

    /// Shortens the grace of an earlier delete, which a later one may not extend. Reports whether
    /// it did.
    fn shorten_grace(&self, object: &mut Object, requested: Option<i64>) -> bool {
        let present = object.deletion_grace_period_seconds().unwrap_or(0);
        let Some(mut seconds) = requested.filter(|seconds| *seconds < present) else {
            return false;
        };
        let now = self.store.clock.now().as_nanosecond();
        let due = object
            .deletion_timestamp()
            .and_then(|at| time::parse(at).ok());
        let due = due.map_or(now, |at| {
            i128::from(at.seconds) * NANOS + i128::from(at.nanos)
        });
        let mut at = moved(moved(due, present.wrapping_neg()), seconds);
        if at < now {
            at = now;
            seconds = seconds.min(1);
        }
        self.set_deletion(object, time::format(whole_seconds(at)), seconds);
        true
    }
}

/// A moment that many seconds later, in nanoseconds since 1970. The seconds are a Duration of Go,
/// which is a number of nanoseconds that wraps around where it is too small for them: a grace of
/// more than 292 years ends at some other time.
fn moved(at: i128, seconds: i64) -> i128 {
    at + i128::from(seconds.wrapping_mul(NANOS as i64))
}

fn whole_seconds(nanos: i128) -> i64 {
    i64::try_from(nanos.div_euclid(NANOS)).unwrap_or(i64::MAX)
}

/// Brings the garbage collector's finalizers to what the delete asks for. Others keep their order.
fn set_dependents_finalizers(
    object: &mut Object,
    options: &DeleteOptions,
    orphans_by_default: bool,
    ignores: bool,
) {
    let has = |name: &str| object.finalizers().iter().any(|one| one == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation) {
        _ if ignores => (false, false),
        (Some(orphan), _) => (orphan, false),
        (_, Some(Propagation::Orphan)) => (true, false),
        (_, Some(Propagation::Foreground)) => (false, true),
        (_, Some(Propagation::Background)) => (false, false),
        (None, None) => {
            let first = object
                .finalizers()
                .iter()
                .find(|one| *one == ORPHAN || *one == FOREGROUND)
                .and_then(Value::as_str);
            (
                first == Some(ORPHAN) || (first.is_none() && orphans_by_default),
                first == Some(FOREGROUND),
            )
        }
    };
    if has(ORPHAN) == orphan && has(FOREGROUND) == foreground {
        return;
    }
    let mut finalizers: Vec<Value> = object
        .finalizers()
        .iter()
        .filter(|one| *one != ORPHAN && *one != FOREGROUND)
        .cloned()
        .collect();
    finalizers.extend(orphan.then(|| ORPHAN.into()));
    finalizers.extend(foreground.then(|| FOREGROUND.into()));
    if finalizers.is_empty() {
        object.metadata_mut().shift_remove("finalizers");
    } else {
        object
            .metadata_mut()
            .insert("finalizers", finalizers.into());
    }
}
