//! `metadata.managedFields`: its entries, and their changes by writes other than apply
//! (apimachinery `util/managedfields`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::LazyLock;

use jiff::Timestamp;

use super::path::{PathElement, equal_values};
use super::reconcile::reconcile;
use super::set::Set;
use super::topology::Ty;
use super::typed::{self, Comparison, TypeErrors};
use super::validate::validate_map;
use crate::meta::go;
use crate::meta::{Map, Object, Value};
use crate::schema::{Kind, Presence, TypeRef};

/// Maximum number of update entries that an object keeps; the oldest are merged beyond it.
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of the merged ones.
const ANCIENT_CHANGES: &str = "ancient-changes";
/// The manager of a request that names none.
const UNKNOWN_MANAGER: &str = "unknown";
/// The longest manager name that is made of a User-Agent, in bytes.
const MAX_MANAGER_NAME: usize = 128;

/// The name under which a request's fields are recorded: the `fieldManager` option, or else the
/// User-Agent up to its first slash, without what does not print and cut to 128 bytes.
pub fn manager_name<'a>(field_manager: &'a str, user_agent: &'a str) -> Cow<'a, str> {
    if !field_manager.is_empty() {
        return Cow::Borrowed(field_manager);
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    if product.len() <= MAX_MANAGER_NAME && product.bytes().all(|byte| (0x20..0x7f).contains(&byte))
    {
        return Cow::Borrowed(product);
    }
    let mut name = String::new();
    for c in product
        .chars()
        .filter(|&c| c == ' ' || !(c.is_control() || c.is_whitespace()))
    {
        if name.len() + c.len_utf8() > MAX_MANAGER_NAME {
            break;
        }
        name.push(c);
    }
    Cow::Owned(name)
}

/// The kind of write that an entry records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an entry. An applier has one entry for all versions; an updater one for each
/// version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagerId<'a> {
    pub name: Cow<'a, str>,
    pub operation: Operation,
    /// Empty for appliers.
    pub api_version: Cow<'a, str>,
    pub subresource: Cow<'a, str>,
}

impl ManagerId<'_> {
    /// The JSON by which upstream orders entries whose times are the same.
    pub(super) fn identifier(&self) -> String {
        let mut out = String::from("{");
        let members = [
            ("manager", &*self.name),
            ("operation", self.operation.as_str()),
            ("apiVersion", &*self.api_version),
            ("subresource", &*self.subresource),
        ];
        for (key, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&format!("\"{key}\":"));
            go::json_string(value, true, &mut out);
        }
        out.push('}');
        out
    }
}

/// One entry of `managedFields`.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub id: ManagerId<'a>,
    /// The version of the object in which the set is meant.
    pub api_version: Cow<'a, str>,
    /// RFC 3339, as it was read or is to be written.
    pub time: Option<Cow<'a, str>>,
    pub set: Set<'a>,
}

impl Entry<'_> {
    fn seconds(&self) -> i64 {
        self.time
            .as_deref()
            .and_then(|time| time.parse::<Timestamp>().ok())
            .map_or(0, Timestamp::as_second)
    }
}

/// The entries of an object, each [`ManagerId`] once.
#[derive(Clone, Debug, Default)]
pub struct Managed<'a> {
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Managed<'a> {
    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// The error in the first broken entry.
    pub fn decode(list: Option<&'a Value>) -> Result<Self, String> {
        let (mut managed, mut places) = (Self::default(), HashMap::new());
        for (index, entry) in list
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let entry = decode_entry(index, entry)?;
            match places.entry(entry.id.clone()) {
                Slot::Occupied(slot) => managed.entries[*slot.get()] = entry,
                Slot::Vacant(slot) => {
                    slot.insert(managed.entries.len());
                    managed.entries.push(entry);
                }
            }
        }
        Ok(managed)
    }

    /// The value of `metadata.managedFields`, in upstream's order; `None` where there are no
    /// entries.
    pub fn encode(&self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        let mut entries: Vec<(i64, &Entry)> = self
            .entries
            .iter()
            .map(|entry| (entry.seconds(), entry))
            .collect();
        entries.sort_by(|(a_seconds, a), (b_seconds, b)| {
            (
                a.id.operation,
                a_seconds,
                &a.id.name,
                &a.api_version,
                &a.id.subresource,
            )
                .cmp(&(
                    b.id.operation,
                    b_seconds,
                    &b.id.name,
                    &b.api_version,
                    &b.id.subresource,
                ))
        });
        Some(Value::Array(
            entries
                .into_iter()
                .map(|(_, entry)| encode_entry(entry))
                .collect(),
        ))
    }

    pub fn get(&self, id: &ManagerId) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.id == *id)
    }

    /// Adds an entry, in place of one with the same id.
    pub fn put(&mut self, entry: Entry<'a>) {
        match self.entries.iter_mut().find(|other| other.id == entry.id) {
            Some(slot) => *slot = entry,
            None => self.entries.push(entry),
        }
    }

    /// Merges the oldest entries of updates, by version, until there are no more than allowed.
    fn cap(&mut self) {
        let updates = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.id.operation == Operation::Update);
        let mut oldest: Vec<(i64, String, usize)> = updates
            .map(|(place, entry)| (entry.seconds(), entry.id.identifier(), place))
            .collect();
        let mut left = oldest.len();
        if left <= MAX_UPDATE_MANAGERS {
            return;
        }
        oldest.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut places: HashMap<ManagerId<'a>, usize> = self
            .entries
            .iter()
            .enumerate()
            .map(|(place, entry)| (entry.id.clone(), place))
            .collect();
        let mut merged = vec![false; self.entries.len()];
        let mut first_of_version: HashMap<Cow<'a, str>, usize> = HashMap::new();
        for (_, _, place) in oldest {
            if left <= MAX_UPDATE_MANAGERS {
                break;
            }
            let version = self.entries[place].api_version.clone();
            let Some(&first) = first_of_version.get(&version) else {
                first_of_version.insert(version, place);
                continue;
            };
            left -= 1;
            // The oldest of a version becomes its bucket, if there is none yet.
            let id = ManagerId {
                name: Cow::Borrowed(ANCIENT_CHANGES),
                operation: Operation::Update,
                api_version: version,
                subresource: Cow::Borrowed(""),
            };
            let bucket = *places.entry(id.clone()).or_insert_with(|| {
                self.entries[first].id = id;
                first
            });
            if bucket != place {
                let Entry { set, time, .. } = &mut self.entries[place];
                let (set, time) = (std::mem::take(set), time.take());
                merged[place] = true;
                let bucket = &mut self.entries[bucket];
                bucket.set.add(set);
                bucket.time = time;
            }
        }
        let mut merged = merged.into_iter();
        self.entries.retain(|_| !merged.next().unwrap_or_default());
    }
}

fn decode_entry(index: usize, entry: &Value) -> Result<Entry<'_>, String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("");
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => {
            return Err(format!(
                "missing fieldsType in managed fields entry {index}"
            ));
        }
        other => {
            return Err(format!(
                "invalid fieldsType {other:?} in managed fields entry {index}"
            ));
        }
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => Set::default(),
        Some(fields) => Set::decode(fields)?,
    };
    let id = ManagerId {
        name: text("manager").into(),
        operation,
        api_version: if operation == Operation::Apply {
            ""
        } else {
            api_version
        }
        .into(),
        subresource: text("subresource").into(),
    };
    let time = entry.get("time").and_then(Value::as_str).map(Cow::Borrowed);
    Ok(Entry {
        id,
        api_version: api_version.into(),
        time,
        set,
    })
}

fn encode_entry(entry: &Entry) -> Value {
    let mut out = Map::with_capacity(7);
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            out.insert(key.to_owned(), value.into());
        }
    };
    put("manager", &entry.id.name);
    put("operation", entry.id.operation.as_str());
    put("apiVersion", &entry.api_version);
    put("time", entry.time.as_deref().unwrap_or(""));
    put("fieldsType", "FieldsV1");
    out.insert("fieldsV1".to_owned(), Value::Object(entry.set.encode()));
    if !entry.id.subresource.is_empty() {
        out.insert("subresource", (*entry.id.subresource).into());
    }
    Value::Object(out)
}

/// The other versions of a kind, for managers that wrote in one of them.
pub trait Versions: Send + Sync {
    /// The type in `api_version`. `None` where the kind has no such version: its entries are
    /// dropped.
    fn type_of(&self, api_version: &str) -> Option<Ty<'_>>;

    /// Reports whether what a write to `subresource` sets back does not count in the versions that
    /// it does not speak, either.
    fn resets_all(&self, _subresource: &str) -> bool {
        true
    }

    /// An object of the writer's version as `api_version` shows it; `None` where there is no such
    /// version.
    ///
    /// # Errors
    /// Nobody can convert it.
    fn convert(&self, object: &Map, api_version: &str) -> Result<Option<Map>, String>;
}

/// For kinds with one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn type_of(&self, _: &str) -> Option<Ty<'_>> {
        None
    }

    fn convert(&self, _: &Map, _: &str) -> Result<Option<Map>, String> {
        Ok(None)
    }
}

/// The manager of a write, with its version, subresource and time.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// See [`manager_name`].
    pub manager: &'a str,
    /// The version that the request speaks, such as `apps/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub now: Timestamp,
    /// The fields that this write never owns, as [`ResetFields::of`] reads them.
    pub reset_fields: &'a [&'a str],
    /// The type of the object in `api_version`.
    pub ty: Ty<'a>,
    /// The other versions of the kind.
    pub versions: &'a dyn Versions,
}

impl<'a> Writer<'a> {
    pub(super) fn id(&self, operation: Operation) -> ManagerId<'a> {
        ManagerId {
            name: if self.manager.is_empty() {
                UNKNOWN_MANAGER
            } else {
                self.manager
            }
            .into(),
            operation,
            api_version: if operation == Operation::Apply {
                ""
            } else {
                self.api_version
            }
            .into(),
            subresource: self.subresource.into(),
        }
    }

    pub(super) fn time(&self) -> Cow<'a, str> {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
    }
}

/// Fields that a write never owns, because the strategy sets them back.
#[derive(Debug)]
pub(super) enum ResetFields<'a> {
    None,
    /// These and what is below them.
    Exclude(Set<'a>),
    /// All but these and what is above and below them; `*` stands for any element.
    Include(Vec<Vec<&'a str>>),
}

impl<'a> ResetFields<'a> {
    /// Reads slash-separated paths: `/status` is never owned. Where they start with a plus, as in
    /// `+/spec/containers/*/resources`, nothing else may be owned.
    pub(super) fn of(paths: &[&'a str]) -> Self {
        if paths.is_empty() {
            return Self::None;
        }
        let included = paths.iter().filter_map(|path| path.strip_prefix("+/"));
        let included: Vec<Vec<&str>> = included.map(|path| path.split('/').collect()).collect();
        if !included.is_empty() {
            return Self::Include(included);
        }
        let mut exclude = Set::default();
        for path in paths {
            let elements: Vec<_> = path
                .trim_start_matches('/')
                .split('/')
                .map(PathElement::Field)
                .collect();
            exclude.insert(&elements);
        }
        Self::Exclude(exclude)
    }

    pub(super) fn filter<'s>(&self, mut set: Set<'s>) -> Set<'s> {
        match self {
            Self::None => set,
            Self::Exclude(exclude) => {
                set.subtract_recursively(exclude);
                set
            }
            Self::Include(patterns) => {
                let patterns: Vec<&[&str]> = patterns.iter().map(Vec::as_slice).collect();
                set.only(&patterns)
            }
        }
    }
}

/// Checks that the managed fields of an object can be read.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn check(object: &Object) -> Result<(), String> {
    Managed::decode(object.at("/metadata/managedFields")).map(drop)
}

/// Records a create or update in `new.metadata.managedFields`. `live` is what was there before,
/// `None` for a create.
///
/// The managed fields of the request count first (it may set them, or reset them with `[]` or
/// `[{}]`), then those of the live object; broken ones count as none. An object that is not tracked
/// stays so. Where the objects do not fit their type, the managed fields are dropped rather than
/// the request refused.
pub fn update(live: Option<&Object>, new: &mut Object, writer: &Writer<'_>) {
    let requested = new.metadata_mut().shift_remove("managedFields");
    let managed = starting_point(live, requested.as_ref(), writer.subresource);
    if managed.entries.is_empty() && live.is_some_and(|live| !live.uid().is_empty()) {
        return;
    }
    let blank;
    let live = match live {
        Some(live) => &live.0,
        None => {
            blank = blank_object(writer.ty);
            &blank
        }
    };
    let encoded = updated(live, new, managed, writer)
        .ok()
        .and_then(|managed| managed.encode());
    if let Some(encoded) = encoded {
        new.metadata_mut().insert("managedFields", encoded);
    }
}

/// The managed fields to go on from.
fn starting_point<'a>(
    live: Option<&'a Object>,
    requested: Option<&'a Value>,
    subresource: &str,
) -> Managed<'a> {
    let of_live = || {
        Managed::decode(live.and_then(|live| live.at("/metadata/managedFields")))
            .unwrap_or_default()
    };
    if !subresource.is_empty() {
        return of_live();
    }
    if requested.is_some_and(is_reset) {
        return Managed::default();
    }
    match Managed::decode(requested) {
        Ok(managed) if !managed.entries.is_empty() => managed,
        _ => of_live(),
    }
}

fn is_reset(requested: &Value) -> bool {
    match requested.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one
            .as_object()
            .is_some_and(|entry| entry.values().all(is_zero)),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// The entries after an update; fields that `new` changes are owned by its manager only.
pub(super) fn updated<'a>(
    live: &'a Map,
    new: &'a Map,
    mut managed: Managed<'a>,
    writer: &Writer<'a>,
) -> Result<Managed<'a>, String> {
    reconcile_all(&mut managed, writer);
    let (changed, _) = take_from_others(live, new, &mut managed, writer, None)?;
    let mut set = changed.modified;
    set.add(changed.added);
    set.subtract(&NEVER_OWNED);
    if !set.is_empty() {
        let id = writer.id(Operation::Update);
        if let Some(at) = managed.entries.iter().position(|entry| entry.id == id) {
            set.add(managed.entries.remove(at).set);
        }
        managed.entries.push(Entry {
            id,
            api_version: writer.api_version.into(),
            time: Some(writer.time()),
            set,
        });
    }
    managed.cap();
    Ok(managed)
}

/// The fields that belong to the server or to nobody, and so to no manager.
pub(super) static NEVER_OWNED: LazyLock<Set<'static>> = LazyLock::new(|| {
    const OF_METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[PathElement::Field(name)]);
    }
    for name in OF_METADATA {
        set.insert(&[PathElement::Field("metadata"), PathElement::Field(name)]);
    }
    set
});

/// Brings entries in line with the present schema. Those of versions that are no more are dropped.
pub(super) fn reconcile_all(managed: &mut Managed, writer: &Writer) {
    managed.entries.retain_mut(|entry| {
        let own = entry.api_version == writer.api_version;
        let Some(ty) = (if own {
            Some(writer.ty)
        } else {
            writer.versions.type_of(&entry.api_version)
        }) else {
            return false;
        };
        if let Some(set) = reconcile(&entry.set, ty) {
            entry.set = set;
        }
        true
    });
}

/// Managers with the fields that they lose to new values.
pub(super) type Conflicts<'a> = Vec<(ManagerId<'a>, Set<'a>)>;

/// Takes the fields that `new` changes away from every entry but `own`. Returns what changed in the
/// writer's version, and for each entry that lost a field to a new value which ones: the conflicts
/// of an apply.
pub(super) fn take_from_others<'o, 'a>(
    live: &'o Map,
    new: &'o Map,
    managed: &mut Managed<'a>,
    writer: &Writer<'o>,
    own: Option<&ManagerId>,
) -> Result<(Comparison<'o>, Conflicts<'a>), String> {
    let reset = ResetFields::of(writer.reset_fields);
    let incomparable = |errors: TypeErrors| format!("failed to compare objects: {errors}");
    let changed = typed::compare_maps(writer.ty, live, new)
        .map_err(incomparable)?
        .filtered(|set| reset.filter(set));
    let mut conflicts = Vec::new();
    take(managed, writer.api_version, own, &changed, &mut conflicts);

    let reset = if writer.versions.resets_all(writer.subresource) {
        reset
    } else {
        ResetFields::None
    };
    let mut others: Vec<Cow<'a, str>> = managed
        .entries
        .iter()
        .map(|entry| entry.api_version.clone())
        .collect();
    others.retain(|version| version != writer.api_version);
    others.sort_unstable();
    others.dedup();
    for version in others {
        let live = writer
            .versions
            .convert(live, &version)
            .map_err(|why| format!("failed to convert old object: {why}"))?;
        let new = writer
            .versions
            .convert(new, &version)
            .map_err(|why| format!("failed to convert new object: {why}"))?;
        match live
            .as_ref()
            .zip(new.as_ref())
            .zip(writer.versions.type_of(&version))
        {
            Some(((live, new), ty)) => {
                validate_map(ty, live)
                    .map_err(|errors| format!("failed to convert old object: {errors}"))?;
                validate_map(ty, new)
                    .map_err(|errors| format!("failed to convert new object: {errors}"))?;
                let changed = typed::compare_maps(ty, live, new)
                    .map_err(incomparable)?
                    .filtered(|set| reset.filter(set));
                take(managed, &version, own, &changed, &mut conflicts);
            }
            None => managed
                .entries
                .retain(|entry| entry.api_version != version || Some(&entry.id) == own),
        }
    }
    managed.entries.retain(|entry| !entry.set.is_empty());
    Ok((changed, conflicts))
}

/// Takes what `changed` in `version` from the entries of that version.
fn take<'a>(
    managed: &mut Managed<'a>,
    version: &str,
    own: Option<&ManagerId>,
    changed: &Comparison<'_>,
    conflicts: &mut Conflicts<'a>,
) {
    for entry in managed
        .entries
        .iter_mut()
        .filter(|entry| entry.api_version == version && Some(&entry.id) != own)
    {
        let mut lost = entry.set.intersection(&changed.modified);
        lost.add(entry.set.intersection(&changed.added));
        if !lost.is_empty() {
            entry.set.subtract(&lost);
            conflicts.push((entry.id.clone(), lost));
        }
        entry.set.subtract(&changed.removed);
    }
}

/// The object that a create is compared with: one of the kind with nothing set, as Go makes it, so
/// that a zero value that JSON always shows is owned by nobody.
pub(super) fn blank_object(ty: Ty<'_>) -> Map {
    match ty {
        Ty::Struct(ty, _) => blank_struct(ty),
        _ => Map::new(),
    }
}

fn blank_struct(ty: TypeRef<'_>) -> Map {
    let fields = ty
        .get()
        .fields
        .iter()
        .filter(|field| !matches!(field.kind, Kind::Inline(_)));
    let shown = fields.filter_map(|field| match field.presence {
        Presence::Always => Some((field.json.clone(), blank_value(ty, &field.kind))),
        Presence::Nullable => Some((field.json.clone(), Value::Null)),
        Presence::OmitEmpty | Presence::Pointer => None,
    });
    shown.collect()
}

fn blank_value(ty: TypeRef<'_>, kind: &Kind) -> Value {
    match kind {
        Kind::String => "".into(),
        Kind::Bool => false.into(),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => 0.into(),
        Kind::Quantity => "0".into(),
        Kind::Message(id) => Value::Object(blank_struct(ty.to(*id))),
        _ => Value::Null,
    }
}

/// Gives the entries of `new` the times of `old` where the two objects differ in nothing else, so
/// that a write that changes nothing is seen as such.
pub fn keep_times(old: &Object, new: &mut Object) {
    let (Some(olds), Some(news)) = (entries(old), entries(new)) else {
        return;
    };
    // The sets come last: they are read only if all else is the same.
    if olds.len() != news.len()
        || !equal_but(old.metadata(), new.metadata(), "managedFields")
        || !equal_but(Some(&old.0), Some(&new.0), "metadata")
        || !olds
            .iter()
            .zip(news)
            .all(|(a, b)| equal_but(a.as_object(), b.as_object(), "time"))
    {
        return;
    }
    let times: Vec<Option<Value>> = olds
        .iter()
        .map(|entry| entry.get("time").cloned())
        .collect();
    let Some(Value::Array(news)) = new.at_mut("/metadata/managedFields") else {
        return;
    };
    for (entry, time) in news.iter_mut().zip(times) {
        match (entry.get_mut("time"), time) {
            (Some(slot), Some(time)) => *slot = time,
            (Some(_), None) => {
                entry
                    .as_object_mut()
                    .map(|entry| entry.shift_remove("time"));
            }
            (None, Some(time)) => {
                entry
                    .as_object_mut()
                    .map(|entry| entry.shift_insert(entry.len().min(3), "time".to_owned(), time));
            }
            (None, None) => {}
        }
    }
}

fn entries(object: &Object) -> Option<&Vec<Value>> {
    object
        .at("/metadata/managedFields")
        .and_then(Value::as_array)
}

/// Reports whether two maps are the same but for what is under `key`.
pub(super) fn equal_but(a: Option<&Map>, b: Option<&Map>, key: &str) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return a.is_none() && b.is_none();
    };
    let count = |map: &Map| map.len() - usize::from(map.contains_key(key));
    count(a) == count(b)
        && a.iter().all(|(name, value)| {
            name == key || b.get(name).is_some_and(|other| equal_values(value, other))
        })
}
