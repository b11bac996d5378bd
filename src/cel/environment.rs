//! The names that expressions may use: variables with their types, and the fields of objects.

use std::collections::HashMap;
use std::sync::Arc;

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

/// The variables that expressions may name. Their values are given by position.
#[derive(Debug, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    objects: HashMap<Arc<str>, Arc<Schema>>,
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
        if self.objects.contains_key(name) {
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

    /// Reports whether there are objects of a type.
    pub fn has_object(&self, name: &str) -> bool {
        self.objects.contains_key(name)
    }

    /// The type of a field of an object.
    pub fn field(&self, object: &str, field: &str) -> Option<Type> {
        let schema = self.objects.get(object)?;
        match &schema.shape {
            Shape::Object(object) => object.fields.get(field)?.schema.ty(),
            _ => None,
        }
    }

    /// The ways to call a function; `None` if there is none of the name.
    pub fn overloads(&self, function: &str) -> Option<&'static [Overload]> {
        library::function(function).map(|function| function.overloads.as_slice())
    }
}
