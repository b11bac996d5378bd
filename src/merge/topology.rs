//! The topology of a type as field ownership sees it: scalars, lists and maps, and which parts are
//! owned separately (kube-openapi `schemaconv`).

use crate::meta::Value;

use crate::schema::{Kind, ListType, MapType, Presence, Schema, TypeId, TypeRef};

/// A type of the schema, or one of the two that are known only from their values.
#[derive(Clone, Copy, Debug)]
pub enum Ty<'s> {
    Of(&'s Schema, &'s Kind),
    /// A structured type, with the map type of the field that refers to it where that differs.
    Struct(TypeRef<'s>, Option<MapType>),
    /// Any value: maps by entry, lists and scalars whole.
    Deduced,
    /// Any value, owned as one.
    Atomic,
}

/// The forms that values of a type may take. Only types known from their values have more than one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atom<'s> {
    pub scalar: Option<Scalar>,
    pub list: Option<List<'s>>,
    pub map: Option<Map<'s>>,
}

/// The types of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any of these.
    Untyped,
}

#[derive(Clone, Copy, Debug)]
pub struct List<'s> {
    pub element: Ty<'s>,
    pub relation: &'s ListType,
}

#[derive(Clone, Copy, Debug)]
pub struct Map<'s> {
    /// The struct whose fields are declared.
    pub fields: Option<TypeRef<'s>>,
    /// The type of entries that are not declared; `None` where there may not be any.
    pub element: Option<Ty<'s>>,
    pub atomic: bool,
}

/// The one form to treat a value in.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'s> {
    Scalar(Scalar),
    List(List<'s>),
    Map(Map<'s>),
}

impl<'s> From<TypeRef<'s>> for Ty<'s> {
    fn from(ty: TypeRef<'s>) -> Self {
        Self::Struct(ty, None)
    }
}

impl<'s> Ty<'s> {
    /// The type of a kind of object, or the deduced one for objects without a schema.
    pub fn root(ty: Option<TypeRef<'s>>) -> Self {
        ty.map_or(Self::Deduced, Self::from)
    }

    fn of(schema: &'s Schema, kind: &'s Kind, map_type: Option<MapType>) -> Self {
        match kind {
            Kind::Message(id) => Self::structure(schema, *id, map_type),
            // OpenAPI v3 gives these no type, so their values decide.
            Kind::Any | Kind::IntOrString | Kind::SchemaOr(..) | Kind::FieldsV1 => Self::Deduced,
            Kind::Raw => Self::Atomic,
            _ => Self::Of(schema, kind),
        }
    }

    fn structure(schema: &'s Schema, id: TypeId, map_type: Option<MapType>) -> Self {
        Self::Struct(TypeRef { schema, id }, map_type)
    }

    /// The forms its values may take.
    pub fn atom(self) -> Atom<'s> {
        let scalar = |scalar| Atom {
            scalar: Some(scalar),
            ..Atom::default()
        };
        match self {
            Self::Deduced => untyped(Ty::Deduced, false),
            Self::Atomic => untyped(Ty::Atomic, true),
            Self::Struct(ty, over) => Atom {
                map: Some(Map::structure(ty, over)),
                ..Atom::default()
            },
            Self::Of(schema, kind) => match kind {
                Kind::Bool => scalar(Scalar::Boolean),
                Kind::Int32 | Kind::Int64 | Kind::Double => scalar(Scalar::Numeric),
                Kind::String | Kind::Bytes => scalar(Scalar::String),
                Kind::List(element, relation) => Atom {
                    list: Some(List {
                        element: Self::of(schema, element, None),
                        relation,
                    }),
                    ..Atom::default()
                },
                Kind::Map(element, map_type) => {
                    let element = Some(Self::of(schema, element, None));
                    Atom {
                        map: Some(Map {
                            fields: None,
                            element,
                            atomic: *map_type == MapType::Atomic,
                        }),
                        ..Atom::default()
                    }
                }
                _ => scalar(Scalar::Untyped),
            },
        }
    }
}

/// The forms of a type without a schema. Its lists are owned whole.
fn untyped(entries: Ty<'static>, atomic: bool) -> Atom<'static> {
    Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(List {
            element: Ty::Atomic,
            relation: &ListType::Atomic,
        }),
        map: Some(Map {
            fields: None,
            element: Some(entries),
            atomic,
        }),
    }
}

impl<'s> Atom<'s> {
    /// The form of `value`, where the type leaves a choice. Null and absent values leave it open.
    #[must_use]
    pub fn deduce(self, value: Option<&Value>) -> Self {
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => {
                Self {
                    scalar: self.scalar,
                    ..Self::default()
                }
            }
            Some(Value::Array(_)) if self.list.is_some() => Self {
                list: self.list,
                ..Self::default()
            },
            Some(Value::Object(_)) if self.map.is_some() => Self {
                map: self.map,
                ..Self::default()
            },
            _ => self,
        }
    }

    /// The form to use: maps before scalars before lists.
    pub fn shape(self) -> Option<Shape<'s>> {
        let scalar = || self.scalar.map(Shape::Scalar);
        self.map
            .map(Shape::Map)
            .or_else(scalar)
            .or_else(|| self.list.map(Shape::List))
    }

    /// Reports whether two forms of one type are the same.
    pub fn same_forms(&self, other: &Self) -> bool {
        let forms = |atom: &Self| {
            (
                atom.scalar.is_some(),
                atom.list.is_some(),
                atom.map.is_some(),
            )
        };
        forms(self) == forms(other)
    }
}

impl List<'_> {
    pub fn atomic(&self) -> bool {
        *self.relation == ListType::Atomic
    }
}

impl<'s> Map<'s> {
    fn structure(ty: TypeRef<'s>, over: Option<MapType>) -> Self {
        let declared = ty.get();
        let free = declared.preserve_unknown || declared.fields.is_empty();
        let atomic = over.unwrap_or(declared.map_type) == MapType::Atomic;
        Self {
            fields: Some(ty),
            element: free.then_some(Ty::Deduced),
            atomic,
        }
    }

    /// The type of the declared field `name`.
    pub fn declared(&self, name: &str) -> Option<Ty<'s>> {
        self.fields.and_then(|ty| {
            ty.field(name)
                .map(|field| Ty::of(ty.schema, &field.kind, field.map_type))
        })
    }

    /// The type of the entry `name`, `None` where there may be no such entry.
    pub fn type_of(&self, name: &str) -> Option<Ty<'s>> {
        self.declared(name).or(self.element)
    }

    /// The value that a missing key field of a list item stands for. A Go value that JSON always
    /// shows counts as its zero.
    pub fn key_default(&self, name: &str) -> Option<&'s Value> {
        let field = self.fields.and_then(|ty| ty.field(name))?;
        field.default.as_ref().or_else(|| {
            (field.presence == Presence::Always)
                .then(|| zero_scalar(&field.kind))
                .flatten()
        })
    }

    /// Reports whether this is a map of anything, whose topology is only known from values.
    pub fn untyped(&self) -> bool {
        matches!(self.element, Some(Ty::Deduced))
            && self.fields.is_none_or(|ty| ty.get().fields.is_empty())
    }
}

fn zero_scalar(kind: &Kind) -> Option<&'static Value> {
    use std::sync::LazyLock;
    static EMPTY: Value = Value::String(String::new());
    static FALSE: Value = Value::Bool(false);
    static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());
    match kind {
        Kind::String => Some(&EMPTY),
        Kind::Bool => Some(&FALSE),
        Kind::Int32 | Kind::Int64 | Kind::Double => Some(&ZERO),
        _ => None,
    }
}
