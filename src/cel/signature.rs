//! Signatures of functions, which declarations write as text: `(int, int) -> int`,
//! `string.contains(string) -> bool`, `(list(A)) -> A`.

use std::sync::Arc;

use super::types::Type;
use super::value::{Map, Value};

/// One way to call a function.
#[derive(Clone, Debug)]
pub struct Overload {
    pub id: &'static str,
    pub member: bool,
    pub args: Vec<Type>,
    pub result: Type,
    pub generic: bool,
}

impl Overload {
    /// Reads a signature. What cannot be read has no arguments and no type: declarations are
    /// constants of this program, and a test reads them all.
    pub fn parse(id: &'static str, signature: &str) -> Self {
        Self::try_parse(id, signature).unwrap_or(Self {
            id,
            member: false,
            args: Vec::new(),
            result: Type::Error,
            generic: false,
        })
    }

    pub fn try_parse(id: &'static str, signature: &str) -> Option<Self> {
        let (call, result) = signature.rsplit_once(" -> ")?;
        let open = call.rfind('(').filter(|_| call.ends_with(')'))?;
        // The arguments' parenthesis is the one that matches the last.
        let mut depth = 0_usize;
        let open = call
            .char_indices()
            .rev()
            .find_map(|(at, c)| {
                match c {
                    ')' => depth += 1,
                    '(' => depth -= 1,
                    _ => {}
                }
                (depth == 0).then_some(at)
            })
            .unwrap_or(open);
        let (target, args) = (call.get(..open)?, call.get(open + 1..call.len() - 1)?);
        let mut types = Vec::new();
        if !target.is_empty() {
            types.push(parse_type(target)?);
        }
        for arg in split(args) {
            types.push(parse_type(arg)?);
        }
        let result = parse_type(result)?;
        let generic = types.iter().any(is_generic) || is_generic(&result);
        Some(Self {
            id,
            member: !target.is_empty(),
            args: types,
            result,
            generic,
        })
    }
}

impl Overload {
    /// Reports whether a call may take values. Of lists and maps, the first item tells.
    pub fn takes(&self, args: &[Value<'_>]) -> bool {
        self.args.len() == args.len() && self.args.iter().zip(args).all(|(ty, arg)| takes(ty, arg))
    }
}

fn takes(ty: &Type, value: &Value<'_>) -> bool {
    match (ty, value) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (Type::List(of), Value::List(list)) => list
            .get(0)
            .is_none_or(|first| first.is_ok_and(|first| takes(of, &first))),
        (Type::Map(of), Value::Map(Map::Made(entries))) => entries
            .first()
            .is_none_or(|(_, (key, value))| takes(&of.0, key) && takes(&of.1, value)),
        (Type::Map(_), Value::Map(_)) => true,
        (ty, value) => ty.runtime_name() == value.type_name(),
    }
}

fn is_generic(ty: &Type) -> bool {
    match ty {
        Type::Param(_) => true,
        Type::List(of) => is_generic(of),
        Type::Map(of) => is_generic(&of.0) || is_generic(&of.1),
        Type::Opaque(_, params) => params.iter().any(is_generic),
        Type::Type(Some(of)) => is_generic(of),
        _ => false,
    }
}

/// The parts between commas that are in no parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn parse_type(text: &str) -> Option<Type> {
    if let Some((name, params)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let params: Vec<Type> = split(params).map(parse_type).collect::<Option<_>>()?;
        return match (name, params.as_slice()) {
            ("list", [of]) => Some(Type::list(of.clone())),
            ("map", [key, value]) => Some(Type::map(key.clone(), value.clone())),
            ("type", [of]) => Some(Type::type_of(of.clone())),
            (name, _) => Some(Type::Opaque(name.into(), params.into())),
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "type" => Type::Type(None),
        "net.IP" | "net.CIDR" => Type::Opaque(text.into(), Arc::new([])),
        "A" | "B" | "T" | "K" | "V" => Type::Param(text.into()),
        name if name.contains('.') => Type::object(name),
        _ => return None,
    })
}
