//! Quantities as numbers, for the sums and comparisons that defaults and checks make.

use std::fmt;

/// A quantity in billionths, with the family of suffixes it was written in.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Quantity {
    /// The quantity in a JSON value; zero where there is none. Numbers beyond the representable ones saturate.
    pub fn of(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::String(text) => Self::parse(text),
            serde_json::Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
        .unwrap_or(Self { nano: 0, family: Family::Decimal })
    }

    /// Reads the text form; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (factor, exponent, family) = if let Some(power) = BINARY.iter().position(|one| *one == suffix) {
            (1i128 << (10 * (power as u32 + 1)), 0, Family::Binary)
        } else if let Some((_, exponent)) = DECIMAL.iter().find(|(one, _)| *one == suffix) {
            (1, *exponent, Family::Decimal)
        } else {
            (1, suffix.strip_prefix(['e', 'E'])?.parse().ok().filter(|one: &i32| (-40..=40).contains(one))?, Family::Exponent)
        };
        Some(Self { nano: scaled(number, factor, exponent)?, family })
    }

    pub fn is_positive(self) -> bool {
        self.nano > 0
    }

    pub fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is a whole number.
    pub fn is_integer(self) -> bool {
        self.nano % NANO == 0
    }

    /// The number, rounded up.
    pub fn ceil(self) -> i128 {
        self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) != 0)
    }

    /// The number in thousandths, rounded up.
    pub fn milli_ceil(self) -> i128 {
        let milli = NANO / 1000;
        self.nano.div_euclid(milli) + i128::from(self.nano.rem_euclid(milli) != 0)
    }

    pub fn plus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano), family: self.family }
    }
}

/// A decimal number times `factor` times ten to the `exponent`, in billionths, rounded up.
fn scaled(number: &str, factor: i128, exponent: i32) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || !whole.bytes().chain(fraction.bytes()).all(|c| c.is_ascii_digit()) {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    value = value.saturating_mul(factor);
    let shift = exponent + 9 - i32::try_from(fraction.len()).ok()?;
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
    }
    for _ in shift.min(0)..0 {
        value = value / 10 + i128::from(value % 10 != 0);
    }
    Some(if negative { -value } else { value })
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.family == Family::Binary && self.is_integer() && (self.nano / NANO).abs() >= 1024 {
            let mut number = self.nano / NANO;
            let mut suffix = "";
            for one in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                number /= 1024;
                suffix = one;
            }
            return write!(f, "{number}{suffix}");
        }
        let mut number = self.nano;
        let mut exponent = -9;
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        if self.family == Family::Exponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, one)| *one == exponent).map_or("", |(suffix, _)| suffix);
        write!(f, "{number}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        let cases = [
            ("1", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1000m", "1"),
            ("1024Ki", "1Mi"),
            ("-1", "-1"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("0.1n", "1n"),
        ];
        for (text, want) in cases {
            assert_eq!(Quantity::parse(text).expect(text).to_string(), want, "{text}");
        }
        for text in ["", "x", "1x", ".", "--1", "1e", "1e999999999999"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
        assert!(Quantity::parse("1Ki") > Quantity::parse("1k"));
        assert_eq!(Quantity::parse("1500m").map(Quantity::ceil), Some(2));
        assert_eq!(Quantity::parse("-1500m").map(Quantity::ceil), Some(-1));
    }
}
