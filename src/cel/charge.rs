//! The costs of calls when they are made (cel-go `interpreter/runtimecost.go`, apiserver
//! `cel/library/cost.go`).

use super::value::{List, Map, Value};
use super::work;

/// The rule by which a call costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Charge {
    Fixed(u64),
    /// A tenth of the size of an argument, so many times.
    Traversal(usize, u64),
    /// As many units as a list has items.
    Items(usize),
    /// A tenth of the smaller of two sizes.
    Equality,
    /// Of the shorter one, whatever it is.
    Order,
    /// A tenth of the sum of two sizes.
    Concatenation,
    Pattern,
    Contains,
    /// The cost of looking at each part of a value.
    Parts,
    /// A fifth of the size of the result.
    Joined,
    Selector,
    /// The prefix of a network twice, and the address where it is a text.
    ContainsAddress(bool),
    ContainsNetwork(bool),
    Validate,
    /// A new list as large as the result.
    NewList,
    Flatten,
    /// The square of the size of a list, twice.
    SelfCompare(usize),
    /// The product of two sizes, so many times.
    Product(u64),
}

/// A tenth of a size, rounded up, `times` over.
fn traversal(size: u64, times: u64) -> u64 {
    size.saturating_mul(times).div_ceil(10)
}

impl Charge {
    /// The rule for an overload of a function; for several possible ones the overload is empty.
    pub fn new(function: &str, overload: &str) -> Self {
        match overload {
            "list_slice" | "lists_range" | "list_reverse" => return Self::NewList,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Product(1),
            "list_sets_equivalent_list" => return Self::Product(2),
            _ if overload.ends_with("_sort") => return Self::SelfCompare(0),
            _ if overload.ends_with("_sortByAssociatedKeys") => return Self::SelfCompare(1),
            _ => {}
        }
        if let Some(charge) = Self::of_library(function, overload) {
            return charge;
        }
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Self::Traversal(0, 1),
            "in_list" => Self::Items(1),
            "less_string"
            | "less_equals_string"
            | "greater_string"
            | "greater_equals_string"
            | "less_bytes"
            | "less_equals_bytes"
            | "greater_bytes"
            | "greater_equals_bytes" => Self::Order,
            "add_string" | "add_bytes" => Self::Concatenation,
            "matches_string" => Self::Pattern,
            "contains_string" => Self::Contains,
            _ => Self::Fixed(1),
        }
    }

    /// The rule of Kubernetes' libraries, which counts whatever the overload.
    fn of_library(function: &str, overload: &str) -> Option<Self> {
        Some(match function {
            "check" => Self::Fixed(350_000),
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Parts,
            "url"
            | "jsonpatch.escapeKey"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => Self::Traversal(0, 1),
            "replace" | "split" | "ip.isCanonical" => Self::Traversal(0, 2),
            "join" => Self::Joined,
            "find" | "findAll" => Self::Pattern,
            "ip" if overload != "cidr_ip" => Self::Traversal(0, 1),
            "containsIP" => Self::ContainsAddress(overload == "cidr_contains_ip_string"),
            "containsCIDR" => Self::ContainsNetwork(overload == "cidr_contains_cidr_string"),
            "validate" => Self::Validate,
            _ => return None,
        })
    }

    /// Reports whether the cost is known before the call is made.
    pub fn is_before(self) -> bool {
        !matches!(self, Self::Joined | Self::NewList)
    }

    /// The cost of a call with its target and arguments.
    pub fn of(self, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
        let size = |index: usize| args.get(index).map_or(1, size);
        let new_list = |factor_size: u64| factor_size.saturating_add(11);
        match self {
            Self::Fixed(cost) => cost,
            Self::Traversal(index, times) => traversal(size(index), times),
            Self::Items(index) => size(index),
            // Whatever they are, values that only functions know are compared at once.
            Self::Equality if matches!(args.first(), Some(Value::Extension(_))) => 1,
            Self::Equality | Self::Order => traversal(size(0).min(size(1)), 1),
            Self::Concatenation => traversal(size(0).saturating_add(size(1)), 1),
            Self::Pattern => {
                let text = traversal(size(0).saturating_add(1), 1);
                text.saturating_mul(size(1).div_ceil(4))
            }
            Self::Contains => traversal(size(0), 1).saturating_mul(traversal(size(1), 1)),
            Self::Parts => args.first().map_or(0, parts),
            Self::Joined => traversal(result.map_or(1, self::size), 2),
            Self::Selector => {
                let length = size(1);
                let requirements = length.div_ceil(2).saturating_mul(50);
                10_u64
                    .saturating_add(traversal(length, 1))
                    .saturating_add(requirements)
            }
            Self::ContainsAddress(parsed) => {
                traversal(size(0), 2).saturating_add(u64::from(parsed) * traversal(size(1), 1))
            }
            Self::ContainsNetwork(parsed) => traversal(size(0), 2)
                .saturating_add(traversal(size(0), 1) + 1)
                .saturating_add(u64::from(parsed) * traversal(size(1), 1)),
            Self::Validate if !matches!(args.first(), Some(Value::Extension(_))) => 1,
            Self::Validate => {
                let text = traversal(size(1).saturating_add(1), 1);
                text.saturating_mul(size(0).div_ceil(4))
            }
            Self::NewList => new_list(result.map_or(1, self::size)),
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                new_list(size(0).saturating_mul(depth))
            }
            Self::SelfCompare(index) => {
                let square = size(index).saturating_mul(size(index));
                let texts = match args.get(index) {
                    Some(Value::List(list)) => {
                        matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))))
                    }
                    _ => false,
                };
                // 2.1 of texts, rounded down.
                let tenths = if texts { 21 } else { 20 };
                new_list(square.saturating_mul(tenths) / 10)
            }
            Self::Product(times) => {
                let product = size(0).saturating_mul(size(1));
                product.saturating_mul(times).saturating_add(1)
            }
        }
    }
}

/// The size of a value; 1 of what has none.
pub fn size(value: &Value<'_>) -> u64 {
    if let Value::Optional(Some(inner)) = value {
        return size(inner);
    }
    value
        .size()
        .and_then(|size| u64::try_from(size).ok())
        .unwrap_or(1)
}

/// The cost of looking at each part of a value.
fn parts(value: &Value<'_>) -> u64 {
    if !work::take(1) {
        return 0;
    }
    let of_list = |list: &List<'_>| {
        list.iter()
            .map(|item| item.as_ref().map_or(1, parts))
            .fold(0_u64, u64::saturating_add)
    };
    let of_map = |map: &Map<'_>| {
        let entries = map.entries();
        // Upstream has a key and a value for each field that expressions do not see.
        let unseen = 2 * map.len().saturating_sub(entries.len()) as u64;
        entries
            .iter()
            .map(|(key, value)| parts(key).saturating_add(value.as_ref().map_or(1, parts)))
            .fold(unseen, u64::saturating_add)
    };
    match value {
        Value::String(text) => text.as_str().len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => of_list(list),
        Value::Map(map) => of_map(map),
        _ => 1,
    }
}
