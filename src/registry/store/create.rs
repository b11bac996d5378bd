//! Create: names, system fields, strategy, validation, one conditional write.

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::base::random;
use crate::meta::options::parse_uint;
use crate::meta::status::Result;
use crate::meta::{ErrorList, Object, Status};
use crate::registry::strategy::Subresource;
use crate::storage::{Stored, WriteOutcome};

use super::key_writer::PutOptions;
use super::reservation::Failure;
use super::{AdmissionValidator, Store, StoredObject, WriteContext};

/// Number of generated names that are tried while they are taken (apiserver
/// `maxNameGenerationCreateAttempts`).
const NAME_ATTEMPTS: usize = 8;
/// The longest generated name (a DNS label).
const GENERATED_NAME_MAX: usize = 63;
/// Random letters behind a generateName.
const SUFFIX_LEN: usize = 5;

impl Store {
    /// Creates `object`, which is decoded, defaulted and admitted. A generated name that is taken
    /// is drawn anew.
    ///
    /// # Errors
    /// 409 for a name that is taken, 422 for an invalid object, a refusal of the validator, and the
    /// store's.
    pub async fn create(
        &self,
        ctx: &WriteContext<'_>,
        object: Object,
        validator: &dyn AdmissionValidator,
    ) -> Result<StoredObject> {
        let operation = CreateOperation {
            store: self,
            ctx,
            validator,
        };
        operation.run(object).await
    }
}

/// A create of one request.
pub(super) struct CreateOperation<'a> {
    pub store: &'a Store,
    pub ctx: &'a WriteContext<'a>,
    pub validator: &'a dyn AdmissionValidator,
}

impl CreateOperation<'_> {
    /// Creates the object. A generated name that is taken is drawn anew.
    async fn run(&self, object: Object) -> Result<StoredObject> {
        if !object.name().is_empty() || object.generate_name().is_empty() {
            return self.create_once(object).await;
        }
        let mut result = Err(Status::internal("no name was tried"));
        for _ in 0..NAME_ATTEMPTS {
            let mut named = object.clone();
            named.set_meta_str("name", &generate_name(object.generate_name()));
            result = self.create_once(named).await;
            match &result {
                Err(status) if status.reason == "AlreadyExists" => {}
                _ => break,
            }
        }
        result
    }

    async fn create_once(&self, mut object: Object) -> Result<StoredObject> {
        self.fill_system_fields(&mut object);
        let held = self.store.reserve(self.ctx, &mut object, None).await?;
        match self.create_reserved(&mut object).await {
            Ok(stored) => {
                self.store.settle(self.ctx, held, &object, None).await;
                Ok(StoredObject { object, stored })
            }
            Err(failure) => {
                held.fail(&failure).await;
                Err(failure.status)
            }
        }
    }

    async fn create_reserved(&self, object: &mut Object) -> std::result::Result<Stored, Failure> {
        self.before_create(object).await?;
        self.validator.validate(Some(&mut *object), None).await?;
        let key = self.store.key(self.ctx.namespace, object.name())?;
        // What is no number at all is passed over.
        let versioned = parse_uint(object.resource_version()).is_ok_and(|version| version > 0);
        let value = self.store.encode(object).await?;
        if self.ctx.dry_run {
            let found = self
                .store
                .storage
                .get(&key)
                .await
                .map_err(|error| self.store.fault(error, "create"))?;
            if let Some(stored) = found {
                return Err(self.already_exists(object, Some(stored)).await.into());
            }
            return Ok(Stored {
                key,
                value: self.store.codec.with_read_defaults(value),
                create_revision: 0,
                mod_revision: 0,
            });
        }
        if versioned {
            return Err(Status::failure(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            )
            .into());
        }
        let (outcome, value) = self
            .store
            .key_writer(&key)
            .put_object(object, value, PutOptions::default())
            .await?;
        match outcome {
            WriteOutcome::Committed(revision) => {
                object.set_resource_version(&revision.to_string());
                Ok(Stored {
                    key,
                    value: self.store.codec.with_read_defaults(value),
                    create_revision: revision,
                    mod_revision: revision,
                })
            }
            WriteOutcome::Conflict(standing) => {
                Err(self.already_exists(object, standing).await.into())
            }
        }
    }

    /// Sets what the server alone decides on a new object.
    pub(super) fn fill_system_fields(&self, object: &mut Object) {
        object.set_meta_str("creationTimestamp", &self.store.now_text());
        object.set_meta_str("uid", &random::uuid());
    }

    /// Everything between the decoded object and admission's last word (apiserver
    /// `rest.BeforeCreate`).
    pub(super) async fn before_create(&self, object: &mut Object) -> Result<()> {
        let large = object.is_larger_than(LARGE_BYTES);
        let mut errors = run_blocking_if(large, || self.prepare(object));
        errors.extend(
            self.validator
                .field_errors(Subresource::Main, object, None)
                .await,
        );
        let strategy = &self.store.resource.strategy;
        run_blocking_if(large, || {
            errors.extend(
                strategy.validate(&self.store.context(self.ctx, Subresource::Main), object),
            );
            if !errors.is_empty() {
                return Err(self.store.invalid(object, errors));
            }
            for warning in strategy.warnings(object, None) {
                self.ctx.warnings.add(warning);
            }
            self.store.codec.restore_field_order(object);
            Ok(())
        })?;
        self.store
            .check_references(Subresource::Main, object, None, self.validator)
            .await
    }

    /// Lets the strategy prepare a new object, and checks its metadata.
    fn prepare(&self, object: &mut Object) -> ErrorList {
        let strategy = &self.store.resource.strategy;
        if !self.store.resource.decl.namespaced {
            object.set_meta_str("namespace", "");
        }
        for warning in strategy.warnings_before_create(object) {
            self.ctx.warnings.add(warning);
        }
        if strategy.has_generation() {
            object.set_generation(1);
        }
        if strategy.has_status() && !strategy.keeps_status_on_create() {
            object.shift_remove("status");
        }
        strategy.prepare_for_create(&self.store.context(self.ctx, Subresource::Main), object);
        self.store.meta_rules().validate(object)
    }

    async fn already_exists(&self, object: &Object, standing: Option<Stored>) -> Status {
        let (gvr, name) = (&self.store.resource.gvr, object.name());
        let mut status = if object.generate_name().is_empty() {
            Status::already_exists(gvr, name)
        } else {
            Status::generate_name_conflict(gvr, name)
        };
        let live = match standing {
            Some(stored) => self.store.decode(&stored).await.ok(),
            None => None,
        };
        let deleting = live.is_some_and(|live| live.deletion_timestamp().is_some());
        if deleting {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }
}

/// A name with the given start and a random end (apiserver `storage/names`).
fn generate_name(base: &str) -> String {
    let keep = base
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= GENERATED_NAME_MAX - SUFFIX_LEN)
        .last();
    format!(
        "{}{}",
        &base[..keep.unwrap_or(0)],
        random::suffix(SUFFIX_LEN)
    )
}

impl Store {
    /// Checks what an object refers to.
    pub(super) async fn check_references(
        &self,
        sub: Subresource<'_>,
        object: &Object,
        old: Option<&Object>,
        validator: &dyn AdmissionValidator,
    ) -> Result<()> {
        if sub != Subresource::Main {
            return Ok(());
        }
        let errors = validator.reference_errors(object, old).await;
        if errors.is_empty() {
            Ok(())
        } else {
            Err(self.invalid(object, errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::generate_name;

    #[test]
    fn a_generated_name_fits_into_a_label() {
        let name = generate_name(&"x".repeat(80));
        assert_eq!(name.len(), 63);
        assert!(generate_name("web-").starts_with("web-"));
    }
}
