//! Expressions of the authentication and authorization configuration (apiserver
//! `authentication/cel`, `authorization/cel`).

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::cel::{self, Checked, Environment, PER_CALL_LIMIT, Program, Schema, Type, Value};
use crate::meta;

/// The variable that an expression is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variable {
    /// `claims`: the claims of a token.
    Claims,
    /// `user`: the user that a token makes.
    User,
    /// `request`: the spec of a SubjectAccessReview.
    Request,
}

/// The types that an expression may return.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Returns {
    /// Any: what it is, is known when it is evaluated.
    Any,
    Bool,
}

/// An expression that compiled.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: Program,
    checked: Checked,
}

/// The reason why an expression does not compile, in the words of upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompileError(String);

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CompileError {}

impl Variable {
    fn environment(self) -> &'static Environment {
        static CLAIMS: LazyLock<Environment> = LazyLock::new(|| {
            Environment::new().with_variable("claims", Type::map(Type::String, Type::Any))
        });
        static USER: LazyLock<Environment> =
            LazyLock::new(|| Environment::new().with_schema("user", &user()));
        static REQUEST: LazyLock<Environment> =
            LazyLock::new(|| Environment::new().with_schema("request", &request()));
        match self {
            Self::Claims => &CLAIMS,
            Self::User => &USER,
            Self::Request => &REQUEST,
        }
    }
}

/// Compiles an expression.
///
/// # Errors
/// It does not compile, or returns something else.
pub fn compile(
    text: &str,
    variable: Variable,
    returns: Returns,
) -> Result<Expression, CompileError> {
    let environment = variable.environment();
    let mut checked = cel::compile(text, environment)
        .map_err(|issues| CompileError(format!("compilation failed: {issues}")))?;
    if variable != Variable::Request {
        // Claims may have names that are no identifiers.
        checked.root.rename_fields(&cel::unescape);
    }
    let ty = checked.type_of(checked.root.id);
    if returns == Returns::Bool && *ty != Type::Bool {
        return Err(CompileError(match variable {
            Variable::Request => format!("must evaluate to bool but got {}", ty.declared_name()),
            _ => "must evaluate to bool".to_owned(),
        }));
    }
    let program = cel::plan(&checked, environment)
        .map_err(|why| CompileError(format!("program instantiation failed: {why}")))?;
    Ok(Expression {
        text: text.to_owned(),
        program,
        checked,
    })
}

impl Expression {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether the expression looks at a field of a variable.
    pub fn uses(&self, variable: &str, field: &str) -> bool {
        self.checked.root.selects(variable, field)
    }

    /// Evaluates the expression with the value of its variable.
    ///
    /// # Errors
    /// It has no value; the text says why.
    pub fn evaluate<'a>(&self, variable: &'a meta::Value) -> Result<Value<'a>, String> {
        let variables = [Value::from_unknown(variable)];
        let outcome = self.program.evaluate(&variables, PER_CALL_LIMIT);
        outcome
            .value
            .map_err(|error| format!("expression '{}' resulted in error: {error}", self.text))
    }
}

fn user() -> Arc<Schema> {
    Schema::object(
        "kubernetes.UserInfo",
        [
            ("username", Schema::text()),
            ("uid", Schema::text()),
            ("groups", Schema::list(Schema::text())),
            ("extra", Schema::map(Schema::list(Schema::text()))),
        ],
    )
}

fn request() -> Arc<Schema> {
    let text = Schema::text;
    let requirement = Schema::object(
        "kubernetes.SelectorRequirement",
        [
            ("key", text()),
            ("operator", text()),
            ("values", Schema::list(text())),
        ],
    );
    let selector = |name: &str| {
        Schema::object(
            name,
            [
                ("rawSelector", text()),
                ("requirements", Schema::list(requirement.clone())),
            ],
        )
    };
    let resource = Schema::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            (
                "fieldSelector",
                selector("kubernetes.FieldSelectorAttributes"),
            ),
            (
                "labelSelector",
                selector("kubernetes.LabelSelectorAttributes"),
            ),
        ],
    );
    let path = Schema::object(
        "kubernetes.NonResourceAttributes",
        [("path", text()), ("verb", text())],
    );
    Schema::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", text()),
            ("groups", Schema::list(text())),
            ("extra", Schema::map(Schema::list(text()))),
            ("uid", text()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn expressions_see_their_variable_and_nothing_else() {
        let user = json!({"username": "a", "groups": ["g"], "extra": {}, "uid": ""});
        let claims = json!({"sub": "s", "roles": ["r"], "email_verified": true});
        let review = json!({
            "user": "a", "groups": ["g"], "uid": "", "extra": {},
            "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "n"}
        });
        let checks = [
            (
                "claims.sub == 's' && 'r' in claims.roles",
                Variable::Claims,
                &claims,
            ),
            (
                "has(claims.email_verified) && !has(claims.email)",
                Variable::Claims,
                &claims,
            ),
            (
                "!user.username.startsWith('system:')",
                Variable::User,
                &user,
            ),
            (
                "request.resourceAttributes.verb == 'get' && 'g' in request.groups",
                Variable::Request,
                &review,
            ),
            (
                "!has(request.nonResourceAttributes)",
                Variable::Request,
                &review,
            ),
        ];
        for (text, variable, value) in checks {
            let expression = compile(text, variable, Returns::Bool).expect(text);
            let done = expression.evaluate(value);
            assert!(matches!(done, Ok(Value::Bool(true))), "{text}: {done:?}");
        }
        let other = compile("user.username == ''", Variable::Claims, Returns::Bool);
        let other = other.expect_err("an unknown name").to_string();
        assert!(other.contains("undeclared reference to 'user'"), "{other}");
    }

    #[test]
    fn expressions_of_other_types_are_refused() {
        let checks = [
            (
                "user.groups",
                Variable::User,
                Returns::Bool,
                "must evaluate to bool",
            ),
            (
                "request.user",
                Variable::Request,
                Returns::Bool,
                "must evaluate to bool but got string",
            ),
            (
                "claims.sub",
                Variable::Claims,
                Returns::Bool,
                "must evaluate to bool",
            ),
        ];
        for (text, variable, returns, want) in checks {
            let error = compile(text, variable, returns).expect_err(text);
            assert_eq!(error.to_string(), want, "{text}");
        }
        for text in ["claims.groups", "['a']", "claims.sub + 'x'"] {
            assert!(
                compile(text, Variable::Claims, Returns::Any).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn names_that_are_no_identifiers_are_escaped() {
        let claims = json!({"example.com/a-b": {"x.y": ["v"]}, "a__b": 1});
        for text in [
            "claims.example__dot__com__slash__a__dash__b.x__dot__y[0] == 'v'",
            "claims['example.com/a-b']['x.y'][0] == 'v'",
            "has(claims.a__underscores__b)",
            "claims.?example__dot__com__slash__a__dash__b.?x__dot__y.hasValue()",
        ] {
            let expression = compile(text, Variable::Claims, Returns::Bool).expect(text);
            let done = expression.evaluate(&claims);
            assert!(matches!(done, Ok(Value::Bool(true))), "{text}: {done:?}");
        }
    }

    #[test]
    fn expressions_without_a_value_say_why() {
        let expression = compile("claims.none == 'a'", Variable::Claims, Returns::Bool);
        let done = expression.expect("valid").evaluate(&json!({})).map(|_| ());
        let want = "expression 'claims.none == 'a'' resulted in error: no such key: none";
        assert_eq!(done, Err(want.to_owned()));
    }
}
