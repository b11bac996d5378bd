//! JSON to an object of a type, as `sigs.k8s.io/json` decodes into a Go struct: same values, same
//! issues, same errors.

use crate::meta::go::base64;
use std::borrow::Cow;
use std::collections::BTreeMap;

use super::lexer::{self, Lexer};
use super::{DecodeError, Decoded, Document, tree};
use crate::codec::{
    MAX_FIELDS, MAX_ISSUE_BYTES, MAX_ISSUES, MAX_TREE_DEPTH, omit_empty, too_many_fields,
};
use crate::meta::go::quantity::Quantity;
use crate::meta::{Key, Map, Object, Value, time};
use crate::schema::{Field, Kind, Schema, SchemaAlternative, TypeId, TypeRef};

/// Decodes an object of a type. Keys are matched with their case; unknown fields are dropped and
/// noted; of duplicates the last counts. Nulls are absent fields.
///
/// # Errors
/// Go's syntax errors; its type errors (`json: cannot unmarshal string into Go struct field
/// DeploymentSpec.spec.replicas of type int32`); what quantities, times and base64 have to say
/// about themselves.
pub fn decode(bytes: &[u8], ty: TypeRef) -> Result<Decoded, DecodeError> {
    Document::new(bytes)?.decode(ty)
}

/// Decodes text that is well-formed.
pub(super) fn run(text: &str, ty: TypeRef) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder {
        lexer: Lexer::new(text),
        schema: ty.schema,
        path: Vec::new(),
        slots: Vec::new(),
        issues: Vec::new(),
        spelled: 0,
        fields: 0,
        quiet: false,
        unfit: None,
    };
    let object = match decoder.lexer.peek() {
        b'{' => decoder.message(ty.id)?,
        b'n' => omit_empty::empty(ty.id, ty.schema),
        other => {
            let name = go_message(&ty.get().name);
            return Err(DecodeError(format!(
                "json: cannot unmarshal {} into Go value of type {name}",
                lexer::type_name(other)
            )));
        }
    };
    match decoder.unfit {
        Some(error) => Err(error),
        None => Ok(Decoded {
            object: Object(object),
            issues: decoder.issues,
        }),
    }
}

/// One step from the root to the current value.
enum Step<'a> {
    Field(TypeId, usize),
    Key(Cow<'a, str>),
    Index(usize),
}

struct Decoder<'a, 's> {
    lexer: Lexer<'a>,
    schema: &'s Schema,
    path: Vec<Step<'a>>,
    /// The fields of the messages that are open, a stretch for each.
    slots: Vec<Option<Value>>,
    issues: Vec<String>,
    /// The bytes of the paths that were put together for them.
    spelled: usize,
    /// The fields of all messages so far.
    fields: usize,
    /// Set inside of values whose Go type decodes itself: those note no issues.
    quiet: bool,
    /// The first value of the wrong type. Go continues after it, and reports it where nothing worse
    /// comes.
    unfit: Option<DecodeError>,
}

impl<'a> Decoder<'a, '_> {
    fn message(&mut self, id: TypeId) -> Result<Map, DecodeError> {
        if self.path.len() > MAX_TREE_DEPTH {
            return Err(DecodeError::new("exceeded max depth"));
        }
        let schema = self.schema;
        let ty = TypeRef { schema, id }.get();
        let base = self.slots.len();
        self.slots.resize(base + ty.fields.len(), None);
        let mut unknown = Vec::new();
        let mut guess = 0;
        self.lexer.enter();
        while let Some(key) = self.lexer.next_key() {
            let Some(index) = ty.index_from(guess, &key) else {
                if ty.preserve_unknown {
                    unknown.push((
                        Key::from(key),
                        tree::value(&mut self.lexer, self.path.len())?,
                    ));
                } else {
                    self.issue("unknown", Some(&key));
                    self.lexer.skip();
                }
                continue;
            };
            guess = index + 1;
            self.path.push(Step::Field(id, index));
            if self.slots[base + index].is_some() {
                self.issue("duplicate", None);
            }
            let value = self.value(&ty.fields[index].kind)?;
            self.path.pop();
            self.slots[base + index] = Some(value);
        }
        let count = self.slots[base..]
            .iter()
            .filter(|slot| slot.is_some())
            .count();
        let mut out = Map::with_capacity(count + unknown.len() + 2);
        for (field, slot) in ty.fields.iter().zip(self.slots.drain(base..)) {
            let value = match slot {
                Some(value) => omit_empty::shown(field, value, schema),
                None if matches!(field.kind, Kind::Inline(_)) => None,
                None => omit_empty::missing(field, schema),
            };
            if let Some(value) = value {
                out.append(field.json.clone(), value);
            }
        }
        out.extend(unknown);
        self.fields += out.len() + 2;
        if self.fields > MAX_FIELDS {
            Err(too_many_fields())
        } else {
            Ok(out)
        }
    }

    /// The current value as a value of `kind`; null where JSON says null and the Go type leaves
    /// that alone.
    fn value(&mut self, kind: &Kind) -> Result<Value, DecodeError> {
        let first = self.lexer.peek();
        if first == b'n' {
            self.lexer.word();
            return Ok(Value::Null);
        }
        match (kind, first) {
            (Kind::String, b'"') => Ok(Value::String(self.lexer.string().into_owned())),
            (Kind::Bool, b't' | b'f') => Ok(Value::Bool(self.lexer.word() == "true")),
            (Kind::Int32 | Kind::Int64 | Kind::Double, b'-' | b'0'..=b'9') => self.number(kind),
            (Kind::Bytes, b'"') => match base64::normalise(&self.lexer.string()) {
                Ok(text) => Ok(owned(text)),
                Err(why) => self.skip_mismatched(|_| DecodeError(why)),
            },
            (Kind::Quantity, _) => self.quantity(),
            (Kind::Time | Kind::MicroTime, b'"') => self.time(kind),
            (Kind::IntOrString, b'"') => Ok(Value::String(self.lexer.string().into_owned())),
            (Kind::IntOrString, b'-' | b'0'..=b'9') => {
                // It decodes itself, and its error ends it.
                let text = self.lexer.word();
                text.parse::<i32>()
                    .map(Value::from)
                    .map_err(|_| self.mismatch(&Kind::Int32, &format!("number {text}")))
            }
            (Kind::Raw | Kind::FieldsV1 | Kind::Any, _) => {
                tree::value(&mut self.lexer, self.path.len())
            }
            (Kind::SchemaOr(alternative, id), _) => self.schema_or(*alternative, *id),
            (Kind::Message(id), b'{') => self.message(*id).map(Value::Object),
            (Kind::List(item, _), b'[') => self.list(item),
            (Kind::Map(item, _), b'{') => self.map(item),
            _ => {
                let wrong = |decoder: &Self| decoder.mismatch(kind, lexer::type_name(first));
                self.lexer.skip();
                // Those decode themselves, and their errors end it.
                if matches!(kind, Kind::Time | Kind::MicroTime | Kind::IntOrString) {
                    Err(wrong(self))
                } else {
                    self.skip_mismatched(wrong)
                }
            }
        }
    }

    /// Notes that a value, which was passed over, is of the wrong type.
    fn skip_mismatched(
        &mut self,
        error: impl FnOnce(&Self) -> DecodeError,
    ) -> Result<Value, DecodeError> {
        if self.quiet {
            return Err(error(self));
        }
        if self.unfit.is_none() {
            self.unfit = Some(error(self));
        }
        Ok(Value::Null)
    }

    fn number(&mut self, kind: &Kind) -> Result<Value, DecodeError> {
        let text = self.lexer.word();
        let integer = text.parse::<i64>().ok();
        let value = match kind {
            Kind::Int32 => integer
                .filter(|value| i32::try_from(*value).is_ok())
                .map(Value::from),
            Kind::Int64 => integer.map(Value::from),
            _ => text
                .parse::<f64>()
                .ok()
                .and_then(serde_json::Number::from_f64)
                .map(Value::Number),
        };
        match value {
            Some(value) => Ok(value),
            None => {
                self.skip_mismatched(|decoder| decoder.mismatch(kind, &format!("number {text}")))
            }
        }
    }

    /// A string or a number; upstream looks at the bytes between the quotes without unescaping
    /// them.
    fn quantity(&mut self) -> Result<Value, DecodeError> {
        let raw = self.lexer.skip();
        let text = raw
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or(raw);
        Quantity::normalise(text)
            .map(owned)
            .map_err(|error| DecodeError(error.to_string()))
    }

    fn time(&mut self, kind: &Kind) -> Result<Value, DecodeError> {
        let text = self.lexer.string();
        let micro = *kind == Kind::MicroTime;
        let time = if micro {
            time::parse_micro(&text)
        } else {
            time::parse(&text)
        }
        .map_err(DecodeError)?;
        if time == time::ZERO {
            return Ok(Value::Null);
        }
        Ok(Value::String(if micro {
            time::format_micro(time)
        } else {
            time::format(time.seconds)
        }))
    }

    fn list(&mut self, item: &Kind) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        self.lexer.enter();
        while self.lexer.next_item() {
            self.path.push(Step::Index(items.len()));
            let value = self.value(item)?;
            items.push(self.element(item, value));
            self.path.pop();
        }
        Ok(Value::Array(items))
    }

    /// A map, sorted by key as JSON shows it.
    fn map(&mut self, item: &Kind) -> Result<Value, DecodeError> {
        let mut entries = BTreeMap::new();
        self.lexer.enter();
        while let Some(key) = self.lexer.next_key() {
            self.path.push(Step::Key(key.clone()));
            if entries.contains_key(&key) {
                self.issue("duplicate", None);
            }
            let value = self.value(item)?;
            let value = self.element(item, value);
            self.path.pop();
            entries.insert(key, value);
        }
        Ok(Value::Object(
            entries
                .into_iter()
                .map(|(key, value)| (Key::from(key), value))
                .collect(),
        ))
    }

    /// An item of a list or map, where null stands for the zero value.
    fn element(&self, kind: &Kind, value: Value) -> Value {
        match (value, kind) {
            (Value::Null, Kind::Bytes) => Value::String(String::new()),
            (Value::Null, kind) => omit_empty::zero(kind, self.schema),
            (value, _) => value,
        }
    }

    /// A schema or its alternative; other JSON is ignored, except by the boolean one.
    fn schema_or(
        &mut self,
        alternative: SchemaAlternative,
        id: TypeId,
    ) -> Result<Value, DecodeError> {
        let loud = std::mem::replace(&mut self.quiet, true);
        let value = match (alternative, self.lexer.peek()) {
            (_, b'{') => self.message(id).map(Value::Object),
            (SchemaAlternative::Array, b'[') => self.list(&Kind::Message(id)),
            (SchemaAlternative::StringArray, b'[') => self.list(&Kind::String),
            (SchemaAlternative::Bool, b't' | b'f') => Ok(Value::Bool(self.lexer.word() == "true")),
            (SchemaAlternative::Bool, _) => {
                Err(DecodeError::new("boolean or JSON schema expected"))
            }
            _ => {
                self.lexer.skip();
                Ok(Value::Null)
            }
        };
        self.quiet = loud;
        value
    }

    /// Notes `unknown field` or `duplicate field` for the current value, or for `key` in it.
    fn issue(&mut self, what: &str, key: Option<&str>) {
        if self.quiet || self.issues.len() >= MAX_ISSUES || self.spelled > MAX_ISSUE_BYTES {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field(id, index) => push_name(&mut path, &self.field(*id, *index).json),
                Step::Key(key) => push_name(&mut path, key),
            }
        }
        if let Some(key) = key {
            push_name(&mut path, key);
        }
        let issue = format!("{what} field \"{path}\"");
        self.spelled += issue.len() + self.path.len();
        if !self.issues.contains(&issue) {
            self.issues.push(issue);
        }
    }

    fn field(&self, id: TypeId, index: usize) -> &Field {
        &self.schema.types[id.0 as usize].fields[index]
    }

    /// Go's UnmarshalTypeError for a value of `kind` that is something else. It names the fields on
    /// the way, but neither the indexes nor the keys.
    fn mismatch(&self, kind: &Kind, found: &str) -> DecodeError {
        let mut names = Vec::new();
        let mut holder = None;
        let mut inside = 0;
        for step in &self.path {
            match step {
                Step::Field(id, index) => {
                    self.embeddings(*id, *index, &mut names);
                    names.push(self.field(*id, *index).json.as_str());
                    holder = Some((*id, *index));
                    inside = 0;
                }
                _ => inside += 1,
            }
        }
        let Some((id, index)) = holder else {
            return DecodeError(format!(
                "json: cannot unmarshal {found} into Go value of type {}",
                self.go_type(kind)
            ));
        };
        let field = self.field(id, index);
        let go = match field.go_type.as_str() {
            _ if matches!(kind, Kind::Time | Kind::MicroTime | Kind::IntOrString) => {
                self.go_type(kind)
            }
            "" => self.go_type(kind),
            named => element_type(named, inside).map_or_else(|| self.go_type(kind), str::to_owned),
        };
        let holder = &self.schema.types[id.0 as usize].name;
        let holder = holder.rsplit('.').next().unwrap_or_default();
        DecodeError(format!(
            "json: cannot unmarshal {found} into Go struct field {holder}.{} of type {go}",
            names.join(".")
        ))
    }

    /// The names of the structs through which Go embeds a field, which its errors name as well.
    fn embeddings<'n>(&'n self, id: TypeId, index: usize, names: &mut Vec<&'n str>) {
        let ty = TypeRef {
            schema: self.schema,
            id,
        }
        .get();
        let via = ty.fields[index].via.and_then(|at| ty.fields.get(at));
        let Some(Kind::Inline(inner)) = via.map(|field| &field.kind) else {
            return;
        };
        let embedded = TypeRef {
            schema: self.schema,
            id: *inner,
        }
        .get();
        names.push(embedded.name.rsplit('.').next().unwrap_or_default());
        if let Some(&index) = embedded.by_json.get(&ty.fields[index].json) {
            self.embeddings(*inner, index, names);
        }
    }

    /// The Go type of a kind, as far as the kind tells.
    fn go_type(&self, kind: &Kind) -> String {
        match kind {
            Kind::Bool => "bool".to_owned(),
            // An IntOrString that is no string decodes itself as an int32.
            Kind::Int32 | Kind::IntOrString => "int32".to_owned(),
            Kind::Int64 => "int64".to_owned(),
            Kind::Double => "float64".to_owned(),
            Kind::Bytes => "[]uint8".to_owned(),
            Kind::Quantity => "resource.Quantity".to_owned(),
            Kind::Message(id) => go_message(&self.schema.types[id.0 as usize].name),
            Kind::List(item, _) => format!("[]{}", self.go_type(item)),
            Kind::Map(item, _) => format!("map[string]{}", self.go_type(item)),
            _ => "string".to_owned(),
        }
    }
}

fn owned(text: Cow<'_, str>) -> Value {
    Value::String(text.into_owned())
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// `v1.PodSpec` for `k8s.io.api.core.v1.PodSpec`.
fn go_message(name: &str) -> String {
    let mut parts = name.rsplitn(3, '.');
    match (parts.next(), parts.next()) {
        (Some(local), Some(package)) => format!("{package}.{local}"),
        _ => name.to_owned(),
    }
}

/// The type of what lies `inside` levels in `[]T` or `map[K]T`; `None` where the type has a name
/// that hides it.
fn element_type(go: &str, inside: usize) -> Option<&str> {
    (0..inside).try_fold(go, |go, _| match go.strip_prefix("[]") {
        Some(item) => Some(item),
        None => go
            .strip_prefix("map[")?
            .split_once(']')
            .map(|(_, item)| item),
    })
}
