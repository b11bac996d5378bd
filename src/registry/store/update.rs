//! Update: read, change, compare, write if nothing moved; again if it did (apiserver
//! `Store.Update`, `GuaranteedUpdate`).

use bytes::Bytes;

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::meta::Value;

use crate::merge::managers;
use crate::meta::options::parse_uint;
use crate::meta::status::Result;
use crate::meta::{ErrorList, FieldError, Gvk, Key, Object, Path, Status};
use crate::registry::strategy::{Context, Subresource};
use crate::storage::{Stored, WriteOutcome};
use crate::telemetry::trace;

use super::create::CreateOperation;
use super::key_writer::{CurrentState, PutOptions};
use super::reservation::{Failure, HeldReservation};
use super::{AdmissionValidator, Store, StoredObject, Updater, WriteContext};

/// Number of retries of an update that conflicts with other writes.
const CONFLICT_RETRIES: usize = 100;

/// The result of an update.
#[derive(Debug)]
pub struct Updated {
    pub written: StoredObject,
    /// The object did not exist before.
    pub created: bool,
}

/// The object that an update is for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub name: &'a str,
    pub sub: Subresource<'a>,
    /// Create the object if it does not exist, even where the kind does not allow that to a PUT
    /// (apply).
    pub force_create: bool,
}

/// The outcome of one attempt.
enum Attempt {
    Done(Updated),
    /// Nothing had to be written.
    Same(Updated),
    /// The update left nothing to hold the object, and it went; `ours` is whether this attempt
    /// deleted it.
    Gone {
        updated: Updated,
        ours: bool,
    },
    /// Somebody else was faster; this is what stands now.
    Conflict(Option<Stored>),
}

impl Store {
    /// Brings the object to what `updater` makes of it. Nothing is written if that is what it
    /// already is.
    ///
    /// # Errors
    /// 404, 409 for conflicts, 422 for an invalid object, a refusal of the validator, and the
    /// store's.
    pub async fn update(
        &self,
        ctx: &WriteContext<'_>,
        target: Target<'_>,
        updater: &dyn Updater,
        validator: &dyn AdmissionValidator,
    ) -> Result<Updated> {
        let operation = UpdateOperation {
            store: self,
            ctx,
            target,
            updater,
            validator,
        };
        operation.run().await
    }
}

/// An update of one request.
struct UpdateOperation<'a> {
    store: &'a Store,
    ctx: &'a WriteContext<'a>,
    target: Target<'a>,
    updater: &'a dyn Updater,
    validator: &'a dyn AdmissionValidator,
}

impl UpdateOperation<'_> {
    /// The create that this update turns into if the object does not exist.
    fn creation(&self) -> CreateOperation<'_> {
        CreateOperation {
            store: self.store,
            ctx: self.ctx,
            validator: self.validator,
        }
    }

    async fn run(&self) -> Result<Updated> {
        let key = self.store.key(self.ctx.namespace, self.target.name)?;
        let attributes = || self.store.span_attributes(&key);
        let work = self.attempts(&key);
        trace::in_span("GuaranteedUpdate etcd3", trace::SLOW, attributes, work).await
    }

    async fn attempts(&self, key: &str) -> Result<Updated> {
        let writer = self.store.key_writer(key);
        let mut current = writer.current_state("update").await?;
        for _ in 0..CONFLICT_RETRIES {
            let seen = if current.fresh {
                None
            } else {
                current.stored.clone()
            };
            let attempt = match current.stored {
                None => self.create(key).await,
                Some(stored) => self.update_once(stored).await,
            };
            let outcome = match attempt {
                Ok(Attempt::Conflict(stored)) => {
                    current = CurrentState {
                        stored,
                        fresh: true,
                    };
                    continue;
                }
                Ok(Attempt::Done(updated) | Attempt::Gone { updated, .. }) => return Ok(updated),
                Ok(Attempt::Same(updated)) => Ok(updated),
                Err(status) => Err(status),
            };
            // Nothing was written, so nothing has shown yet that this was the object's latest
            // state.
            if !current.fresh {
                current = writer.read_current("update").await?;
                if current.stored != seen {
                    continue;
                }
            }
            return outcome;
        }
        Err(Status::modified(&self.store.resource.gvr, self.target.name))
    }

    /// Creates the object, which does not exist.
    async fn create(&self, key: &str) -> Result<Attempt> {
        if self.target.sub != Subresource::Main
            || (!self.store.resource.strategy.allow_create_on_update() && !self.target.force_create)
        {
            return Err(Status::not_found(
                &self.store.resource.gvr,
                self.target.name,
            ));
        }
        if let Some(uid) = self.updater.uid() {
            return Err(self.uid_mismatch(key, uid, ""));
        }
        let mut object = self.updater.updated(None).await?;
        self.creation().fill_system_fields(&mut object);
        let held = self.store.reserve(self.ctx, &mut object, None).await?;
        let options = PutOptions {
            expected: None,
            keeps_managers: self.updater.keeps_managers(),
        };
        let attempt = self.create_reserved(&mut object, key, options).await;
        self.settle(held, None, attempt).await
    }

    async fn create_reserved(
        &self,
        object: &mut Object,
        key: &str,
        options: PutOptions,
    ) -> std::result::Result<Attempt, Failure> {
        self.creation().before_create(object).await?;
        self.validator.authorize_create().await?;
        self.validator.validate(Some(&mut *object), None).await?;
        let value = self.store.encode(object).await?;
        let (value, revision) = if self.ctx.dry_run {
            (value, 0)
        } else {
            match self
                .store
                .key_writer(key)
                .put_object(object, value, options)
                .await?
            {
                (WriteOutcome::Committed(revision), value) => (value, revision),
                (WriteOutcome::Conflict(standing), _) => return Ok(Attempt::Conflict(standing)),
            }
        };
        if revision > 0 {
            object.set_resource_version(&revision.to_string());
        }
        let stored = Stored {
            key: key.to_owned(),
            value: self.store.codec.with_read_defaults(value),
            create_revision: revision,
            mod_revision: revision,
        };
        Ok(Attempt::Done(Updated {
            written: StoredObject {
                object: std::mem::take(object),
                stored,
            },
            created: true,
        }))
    }

    async fn update_once(&self, stored: Stored) -> Result<Attempt> {
        let old = self.store.decode_defaulted(&stored).await?;
        if let Some(uid) = self.updater.uid().filter(|uid| *uid != old.uid()) {
            return Err(self.uid_mismatch(&stored.key, uid, old.uid()));
        }
        let mut object = self.updater.updated(Some(&old)).await?;
        self.check_resource_version(&object, &old)?;
        object.set_meta_str("resourceVersion", old.resource_version());
        // What a subresource writes is not known before the rest of the body is put back, and needs
        // nothing.
        let held = if self.target.sub == Subresource::Main {
            self.store
                .reserve(self.ctx, &mut object, Some(&old))
                .await?
        } else {
            HeldReservation::default()
        };
        let options = PutOptions {
            expected: Some(stored.mod_revision),
            keeps_managers: self.updater.keeps_managers(),
        };
        let attempt = self
            .update_reserved((&mut object, &old), stored, options)
            .await;
        self.settle(held, Some(&old), attempt).await
    }

    /// Notifies the hooks of the outcome of an attempt. If the object was deleted, resources taken
    /// for its new state are released.
    async fn settle(
        &self,
        held: HeldReservation<'_>,
        old: Option<&Object>,
        attempt: std::result::Result<Attempt, Failure>,
    ) -> Result<Attempt> {
        match &attempt {
            Ok(Attempt::Done(updated) | Attempt::Same(updated)) => {
                self.store
                    .settle(self.ctx, held, &updated.written.object, old)
                    .await
            }
            Ok(Attempt::Conflict(_) | Attempt::Gone { .. }) => held.release().await,
            Err(failure) => held.fail(failure).await,
        }
        if let (Ok(Attempt::Gone { ours: true, .. }), Some(hooks), Some(old)) =
            (&attempt, &self.store.resource.hooks, old)
        {
            hooks.deleted(old).await;
        }
        Ok(attempt?)
    }

    async fn update_reserved(
        &self,
        (object, old): (&mut Object, &Object),
        stored: Stored,
        options: PutOptions,
    ) -> std::result::Result<Attempt, Failure> {
        self.before_update(object, old).await?;
        managers::keep_times(old, object);
        self.validator
            .validate(Some(&mut *object), Some(old))
            .await?;
        if should_delete(object, old) && !self.store.resource.strategy.blocks_deletion(object) {
            return Ok(self.delete_emptied(object, stored).await?);
        }
        let value = self.store.encode(object).await?;
        let writer = self.store.key_writer(&stored.key);
        let same = self.ctx.dry_run || self.is_same(&value, &stored).await?;
        let (value, revision) = if same {
            (value, stored.mod_revision)
        } else {
            match writer.put_object(object, value, options).await? {
                (WriteOutcome::Committed(revision), value) => (value, revision),
                (WriteOutcome::Conflict(standing), _) => return Ok(Attempt::Conflict(standing)),
            }
        };
        object.set_resource_version(&revision.to_string());
        let stored = Stored {
            value: self.store.codec.with_read_defaults(value),
            mod_revision: revision,
            ..stored
        };
        let updated = Updated {
            written: StoredObject {
                object: std::mem::take(object),
                stored,
            },
            created: false,
        };
        Ok(if same {
            Attempt::Same(updated)
        } else {
            Attempt::Done(updated)
        })
    }

    /// Reports whether nothing has to be written: the value is that in storage, and encrypted there
    /// as it would be now.
    async fn is_same(&self, value: &Bytes, stored: &Stored) -> Result<bool> {
        if *value != stored.value {
            return Ok(false);
        }
        let stale = self.store.storage.is_stale(&stored.key).await;
        Ok(!stale.map_err(|error| self.store.fault(error, "update"))?)
    }

    /// The last finalizer of a deleted object went: so does the object. It is answered as the
    /// update left it.
    async fn delete_emptied(&self, object: &Object, stored: Stored) -> Result<Attempt> {
        let outcome = if self.ctx.dry_run {
            WriteOutcome::Conflict(None)
        } else {
            self.store
                .key_writer(&stored.key)
                .delete(stored.mod_revision)
                .await?
        };
        if let WriteOutcome::Conflict(standing @ Some(_)) = outcome {
            return Ok(Attempt::Conflict(standing));
        }
        let mut written = object.clone();
        let value = self.store.encode(&mut written).await?;
        written.set_meta_str("resourceVersion", &stored.mod_revision.to_string());
        let updated = Updated {
            written: StoredObject {
                object: written,
                stored: Stored { value, ..stored },
            },
            created: false,
        };
        Ok(if self.ctx.dry_run {
            Attempt::Same(updated)
        } else {
            Attempt::Gone {
                updated,
                ours: matches!(outcome, WriteOutcome::Committed(_)),
            }
        })
    }

    /// A PUT that names a resourceVersion must name the present one; one that names none
    /// overwrites, where the kind allows it.
    fn check_resource_version(&self, object: &Object, old: &Object) -> Result<()> {
        let gvr = &self.store.resource.gvr;
        let wanted = match object.resource_version() {
            "" => 0,
            text => parse_uint(text).map_err(|why| Status::failure(500, "", why))?,
        };
        if wanted == 0 {
            if self.store.resource.strategy.allow_unconditional_update() {
                return Ok(());
            }
            let error = FieldError::invalid(
                &Path::new("metadata").child("resourceVersion"),
                0,
                "must be specified for an update",
            );
            return Err(Status::invalid(
                &Gvk::new(&gvr.group, &gvr.version, &gvr.resource),
                self.target.name,
                [error].into(),
            ));
        }
        if wanted.to_string() == old.resource_version() {
            Ok(())
        } else {
            Err(Status::modified(gvr, self.target.name))
        }
    }

    fn uid_mismatch(&self, key: &str, wanted: &str, found: &str) -> Status {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        Status::conflict(&self.store.resource.gvr, self.target.name, &why)
    }

    /// Everything between the new state and admission's last word (apiserver `rest.BeforeUpdate`).
    async fn before_update(&self, object: &mut Object, old: &Object) -> Result<()> {
        let large = object.is_larger_than(LARGE_BYTES);
        let mut errors = run_blocking_if(large, || self.prepare(object, old));
        errors.extend(
            self.validator
                .field_errors(self.target.sub, object, Some(old))
                .await,
        );
        let strategy = &self.store.resource.strategy;
        run_blocking_if(large, || {
            errors.extend(strategy.validate_update(&self.context(), object, old));
            if !errors.is_empty() {
                return Err(self.store.invalid(object, errors));
            }
            let warnings = match self.target.sub {
                Subresource::Main | Subresource::Other("scale") => {
                    strategy.warnings(object, Some(old))
                }
                Subresource::Status => strategy.status_warnings(object),
                Subresource::Other(_) => Vec::new(),
            };
            warnings
                .into_iter()
                .for_each(|warning| self.ctx.warnings.add(warning));
            self.store.codec.restore_field_order(object);
            Ok(())
        })?;
        self.store
            .check_references(self.target.sub, object, Some(old), self.validator)
            .await
    }

    fn context(&self) -> Context<'_> {
        self.store.context(self.ctx, self.target.sub)
    }

    /// Lets the strategy prepare an update, and checks the metadata.
    fn prepare(&self, object: &mut Object, old: &Object) -> ErrorList {
        let strategy = &self.store.resource.strategy;
        if !self.store.resource.decl.namespaced {
            object.set_meta_str("namespace", "");
        }
        copy_meta(object, old, "generation");
        if strategy.has_status() {
            match self.target.sub {
                Subresource::Main => copy_section(object, old, "status"),
                Subresource::Status => keep_all_but_status(object, old),
                Subresource::Other(_) => {}
            }
        }
        strategy.prepare_for_update(&self.context(), object, old);
        let counts = !matches!(
            self.target.sub,
            Subresource::Status | Subresource::Other("binding")
        );
        if strategy.has_generation() && counts && object.generation() == old.generation() {
            bump_generation(object, old, strategy.has_status());
        }
        if object.uid().is_empty() {
            copy_meta(object, old, "uid");
        }
        for key in ["creationTimestamp", "deletionTimestamp"] {
            if old
                .metadata()
                .is_some_and(|meta| meta.get(key).is_some_and(|value| !value.is_null()))
            {
                copy_meta(object, old, key);
            }
        }
        if object.deletion_grace_period_seconds().is_none() {
            copy_meta(object, old, "deletionGracePeriodSeconds");
        }
        let checks = strategy.meta_checks(self.target.sub);
        self.store.meta_rules().validate_update(object, old, checks)
    }
}

/// Reports whether an update takes the last finalizer off an object whose deletion waits for
/// nothing else.
fn should_delete(object: &Object, old: &Object) -> bool {
    object.finalizers().is_empty()
        && old.deletion_timestamp().is_some()
        && old.deletion_grace_period_seconds().unwrap_or(0) == 0
}

/// Counts a change of anything but metadata and (where it is a subresource) status in
/// `metadata.generation`.
fn bump_generation(object: &mut Object, old: &Object, has_status: bool) {
    let counts = |key: &str| !is_housekeeping(key) || (key == "status" && !has_status);
    let differs = |(key, value): (&Key, &Value)| counts(key) && old.get(key) != Some(value);
    let gone = old
        .keys()
        .any(|key| counts(key) && !object.contains_key(key));
    if gone || object.iter().any(differs) {
        // As Go, whose numbers wrap around.
        object.set_generation(old.generation().wrapping_add(1));
    }
}

fn is_housekeeping(key: &str) -> bool {
    matches!(key, "metadata" | "status" | "kind" | "apiVersion")
}

/// Makes one member of ObjectMeta what it was.
fn copy_meta(object: &mut Object, old: &Object, key: &str) {
    match old.metadata().and_then(|meta| meta.get(key)) {
        Some(value) => {
            object.metadata_mut().insert(key.to_owned(), value.clone());
        }
        None => {
            object.metadata_mut().shift_remove(key);
        }
    }
}

fn copy_section(object: &mut Object, old: &Object, key: &str) {
    match old.get(key) {
        Some(value) => {
            object.insert(key.to_owned(), value.clone());
        }
        None => {
            object.shift_remove(key);
        }
    }
}

/// A status update changes status and nothing else but the metadata that every write may change.
fn keep_all_but_status(object: &mut Object, old: &Object) {
    object
        .0
        .retain(|key, _| matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"));
    for (key, value) in old
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
    {
        object.insert(key.clone(), Value::clone(value));
    }
}
