//! Estimates of calls: their costs and the sizes of their results.

use super::super::ast::{Call, Expr, ExprKind, Literal};
use super::super::types::Type;
use super::{Estimator, Range, Step, TRAVERSAL};

/// The cost of a call, without that of its target, and the size of its result.
#[derive(Debug)]
pub struct Estimate {
    pub cost: Range,
    pub size: Option<Range>,
}

/// Functions of Kubernetes' libraries whose cost is 1.
#[rustfmt::skip]
const UNIT_COST: [&str; 38] = [
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed",
    "reason", "error", "errored", "masked", "prefixLength", "family", "isUnspecified",
    "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named",
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan",
    "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname", "getHost",
    "getPort", "getEscapedPath", "getQuery",
];

impl Estimate {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }
}

/// A call to a list that is made anew.
fn new_list(factor: f64, size: Range) -> Estimate {
    Estimate::sized(size.scaled(factor).plus(Range::fixed(11)), size)
}

impl Estimator<'_> {
    /// Estimates a call of an overload, with the costs of its arguments.
    pub(super) fn overload(
        &mut self,
        expr: &Expr,
        call: &Call,
        overload: &str,
        costs: &[Range],
    ) -> Estimate {
        let sum = costs.iter().copied().fold(Range::ZERO, Range::plus);
        let own = self
            .list_function(call, overload)
            .or_else(|| self.library_function(call, overload));
        if let Some(own) = own {
            return Estimate {
                cost: own.cost.plus(sum),
                size: own.size,
            };
        }
        let arg = |index: usize| call.args.get(index);
        match (overload, arg(0), arg(1)) {
            ("logical_or" | "logical_and", Some(_), Some(_)) => {
                let left = costs.first().copied().unwrap_or(Range::ZERO);
                Estimate::of(Range {
                    min: left.min,
                    max: sum.max,
                })
            }
            ("conditional", Some(_), Some(then)) => self.conditional(expr, call, then, costs),
            ("add_string" | "add_bytes" | "add_list", Some(a), Some(b)) => {
                let size = self.size_or_unknown(a).plus(self.size_or_unknown(b));
                if let (Some(a), Some(b)) = (self.entry(a), self.entry(b)) {
                    self.entries.insert(expr.id, a.union(b));
                }
                let cost = match overload {
                    "add_list" => Range::ONE,
                    _ => size.scaled(TRAVERSAL),
                };
                Estimate::sized(cost.plus(sum), size)
            }
            _ => {
                let own = self.standard_function(call, overload);
                Estimate {
                    cost: own.cost.plus(sum),
                    size: own.size,
                }
            }
        }
    }

    fn conditional(&mut self, expr: &Expr, call: &Call, then: &Expr, costs: &[Range]) -> Estimate {
        let otherwise = call.args.get(2).unwrap_or(then);
        let size = self
            .size_or_unknown(then)
            .union(self.size_or_unknown(otherwise));
        if let (Some(a), Some(b)) = (self.entry(then), self.entry(otherwise)) {
            self.entries.insert(expr.id, a.union(b));
        }
        let cost = |index: usize| costs.get(index).copied().unwrap_or(Range::ZERO);
        Estimate::sized(cost(0).plus(cost(1).union(cost(2))), size)
    }

    /// Functions of the language itself.
    fn standard_function(&mut self, call: &Call, overload: &str) -> Estimate {
        let first = call.args.first().map(|arg| self.size_or_unknown(arg));
        let second = call.args.get(1).map(|arg| self.size_or_unknown(arg));
        let target = call
            .target
            .as_ref()
            .map(|target| self.size_or_unknown(target));
        match (overload, target, first, second) {
            ("string_format", Some(target), ..) => Estimate::of(target.scaled(TRAVERSAL)),
            ("string_to_bytes", None, Some(size), _) => Estimate::sized(
                size.scaled(TRAVERSAL),
                Range {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                },
            ),
            ("bytes_to_string", None, Some(size), _) => Estimate::sized(
                size.scaled(TRAVERSAL),
                Range {
                    min: size.min / 4,
                    max: size.max,
                },
            ),
            ("strings_quote", _, Some(size), _) => Estimate::sized(
                size.scaled(TRAVERSAL),
                Range {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                },
            ),
            ("starts_with_string" | "ends_with_string", _, Some(size), _) => {
                Estimate::of(size.scaled(TRAVERSAL))
            }
            ("in_list", _, Some(_), Some(list)) => Estimate::of(list.scaled(1.0)),
            ("matches_string", Some(text), Some(pattern), _) => {
                let text = text.plus(Range::ONE).scaled(TRAVERSAL);
                Estimate::of(text.times(pattern.scaled(0.25)))
            }
            ("contains_string", Some(text), Some(part), _) => {
                Estimate::of(text.scaled(TRAVERSAL).times(part.scaled(TRAVERSAL)))
            }
            (
                "less_string"
                | "less_equals_string"
                | "greater_string"
                | "greater_equals_string"
                | "less_bytes"
                | "less_equals_bytes"
                | "greater_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                Some(a),
                Some(b),
            ) => {
                let max = a.max.min(b.max);
                let min = u64::from(max > 0);
                Estimate::of(Range { min, max }.scaled(TRAVERSAL))
            }
            _ => Estimate::of(Range::ONE),
        }
    }

    /// The size of the target or, of a function that has none, of its first argument.
    fn list_function(&mut self, call: &Call, overload: &str) -> Option<Estimate> {
        let target = call
            .target
            .as_ref()
            .map(|target| self.size_or_unknown(target));
        let number = |index: usize, default: u64| match call.args.get(index).map(|arg| &arg.kind) {
            Some(ExprKind::Literal(Literal::Int(number))) => u64::try_from(*number).unwrap_or(0),
            _ => default,
        };
        Some(match (overload, target) {
            ("list_slice", Some(size)) => {
                let (start, end) = (number(0, 0), number(1, size.max));
                new_list(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None) => new_list(1.0, Range::fixed(number(0, u64::MAX))),
            ("list_reverse", Some(size)) => new_list(1.0, size),
            ("list_flatten", Some(size)) => new_list(1.0, size),
            ("list_flatten_int", Some(size)) => {
                #[allow(clippy::cast_precision_loss)] // as upstream
                let depth = number(0, u64::MAX) as f64;
                new_list(depth, size)
            }
            ("list_distinct", Some(size)) => new_list(2.0, size.times(size)),
            (sort, Some(size)) if sort.ends_with("_sort") => {
                new_list(sort_factor(sort), size.times(size))
            }
            (sort, Some(_)) if sort.ends_with("_sortByAssociatedKeys") => {
                let keys = self.size_or_unknown(call.args.first()?);
                new_list(sort_factor(sort), keys.times(keys))
            }
            ("list_sets_contains_list" | "list_sets_intersects_list", None) => {
                Estimate::of(self.product(call)?.scaled(1.0).plus(Range::ONE))
            }
            ("list_sets_equivalent_list", None) => {
                Estimate::of(self.product(call)?.scaled(2.0).plus(Range::ONE))
            }
            _ => return None,
        })
    }

    fn product(&mut self, call: &Call) -> Option<Range> {
        let a = self.size_or_unknown(call.args.first()?);
        Some(a.times(self.size_or_unknown(call.args.get(1)?)))
    }

    /// Functions of Kubernetes' libraries, whatever the overload.
    fn library_function(&mut self, call: &Call, overload: &str) -> Option<Estimate> {
        let target = call.target.as_ref();
        let first = call.args.first().map(|arg| self.size_or_unknown(arg));
        let size = target.map(|target| self.size_or_unknown(target));
        let traversed = |size: Range, times: f64| size.scaled(times * TRAVERSAL);
        if UNIT_COST.contains(&call.function.as_str()) {
            return Some(Estimate::of(Range::ONE));
        }
        Some(match (call.function.as_str(), size, first) {
            ("check", ..) => Estimate::of(Range::fixed(350_000)),
            ("fieldSelector" | "labelSelector", _, Some(selector)) => {
                let requirements = selector.scaled(0.5).scaled(50.0);
                let parsed = selector.scaled(TRAVERSAL);
                Estimate::of(Range::fixed(10).plus(parsed).plus(requirements))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(size), _) => {
                Estimate::of(self.elements(target?, size))
            }
            ("url" | "jsonpatch.escapeKey", _, Some(text)) => {
                Estimate::sized(traversed(text, 1.0), text)
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(size), _) => {
                Estimate::sized(traversed(size, 1.0), size)
            }
            ("replace", Some(size), Some(old)) => {
                let new = self.size_or_unknown(call.args.get(1)?);
                Estimate::sized(traversed(size, 2.0), replaced(size, old, new))
            }
            ("split", Some(size), _) => {
                let max = match call.args.get(1).map(|arg| &arg.kind) {
                    Some(ExprKind::Literal(Literal::Int(limit))) => limit.cast_unsigned(),
                    _ => size.max,
                };
                Estimate::sized(traversed(size, 2.0), Range { min: 0, max })
            }
            ("join", Some(list), separator) => {
                let item = self.item_size(target?).unwrap_or(Range::ZERO);
                let mut size = list.times(item);
                if let Some(separator) = separator {
                    size = size.plus(separator.times(Range {
                        min: list.min.saturating_sub(1),
                        max: list.max.saturating_sub(1),
                    }));
                }
                Estimate::sized(traversed(size, 1.0), size)
            }
            ("find" | "findAll", Some(text), Some(pattern)) => {
                let cost = text.plus(Range::ONE).scaled(TRAVERSAL);
                let size = Range {
                    min: 0,
                    max: text.max,
                };
                Estimate::sized(cost.times(pattern.scaled(0.25)), size)
            }
            ("ip", ..) if overload == "cidr_ip" => Estimate::of(Range::ONE),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                _,
                Some(text),
            ) => Estimate::of(traversed(text, 1.0)),
            ("ip.isCanonical", _, Some(text)) => Estimate::of(traversed(text, 2.0)),
            ("containsIP" | "containsCIDR", _, Some(other)) => {
                Estimate::of(contains(call.function.as_str(), overload, other))
            }
            ("validate", _, Some(text)) => {
                Estimate::of(text.scaled(TRAVERSAL).scaled(128.0 * 0.25))
            }
            ("_==_", ..) => return self.extension_equality(call),
            _ => return None,
        })
    }

    /// The cost of looking at each item of a list, or of a text as a whole.
    fn elements(&mut self, target: &Expr, size: Range) -> Range {
        match self.checked.type_of(target.id) {
            Type::List(item) if matches!(**item, Type::String | Type::Bytes) => {
                let item = self.item_size(target).unwrap_or(Range::UNKNOWN);
                size.times(Range::ONE.plus(item.scaled(TRAVERSAL)))
            }
            Type::List(_) | Type::Opaque(..) | Type::Map(_) => size.times(Range::ONE),
            _ => size.scaled(TRAVERSAL),
        }
    }

    /// The size of the items of a list, by its schema.
    fn item_size(&self, list: &Expr) -> Option<Range> {
        let Type::List(_) = self.checked.type_of(list.id) else {
            return None;
        };
        let mut path = self.path(list);
        if path.is_empty() || path.first() == Some(&Step::Name(super::ACCUMULATOR.to_owned())) {
            return Some(Range::UNKNOWN);
        }
        path.push(Step::Items);
        Some(self.size_at(&path).unwrap_or(Range::UNKNOWN))
    }

    /// The cost of comparing values that only functions know.
    fn extension_equality(&mut self, call: &Call) -> Option<Estimate> {
        let (a, b) = (call.args.first()?, call.args.get(1)?);
        let ty = self.checked.type_of(a.id);
        if ty != self.checked.type_of(b.id) {
            return None;
        }
        Some(Estimate::of(match ty {
            Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => Range::ONE,
            Type::Struct(name) => match &**name {
                "kubernetes.Quantity" | "kubernetes.Semver" => Range::ONE,
                name if name.starts_with("kubernetes.authorization.") => Range::ONE,
                "kubernetes.NamedFormat" => Range { min: 1, max: 64 }.scaled(TRAVERSAL),
                "kubernetes.URL" => {
                    let max = self.sizes.get(&b.id).map_or(1, |size| size.max);
                    Range { min: 1, max }.scaled(TRAVERSAL)
                }
                _ => return None,
            },
            _ => return None,
        }))
    }
}

/// The factor of a sort: texts take longer to compare.
fn sort_factor(overload: &str) -> f64 {
    if overload.starts_with("list_string_") || overload.starts_with("list_bytes_") {
        2.0 + TRAVERSAL
    } else {
        2.0
    }
}

/// The cost of looking for an address or a network in a network.
fn contains(function: &str, overload: &str, other: Range) -> Range {
    let network = Range { min: 4, max: 16 };
    let mut cost = network.plus(network).scaled(TRAVERSAL);
    if function == "containsCIDR" {
        cost = cost.plus(network.scaled(TRAVERSAL)).plus(Range::ONE);
    }
    if overload.ends_with("_string") {
        cost = cost.plus(other.scaled(TRAVERSAL));
    }
    cost
}

/// The size of a text in which another is replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (mut count, mut retained) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        retained.max = size.max;
    } else if new.max <= old.min {
        retained.max = size.max;
    } else {
        count.max = size.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        retained.min = size.min;
    } else if old.max <= new.min {
        retained.min = size.min;
    } else {
        count.min = size.min.div_ceil(old.max);
    }
    count.times(new).plus(retained)
}
