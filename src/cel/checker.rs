//! Gives every node of an expression its type, and every call the functions that it may mean
//! (cel-go `checker/checker.go`).

use std::collections::{HashMap, HashSet};

use super::ast::{Comprehension, Expr, ExprId, ExprKind, List, Literal, MapEntry, Struct};
use super::environment::{Environment, JSON_PATCH};
use super::parser::{Parsed, Positions};
use super::signature::Overload;
use super::source::{Issues, Source};
use super::types::{Substitution, Type};

/// The largest type of an expression, in parts.
const MAX_TYPE_PARTS: usize = 1_000;

/// A checked expression.
#[derive(Debug)]
pub struct Checked {
    pub root: Expr,
    pub positions: Positions,
    types: Vec<Type>,
    /// The overloads that a call may mean, by the number of its node.
    overloads: HashMap<ExprId, Vec<&'static str>>,
    /// The variables of the environment that the expression names.
    used: HashSet<String>,
}

impl Checked {
    /// Reports whether the expression names a variable of its environment.
    pub fn uses(&self, variable: &str) -> bool {
        self.used.contains(variable)
    }

    /// The type of a node.
    pub fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    /// The overloads of a call that the types of its arguments allow.
    pub fn overloads(&self, id: ExprId) -> &[&'static str] {
        self.overloads.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Checks a parsed expression. Errors are added to `issues`; the result is of use only if there are
/// none.
pub fn check(
    parsed: Parsed,
    source: &Source,
    environment: &Environment,
    issues: &mut Issues,
) -> Checked {
    let Parsed {
        mut root,
        positions,
    } = parsed;
    let mut checker = Checker {
        environment,
        source,
        positions: &positions,
        issues,
        substitution: Substitution::default(),
        types: Vec::new(),
        overloads: HashMap::new(),
        scopes: Vec::new(),
        used: HashSet::new(),
    };
    checker.check(&mut root);
    let Checker {
        substitution,
        types,
        overloads,
        used,
        ..
    } = checker;
    let types = types
        .iter()
        .map(|ty| substitution.substitute(ty, true))
        .collect();
    Checked {
        root,
        positions,
        types,
        overloads,
        used,
    }
}

struct Checker<'a> {
    environment: &'a Environment,
    source: &'a Source,
    positions: &'a Positions,
    issues: &'a mut Issues,
    substitution: Substitution,
    types: Vec<Type>,
    overloads: HashMap<ExprId, Vec<&'static str>>,
    /// The variables of comprehensions, innermost last.
    scopes: Vec<(String, Type)>,
    used: HashSet<String>,
}

impl Checker<'_> {
    fn report(&mut self, id: ExprId, message: String) {
        let location = self.positions.location(id, self.source);
        self.issues.add(location, message);
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        self.report(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn set(&mut self, id: ExprId, mut ty: Type) {
        // Types may be made of others twice over, and again.
        if !ty.fits(&mut { MAX_TYPE_PARTS }) {
            self.report(id, format!("the type has over {MAX_TYPE_PARTS} parts"));
            ty = Type::Error;
        }
        let index = id as usize;
        if self.types.len() <= index {
            self.types.resize(index + 1, Type::Dyn);
        }
        self.types[index] = ty;
    }

    fn get(&self, id: ExprId) -> Type {
        self.types.get(id as usize).cloned().unwrap_or(Type::Dyn)
    }

    fn check(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            ExprKind::Unspecified => {}
            ExprKind::Literal(literal) => {
                let ty = literal_type(literal);
                self.set(id, ty);
            }
            ExprKind::Ident(name) => {
                if let Some((name, ty)) = self.variable(name) {
                    self.set(id, ty);
                    expr.kind = ExprKind::Ident(name);
                } else {
                    let name = name.clone();
                    self.set(id, Type::Error);
                    self.undeclared(id, &name);
                }
            }
            ExprKind::Select(_) => self.check_select(expr),
            ExprKind::Call(_) => self.check_call(expr),
            ExprKind::List(list) => {
                let ty = self.check_list(list);
                self.set(id, ty);
            }
            ExprKind::Map(entries) => {
                let ty = self.check_map(entries);
                self.set(id, ty);
            }
            ExprKind::Struct(message) => {
                let ty = self.check_struct(id, message);
                self.set(id, ty);
            }
            ExprKind::Comprehension(fold) => {
                let ty = self.check_comprehension(fold);
                self.set(id, ty);
            }
        }
    }

    /// Resolves a name, without a dot before it.
    fn variable(&mut self, name: &str) -> Option<(String, Type)> {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let local = self.scopes.iter().rev().find(|(local, _)| local == plain);
        let found = match local {
            Some((_, ty)) => Some(ty.clone()),
            None => {
                if self.environment.position(plain).is_some() {
                    self.used.insert(plain.to_owned());
                }
                self.environment.variable(plain)
            }
        };
        found.map(|ty| (plain.to_owned(), ty))
    }

    fn check_select(&mut self, expr: &mut Expr) {
        let qualified = expr.qualified_name();
        if let Some((name, ty)) = qualified.and_then(|name| self.variable(&name)) {
            self.set(expr.id, ty);
            expr.kind = ExprKind::Ident(name);
            return;
        }
        let id = expr.id;
        let ExprKind::Select(select) = &mut expr.kind else {
            return;
        };
        let mut ty = self.field_type(id, &mut select.operand, &select.field, false);
        if select.test_only {
            ty = Type::Bool;
        }
        let ty = self.substitution.substitute(&ty, false);
        self.set(id, ty);
    }

    /// The type of a field of an operand.
    fn field_type(&mut self, id: ExprId, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.substitution.substitute(&self.get(operand.id), false);
        let (target, was_optional) = match operand.in_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand, false),
        };
        let ty = match &target {
            Type::Map(of) => of.1.clone(),
            Type::Struct(name) => match self.environment.field(name, field) {
                Some(ty) => ty,
                None => {
                    let message = match self.environment.has_object(name) {
                        true => format!("undefined field '{field}'"),
                        false => format!("unexpected failed resolution of '{name}'"),
                    };
                    self.report(id, message);
                    Type::Error
                }
            },
            Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            _ => {
                self.report(
                    id,
                    format!("type '{target}' does not support field selection"),
                );
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(ty)
        } else {
            ty
        }
    }

    fn check_call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else {
            return;
        };
        if call.function == "_?._" {
            let (head, tail) = call.args.split_at_mut(1);
            if let ([operand], [field]) = (head, tail)
                && let ExprKind::Literal(Literal::String(field)) = &field.kind
            {
                let ty = self.field_type(id, operand, field, true);
                let ty = self.substitution.substitute(&ty, false);
                self.set(id, ty);
                self.overloads.insert(id, vec!["select_optional_field"]);
            }
            return;
        }
        for arg in &mut call.args {
            self.check(arg);
        }
        let environment = self.environment;
        if let Some(target) = &call.target {
            // `a.b(c)` may be the function `a.b`.
            let qualified = target
                .qualified_name()
                .map(|prefix| format!("{prefix}.{}", call.function));
            let plain = qualified
                .as_deref()
                .map(|name| name.trim_start_matches('.'));
            if let Some(name) = plain.filter(|name| environment.overloads(name).is_some()) {
                call.function = name.to_owned();
                call.target = None;
            }
        }
        if let Some(target) = &mut call.target {
            self.check(target);
        } else if let Some(name) = call.function.strip_prefix('.') {
            call.function = name.to_owned();
        }
        let Some(overloads) = environment.overloads(&call.function) else {
            let name = call.function.clone();
            self.set(id, Type::Error);
            self.undeclared(id, &name);
            return;
        };
        let operands: Vec<ExprId> = call
            .target
            .iter()
            .chain(&call.args)
            .map(|arg| arg.id)
            .collect();
        let (function, member) = (call.function.clone(), call.target.is_some());
        let ty = self.resolve(id, &function, overloads, member, &operands);
        self.set(id, ty);
    }

    /// The type of a call by the overloads that its arguments allow.
    fn resolve(
        &mut self,
        id: ExprId,
        function: &str,
        overloads: &[Overload],
        member: bool,
        operands: &[ExprId],
    ) -> Type {
        let mut args: Vec<Type> = operands.iter().map(|id| self.get(*id)).collect();
        if let "_&&_" | "_||_" = function {
            return self.resolve_logical(id, overloads, operands, &args);
        }
        let mut result: Option<Type> = None;
        let mut possible = Vec::new();
        for overload in overloads {
            if overload.member != member {
                continue;
            }
            let (params, returned) = if overload.generic {
                let mut fresh = HashMap::new();
                let params: Vec<Type> = overload
                    .args
                    .iter()
                    .map(|arg| self.substitution.instantiate(arg, &mut fresh))
                    .collect();
                let returned = self.substitution.instantiate(&overload.result, &mut fresh);
                (params, returned)
            } else {
                (overload.args.clone(), overload.result.clone())
            };
            if !self.substitution.assign_all(&args, &params) {
                continue;
            }
            possible.push(overload.id);
            let returned = self.substitution.substitute(&returned, false);
            result = Some(match result {
                None => returned,
                Some(so_far) if so_far.is_dyn() || returned == so_far => so_far,
                Some(_) => Type::Dyn,
            });
        }
        self.overloads.insert(id, possible);
        if let Some(result) = result {
            return result;
        }
        for arg in &mut args {
            *arg = self.substitution.substitute(arg, true);
        }
        let shown = signature(&args, member);
        self.report(
            id,
            format!("found no matching overload for '{function}' applied to '{shown}'"),
        );
        Type::Error
    }

    /// The operands of `&&` and `||` are told about one by one.
    fn resolve_logical(
        &mut self,
        id: ExprId,
        overloads: &[Overload],
        operands: &[ExprId],
        args: &[Type],
    ) -> Type {
        self.overloads
            .insert(id, overloads.iter().map(|overload| overload.id).collect());
        let mut ty = Type::Bool;
        for (operand, arg) in operands.iter().zip(args) {
            if !self.substitution.assign(arg, &Type::Bool) {
                self.mismatch(*operand, &Type::Bool, arg);
                ty = Type::Error;
            }
        }
        ty
    }

    fn check_list(&mut self, list: &mut List) -> Type {
        let optional: HashSet<usize> = list.optional.iter().copied().collect();
        let mut joined = None;
        for (i, element) in list.elements.iter_mut().enumerate() {
            self.check(element);
            let ty = self.unwrapped(element.id, optional.contains(&i));
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.substitution.fresh()))
    }

    /// The type of a node, or what is in it if it is to be optional.
    fn unwrapped(&mut self, id: ExprId, optional: bool) -> Type {
        let ty = self.get(id);
        if !optional {
            return ty;
        }
        match ty.in_optional() {
            Some(inner) => inner.clone(),
            None => {
                if !ty.is_dyn() {
                    self.mismatch(id, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    /// The common type of the elements of a literal.
    fn join(&mut self, so_far: Option<Type>, next: Type) -> Type {
        let Some(so_far) = so_far else { return next };
        if self.substitution.assign(&so_far, &next) {
            return Type::most_general(&so_far, &next);
        }
        Type::Dyn
    }

    fn check_map(&mut self, entries: &mut [MapEntry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let key = self.get(entry.key.id);
            keys = Some(self.join(keys, key));
            self.check(&mut entry.value);
            let value = self.unwrapped(entry.value.id, entry.optional);
            values = Some(self.join(values, value));
        }
        match (keys, values) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => {
                let key = self.substitution.fresh();
                Type::map(key, self.substitution.fresh())
            }
        }
    }

    fn check_struct(&mut self, id: ExprId, message: &mut Struct) -> Type {
        let Some((name, ty)) = self.variable(&message.type_name) else {
            self.undeclared(id, &message.type_name);
            return Type::Error;
        };
        message.type_name = name;
        let result = match &ty {
            Type::Type(Some(of)) if matches!(**of, Type::Struct(_)) => (**of).clone(),
            Type::Type(of) => {
                let of = of.as_deref().map_or("type".to_owned(), ToString::to_string);
                self.report(id, format!("'{of}' is not a message type"));
                Type::Error
            }
            Type::Error => Type::Error,
            other => {
                self.report(id, format!("'{other}' is not a type"));
                Type::Error
            }
        };
        for field in &mut message.fields {
            self.check(&mut field.value);
            let declared = self.environment.field(&message.type_name, &field.name);
            if !self.environment.has_object(&message.type_name) {
                let name = &message.type_name;
                self.report(
                    field.id,
                    format!("unexpected failed resolution of '{name}'"),
                );
            } else if declared.is_none() && message.type_name != JSON_PATCH {
                self.report(field.id, format!("undefined field '{}'", field.name));
            }
            let value = self.unwrapped(field.value.id, field.optional);
            if declared.is_none() && message.type_name == JSON_PATCH {
                // Upstream knows such fields, and no type of them.
                let message = format!(
                    "expected type of field '{}' is '' but provided type is '{value}'",
                    field.name
                );
                self.report(field.id, message);
            }
            let declared = declared.unwrap_or(Type::Error);
            if !self.substitution.assign(&declared, &value) {
                let message = format!(
                    "expected type of field '{}' is '{declared}' but provided type is '{value}'",
                    field.name
                );
                self.report(field.id, message);
            }
        }
        result
    }

    fn check_comprehension(&mut self, fold: &mut Comprehension) -> Type {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self
            .substitution
            .substitute(&self.get(fold.range.id), false);
        let accumulated = self.get(fold.init.id);
        let scope = self.scopes.len();
        self.scopes
            .push((fold.accumulator.clone(), accumulated.clone()));
        let two = fold.second_variable.is_some();
        let (first, second) = match &range {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitution.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                let message = format!(
                    "expression of type '{range}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second_variable {
            self.scopes.push((name.clone(), second));
        }
        self.check(&mut fold.condition);
        self.demand(fold.condition.id, &Type::Bool);
        self.check(&mut fold.step);
        self.demand(fold.step.id, &accumulated);
        self.scopes.truncate(scope + 1);
        self.check(&mut fold.result);
        self.scopes.truncate(scope);
        self.substitution
            .substitute(&self.get(fold.result.id), false)
    }

    /// Reports a node that is not of a type.
    fn demand(&mut self, id: ExprId, ty: &Type) {
        let found = self.get(id);
        if !self.substitution.assign(ty, &found) {
            self.mismatch(id, ty, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The types of arguments as errors show them: `string.(int)`, `(int, int)`.
fn signature(args: &[Type], member: bool) -> String {
    let (target, args) = match args {
        [target, rest @ ..] if member => (format!("{target}."), rest),
        args => (String::new(), args),
    };
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    format!("{target}({})", args.join(", "))
}
