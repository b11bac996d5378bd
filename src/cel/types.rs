//! The types of expressions, and which may stand for which (cel-go `common/types/types.go`,
//! `checker/types.go`).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// Anything, known when it is evaluated.
    Dyn,
    /// A value of any type, which may be of another type at each place.
    Any,
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object by the name of its type.
    Struct(Arc<str>),
    /// A type that only functions know, with its parameters.
    Opaque(Arc<str>, Arc<[Type]>),
    /// A parameter of a function's signature.
    Param(Arc<str>),
    /// The type of types; of a certain type where it is known.
    Type(Option<Arc<Type>>),
}

/// The name of optional types.
pub const OPTIONAL: &str = "optional_type";

impl Type {
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub fn object(name: &str) -> Self {
        Self::Struct(name.into())
    }

    pub fn optional(of: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), [of].into())
    }

    pub fn type_of(of: Self) -> Self {
        Self::Type(Some(Arc::new(of)))
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error)
    }

    /// The type in an optional one.
    pub fn in_optional(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, params) if &**name == OPTIONAL => params.first(),
            _ => None,
        }
    }

    /// Reports whether null may stand for the type.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Opaque(..) | Self::Struct(_) | Self::Duration | Self::Timestamp
        )
    }

    /// The name of the type as `type(x)` shows it.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "error",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Struct(name) | Self::Opaque(name, _) | Self::Param(name) => name,
        }
    }

    /// The name of the type with those of its parameters, as cel-go declares it.
    pub fn declared_name(&self) -> String {
        let parameters: Vec<String> = match self {
            Self::List(of) | Self::Type(Some(of)) => vec![of.declared_name()],
            Self::Map(of) => vec![of.0.declared_name(), of.1.declared_name()],
            Self::Opaque(_, of) => of.iter().map(Self::declared_name).collect(),
            _ => Vec::new(),
        };
        match parameters.is_empty() {
            true => self.runtime_name().to_owned(),
            false => format!("{}({})", self.runtime_name(), parameters.join(", ")),
        }
    }

    /// Reports whether the type says no more than another of the same form.
    fn is_equal_or_less_specific(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Any | Self::Param(_), _) => true,
            (_, Self::Dyn | Self::Any | Self::Param(_)) => false,
            (Self::Opaque(name, params), Self::Opaque(other, others)) => {
                name == other
                    && params.len() == others.len()
                    && params
                        .iter()
                        .zip(others.iter())
                        .all(|(a, b)| a.is_equal_or_less_specific(b))
            }
            (Self::List(a), Self::List(b)) => a.is_equal_or_less_specific(b),
            (Self::Map(a), Self::Map(b)) => {
                a.0.is_equal_or_less_specific(&b.0) && a.1.is_equal_or_less_specific(&b.1)
            }
            (Self::Type(_), Self::Type(_)) => true,
            _ => self == other,
        }
    }

    /// Reports whether the type, written out, has at most so many parts; takes them from `left`.
    pub fn fits(&self, left: &mut usize) -> bool {
        let Some(rest) = left.checked_sub(1) else {
            return false;
        };
        *left = rest;
        match self {
            Self::List(of) | Self::Type(Some(of)) => of.fits(left),
            Self::Map(of) => of.0.fits(left) && of.1.fits(left),
            Self::Opaque(_, params) => params.iter().all(|param| param.fits(left)),
            _ => true,
        }
    }

    /// The more general of two types that agree.
    pub fn most_general(a: &Self, b: &Self) -> Self {
        if a.is_equal_or_less_specific(b) {
            a.clone()
        } else {
            b.clone()
        }
    }
}

impl fmt::Display for Type {
    /// Writes the type as errors show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params = |f: &mut fmt::Formatter<'_>, name: &str, params: &[Self]| {
            f.write_str(name)?;
            for (i, param) in params.iter().enumerate() {
                f.write_str(if i == 0 { "(" } else { ", " })?;
                write!(f, "{param}")?;
            }
            f.write_str(if params.is_empty() { "" } else { ")" })
        };
        match self {
            Self::Any => f.write_str("any"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::List(of) => params(f, "list", std::slice::from_ref(of)),
            Self::Map(of) => write!(f, "map({}, {})", of.0, of.1),
            Self::Opaque(name, of) => params(f, name, of),
            Self::Type(Some(of)) => params(f, "type", std::slice::from_ref(of)),
            other => f.write_str(other.runtime_name()),
        }
    }
}

/// The types that parameters stand for, with a trail by which a failed attempt is undone.
#[derive(Debug, Default)]
pub struct Substitution {
    bound: HashMap<Arc<str>, Type>,
    trail: Vec<(Arc<str>, Option<Type>)>,
    fresh: usize,
}

impl Substitution {
    /// A parameter that is used nowhere else.
    pub fn fresh(&mut self) -> Type {
        let name = format!("_var{}", self.fresh);
        self.fresh += 1;
        Type::Param(name.into())
    }

    fn bind(&mut self, param: &Arc<str>, to: Type) {
        let before = self.bound.insert(param.clone(), to);
        self.trail.push((param.clone(), before));
    }

    fn undo(&mut self, to: usize) {
        while self.trail.len() > to {
            match self.trail.pop() {
                Some((param, Some(before))) => self.bound.insert(param, before),
                Some((param, None)) => self.bound.remove(&param),
                None => return,
            };
        }
    }

    /// Reports whether one type may be assigned to another, and keeps what parameters then stand
    /// for.
    pub fn assign(&mut self, a: &Type, b: &Type) -> bool {
        let trail = self.trail.len();
        let assignable = self.assignable(a, b);
        if !assignable {
            self.undo(trail);
        }
        assignable
    }

    /// The same for the arguments of a call.
    pub fn assign_all(&mut self, a: &[Type], b: &[Type]) -> bool {
        let trail = self.trail.len();
        let assignable = self.all_assignable(a, b);
        if !assignable {
            self.undo(trail);
        }
        assignable
    }

    fn all_assignable(&mut self, a: &[Type], b: &[Type]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.assignable(a, b))
    }

    fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(param) = b {
            match self.substitutes(a, param, b) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(param) = a {
            return self.substitutes(b, param, a).0;
        }
        match (a, b) {
            (Type::Dyn | Type::Any | Type::Error, _) | (_, Type::Dyn | Type::Any | Type::Error) => {
                true
            }
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Opaque(name, params), Type::Opaque(other, others)) => {
                name == other && self.all_assignable(params, others)
            }
            (Type::List(a), Type::List(b)) => self.assignable(a, b),
            (Type::Map(a), Type::Map(b)) => {
                self.assignable(&a.0, &b.0) && self.assignable(&a.1, &b.1)
            }
            _ => a == b,
        }
    }

    /// Reports whether `param` may stand for a type, and whether it stands for something already.
    fn substitutes(&mut self, ty: &Type, param: &Arc<str>, whole: &Type) -> (bool, bool) {
        if ty == whole {
            return (true, true);
        }
        if let Some(bound) = self.bound.get(param).cloned() {
            if *ty == bound {
                return (true, true);
            }
            if !self.assignable(ty, &bound) {
                return (false, true);
            }
            let general = Type::most_general(ty, &bound);
            if self.is_free(whole, &general) {
                self.bind(param, general);
            }
            return (true, true);
        }
        if self.is_free(whole, ty) {
            self.bind(param, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Reports whether a parameter does not occur in a type.
    fn is_free(&self, param: &Type, within: &Type) -> bool {
        if param == within {
            return false;
        }
        match within {
            Type::Param(name) => match self.bound.get(name) {
                Some(bound) => self.is_free(param, bound),
                None => true,
            },
            Type::Opaque(_, params) => params.iter().all(|of| self.is_free(param, of)),
            Type::List(of) => self.is_free(param, of),
            Type::Map(of) => self.is_free(param, &of.0) && self.is_free(param, &of.1),
            Type::Type(Some(of)) => self.is_free(param, of),
            _ => true,
        }
    }

    /// The type with what its parameters stand for in their places. Free ones become `dyn` at last.
    pub fn substitute(&self, ty: &Type, free_to_dyn: bool) -> Type {
        let inner = |ty: &Type| self.substitute(ty, free_to_dyn);
        match ty {
            Type::Param(name) => match self.bound.get(name) {
                Some(bound) => inner(bound),
                None if free_to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::Opaque(name, params) if !params.is_empty() => {
                Type::Opaque(name.clone(), params.iter().map(inner).collect())
            }
            Type::List(of) => Type::list(inner(of)),
            Type::Map(of) => Type::map(inner(&of.0), inner(&of.1)),
            Type::Type(Some(of)) => Type::type_of(inner(of)),
            other => other.clone(),
        }
    }

    /// The type of a signature with fresh parameters in place of its own.
    pub fn instantiate(&mut self, ty: &Type, fresh: &mut HashMap<Arc<str>, Type>) -> Type {
        match ty {
            Type::Param(name) => {
                if let Some(known) = fresh.get(name) {
                    return known.clone();
                }
                let new = self.fresh();
                fresh.insert(name.clone(), new.clone());
                new
            }
            Type::Opaque(name, params) if !params.is_empty() => {
                let params: Vec<Type> = params
                    .iter()
                    .map(|param| self.instantiate(param, fresh))
                    .collect();
                Type::Opaque(name.clone(), params.into())
            }
            Type::List(of) => Type::list(self.instantiate(of, fresh)),
            Type::Map(of) => {
                let key = self.instantiate(&of.0, fresh);
                Type::map(key, self.instantiate(&of.1, fresh))
            }
            Type::Type(Some(of)) => Type::type_of(self.instantiate(of, fresh)),
            other => other.clone(),
        }
    }
}
