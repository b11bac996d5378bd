//! The functions that expressions may call, each with its signatures and what it does.

mod address_errors;
mod authorizer;
mod conversions;
mod json_patch;
mod lists;
mod named_formats;
mod networks;
mod operators;
mod optionals;
mod quantities;
mod strings;
pub mod text_format;
mod timestamps;
mod urls;
mod versions;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::signature::Overload;
use super::value::{Result, Value};

pub use authorizer::{
    Access, Authorizer, Check, Decision, ResourceAccess, ServiceAccount, authorizer, resource_check,
};
pub use conversions::shown;
pub use operators::{Pattern, is_operand, item};

/// The code of a function: takes its target and arguments; `None` where it takes no such ones.
pub type Implementation = for<'a> fn(&[Value<'a>]) -> Option<Result<Value<'a>>>;

/// A function as a library declares it: its overloads by their names, with signatures as
/// [`Overload::parse`] reads them.
#[derive(Debug)]
pub struct Declaration {
    pub name: &'static str,
    pub overloads: &'static [(&'static str, &'static str)],
    pub call: Implementation,
}

/// A function of all libraries that declare one of its name.
#[derive(Debug, Default)]
pub struct Function {
    pub overloads: Vec<Overload>,
    pub implementations: Vec<Implementation>,
}

impl Function {
    /// Calls the function with its target, if it has one, and its arguments.
    pub fn call<'a>(&self, args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
        self.implementations
            .iter()
            .find_map(|implementation| implementation(args))
    }
}

/// The libraries, in the order in which cel-go and Kubernetes declare them: the first of several
/// overloads that fit is the one that counts.
const LIBRARIES: &[&[Declaration]] = &[
    operators::DECLARATIONS,
    conversions::DECLARATIONS,
    strings::DECLARATIONS,
    timestamps::DECLARATIONS,
    lists::DECLARATIONS,
    optionals::DECLARATIONS,
    text_format::DECLARATIONS,
    quantities::DECLARATIONS,
    networks::DECLARATIONS,
    urls::DECLARATIONS,
    versions::DECLARATIONS,
    named_formats::DECLARATIONS,
    authorizer::DECLARATIONS,
    json_patch::DECLARATIONS,
];

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: HashMap<_, Function> = HashMap::new();
    for declaration in LIBRARIES.iter().flat_map(|library| library.iter()) {
        let function = functions.entry(declaration.name).or_default();
        let overloads = declaration.overloads.iter();
        function
            .overloads
            .extend(overloads.map(|(id, signature)| Overload::parse(id, signature)));
        function.implementations.push(declaration.call);
    }
    functions
});

/// Reports whether a function converts a value to a type, which of a constant is a constant.
pub fn is_conversion(name: &str) -> bool {
    conversions::NAMES.contains(&name)
}

/// The functions that look at their arguments themselves, whatever overload has been chosen
/// (singletons of cel-go).
const LOOKING: [&str; 15] = [
    "@in",
    "@sortByAssociatedKeys",
    "contains",
    "dyn",
    "endsWith",
    "flatten",
    "format",
    "matches",
    "size",
    "sort",
    "startsWith",
    "type",
    "cel.@mapInsert",
    "-_",
    "!_",
];

/// Reports whether a function looks at its arguments itself: the others are called only with such
/// as an overload takes.
pub fn looks_itself(name: &str) -> bool {
    LOOKING.contains(&name) || (name.starts_with('_') && name.ends_with('_'))
}

/// Reports whether a function is there only where patches are made.
pub fn is_of_patches(name: &str) -> bool {
    json_patch::DECLARATIONS
        .iter()
        .any(|declaration| declaration.name == name)
}

/// The function of a name.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::types::Type;

    #[test]
    fn every_signature_can_be_read() {
        for declaration in LIBRARIES.iter().flat_map(|library| library.iter()) {
            for (id, signature) in declaration.overloads {
                let overload = Overload::parse(id, signature);
                assert!(overload.result != Type::Error, "{id}: {signature}");
            }
        }
    }
}
