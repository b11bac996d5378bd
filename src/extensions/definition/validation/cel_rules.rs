//! Checks of the rules of a schema: they compile, cost little enough, and look back only
//! where an old value can be found (apiextensions `validation/cel_validation.go`).

use crate::extensions::schema::cel_rules::{CompiledRule, compiled};
use crate::extensions::schema::cel_schema::Schemas;
use crate::extensions::schema::json_schema_props::JsonSchemaProps;
use crate::meta::{ErrorList, FieldError, Path};

/// The most that one rule may cost by estimate.
const RULE_LIMIT: u64 = 10_000_000;
/// The most that all rules of a schema may cost together by estimate.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// The bytes of the largest request, which bounds how often an unbounded value is there.
const MAX_REQUEST_BYTES: u64 = 3 << 20;
/// The maximum number of rules that are named if all together cost too much.
const MAX_EXPENSIVE: usize = 4;

/// Checks all rules of a schema that is sound otherwise.
pub fn validate(errors: &mut ErrorList, schema: &JsonSchemaProps, path: &Path) {
    if !schema.any(&mut |one| !one.rules.is_empty()) {
        return;
    }
    let mut schemas = Schemas::default();
    // Those of the nodes below are parts of it.
    schemas.of(schema, true);
    let mut walk = SchemaWalk {
        errors,
        schemas,
        total: 0,
        expensive: Vec::new(),
    };
    let root = Node {
        is_root: true,
        cardinality: Some(1),
        uncorrelated: None,
    };
    walk.schema(schema, path, &root);
    let SchemaWalk {
        total, expensive, ..
    } = walk;
    if total > SCHEMA_LIMIT {
        for (place, _) in expensive {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire \
                       OpenAPIv3 schema";
            errors.forbidden(&place, why);
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(path, too_expensive(name, total, SCHEMA_LIMIT));
    }
}

/// The place of a node in a schema.
#[derive(Clone)]
struct Node {
    is_root: bool,
    /// The maximum number of values of the node that an object may have; `None` where there is no
    /// bound.
    cardinality: Option<u64>,
    /// The outermost path below which no old value can be found.
    uncorrelated: Option<Path>,
}

struct SchemaWalk<'e, 'p> {
    errors: &'e mut ErrorList,
    schemas: Schemas<'p>,
    total: u64,
    /// The rules that cost most, with their paths.
    expensive: Vec<(Path, u64)>,
}

impl Node {
    /// A node below one of a schema.
    fn below(&self, schema: &JsonSchemaProps) -> Self {
        let factor = match schema.kind.as_str() {
            "object" if schema.additional.is_some() => schema.values.max_properties,
            "array" => schema.values.max_items,
            _ => Some(1),
        };
        let factor = factor.map(|factor| u64::try_from(factor).unwrap_or(0));
        Self {
            is_root: false,
            cardinality: self
                .cardinality
                .zip(factor)
                .map(|(count, factor)| count.saturating_mul(factor)),
            uncorrelated: self.uncorrelated.clone(),
        }
    }

    fn uncorrelated_at(mut self, path: &Path) -> Self {
        self.uncorrelated.get_or_insert_with(|| path.clone());
        self
    }
}

impl<'p> SchemaWalk<'_, 'p> {
    fn schema(&mut self, schema: &'p JsonSchemaProps, path: &Path, node: &Node) {
        let below = node.below(schema);
        if let Some(additional) = schema.additional_schema() {
            self.schema(additional, &path.child("additionalProperties"), &below);
        }
        let correlates = matches!(
            schema.map_type.as_deref(),
            None | Some("granular" | "atomic")
        );
        for (name, property) in &schema.properties {
            let below = if correlates {
                below.clone()
            } else {
                below.clone().uncorrelated_at(path)
            };
            self.schema(property, &path.child("properties").key(name), &below);
        }
        if let Some(items) = &schema.items {
            let below = if schema.is_list_type("map") {
                below
            } else {
                below.uncorrelated_at(path)
            };
            self.schema(items, &path.child("items"), &below);
        }
        self.rules(schema, path, node);
    }

    fn rules(&mut self, schema: &'p JsonSchemaProps, path: &Path, node: &Node) {
        if schema.rules.is_empty() {
            return;
        }
        let place = path.child("x-kubernetes-validations");
        let is_root = node.is_root || schema.embedded;
        let seen = self.schemas.of(schema, is_root);
        if seen.ty().is_none() {
            let why = "internal error: failed to construct type information for \
                       x-kubernetes-validations rules: unable to convert structural schema to CEL \
                       declarations";
            return self.errors.internal(&place, why);
        }
        let cardinality = node
            .cardinality
            .unwrap_or(MAX_REQUEST_BYTES / (seen.min_bytes + 1));
        let all = compiled(&schema.rules, schema, &seen, &self.schemas.budget);
        for (index, (compiled, rule)) in all.iter().zip(&schema.rules).enumerate() {
            let place = place.index(index);
            self.costs(compiled, cardinality, &place);
            if let Some(Err(why)) = &compiled.program {
                let error = FieldError::invalid(&place.child("rule"), rule.go_value(), why);
                self.errors.push(error);
            }
            match &compiled.message {
                Some(Err(why)) => {
                    let place = place.child("messageExpression");
                    self.errors.invalid(&place, rule.go_value(), why);
                }
                Some(Ok(_)) => {
                    let cost = compiled.max_message_cost;
                    let place = place.child("messageExpression");
                    self.limit("estimated messageExpression cost", cost, &place);
                    self.add(cost, place);
                }
                None => {}
            }
            if compiled.uses_old_self {
                if let Some(outer) = &node.uncorrelated {
                    let why = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema \
                         within {outer}"
                    );
                    let place = place.child("rule");
                    self.errors.invalid(&place, rule.rule.as_str(), why);
                }
            } else if let Some(optional) = rule.optional_old_self {
                let why = "may not be set if oldSelf is not used in rule";
                let place = place.child("optionalOldSelf");
                self.errors.invalid(&place, optional, why);
            }
        }
    }

    fn costs(&mut self, compiled: &CompiledRule, cardinality: u64, place: &Path) {
        let cost = compiled.max_cost.saturating_mul(cardinality);
        let place = place.child("rule");
        self.limit("estimated rule cost", cost, &place);
        self.add(cost, place);
    }

    fn limit(&mut self, name: &str, cost: u64, place: &Path) {
        if cost > RULE_LIMIT {
            let why = too_expensive(name, cost, RULE_LIMIT);
            self.errors.forbidden(place, why);
        }
    }

    fn add(&mut self, cost: u64, place: Path) {
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((place, cost));
            self.expensive
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(MAX_EXPENSIVE);
        }
    }
}

/// The words for a cost above a limit.
fn too_expensive(name: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // it is shown with few digits
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, \
         maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
