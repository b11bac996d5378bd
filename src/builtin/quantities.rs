//! Quantities inside objects: reading one, and rounding lists of them.

use crate::meta::go;
use crate::meta::go::quantity::{MILLI, Quantity};
use crate::meta::{Map, Path, Value};

/// The quantity in a JSON value; zero where there is none.
pub fn quantity(value: &Value) -> Quantity {
    match value {
        Value::String(text) => Quantity::parse(text).unwrap_or_default(),
        Value::Number(number) => Quantity::parse(&number.to_string()).unwrap_or_default(),
        _ => Quantity::default(),
    }
}

/// Rounds the amounts under `key` up to thousandths, as every list of resources is (upstream
/// `SetDefaults_ResourceList`).
pub fn round_amounts(holder: &mut Map, key: &str) {
    let Some(Value::Object(amounts)) = holder.get_mut(key) else {
        return;
    };
    for amount in amounts.values_mut() {
        if let Some(rounded) = amount.as_str().and_then(rounded) {
            *amount = rounded.into();
        }
    }
}

/// Both lists of a struct of requests and limits.
pub fn round_requirements(holder: &mut Map, key: &str) {
    if let Some(Value::Object(resources)) = holder.get_mut(key) {
        round_amounts(resources, "limits");
        round_amounts(resources, "requests");
    }
}

/// The text of an amount that is given in more detail than thousandths.
fn rounded(text: &str) -> Option<String> {
    // Only these can be that fine.
    if !text.contains(['n', 'u', '.', 'e', 'E']) {
        return None;
    }
    let mut amount = Quantity::parse(text).ok()?;
    if !amount.is_finer_than(MILLI) {
        return None;
    }
    amount.round_up(MILLI);
    Some(amount.to_string())
}

/// The canonical form of an amount that is not whole.
pub fn fraction(amount: &Value) -> Option<String> {
    let quantity = Quantity::parse(amount.as_str()?).ok()?;
    (quantity.scaled_value(MILLI) % 1000 != 0).then(|| quantity.to_string())
}

/// Returns the warning about a fraction of a byte.
pub fn fraction_warning(path: &Path, amount: &str) -> String {
    format!(
        "{path}: fractional byte value {} is invalid, must be an integer",
        go::quote(amount)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn amounts_are_rounded_up_to_thousandths() {
        let mut holder = json!({"hard": {"a": "1n", "b": "100u", "c": "1.500000", "d": "1Ei", "e": "12e6", "f": "1.5", "g": "1000001u"}});
        round_amounts(holder.as_object_mut().expect("a map"), "hard");
        let want = json!({"hard": {"a": "1m", "b": "1m", "c": "1500m", "d": "1Ei", "e": "12e6", "f": "1.5", "g": "1001m"}});
        assert_eq!(holder, want);
    }
}
