//! The names that expressions may use: variables with their types, and the fields of objects.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::compile_budget::CompileBudget;
use super::library;
use super::schema::{Schema, Shape};
use super::signature::Overload;
use super::types::Type;

/// The types that have names of their own.
const TYPES: [(&str, Type); 9] = [
    ("bool", Type::Bool),
    ("bytes", Type::Bytes),
    ("double", Type::Double),
    ("google.protobuf.Duration", Type::Duration),
    ("int", Type::Int),
    ("null_type", Type::Null),
    ("string", Type::String),
    ("google.protobuf.Timestamp", Type::Timestamp),
    ("uint", Type::Uint),
];

/// The type of objects that are applied to others. Those of its fields are named after their paths.
pub const OBJECT: &str = "Object";
/// The type of the operations of JSON patches.
pub const JSON_PATCH: &str = "JSONPatch";

/// A variable whose fields are evaluated when they are first asked for.
#[derive(Clone, Debug)]
struct Lazy {
    variable: String,
    ty: Arc<str>,
    /// Their types; the values are given by position.
    fields: IndexMap<String, Type>,
}

/// The variables that expressions may name. Their values are given by position.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    objects: HashMap<Arc<str>, Arc<Schema>>,
    lazy: Option<Lazy>,
    patches: bool,
    bindings: bool,
    budget: Option<CompileBudget>,
}

impl Environment {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable of a type.
    #[must_use]
    pub fn with_variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.push((name.to_owned(), ty));
        self
    }

    /// Declares a variable of a schema, with the objects in it. What expressions may not see is not
    /// declared.
    #[must_use]
    pub fn with_schema(mut self, name: &str, schema: &Arc<Schema>) -> Self {
        self.add_objects(schema);
        match schema.ty() {
            Some(ty) => self.with_variable(name, ty),
            None => self,
        }
    }

    /// Declares a variable of a type of its own, whose fields are evaluated when they are first
    /// asked for.
    #[must_use]
    pub fn with_lazy_variable(mut self, name: &str, ty: &str) -> Self {
        self.lazy = Some(Lazy {
            variable: name.to_owned(),
            ty: ty.into(),
            fields: IndexMap::new(),
        });
        self
    }

    /// Declares a field of the lazy variable, and returns its position. A field of a name that is
    /// there takes its place.
    pub fn add_lazy_field(&mut self, name: &str, ty: Type) -> Option<usize> {
        let lazy = self.lazy.as_mut()?;
        Some(lazy.fields.insert_full(name.to_owned(), ty).0)
    }

    /// Declares the types of objects to apply and of JSON patches, and what helps to make them.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        self.patches = true;
        self
    }

    /// Lets expressions give names to values with `cel.bind`.
    #[must_use]
    pub fn with_bindings(mut self) -> Self {
        self.bindings = true;
        self
    }

    /// Lets expressions share what they may take when they are compiled. Without that, each may
    /// take as much alone.
    #[must_use]
    pub fn with_budget(mut self, budget: &CompileBudget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// The budget of compiling an expression.
    pub fn budget(&self) -> CompileBudget {
        self.budget.clone().unwrap_or_default()
    }

    /// Reports whether expressions may use `cel.bind`.
    pub fn binds(&self) -> bool {
        self.bindings
    }

    /// The position of a field of the lazy variable.
    pub fn lazy_field(&self, variable: &str, field: &str) -> Option<usize> {
        let lazy = self.lazy.as_ref()?;
        let position = lazy.fields.get_index_of(field)?;
        (lazy.variable == variable).then_some(position)
    }

    /// The names of the fields of the lazy variable.
    pub fn lazy_fields(&self, variable: &str) -> Option<impl Iterator<Item = &str>> {
        let lazy = self
            .lazy
            .as_ref()
            .filter(|lazy| lazy.variable == variable)?;
        Some(lazy.fields.keys().map(String::as_str))
    }

    fn add_objects(&mut self, schema: &Arc<Schema>) {
        match &schema.shape {
            Shape::List(item, _) => self.add_objects(item),
            Shape::Map(value) => self.add_objects(value),
            Shape::Object(object) => {
                let known = self.objects.insert(object.name.clone(), schema.clone());
                if known.is_none() {
                    for field in object.fields.values() {
                        self.add_objects(&field.schema);
                    }
                }
            }
            _ => {}
        }
    }

    /// The type of a variable, or of the type that a name is.
    pub fn variable(&self, name: &str) -> Option<Type> {
        let declared = self.variables.iter().find(|(known, _)| known == name);
        if let Some((_, ty)) = declared {
            return Some(ty.clone());
        }
        if let Some(lazy) = self.lazy.as_ref().filter(|lazy| lazy.variable == name) {
            return Some(Type::Struct(lazy.ty.clone()));
        }
        if self.has_object(name) {
            return Some(Type::type_of(Type::object(name)));
        }
        Self::type_named(name).map(Type::type_of)
    }

    /// The type of a name.
    pub fn type_named(name: &str) -> Option<Type> {
        let known = TYPES.iter().find(|(known, _)| *known == name);
        match (known, name) {
            (Some((_, ty)), _) => Some(ty.clone()),
            (None, "list") => Some(Type::list(Type::Dyn)),
            (None, "map") => Some(Type::map(Type::Dyn, Type::Dyn)),
            (None, "type") => Some(Type::Type(None)),
            (None, super::types::OPTIONAL) => Some(Type::optional(Type::Dyn)),
            (None, "net.IP" | "net.CIDR") => Some(Type::Opaque(name.into(), Arc::new([]))),
            _ => None,
        }
    }

    /// The position of a variable's value.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|(known, _)| known == name)
    }

    /// Reports whether a type is one of patches, which expressions make objects of.
    pub fn makes(&self, name: &str) -> bool {
        self.patches && (is_applied(name) || name == JSON_PATCH)
    }

    /// Reports whether there are objects of a type.
    pub fn has_object(&self, name: &str) -> bool {
        self.objects.contains_key(name)
            || self.lazy.as_ref().is_some_and(|lazy| *lazy.ty == *name)
            || self.makes(name)
    }

    /// The type of a field of an object.
    pub fn field(&self, object: &str, field: &str) -> Option<Type> {
        if self.patches && is_applied(object) {
            return Some(Type::Dyn);
        }
        if self.patches && object == JSON_PATCH {
            return match field {
                "op" | "path" | "from" => Some(Type::String),
                "value" => Some(Type::Dyn),
                _ => None,
            };
        }
        if let Some(lazy) = self.lazy.as_ref().filter(|lazy| *lazy.ty == *object) {
            return lazy.fields.get(field).cloned();
        }
        let schema = self.objects.get(object)?;
        match &schema.shape {
            Shape::Object(object) => object.fields.get(field)?.schema.ty(),
            _ => None,
        }
    }

    /// The ways to call a function; `None` if there is none of the name.
    pub fn overloads(&self, function: &str) -> Option<&'static [Overload]> {
        if library::is_of_patches(function) && !self.patches {
            return None;
        }
        library::function(function).map(|function| function.overloads.as_slice())
    }
}

/// Reports whether a type is one of objects to apply or of their fields.
fn is_applied(name: &str) -> bool {
    let rest = name.strip_prefix(OBJECT);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
