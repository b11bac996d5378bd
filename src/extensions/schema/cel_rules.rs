//! The rules of a schema (`x-kubernetes-validations`): expressions that must hold for a value
//! (apiextensions `apiserver/schema/cel`).

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::base::blocking::{run_blocking, run_blocking_if};
use crate::cel::{
    self, Checked, CompileBudget, Environment, Error, PER_CALL_LIMIT, Program, Schema, Type,
    Value as CelValue,
};
use crate::extensions::schema::cel_schema::Schemas;
use crate::extensions::schema::field_path;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::extensions::schema::old_value::{CorrelatedItems, CorrelatedValue};
use crate::extensions::schema::validation_rule::ValidationRule;
use crate::meta::{ErrorList, FieldError, Map, Path, Value};

/// The most that the rules of one object may cost together (apiserver `apis/cel/config.go`).
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// The cost from which rules are evaluated beside the tasks of other requests: some milliseconds.
const LARGE_COST: u64 = 100_000;
/// The longest message that an expression may make, in bytes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// A rule that has been compiled.
#[derive(Debug)]
pub struct CompiledRule {
    rule: ValidationRule,
    /// The program; `None` of an empty rule.
    pub program: Option<Result<Program, String>>,
    pub message: Option<Result<Program, String>>,
    pub uses_old_self: bool,
    /// The most that the rule, and the expression of its message, may cost.
    pub max_cost: u64,
    pub max_message_cost: u64,
    /// The path of the field that the rule is about, below its own.
    field: Option<String>,
}

/// Compiles an expression that must be of a type.
fn compile(
    text: &str,
    environment: &Environment,
    ty: &Type,
    schema: &Schema,
    prefix: &str,
) -> Result<(Program, Checked, u64), String> {
    let checked = cel::compile(text, environment)
        .map_err(|why| format!("{prefix}compilation failed: {why}"))?;
    if checked.type_of(checked.root.id) != ty {
        return Err(match ty {
            Type::Bool => "cel expression must evaluate to a bool".to_owned(),
            _ => "messageExpression must evaluate to a string".to_owned(),
        });
    }
    let program = cel::plan(&checked, environment).map_err(|why| match prefix {
        "" => format!("program instantiation failed: {why}"),
        prefix => format!("{prefix}instantiation failed: {why}"),
    })?;
    let cost = cel::estimate(&checked, Some(schema)).max;
    Ok((program, checked, cost))
}

/// Compiles the rules of a node with its schema.
pub fn compiled(
    rules: &[ValidationRule],
    props: &JsonSchemaProps,
    schema: &Arc<Schema>,
    budget: &CompileBudget,
) -> Vec<CompiledRule> {
    let environment = |optional: bool| {
        let environment = Environment::new()
            .with_budget(budget)
            .with_schema("self", schema);
        match schema.ty() {
            Some(ty) if optional => environment.with_variable("oldSelf", Type::optional(ty)),
            Some(ty) => environment.with_variable("oldSelf", ty),
            None => environment,
        }
    };
    // They name all objects of the schema: most rules need one of them.
    let (plain, optional) = (
        LazyCell::new(|| environment(false)),
        LazyCell::new(|| environment(true)),
    );
    let compiled = rules.iter().map(|rule| {
        let environment: &Environment = match rule.optional_old_self {
            Some(true) => &optional,
            _ => &plain,
        };
        compiled_rule(rule, props, schema, environment)
    });
    compiled.collect()
}

fn compiled_rule(
    rule: &ValidationRule,
    props: &JsonSchemaProps,
    schema: &Schema,
    environment: &Environment,
) -> CompiledRule {
    let mut out = CompiledRule {
        rule: rule.clone(),
        program: None,
        message: None,
        uses_old_self: false,
        max_cost: 0,
        max_message_cost: 0,
        field: None,
    };
    if rule.rule.trim().is_empty() {
        return out;
    }
    match compile(&rule.rule, environment, &Type::Bool, schema, "") {
        Ok((program, checked, cost)) => {
            out.program = Some(Ok(program));
            out.uses_old_self = checked.uses("oldSelf");
            out.max_cost = cost;
        }
        Err(why) => {
            out.program = Some(Err(why));
            return out;
        }
    }
    if !rule.message_expression.is_empty() {
        let text = &rule.message_expression;
        let message = compile(
            text,
            environment,
            &Type::String,
            schema,
            "messageExpression ",
        );
        out.message = Some(message.map(|(program, _, cost)| {
            out.max_message_cost = cost;
            program
        }));
    }
    if !rule.field_path.is_empty()
        && let Ok(found) = field_path::resolve(&rule.field_path, props, true)
    {
        out.field = Some(found.path.to_string());
    }
    out
}

/// The rules of a schema and of those below it.
#[derive(Debug)]
pub struct RuleValidator {
    /// The schema of the node; `None` where expressions cannot see it.
    schema: Option<Arc<Schema>>,
    rules: Vec<CompiledRule>,
    items: Option<Box<RuleValidator>>,
    properties: BTreeMap<String, RuleValidator>,
    additional: Option<Box<RuleValidator>>,
    all_of: Vec<RuleValidator>,
}

/// The budget left for an object, and the errors found so far.
struct Outcome {
    errors: ErrorList,
    warnings: Vec<String>,
    budget: Option<u64>,
}

/// The old value that a node stands for, or the nearest one around it.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<CorrelatedValue<'a>>,
    around: Option<CorrelatedValue<'a>>,
}

impl<'a> Ratchet<'a> {
    /// Reports whether what is wrong here was wrong before.
    fn forgives(self) -> bool {
        self.current
            .or(self.around)
            .is_some_and(CorrelatedValue::unchanged)
    }

    fn key(self, name: &str) -> Self {
        let Some(current) = self.current else {
            return self;
        };
        if self.around.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        Self {
            current: current.key(name),
            around: Some(current),
        }
    }

    fn index(self, items: Option<&CorrelatedItems<'a>>, index: usize) -> Self {
        let Some(current) = self.current else {
            return self;
        };
        Self {
            current: items.and_then(|items| items.get(index)),
            around: Some(current),
        }
    }
}

impl RuleValidator {
    /// Compiles all rules of a schema; `None` if there are none.
    pub fn new(props: &JsonSchemaProps) -> Option<Self> {
        let has_rules = |props: &JsonSchemaProps| props.any(&mut |one| !one.rules.is_empty());
        if !has_rules(props) {
            return None;
        }
        run_blocking(|| Self::node(props, props, true, &mut Schemas::default()))
    }

    /// Compiles the rules that `validation` has for values of `props`.
    fn node<'p>(
        validation: &JsonSchemaProps,
        props: &'p JsonSchemaProps,
        is_root: bool,
        schemas: &mut Schemas<'p>,
    ) -> Option<Self> {
        let schema = schemas.of(props, is_root);
        let is_seen = schema.ty().is_some();
        let rules = if validation.rules.is_empty() {
            Vec::new()
        } else {
            compiled(&validation.rules, props, &schema, &schemas.budget)
        };
        let items = match (&validation.items, &props.items) {
            (Some(validation), Some(props)) => {
                Self::node(validation, props, props.embedded, schemas)
            }
            _ => None,
        };
        let properties = validation.properties.iter().filter_map(|(name, below)| {
            let props = props.properties.get(name)?;
            let rules = Self::node(below, props, props.embedded, schemas)?;
            Some((name.clone(), rules))
        });
        let properties = properties.collect();
        let additional = match (validation.additional_schema(), props.additional_schema()) {
            (Some(validation), Some(props)) => {
                Self::node(validation, props, props.embedded, schemas)
            }
            _ => None,
        };
        let all_of = validation.all_of.iter();
        let node = Self {
            properties,
            all_of: all_of
                .filter_map(|validation| Self::node(validation, props, is_root, schemas))
                .collect(),
            rules,
            items: items.map(Box::new),
            additional: additional.map(Box::new),
            schema: is_seen.then_some(schema),
        };
        let is_needed = !node.rules.is_empty()
            || node.items.is_some()
            || node.additional.is_some()
            || !node.properties.is_empty()
            || !node.all_of.is_empty();
        is_needed.then_some(node)
    }

    /// Checks an object of the schema that the rules were compiled with. What did not change is not
    /// held against it, but told in warnings.
    pub fn validate(
        &self,
        props: &JsonSchemaProps,
        object: &Value,
        old: Option<CorrelatedValue<'_>>,
    ) -> (ErrorList, Vec<String>) {
        let mut outcome = Outcome {
            errors: ErrorList::new(),
            warnings: Vec::new(),
            budget: Some(OBJECT_BUDGET),
        };
        let subject = Subject {
            props,
            value: object,
            old: old.map(|old| old.old),
            ratchet: Ratchet {
                current: old,
                around: None,
            },
        };
        let begun = Instant::now();
        run_blocking_if(self.max_cost() > LARGE_COST, || {
            self.check(subject, &Path::default(), &mut outcome);
        });
        cel::metrics::evaluated(begun);
        (outcome.errors, outcome.warnings)
    }

    /// The most that the rules may cost, each of them evaluated once.
    fn max_cost(&self) -> u64 {
        let own = self
            .rules
            .iter()
            .map(|rule| rule.max_cost.saturating_add(rule.max_message_cost));
        let below = self
            .items
            .iter()
            .chain(&self.additional)
            .map(|below| below.max_cost());
        let parts = self
            .properties
            .values()
            .chain(&self.all_of)
            .map(Self::max_cost);
        own.chain(below).chain(parts).fold(0, u64::saturating_add)
    }

    fn check(&self, subject: Subject<'_>, path: &Path, outcome: &mut Outcome) {
        if subject.value.is_null() || outcome.budget.is_none() {
            return;
        }
        let subject = Subject {
            old: subject.old.filter(|old| !old.is_null()),
            ..subject
        };
        self.check_rules(subject, path, outcome);
        for validator in &self.all_of {
            let ratchet = Ratchet {
                current: None,
                around: subject.ratchet.around,
            };
            validator.check(Subject { ratchet, ..subject }, path, outcome);
        }
        match subject.value {
            Value::Array(items) => self.check_items(subject, items, path, outcome),
            Value::Object(map) => self.check_entries(subject, map, path, outcome),
            _ => {}
        }
    }

    fn check_entries(&self, subject: Subject<'_>, map: &Map, path: &Path, outcome: &mut Outcome) {
        let correlates = matches!(
            subject.props.map_type.as_deref(),
            None | Some("granular" | "atomic")
        );
        let before = subject
            .old
            .filter(|_| correlates)
            .and_then(Value::as_object);
        for (name, value) in map {
            let entry = |props| Subject {
                props,
                value,
                old: before.and_then(|before| before.get(name)),
                ratchet: subject.ratchet.key(name),
            };
            if let (Some(validator), Some(props)) =
                (&self.additional, subject.props.additional_schema())
            {
                validator.check(entry(props), &path.key(name), outcome);
            }
            if let (Some(validator), Some(props)) = (
                self.properties.get(name.as_str()),
                subject.props.properties.get(name.as_str()),
            ) {
                validator.check(entry(props), &path.child(name), outcome);
            }
        }
    }

    fn check_items(
        &self,
        subject: Subject<'_>,
        items: &[Value],
        path: &Path,
        outcome: &mut Outcome,
    ) {
        let (Some(validator), Some(props)) = (&self.items, subject.props.items.as_deref()) else {
            return;
        };
        let correlated = subject.ratchet.current.and_then(CorrelatedValue::items);
        let before = subject.old.and_then(|old| {
            let whole = CorrelatedValue {
                new: subject.value,
                old,
                schema: subject.props,
            };
            whole.items()
        });
        for (index, value) in items.iter().enumerate() {
            let old = before.as_ref().and_then(|before| before.get(index));
            let item = Subject {
                props,
                value,
                old: old.map(|old| old.old),
                ratchet: subject.ratchet.index(correlated.as_ref(), index),
            };
            validator.check(item, &path.index(index), outcome);
        }
    }

    /// Evaluates the rules of the node itself.
    fn check_rules(&self, subject: Subject<'_>, path: &Path, outcome: &mut Outcome) {
        if self.rules.is_empty() {
            return;
        }
        let kind = subject.props.kind.as_str();
        let Some(schema) = &self.schema else {
            let why = "rule compiler initialization error: failed to convert to declType for CEL \
                       validation rules";
            outcome.errors.invalid(path, kind, why);
            return;
        };
        let this = schema.value(subject.value);
        let before = subject.old.map(|old| schema.value(old));
        for rule in &self.rules {
            match outcome.budget {
                Some(0) => {
                    outcome.errors.invalid(path, kind, OUT_OF_BUDGET);
                    outcome.budget = None;
                    return;
                }
                None => return,
                Some(_) => {}
            }
            let evaluation = Evaluation {
                rule,
                kind,
                value: subject.value,
                path,
                ratchet: subject.ratchet,
            };
            evaluation.run(&this, before.as_ref(), outcome);
        }
    }
}

/// A value with its schema, and the old one in its place.
#[derive(Clone, Copy)]
struct Subject<'v> {
    props: &'v JsonSchemaProps,
    value: &'v Value,
    old: Option<&'v Value>,
    ratchet: Ratchet<'v>,
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// One rule on one value.
struct Evaluation<'e> {
    rule: &'e CompiledRule,
    kind: &'e str,
    value: &'e Value,
    path: &'e Path,
    ratchet: Ratchet<'e>,
}

type Seen<'a> = Result<CelValue<'a>, Error>;

impl Evaluation<'_> {
    fn refuse(&self, outcome: &mut Outcome, detail: String) {
        outcome.errors.invalid(self.path, self.kind, detail);
    }

    fn run<'a>(&self, this: &Seen<'a>, before: Option<&Seen<'a>>, outcome: &mut Outcome) {
        let program = match &self.rule.program {
            None => return,
            Some(Err(why)) => {
                return self.refuse(outcome, format!("rule compile error: {why}"));
            }
            Some(Ok(program)) => program,
        };
        let is_optional = self.rule.rule.optional_old_self == Some(true);
        if self.rule.uses_old_self && before.is_none() && !is_optional {
            return;
        }
        let variables = match variables(this, before, is_optional) {
            Ok(variables) => variables,
            Err(error) => {
                let shown = self.rule.rule.shown_in_errors();
                return self.refuse(outcome, format!("{error} evaluating rule: {shown}"));
            }
        };
        let evaluated = program.evaluate(&variables, PER_CALL_LIMIT);
        match outcome
            .budget
            .and_then(|budget| budget.checked_sub(evaluated.cost))
        {
            Some(rest) => outcome.budget = Some(rest),
            None => {
                outcome.budget = None;
                return self.refuse(outcome, OUT_OF_BUDGET.to_owned());
            }
        }
        match evaluated.value {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => self.failed(&variables, outcome),
            Err(error) => self.errored(&error, outcome),
        }
    }

    /// Reports that the rule could not be evaluated.
    fn errored(&self, error: &Error, outcome: &mut Outcome) {
        let shown = self.rule.rule.shown_in_errors();
        let detail = match error {
            Error::CostLimit => {
                outcome.budget = None;
                format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds \
                     limit for rule: {shown}"
                )
            }
            Error::Evaluation(text) if text.starts_with("no such overload") => format!(
                "'{error}': call arguments did not match a supported operator, function or macro \
                 signature for rule: {shown}"
            ),
            Error::Evaluation(_) | Error::Suspended => {
                format!("{error} evaluating rule: {shown}")
            }
        };
        self.refuse(outcome, detail);
    }

    /// Reports that the rule does not hold.
    fn failed(&self, variables: &[CelValue<'_>], outcome: &mut Outcome) {
        let path = match &self.rule.field {
            Some(field) => &self.path.child(field),
            None => self.path,
        };
        let rule = &self.rule.rule;
        let detail = match self.message(variables, outcome) {
            Ok(message) => message,
            Err(why) => {
                let error = FieldError::invalid(path, self.kind, why);
                outcome.budget = None;
                return self.report(error, outcome);
            }
        };
        let detail = detail.unwrap_or_else(|| match rule.message.trim() {
            "" => format!("failed rule: {}", rule.shown_in_errors()),
            message => message.to_owned(),
        });
        let shows_value = !matches!(self.kind, "object" | "array");
        let error = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") if shows_value => {
                FieldError::duplicate(path, self.value.clone())
            }
            Some("FieldValueDuplicate") => FieldError::duplicate_without_value(path),
            _ if shows_value => FieldError::invalid(path, self.value.clone(), detail),
            _ => FieldError::invalid_without_value(path, detail),
        };
        self.report(error, outcome);
    }

    /// Adds an error, or a warning of what was wrong before.
    fn report(&self, error: FieldError, outcome: &mut Outcome) {
        if !self.rule.uses_old_self && self.ratchet.forgives() {
            outcome.warnings.push(error.to_string());
        } else {
            outcome.errors.push(error);
        }
    }

    /// The message that the rule's expression makes; `None` where there is none, or it fails.
    ///
    /// # Errors
    /// It cost too much.
    fn message(
        &self,
        variables: &[CelValue<'_>],
        outcome: &mut Outcome,
    ) -> Result<Option<String>, String> {
        let Some(Ok(program)) = &self.rule.message else {
            return Ok(None);
        };
        let evaluated = program.evaluate(variables, PER_CALL_LIMIT);
        let rest = outcome
            .budget
            .and_then(|budget| budget.checked_sub(evaluated.cost));
        if rest.is_none() {
            let why = "messageExpression evaluation failed due to running out of cost budget, no \
                       further validation rules will be run";
            return Err(why.to_owned());
        }
        outcome.budget = rest;
        let text = match evaluated.value {
            Ok(CelValue::String(text)) => text,
            Err(Error::CostLimit) => {
                let text = &self.rule.rule.message_expression;
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {text:?}"
                ));
            }
            Ok(_) | Err(_) => return Ok(None),
        };
        let text = text.as_str().trim();
        let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
        Ok(is_usable.then(|| text.to_owned()))
    }
}

/// The values of `self` and `oldSelf`.
fn variables<'a>(
    this: &Seen<'a>,
    before: Option<&Seen<'a>>,
    is_optional: bool,
) -> Result<Vec<CelValue<'a>>, Error> {
    let before = before.cloned().transpose()?;
    let before = match (before, is_optional) {
        (before, true) => CelValue::Optional(before.map(Arc::new)),
        (Some(before), false) => before,
        (None, false) => CelValue::Null,
    };
    Ok(vec![this.clone()?, before])
}
