//! Server-side apply: an object and a configuration in, the merged object with its managed fields
//! out (structured-merge-diff `merge.Updater`, apimachinery `util/managedfields`; KEP-555).

use std::borrow::Cow;
use std::fmt;

use super::combine::combine;
use super::managers::{
    Conflicts, Entry, Managed, ManagerId, NEVER_OWNED, Operation, ResetFields, Writer,
    blank_object, equal_but, reconcile_all, take_from_others, updated,
};
use super::path::PathElement;
use super::set::Set;
use super::topology::Ty;
use super::typed::{compare_maps, field_set_of_map, remove_entries};
use super::validate::{validate_map, validate_with_duplicates};
use crate::meta::go;
use crate::meta::status::Cause;
use crate::meta::{Gvk, Key, Map, Object, Status, Value};

/// The manager that owns what an untracked object had before it was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager for which the annotation of client-side apply is read and kept up to date.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The maximum number of bytes of all annotations, keys included.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// A field that the configuration sets otherwise than a manager that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name it: `"m1"`, `"u1" with subresource "status" using v1`.
    pub manager: String,
    pub path: String,
}

/// The reason an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// 409 with a cause for each; grouped by manager, in the managers' order.
    Conflicts(Vec<Conflict>),
    /// 400.
    BadRequest(String),
    /// An error that upstream does not classify: 500 with this message.
    Other(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(message) | Self::Other(message) => f.write_str(message),
            Self::Conflicts(conflicts) => f.write_str(&conflict_message(conflicts)),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Self {
        let message = error.to_string();
        match error {
            ApplyError::BadRequest(_) => Self::bad_request(message),
            ApplyError::Other(_) => Self::failure(500, "", message),
            ApplyError::Conflicts(conflicts) => {
                let mut status = Self::failure(409, "Conflict", message);
                let causes = conflicts.into_iter().map(|conflict| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.path,
                });
                status.details_mut().causes = causes.collect();
                status
            }
        }
    }
}

/// The error for a merged object that does not decode as the kind of `config`; `why` is the
/// decoder's.
pub fn not_decodable(config: &Map, why: &str) -> ApplyError {
    let kind = gvk_text(&gvk_of(config));
    not_convertible(
        config,
        &format!("unable to convert unstructured object to {kind}: {why}"),
    )
}

/// The error for a merged object that does not become the hub version of its kind; `why` is the
/// converter's.
pub fn not_convertible(config: &Map, why: &str) -> ApplyError {
    let name = name_text(config);
    other(format_args!(
        "failed to convert new object ({name}) to proper version: {why}"
    ))
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.path
        );
    }
    let mut lines = Vec::new();
    for same in conflicts.chunk_by(|a, b| a.manager == b.manager) {
        lines.push(format!("conflicts with {}:", same[0].manager));
        lines.extend(same.iter().map(|conflict| format!("- {}", conflict.path)));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

type Result<T> = std::result::Result<T, ApplyError>;

fn other(message: impl fmt::Display) -> ApplyError {
    ApplyError::Other(message.to_string())
}

/// Applies `config` to `live` (`None` where there is no such object yet) as the kind that `gvk`
/// names.
///
/// The result has its managed fields; it is still to be decoded, which normalises it, and
/// defaulted. Where the configuration changes nothing it is `live` with managed fields that may
/// have changed.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    live: Option<&Object>,
    config: &Map,
    gvk: &Gvk,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Object> {
    let managed = Managed::decode(live.and_then(|live| live.at("/metadata/managedFields")));
    let managed =
        managed.map_err(|error| other(format_args!("failed to decode managed fields: {error}")))?;
    let given = gvk_of(config);
    if given != *gvk {
        return Err(ApplyError::BadRequest(format!(
            "invalid object type: {}",
            gvk_text(&given)
        )));
    }
    let untracked = managed.entries.is_empty();
    let blank = if untracked || live.is_none() {
        blank_object(writer.ty)
    } else {
        Map::new()
    };
    let live_map = live.map_or(&blank, |live| &live.0);
    let managed = if untracked {
        owned_before(&blank, live_map, managed, writer)?
    } else {
        managed
    };
    check_config(config, writer)?;
    let applied = apply_tracked(live_map, config, managed, writer, force);
    let (changed, entries) =
        applied.map_err(
            |error| match (&error, validate_with_duplicates(writer.ty, live_map)) {
                // Upstream looks at what stands first; here a look is only worth it once something
                // is wrong.
                (ApplyError::Other(_), Err(why)) => other(format_args!(
                    "failed to create typed live object ({}): {why}",
                    name_text(live_map)
                )),
                _ => error,
            },
        )?;
    let mut object = Object(changed.unwrap_or_else(|| without_managed_fields(live_map)));
    object.metadata_mut().shift_remove("managedFields");
    if writer.manager == KUBECTL
        && object
            .annotations()
            .is_some_and(|all| all.get(LAST_APPLIED).is_some_and(|it| it != ""))
    {
        set_last_applied(&mut object, config);
    }
    if let Some(entries) = entries {
        object.metadata_mut().insert("managedFields", entries);
    }
    Ok(object)
}

/// The kind of a configuration; empty if its apiVersion is malformed.
fn gvk_of(config: &Map) -> Gvk {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or("");
    match text("apiVersion") {
        "/" => Gvk::new("", "", text("kind")),
        api_version if api_version.matches('/').count() > 1 => Gvk::default(),
        api_version => Gvk::from_api_version(api_version, text("kind")),
    }
}

fn gvk_text(gvk: &Gvk) -> String {
    format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind)
}

/// The one owner of all that an untracked object has.
fn owned_before<'a>(
    blank: &'a Map,
    live: &'a Map,
    managed: Managed<'a>,
    writer: &Writer<'a>,
) -> Result<Managed<'a>> {
    let first = Writer {
        manager: BEFORE_FIRST_APPLY,
        ..*writer
    };
    updated(blank, live, managed, &first).map_err(|error| {
        let why = match validate_with_duplicates(writer.ty, live) {
            Err(error) => format!(
                "failed to convert new object ({}) to smd typed: {error}",
                name_text(live)
            ),
            Ok(()) => error,
        };
        other(format_args!(
            "failed to create manager for existing fields: {why}"
        ))
    })
}

/// Refuses a configuration with managed fields, or one that does not fit its type.
fn check_config(config: &Map, writer: &Writer<'_>) -> Result<()> {
    if config
        .get("metadata")
        .and_then(|meta| meta.get("managedFields"))
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().all(Value::is_object))
    {
        return Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let wrong = |error| {
        other(format_args!(
            "failed to create typed patch object ({}): {error}",
            name_text(config)
        ))
    };
    validate_map(writer.ty, config).map_err(wrong)
}

/// The object, `None` where nothing changes, and its managed fields.
type Applied = (Option<Map>, Option<Value>);

/// Applies to an object whose managers are known.
fn apply_tracked<'a>(
    live: &'a Map,
    config: &'a Map,
    mut managed: Managed<'a>,
    writer: &Writer<'a>,
    force: bool,
) -> Result<Applied> {
    reconcile_all(&mut managed, writer);

    let mut merged = without_managed_fields(live);
    combine(writer.ty, &mut merged, config)
        .map_err(|error| other(format_args!("failed to merge config: {error}")))?;
    let set = field_set_of_map(writer.ty, config)
        .map_err(|error| other(format_args!("failed to get field set: {error}")))?;
    let set = ResetFields::of(writer.reset_fields).filter(set);
    let id = writer.id(Operation::Apply);
    let last = managed.get(&id).cloned();
    let time = last.as_ref().and_then(|last| last.time.clone());
    managed.put(Entry {
        id: id.clone(),
        api_version: writer.api_version.into(),
        time,
        set,
    });
    if let Some(last) = last.filter(|last| !last.set.is_empty()) {
        merged = prune(merged, &managed, &last, writer)
            .map_err(|error| other(format_args!("failed to prune fields: {error}")))?;
    }

    let taken = take_from_others(live, &merged, &mut managed, writer, Some(&id));
    let (_, conflicts) = taken.map_err(other)?;
    if !force {
        refuse(conflicts, live, writer)?;
    }
    let changed = !same_but_managed_fields(live, &merged);
    if let Some(own) = managed.entries.iter_mut().find(|entry| entry.id == id) {
        own.set.subtract(&NEVER_OWNED);
        if changed {
            own.time = Some(writer.time());
        }
    }
    managed.entries.retain(|entry| !entry.set.is_empty());
    let entries = managed.encode();
    Ok((changed.then_some(merged), entries))
}

fn without_managed_fields(object: &Map) -> Map {
    let kept = |(name, value): (&Key, &Value)| (name.clone(), value.clone());
    let parts = object.iter().map(|(name, value)| match value {
        Value::Object(metadata) if name == "metadata" => {
            let metadata = metadata
                .iter()
                .filter(|(name, _)| *name != "managedFields")
                .map(kept)
                .collect();
            (name.clone(), Value::Object(metadata))
        }
        _ => kept((name, value)),
    });
    parts.collect()
}

fn same_but_managed_fields(live: &Map, merged: &Map) -> bool {
    let (before, after) = (
        live.get("metadata").and_then(Value::as_object),
        merged.get("metadata").and_then(Value::as_object),
    );
    equal_but(before, after, "managedFields") && equal_but(Some(live), Some(merged), "metadata")
}

/// An object as upstream's errors name it.
fn name_text(object: &Map) -> String {
    let meta = |key| {
        object
            .get("metadata")
            .and_then(|meta| meta.get(key))
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    format!(
        "{}/{}; {}",
        meta("namespace"),
        meta("name"),
        gvk_text(&gvk_of(object))
    )
}

/// Fails with the conflicts, less those that client-side apply of the same configuration accounts
/// for.
fn refuse(mut conflicts: Conflicts<'_>, live: &Map, writer: &Writer) -> Result<()> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let last_applied = if writer.manager == KUBECTL {
        last_applied_config(live, writer)
    } else {
        None
    };
    let agreed = last_applied
        .as_ref()
        .and_then(|config| agreed_fields(config, live, writer.ty))
        .unwrap_or_default();
    conflicts.sort_by_cached_key(|(id, _)| id.identifier());
    let mut out = Vec::new();
    for (id, set) in &conflicts {
        let manager = manager_text(id);
        let paths = set.paths().into_iter().filter(|path| !agreed.has(&path.0));
        out.extend(paths.map(|path| Conflict {
            manager: manager.clone(),
            path: path.to_string(),
        }));
    }
    if out.is_empty() {
        Ok(())
    } else {
        Err(ApplyError::Conflicts(out))
    }
}

fn manager_text(id: &ManagerId) -> String {
    let mut text = go::quote(&id.name);
    if !id.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", go::quote(&id.subresource)));
    }
    if id.operation == Operation::Update {
        text.push_str(&format!(" using {}", id.api_version));
    }
    text
}

/// The configuration that client-side apply has left in an annotation, if it is of the writer's
/// version.
fn last_applied_config(live: &Map, writer: &Writer) -> Option<Map> {
    let annotations = live.get("metadata")?.get("annotations")?;
    let config: Map = serde_json::from_str(annotations.get(LAST_APPLIED)?.as_str()?).ok()?;
    let given = config.get("apiVersion").and_then(Value::as_str);
    (given == Some(writer.api_version)
        && config
            .get("kind")
            .is_some_and(|kind| kind.is_string() && kind != ""))
    .then_some(config)
}

/// The fields of `config` that `live` has with the same values.
fn agreed_fields<'a>(config: &'a Map, live: &'a Map, ty: Ty<'a>) -> Option<Set<'a>> {
    validate_map(ty, live).ok()?;
    validate_map(ty, config).ok()?;
    let mut fields = field_set_of_map(ty, config).ok()?;
    let changed = compare_maps(ty, config, live).ok()?;
    fields.subtract(&changed.modified);
    fields.subtract(&changed.added);
    fields.subtract(&changed.removed);
    Some(fields)
}

/// Keeps the annotation of client-side apply up to date, so that one can go back to it. Without
/// room for it, it goes.
fn set_last_applied(object: &mut Object, config: &Map) {
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config
        .get_mut("metadata")
        .and_then(|meta| meta.get_mut("annotations"))
    {
        annotations.shift_remove(LAST_APPLIED);
    }
    let mut text = String::new();
    go::json(&Value::Object(config), &mut text);
    text.push('\n');
    let Some(Value::Object(annotations)) = object.at_mut("/metadata/annotations") else {
        return;
    };
    annotations.insert(LAST_APPLIED.to_owned(), text.into());
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATION_BYTES {
        annotations.shift_remove(LAST_APPLIED);
    }
}

/// Takes out of `merged` what the applier had in `last` and gives up: what is in `last`, and
/// neither in its new entry nor in that of another manager.
fn prune(
    merged: Map,
    managed: &Managed,
    last: &Entry,
    writer: &Writer,
) -> std::result::Result<Map, String> {
    let given_up = managed.get(&last.id).is_none_or(|own| {
        let mut rest = last.set.clone();
        rest.subtract(&own.set);
        own.api_version != last.api_version || !rest.is_empty()
    });
    let (true, Some(ty)) = (given_up, type_in(&last.api_version, writer)) else {
        return Ok(merged);
    };
    let Some(then) = in_version(&merged, &last.api_version, writer)? else {
        return Ok(merged);
    };
    let last_named = last.set.clone().with_named_fields(Some(ty));
    let fields_then = named_fields(ty, &then, "merged object in last applied version")?;
    let kept = add_back_owned(
        &merged,
        &then,
        &fields_then,
        &last_named,
        managed,
        last,
        writer,
    )
    .map_err(|error| format!("failed add back owned items: {error}"))?;
    let Some(kept) = kept else {
        return Err(format!(
            "failed add back dangling items: failed to convert pruned object to last applied version: {NO_OBJECT}"
        ));
    };
    let Some(kept) = in_version(&kept, &last.api_version, writer)? else {
        return Ok(then.into_owned());
    };
    let mut lost = fields_then;
    lost.subtract(&named_fields(
        ty,
        &kept,
        "pruned object in last applied version",
    )?);
    let dropped = last_named.intersection(&lost);
    if dropped.is_empty() && last.api_version == writer.api_version {
        return Ok(merged);
    }
    // Where the last version was another, the object has been there and back, which may show (the
    // order of metrics).
    let mut out = match then {
        Cow::Owned(object) => object,
        Cow::Borrowed(_) => merged,
    };
    remove(ty, &mut out, &dropped);
    Ok(in_version(&out, writer.api_version, writer)?
        .map(Cow::into_owned)
        .unwrap_or(out))
}

fn type_in<'a>(version: &str, writer: &Writer<'a>) -> Option<Ty<'a>> {
    if version == writer.api_version {
        Some(writer.ty)
    } else {
        writer.versions.type_of(version)
    }
}

/// The fields of an object, and of every struct that has some, itself.
fn named_fields<'a>(
    ty: Ty<'a>,
    object: &'a Map,
    what: &str,
) -> std::result::Result<Set<'a>, String> {
    let fields = field_set_of_map(ty, object)
        .map_err(|error| format!("failed to create field set from {what}: {error}"))?;
    Ok(fields.with_named_fields(Some(ty)))
}

/// Of `merged` (`then` in the version of `last`), what is not in `last` or has an owner. `None`
/// where nothing is left.
fn add_back_owned(
    merged: &Map,
    then: &Map,
    fields_then: &Set,
    last_named: &Set,
    managed: &Managed,
    last: &Entry,
    writer: &Writer,
) -> std::result::Result<Option<Map>, String> {
    let mut kept = Some(then.clone());
    if let (Some(object), Some(ty)) = (&mut kept, type_in(&last.api_version, writer))
        && !remove(ty, object, last_named)
    {
        kept = None;
    }
    let mut versions: Vec<&str> = managed
        .entries
        .iter()
        .map(|entry| &*entry.api_version)
        .collect();
    versions.sort_unstable_by_key(|version| (*version != last.api_version, *version));
    versions.dedup();
    for version in versions {
        let Some(before) = &kept else {
            return Err(format!(
                "failed to convert pruned object at version {version}: {NO_OBJECT}"
            ));
        };
        let both = in_version(merged, version, writer)?.zip(in_version(before, version, writer)?);
        let Some(((merged, before), ty)) = both.zip(type_in(version, writer)) else {
            continue;
        };
        let mut stays = named_fields(ty, &before, &format!("pruned object at version {version}"))?;
        for entry in managed
            .entries
            .iter()
            .filter(|entry| entry.api_version == version)
        {
            stays.add(entry.set.clone().with_named_fields(Some(ty)));
        }
        let mut goes = if version == last.api_version {
            fields_then.clone()
        } else {
            named_fields(ty, &merged, &format!("merged object at version {version}"))?
        };
        goes.subtract(&stays);
        let mut out = merged.clone().into_owned();
        let left = remove(ty, &mut out, &goes);
        kept = left.then_some(out);
    }
    Ok(kept)
}

/// Upstream's message for an object that nothing is left of.
const NO_OBJECT: &str = "failed to convert value to unstructured for type <nil>";

/// `object` as `version` shows it. `None` where there is no such version.
fn in_version<'a>(
    object: &'a Map,
    version: &str,
    writer: &Writer,
) -> std::result::Result<Option<Cow<'a, Map>>, String> {
    if object.get("apiVersion").and_then(Value::as_str) == Some(version) {
        return Ok(Some(Cow::Borrowed(object)));
    }
    Ok(writer.versions.convert(object, version)?.map(Cow::Owned))
}

/// Takes fields out of an object. False where nothing is left of it.
fn remove(ty: Ty<'_>, object: &mut Map, fields: &Set) -> bool {
    let Some(map) = ty.atom().map else {
        return true;
    };
    let parts_stay = object.keys().any(|name| {
        fields
            .get(&PathElement::Field(name))
            .is_none_or(|node| !node.member)
    });
    remove_entries(&map, object, fields);
    parts_stay
}
