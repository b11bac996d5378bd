//! Quantities (apiserver `cel/library/quantity.go`).

use std::any::Any;
use std::cmp::Ordering;
use std::sync::Arc;

use super::super::extension::Extension;
use super::super::value::{Error, Result, Value};
use super::Declaration;
use super::operators::declare;
use crate::meta::go::quantity::{Format, Quantity};

pub const DECLARATIONS: &[Declaration] = &[
    declare!("quantity", parse, "string_to_quantity": "(string) -> kubernetes.Quantity"),
    declare!("isQuantity", |args| match args {
        [Value::String(text)] => {
            Some(Ok(Value::Bool(Quantity::parse(text.as_str()).is_ok())))
        }
        _ => None,
    }, "is_quantity_string": "(string) -> bool"),
    declare!("sign", |args| Some(Ok(Value::Int(i64::from(quantity(args.first()?)?.sign())))),
        "quantity_sign": "(kubernetes.Quantity) -> int"),
    declare!("isGreaterThan", |args| compare(args, |order| Value::Bool(order.is_gt())),
        "quantity_is_greater_than": "kubernetes.Quantity(kubernetes.Quantity) -> bool"),
    declare!("isLessThan", |args| compare(args, |order| Value::Bool(order.is_lt())),
        "quantity_is_less_than": "kubernetes.Quantity(kubernetes.Quantity) -> bool"),
    declare!("compareTo", |args| compare(args, |order| Value::Int(order as i64)),
        "quantity_compare_to": "kubernetes.Quantity(kubernetes.Quantity) -> int"),
    declare!("asApproximateFloat", approximate,
        "quantity_get_float": "kubernetes.Quantity() -> double"),
    declare!("asInteger", as_integer, "quantity_get_int": "kubernetes.Quantity() -> int"),
    declare!("isInteger", |args| {
        Some(Ok(Value::Bool(quantity(args.first()?)?.plain_i64().is_some())))
    }, "quantity_is_integer": "kubernetes.Quantity() -> bool"),
    declare!("add", |args| combined(args, Quantity::add),
        "quantity_add": "kubernetes.Quantity(kubernetes.Quantity) -> kubernetes.Quantity",
        "quantity_add_int": "kubernetes.Quantity(int) -> kubernetes.Quantity",
    ),
    declare!("sub", |args| combined(args, Quantity::sub),
        "quantity_sub": "kubernetes.Quantity(kubernetes.Quantity) -> kubernetes.Quantity",
        "quantity_sub_int": "kubernetes.Quantity(int) -> kubernetes.Quantity",
    ),
];

/// A quantity that has been read, or computed: nothing is comparable to those.
#[derive(Debug)]
struct Amount {
    quantity: Quantity,
    is_computed: bool,
}

impl Extension for Amount {
    fn type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }

    fn equals(&self, other: &dyn Extension) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.quantity == other.quantity)
    }

    fn is_comparable(&self) -> bool {
        !self.is_computed
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn quantity<'v>(value: &'v Value<'_>) -> Option<&'v Quantity> {
    match value {
        Value::Extension(value) => value
            .as_any()
            .downcast_ref()
            .map(|one: &Amount| &one.quantity),
        _ => None,
    }
}

fn made<'a>(quantity: Quantity, is_computed: bool) -> Value<'a> {
    Value::Extension(Arc::new(Amount {
        quantity,
        is_computed,
    }))
}

fn parse<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let [Value::String(text)] = args else {
        return None;
    };
    Some(match Quantity::parse(text.as_str()) {
        Ok(quantity) => Ok(made(quantity, false)),
        Err(why) => Err(Error::new(why.to_string())),
    })
}

fn compare<'a>(
    args: &[Value<'a>],
    then: fn(Ordering) -> Value<'static>,
) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    Some(Ok(then(quantity(a)?.cmp(quantity(b)?))))
}

fn as_integer<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    let number = quantity(args.first()?)?.plain_i64();
    Some(
        number
            .map(Value::Int)
            .ok_or_else(|| Error::new("cannot convert value to integer")),
    )
}

fn approximate<'a>(args: &[Value<'a>]) -> Option<Result<Value<'a>>> {
    Some(Ok(Value::Double(quantity(args.first()?)?.approximate())))
}

fn combined<'a>(
    args: &[Value<'a>],
    combine: fn(&mut Quantity, &Quantity),
) -> Option<Result<Value<'a>>> {
    let [a, b] = args else { return None };
    let mut result = *quantity(a)?;
    match b {
        Value::Int(number) => combine(
            &mut result,
            &Quantity::new(*number, Format::DecimalExponent),
        ),
        other => combine(&mut result, quantity(other)?),
    }
    Some(Ok(made(result, true)))
}
