//! The strategy of CustomResourceDefinitions themselves (apiextensions
//! `registry/customresourcedefinition`).

use std::collections::HashSet;

use crate::extensions::definition::validation;
use crate::extensions::definition::{CLEANUP, Condition, TERMINATING};
use crate::extensions::schema::formats;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::meta::names::Problems;
use crate::meta::{ErrorList, Object, Value, json};
use crate::registry::strategy::{Context, Strategy, Subresource};
use crate::registry::validation::Fields;

/// The port of a webhook's service where none is given.
const SERVICE_PORT: u16 = 443;

/// CustomResourceDefinitions.
pub struct CustomResourceDefinitions;

impl Strategy for CustomResourceDefinitions {
    fn default(&self, object: &mut Object) {
        let kind = object.str_at("/spec/names/kind").to_owned();
        if let Some(names) = object.at_mut("/spec/names").and_then(Value::as_object_mut) {
            if names.str("singular").is_empty() && !kind.is_empty() {
                names.insert("singular", kind.to_lowercase().into());
            }
            if names.str("listKind").is_empty() && !kind.is_empty() {
                names.insert("listKind", format!("{kind}List").into());
            }
        }
        if object.at("/spec/conversion").is_none_or(Value::is_null) {
            object
                .section_mut("spec")
                .insert("conversion", json!({"strategy": "None"}));
        }
        if let Some(service) = object
            .at_mut("/spec/conversion/webhook/clientConfig/service")
            .and_then(Value::as_object_mut)
        {
            service.entry("port").or_insert_with(|| SERVICE_PORT.into());
        }
        if object.array_at("/status/storedVersions").is_empty() {
            add_stored_version(object);
        }
    }

    fn name_problems(&self, object: &Object, name: &str) -> Problems {
        let required = format!(
            "{}.{}",
            object.str_at("/spec/names/plural"),
            object.str_at("/spec/group")
        );
        if name == required {
            Vec::new()
        } else {
            vec!["must be spec.names.plural+\".\"+spec.group".to_owned()]
        }
    }

    fn takes_any_finalizer(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn prepare_for_create(&self, _ctx: &Context, object: &mut Object) {
        add_stored_version(object);
    }

    fn prepare_for_update(&self, ctx: &Context, object: &mut Object, _old: &Object) {
        if ctx.subresource == Subresource::Main {
            add_stored_version(object);
        }
    }

    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        validation::create(object)
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        if ctx.subresource == Subresource::Main {
            validation::update(object, old)
        } else {
            validation::update_status(object)
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let before: HashSet<String> = old
            .map(unrecognized_formats)
            .unwrap_or_default()
            .into_iter()
            .collect();
        let formats = unrecognized_formats(object)
            .into_iter()
            .filter(|format| !before.contains(format));
        formats
            .map(|format| format!("unrecognized format {format:?}"))
            .collect()
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, sub: Subresource) -> &'static [&'static str] {
        match sub {
            Subresource::Main => &["/status"],
            Subresource::Status => &["/spec"],
            Subresource::Other(_) => &[],
        }
    }

    fn begins_deletion(&self) -> bool {
        true
    }

    fn begin_deletion(&self, object: &mut Object, now: &str) {
        object.set_meta_str("deletionTimestamp", now);
        let mut finalizers = object.finalizers().to_vec();
        if !finalizers.iter().any(|one| one == CLEANUP) {
            finalizers.push(CLEANUP.into());
        }
        object
            .metadata_mut()
            .insert("finalizers", finalizers.into());
        let message =
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        Condition::new(TERMINATING, "True", "InstanceDeletionPending", message).set(object, now);
    }
}

/// Notes that objects may be stored in the storage version from now on.
fn add_stored_version(object: &mut Object) {
    let versions = object.array_at("/spec/versions");
    let Some(name) = versions
        .iter()
        .find(|one| one.flag("storage"))
        .map(|one| one.str("name").to_owned())
    else {
        return;
    };
    if object
        .array_at("/status/storedVersions")
        .iter()
        .any(|one| one.as_str() == Some(&name))
    {
        return;
    }
    let slot = object
        .section_mut("status")
        .entry("storedVersions")
        .or_insert_with(|| Value::Array(Vec::new()));
    match slot {
        Value::Array(list) => list.push(name.into()),
        other => *other = json!([name]),
    }
}

fn unrecognized_formats(object: &Object) -> Vec<String> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for schema in object
        .array_at("/spec/versions")
        .iter()
        .filter_map(|one| one.pointer("/schema/openAPIV3Schema"))
    {
        JsonSchemaProps::read(schema).any(&mut |one| {
            if !one.format.is_empty()
                && !formats::is_recognized(&one.format, &one.kind)
                && known.insert(one.format.clone())
            {
                found.push(one.format.clone());
            }
            false
        });
    }
    found
}
