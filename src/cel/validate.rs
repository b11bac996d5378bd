//! Checks of a checked expression besides its types: constants that a function does not
//! take, and literals whose elements are of several types (cel-go `cel/validator.go`).

use super::ast::{Call, Expr, ExprId, ExprKind, List, Literal, MapEntry};
use super::checker::Checked;
use super::library::{self, text_format};
use super::pattern;
use super::source::{Issues, Source};
use super::types::Type;
use super::value::Value;

/// Adds what is wrong with an expression.
pub fn validate(checked: &Checked, source: &Source, issues: &mut Issues) {
    let mut validator = Validator {
        checked,
        source,
        issues,
        formats: 0,
    };
    validator.visit(&checked.root);
}

struct Validator<'a> {
    checked: &'a Checked,
    source: &'a Source,
    issues: &'a mut Issues,
    /// The number of calls of `format` around the node: their lists may hold anything.
    formats: usize,
}

impl Validator<'_> {
    fn report(&mut self, id: ExprId, message: impl Into<String>) {
        let location = self.checked.positions.location(id, self.source);
        self.issues.add(location, message);
    }

    fn visit(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => self.visit(&select.operand),
            ExprKind::Call(call) => self.visit_call(expr.id, call),
            ExprKind::List(list) => {
                self.check_list(list);
                list.elements.iter().for_each(|element| self.visit(element));
            }
            ExprKind::Map(entries) => {
                self.check_map(entries);
                for entry in entries {
                    self.visit(&entry.key);
                    self.visit(&entry.value);
                }
            }
            ExprKind::Struct(message) => {
                message
                    .fields
                    .iter()
                    .for_each(|field| self.visit(&field.value));
            }
            ExprKind::Comprehension(fold) => {
                for part in [
                    &fold.range,
                    &fold.init,
                    &fold.condition,
                    &fold.step,
                    &fold.result,
                ] {
                    self.visit(part);
                }
            }
        }
    }

    fn visit_call(&mut self, id: ExprId, call: &Call) {
        let constant = match call.args.first() {
            Some(Expr {
                id,
                kind: ExprKind::Literal(literal),
            }) => Some((*id, literal)),
            _ => None,
        };
        if let Some((at, literal)) = constant
            && is_refused(&call.function, literal)
        {
            self.report(at, format!("invalid {} argument", call.function));
        }
        let formats = usize::from(call.function == "format");
        self.formats += formats;
        for arg in call.target.iter().chain(&call.args) {
            self.visit(arg);
        }
        self.formats -= formats;
        if formats == 1 {
            self.check_format(id, call);
        }
    }

    /// Looks at what a constant text to be filled in asks for.
    fn check_format(&mut self, id: ExprId, call: &Call) {
        let (Some(target), [args]) = (&call.target, call.args.as_slice()) else {
            return;
        };
        let (ExprKind::Literal(Literal::String(text)), ExprKind::List(list)) =
            (&target.kind, &args.kind)
        else {
            return;
        };
        let args: Vec<Vec<(ExprId, Type)>> = list
            .elements
            .iter()
            .map(|element| {
                let mut parts = Vec::new();
                self.add_parts(element, &mut parts);
                parts
            })
            .collect();
        if let Err((at, message)) = text_format::check(text, &args) {
            self.report(at.unwrap_or(id), message);
        }
    }

    /// Adds the type of an expression and those of what is in it, if it is a literal.
    fn add_parts(&self, expr: &Expr, parts: &mut Vec<(ExprId, Type)>) {
        parts.push((expr.id, self.checked.type_of(expr.id).clone()));
        match &expr.kind {
            ExprKind::List(list) => {
                for element in &list.elements {
                    self.add_parts(element, parts);
                }
            }
            ExprKind::Map(entries) => {
                for entry in entries {
                    self.add_parts(&entry.key, parts);
                    self.add_parts(&entry.value, parts);
                }
            }
            _ => {}
        }
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    /// The type of an element, or of what is in an optional one.
    fn element_type(&self, id: ExprId, optional: bool) -> Type {
        let ty = self.checked.type_of(id);
        match ty.in_optional() {
            Some(inner) if optional => inner.clone(),
            _ => ty.clone(),
        }
    }

    fn check_list(&mut self, list: &List) {
        if self.formats > 0 {
            return;
        }
        let mut first = None;
        for (i, element) in list.elements.iter().enumerate() {
            let optional = list.optional.binary_search(&i).is_ok();
            let ty = self.element_type(element.id, optional);
            match &first {
                None => first = Some(ty),
                Some(first) if *first == ty => {}
                Some(first) => {
                    let first = first.clone();
                    return self.mismatch(element.id, &first, &ty);
                }
            }
        }
    }

    fn check_map(&mut self, entries: &[MapEntry]) {
        if self.formats > 0 {
            return;
        }
        let mut first: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.checked.type_of(entry.key.id).clone();
            let value = self.element_type(entry.value.id, entry.optional);
            let Some((first_key, first_value)) = first.clone() else {
                first = Some((key, value));
                continue;
            };
            if first_key != key {
                self.mismatch(entry.key.id, &first_key, &key);
            }
            if first_value != value {
                self.mismatch(entry.value.id, &first_value, &value);
            }
        }
    }
}

/// Reports whether a function takes no such constant.
fn is_refused(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration" | "timestamp", literal) => library::function(function)
            .and_then(|conversion| conversion.call(&[Value::literal(literal)]))
            .is_none_or(|value| value.is_err()),
        ("matches", Literal::String(text)) => !pattern::is_pattern(text),
        _ => false,
    }
}
