//! Compiles the expressions of a policy or of match conditions (apiserver
//! `admission/plugin/cel/compile.go`, `composition.go`).

use std::fmt;

use super::declared;
use crate::cel::{self, CompileBudget, Environment, JSON_PATCH, OBJECT, Program, Type};

const VARIABLES: &str = "variables";
const VARIABLES_TYPE: &str = "kubernetes.variables";
const AUTHORIZER_TYPE: &str = "kubernetes.authorization.Authorizer";
const RESOURCE_CHECK_TYPE: &str = "kubernetes.authorization.ResourceCheck";

/// The optional variables and types that an expression may name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Declarations {
    /// `params`, which may be null.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// `Object`, `Object.spec` and so on, `JSONPatch` and `jsonpatch.escapeKey`.
    pub patch_types: bool,
}

/// The types that an expression may return.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Returns {
    Any,
    Bool,
    String,
    StringOrNull,
    /// `Object`, which is applied.
    Object,
    /// A list of `JSONPatch`.
    JsonPatches,
}

impl Returns {
    /// The types; none where any will do.
    fn types(self) -> Vec<Type> {
        match self {
            Self::Any => Vec::new(),
            Self::Bool => vec![Type::Bool],
            Self::String => vec![Type::String],
            Self::StringOrNull => vec![Type::String, Type::Null],
            Self::Object => vec![Type::object(OBJECT)],
            Self::JsonPatches => vec![Type::list(Type::object(JSON_PATCH))],
        }
    }
}

/// The reason why an expression cannot be evaluated, in the words of upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompileError {
    /// True where the expression is not to blame.
    pub internal: bool,
    detail: String,
}

impl CompileError {
    fn invalid(detail: String) -> Self {
        Self {
            internal: false,
            detail,
        }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for CompileError {}

/// The variables of an environment, in the order of their positions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Name {
    Object,
    OldObject,
    NamespaceObject,
    Request,
    Params,
    Authorizer,
    RequestResource,
}

const NAMES: [Name; 7] = [
    Name::Object,
    Name::OldObject,
    Name::NamespaceObject,
    Name::Request,
    Name::Params,
    Name::Authorizer,
    Name::RequestResource,
];

impl Name {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::OldObject => "oldObject",
            Self::NamespaceObject => "namespaceObject",
            Self::Request => "request",
            Self::Params => "params",
            Self::Authorizer => "authorizer",
            Self::RequestResource => "authorizer.requestResource",
        }
    }

    fn is_declared(self, declarations: Declarations) -> bool {
        match self {
            Self::Params => declarations.params,
            Self::Authorizer | Self::RequestResource => declarations.authorizer,
            _ => true,
        }
    }
}

impl Declarations {
    /// The variables by their positions.
    fn names(self) -> impl Iterator<Item = Name> {
        NAMES.into_iter().filter(move |name| name.is_declared(self))
    }

    /// The variable at a position.
    pub(super) fn name(self, position: usize) -> Option<Name> {
        self.names().nth(position)
    }

    /// An environment of the variables.
    fn environment(self) -> Environment {
        let mut environment = Environment::new();
        for name in self.names() {
            environment = match name {
                Name::NamespaceObject => {
                    environment.with_schema(name.as_str(), &declared::NAMESPACE)
                }
                Name::Request => environment.with_schema(name.as_str(), &declared::REQUEST),
                Name::Authorizer => {
                    environment.with_variable(name.as_str(), Type::object(AUTHORIZER_TYPE))
                }
                Name::RequestResource => {
                    environment.with_variable(name.as_str(), Type::object(RESOURCE_CHECK_TYPE))
                }
                _ => environment.with_variable(name.as_str(), Type::Dyn),
            };
        }
        match self.patch_types {
            true => environment.with_patches(),
            false => environment,
        }
    }
}

/// An expression, compiled or with the reason why it is not.
#[derive(Debug)]
pub struct Expression {
    text: String,
    pub(super) declarations: Declarations,
    pub(super) program: Result<Program, CompileError>,
}

impl Expression {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The reason why it cannot be evaluated.
    pub fn error(&self) -> Option<&CompileError> {
        self.program.as_ref().err()
    }
}

/// The variables of a policy: `variables.<name>`, by position.
#[derive(Debug, Default)]
pub struct Variables(pub(super) Vec<Variable>);

#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) expression: Expression,
}

/// A compiler of the expressions of one policy, which may name the variables that were declared
/// before them.
#[derive(Debug)]
pub struct Compiler {
    composes: bool,
    declared: Vec<Type>,
    variables: Variables,
    budget: CompileBudget,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Compiler {
    /// A compiler of expressions that may name `variables`.
    pub fn new() -> Self {
        Self {
            composes: true,
            declared: Vec::new(),
            variables: Variables::default(),
            budget: CompileBudget::default(),
        }
    }

    /// A compiler of expressions without `variables`.
    pub fn without_variables() -> Self {
        Self {
            composes: false,
            ..Self::new()
        }
    }

    /// Declares `variables.<name>`. One that does not compile is there and of no known type.
    ///
    /// # Errors
    /// The expression does not compile.
    pub fn variable(
        &mut self,
        name: &str,
        expression: &str,
        declarations: Declarations,
    ) -> Result<(), CompileError> {
        let (expression, ty) = self.compiled(expression, Returns::Any, declarations);
        let error = expression.error().cloned();
        let variable = Variable {
            name: name.to_owned(),
            expression,
        };
        let ty = shared(&ty);
        let known = self.variables.0.iter().position(|known| known.name == name);
        match known.and_then(|at| self.variables.0.get_mut(at).zip(self.declared.get_mut(at))) {
            Some((place, declared)) => (*place, *declared) = (variable, ty),
            None => {
                self.variables.0.push(variable);
                self.declared.push(ty);
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Compiles an expression. What does not compile tells why when it is evaluated.
    pub fn compile(
        &self,
        expression: &str,
        returns: Returns,
        declarations: Declarations,
    ) -> Expression {
        self.compiled(expression, returns, declarations).0
    }

    /// The variables that were declared.
    pub fn finish(self) -> Variables {
        self.variables
    }

    fn compiled(
        &self,
        text: &str,
        returns: Returns,
        declarations: Declarations,
    ) -> (Expression, Type) {
        let (program, ty) = match self.program(text, returns, declarations) {
            Ok((program, ty)) => (Ok(program), ty),
            Err(error) => (Err(error), Type::Dyn),
        };
        let expression = Expression {
            text: text.to_owned(),
            declarations,
            program,
        };
        (expression, ty)
    }

    fn program(
        &self,
        text: &str,
        returns: Returns,
        declarations: Declarations,
    ) -> Result<(Program, Type), CompileError> {
        let mut environment = declarations.environment().with_budget(&self.budget);
        if self.composes {
            environment = environment.with_lazy_variable(VARIABLES, VARIABLES_TYPE);
            for (variable, ty) in self.variables.0.iter().zip(&self.declared) {
                environment.add_lazy_field(&variable.name, ty.clone());
            }
        }
        let checked = cel::compile(text, &environment)
            .map_err(|issues| CompileError::invalid(format!("compilation failed: {issues}")))?;
        let ty = checked.type_of(checked.root.id).clone();
        demand(&ty, &returns.types())?;
        let program = cel::plan(&checked, &environment).map_err(|why| CompileError {
            internal: true,
            detail: format!("program instantiation failed: {why}"),
        })?;
        Ok((program, ty))
    }
}

/// Checks that a type is one of some; any type is one of none.
fn demand(ty: &Type, of: &[Type]) -> Result<(), CompileError> {
    if of.is_empty() || of.contains(ty) {
        return Ok(());
    }
    let wanted: Vec<String> = of.iter().map(Type::declared_name).collect();
    let got = ty.declared_name();
    Err(CompileError::invalid(match wanted.as_slice() {
        [wanted] => format!("must evaluate to {wanted} but got {got}"),
        wanted => format!(
            "must evaluate to one of [{}] but got {got}",
            wanted.join(" ")
        ),
    }))
}

/// The type of a variable as other expressions see it: scalars, and lists and maps of such.
fn shared(ty: &Type) -> Type {
    match ty {
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration => ty.clone(),
        Type::List(of) => Type::list(shared(of)),
        Type::Map(of) => Type::map(shared(&of.0), shared(&of.1)),
        _ => Type::Dyn,
    }
}
