//! The expressions of a policy as they are checked when it is written: they compile, and return
//! what they should (apis/admissionregistration/validation).

use crate::admission::cel::{CompileError, Compiler, Declarations, Returns};
use crate::meta::{ErrorList, FieldError, Map, Path, Value};
use crate::registry::validation::Fields;

/// The compiler of the expressions of one policy, with the variables that it declares.
pub struct Expressions {
    compiler: Compiler,
    declarations: Declarations,
}

/// The error of an expression.
pub fn invalid(path: &Path, expression: &str, why: &CompileError) -> FieldError {
    if why.internal {
        FieldError::internal(path, why.to_string())
    } else {
        FieldError::invalid(path, expression, why.to_string())
    }
}

impl Expressions {
    /// The expressions of a policy, which may name variables if it `composes`.
    pub fn of(spec: &Map, composes: bool) -> Self {
        Self {
            compiler: if composes {
                Compiler::new()
            } else {
                Compiler::without_variables()
            },
            declarations: Declarations {
                params: spec.map("paramKind").is_some(),
                authorizer: true,
                patch_types: false,
            },
        }
    }

    /// Checks a variable, and declares it to what follows.
    pub fn check_variable(
        &mut self,
        errors: &mut ErrorList,
        path: &Path,
        name: &str,
        variable: &Value,
    ) {
        let expression = variable.str("expression");
        if expression.trim().is_empty() {
            errors.required(path, "expression is not specified");
        } else if let Err(why) = self.compiler.variable(name, expression, self.declarations) {
            errors.push(invalid(path, expression, &why));
        }
    }

    /// Checks the expression of a validation.
    pub fn check_validation(&self, errors: &mut ErrorList, path: &Path, validation: &Value) {
        let expression = validation.str("expression");
        if expression.trim().is_empty() {
            errors.required(path, "expression is not specified");
        } else {
            self.check(errors, path, expression, Returns::Bool, self.declarations);
        }
    }

    /// Checks the expression of a message, which must not ask the authorizer.
    pub fn check_message(&self, errors: &mut ErrorList, path: &Path, expression: &str) {
        if expression.is_empty() {
            return;
        }
        let declarations = Declarations {
            authorizer: false,
            ..self.declarations
        };
        self.check(errors, path, expression, Returns::String, declarations);
    }

    /// Checks the expression of an audit annotation.
    pub fn check_annotation(&self, errors: &mut ErrorList, path: &Path, annotation: &Value) {
        let expression = annotation.str("valueExpression");
        let compiled =
            self.compiler
                .compile(expression.trim(), Returns::StringOrNull, self.declarations);
        if let Some(why) = compiled.error() {
            errors.push(invalid(path, expression, why));
        }
    }

    /// Checks the expression of a mutation.
    pub fn check_patch(&self, errors: &mut ErrorList, path: &Path, kind: &str, expression: &str) {
        let returns = match kind {
            "JSONPatch" => Returns::JsonPatches,
            _ => Returns::Object,
        };
        let declarations = Declarations {
            patch_types: true,
            ..self.declarations
        };
        self.check(errors, path, expression.trim(), returns, declarations);
    }

    fn check(
        &self,
        errors: &mut ErrorList,
        path: &Path,
        expression: &str,
        returns: Returns,
        declarations: Declarations,
    ) {
        let compiled = self.compiler.compile(expression, returns, declarations);
        if let Some(why) = compiled.error() {
            errors.push(invalid(path, expression, why));
        }
    }
}
