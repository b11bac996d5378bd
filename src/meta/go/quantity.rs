//! Quantities: parsing, canonical form, comparison (apimachinery `api/resource`).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The format in which a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

/// A parse error of a quantity; the messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The power of ten of the smallest unit that is kept; what is finer is rounded up to it.
pub const NANO: i32 = -9;
/// The power of ten of thousandths.
pub const MILLI: i32 = -3;

/// A number of up to 38 digits times a power of ten. Longer numbers lose their last digits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// Reports whether upstream keeps it as a decimal (`inf.Dec`) and not in an i64.
    is_decimal: bool,
}

/// The digits and suffix of a quantity's text.
struct QuantityText<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    /// The number `value`.
    pub fn new(value: i64, format: Format) -> Self {
        Self {
            mantissa: value.into(),
            format,
            ..Self::default()
        }
    }

    /// Reads a quantity. White space around it is not accepted here.
    ///
    /// # Errors
    /// Text that is not a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Ok(parse(text)?.0)
    }

    /// The text that a quantity is shown and stored as: `text` itself where upstream keeps it
    /// (`1Gi`, but `1.50` too), its canonical form otherwise.
    ///
    /// # Errors
    /// Text that is not a quantity.
    pub fn normalise(text: &str) -> Result<Cow<'_, str>, QuantityError> {
        if is_plain(text.as_bytes()) {
            return Ok(Cow::Borrowed(text));
        }
        let text = text.trim();
        Ok(match parse(text)? {
            (_, true) => Cow::Borrowed(text),
            (quantity, false) => Cow::Owned(quantity.to_string()),
        })
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The number in units of `10^scale`, rounded away from zero; clamped to an i64.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let value = self.at_scale(scale).0;
        value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The number, rounded up to an integer.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The number in thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The number, where it is an integer that an i64 holds.
    pub fn as_i64(&self) -> Option<i64> {
        let (value, exact) = self.at_scale(0);
        if exact { value.try_into().ok() } else { None }
    }

    /// The number, where upstream keeps it as an integer that it need not compute: what is in
    /// smaller units is none, nor a decimal, whatever its value (`AsInt64`).
    pub fn plain_i64(&self) -> Option<i64> {
        self.as_i64()
            .filter(|_| !self.is_decimal && self.scale >= 0)
    }

    /// The number as a double, rounded as upstream rounds it (`AsApproximateFloat64`).
    #[allow(clippy::cast_precision_loss)] // that is what is done
    pub fn approximate(&self) -> f64 {
        let power: f64 = format!("1e{}", self.scale).parse().unwrap_or(f64::NAN);
        self.mantissa as f64 * power
    }

    /// Reports whether it is kept in units smaller than `10^scale`, even if it is a whole number of
    /// larger ones.
    pub fn is_finer_than(&self, scale: i32) -> bool {
        self.scale < scale
    }

    /// Rounds away from zero to a multiple of `10^scale`; true if nothing was lost.
    pub fn round_up(&mut self, scale: i32) -> bool {
        if self.scale >= scale {
            return true;
        }
        let (mantissa, exact) = self.at_scale(scale);
        (self.mantissa, self.scale) = (mantissa, scale);
        exact
    }

    /// Adds `other`; zero takes over the format of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        if let Some(sum) = self.short_sum(other) {
            (self.mantissa, self.scale) = sum;
            return;
        }
        self.is_decimal = true;
        let scale = self.scale.min(other.scale);
        self.mantissa = self
            .at_scale(scale)
            .0
            .saturating_add(other.at_scale(scale).0);
        self.scale = scale;
    }

    /// Subtracts `other`; zero takes over the format of `other`.
    pub fn sub(&mut self, other: &Self) {
        let mut opposite = *other;
        // Upstream negates an i64, the least of which is its own negative.
        if !other.is_decimal && other.mantissa == i64::MIN.into() && self.short_sum(other).is_some()
        {
            return self.add(other);
        }
        opposite.neg();
        self.add(&opposite);
    }

    /// The mantissa and scale of a sum, if upstream computes it with an i64.
    fn short_sum(&self, other: &Self) -> Option<(i128, i32)> {
        if self.is_decimal || other.is_decimal {
            return None;
        }
        if other.is_zero() {
            return Some((self.mantissa, self.scale));
        }
        if self.is_zero() {
            return Some((other.mantissa, other.scale));
        }
        let scale = self.scale.min(other.scale);
        let part = |of: &Self| i64::try_from(of.at_scale(scale).0).ok();
        let sum = part(self)?.checked_add(part(other)?)?;
        Some((sum.into(), scale))
    }

    pub fn neg(&mut self) {
        self.mantissa = -self.mantissa;
    }

    /// The mantissa for another scale, rounded away from zero and saturated, and whether that is
    /// exact.
    fn at_scale(&self, scale: i32) -> (i128, bool) {
        match self.scale.cmp(&scale) {
            Ordering::Equal => (self.mantissa, true),
            Ordering::Greater => {
                let factor = power_of_ten(self.scale.saturating_sub(scale));
                match factor.and_then(|factor| self.mantissa.checked_mul(factor)) {
                    Some(mantissa) => (mantissa, true),
                    None if self.mantissa == 0 => (0, true),
                    None if self.mantissa > 0 => (i128::MAX, false),
                    None => (-i128::MAX, false),
                }
            }
            Ordering::Less => divide_up(self.mantissa, scale.saturating_sub(self.scale)),
        }
    }
}

/// Divides by `10^power`, rounding away from zero.
fn divide_up(mantissa: i128, power: i32) -> (i128, bool) {
    let Some(divisor) = power_of_ten(power) else {
        return (mantissa.signum(), mantissa == 0);
    };
    let rest = mantissa % divisor;
    (mantissa / divisor + rest.signum(), rest == 0)
}

/// `10^power`, or `None` where that is over 38 digits.
fn power_of_ten(power: i32) -> Option<i128> {
    10i128.checked_pow(u32::try_from(power).ok()?)
}

/// The quantity, and whether its text is kept as it is. Whether a text surely is its own canonical
/// form: a few digits that no larger unit would make fewer, and a unit.
fn is_plain(text: &[u8]) -> bool {
    const MAX_DIGITS: usize = 6;
    let digits = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    if !(1..=MAX_DIGITS).contains(&digits) || text[0] == b'0' {
        return false;
    }
    let number = text[..digits]
        .iter()
        .fold(0u32, |number, byte| number * 10 + u32::from(byte - b'0'));
    match &text[digits..] {
        b"" | b"m" | b"k" | b"M" | b"G" | b"T" => number % 1000 != 0,
        b"Ki" | b"Mi" | b"Gi" | b"Ti" => number % 1024 != 0,
        _ => false,
    }
}

fn parse(text: &str) -> Result<(Quantity, bool), QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let parts = split(text)?;
    let (base, exponent, format) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
    let (mantissa, dropped) = mantissa(parts.whole, parts.fraction);
    let fraction = parts.fraction.len() as i32 - dropped;
    let mut quantity = Quantity {
        mantissa,
        scale: -fraction,
        format,
        is_decimal: !is_short(&parts, base, exponent),
    };
    if base == 10 {
        quantity.scale = quantity.scale.saturating_add(exponent);
    } else {
        quantity.mantissa = mantissa.checked_mul(1i128 << exponent).unwrap_or(i128::MAX);
    }
    let kept = text == "0" || is_kept(&parts, base, exponent, &quantity);
    if quantity.is_decimal {
        // Upstream's long way; only it caps and changes the format.
        quantity.round_up(NANO);
        let cap = Quantity::new(i64::MAX, format);
        if format == Format::BinarySi && quantity > cap {
            quantity = Quantity {
                is_decimal: true,
                ..cap
            };
        }
        if format == Format::BinarySi && !quantity.is_zero() && quantity < Quantity::new(1, format)
        {
            quantity.format = Format::DecimalSi;
        }
    }
    if parts.negative {
        quantity.neg();
    }
    Ok((quantity, kept))
}

/// Reports whether upstream parses the text the short way, in an i64.
fn is_short(parts: &QuantityText, base: i32, exponent: i32) -> bool {
    /// The number of digits that always fit in an i64.
    const DIGITS: i32 = 18;
    let digits = (parts.whole.len().max(1) + parts.fraction.len()) as i32;
    let room = match base {
        10 => DIGITS - digits,
        _ if parts.fraction.is_empty() => 15 - digits - exponent * 3 / 10 - 1,
        _ => -1,
    };
    let scale = if base == 10 { exponent } else { 0 };
    room >= 0 && scale.saturating_sub(parts.fraction.len() as i32) >= NANO
}

/// Reports whether upstream shows the text as it was written, as it does with what looks canonical
/// at a glance.
fn is_kept(parts: &QuantityText, base: i32, exponent: i32, quantity: &Quantity) -> bool {
    if !is_short(parts, base, exponent) {
        return false;
    }
    if base == 2 {
        return exponent % 10 == 0 && (quantity.mantissa >> exponent) & 7 != 0;
    }
    let digit = |at: usize| {
        let whole = if parts.whole.is_empty() {
            "0"
        } else {
            parts.whole
        };
        whole.bytes().chain(parts.fraction.bytes()).nth(at)
    };
    let length = parts.whole.len().max(1) + parts.fraction.len();
    let ends_in_thousands = length >= 3 && (length - 3..length).all(|at| digit(at) == Some(b'0'));
    quantity.scale % 3 == 0 && !ends_in_thousands && digit(0) != Some(b'0')
}

/// The digits as a number, and how many of the last were dropped to fit.
fn mantissa(whole: &str, fraction: &str) -> (i128, i32) {
    let mut value: i128 = 0;
    let mut dropped = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        match value
            .checked_mul(10)
            .and_then(|value| value.checked_add((digit - b'0').into()))
        {
            Some(next) if dropped == 0 => value = next,
            _ => dropped += 1,
        }
    }
    (value, dropped)
}

/// Splits the text as upstream's scanner does, which accepts more than its regular expression.
fn split(text: &str) -> Result<QuantityText<'_>, QuantityError> {
    let negative = text.starts_with('-');
    let rest = text
        .strip_prefix(['+', '-'])
        .unwrap_or(text)
        .trim_start_matches('0');
    let (whole, rest) = take(rest, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, tail) = take(suffix, |c| "eEinumkKMGTP".contains(c));
    let tail = tail.strip_prefix(['+', '-']).unwrap_or(tail);
    if tail.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(QuantityText {
            negative,
            whole,
            fraction,
            suffix,
        })
    } else {
        Err(QuantityError::Format)
    }
}

/// Splits `text` where `wanted` stops.
fn take(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !wanted(c)).unwrap_or(text.len()))
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The base, exponent and format that a suffix stands for.
fn interpret(suffix: &str) -> Option<(i32, i32, Format)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((10, *exponent, Format::DecimalSi));
    }
    if let Some(index) = BINARY.iter().position(|name| *name == suffix) {
        return Some((2, (index as i32 + 1) * 10, Format::BinarySi));
    }
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .filter(|exponent| !exponent.is_empty())?;
    // Upstream reads 64 bits and keeps 32.
    exponent
        .parse::<i64>()
        .ok()
        .map(|exponent| (10, exponent as i32, Format::DecimalExponent))
}

/// The canonical form: the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let (mut value, true) = self.at_scale(0)
            && value.abs() >= 1024
        {
            let mut suffix = "";
            for name in BINARY {
                if value.abs() < 1024 || value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = name;
            }
            return write!(f, "{value}{suffix}");
        }
        let (mut mantissa, mut scale) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            scale += 1;
        }
        while scale % 3 != 0 {
            mantissa = mantissa.saturating_mul(10);
            scale -= 1;
        }
        match self.format {
            Format::DecimalExponent if scale != 0 => write!(f, "{mantissa}e{scale}"),
            Format::DecimalExponent => write!(f, "{mantissa}"),
            // Beyond the table upstream writes no suffix.
            _ => write!(
                f,
                "{mantissa}{}",
                DECIMAL
                    .iter()
                    .find(|(_, exponent)| *exponent == scale)
                    .map_or("", |(name, _)| name)
            ),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By value; the format does not matter.
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.min(other.scale);
        self.at_scale(scale).0.cmp(&other.at_scale(scale).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_as_upstream_shows_them() {
        let table = [
            ("0", "0"),
            ("00", "0"),
            ("1000m", "1"),
            ("1100m", "1100m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("0.001", "1m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("8Gi", "8Gi"),
            ("512Ki", "512Ki"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1000k", "1M"),
            ("12e6", "12e6"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("10e2", "1e3"),
            ("1e2", "100"),
            ("0.1Ki", "102400m"),
            ("0.5Ki", "512"),
            ("-1", "-1"),
            ("-1000m", "-1"),
            ("+5", "+5"),
            ("0.0000000001", "1n"),
            ("0.1n", "1n"),
            ("9223372036854775808Ki", "9223372036854775807"),
            ("9Ei", "9223372036854775807"),
            // Upstream has no suffix for 10^21 and writes none.
            ("1000000000000000000000", "1"),
            (" 2 ", "2"),
            ("2Gi", "2Gi"),
            ("01", "01"),
        ];
        for (text, want) in table {
            assert_eq!(Quantity::normalise(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn malformed_quantities_are_refused_with_upstreams_words() {
        use QuantityError::*;
        let table = [
            ("", Format),
            ("true", Format),
            ("1 Gi", Format),
            ("1x", Format),
            ("1mi", Suffix),
            ("1e", Suffix),
            ("1kk", Suffix),
            ("Q", Format),
        ];
        for (text, want) in table {
            assert_eq!(Quantity::parse(text).err(), Some(want), "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value_and_round_up() {
        let parse = |text| Quantity::parse(text).expect("a quantity");
        assert_eq!(parse("1000m"), parse("1"));
        assert!(parse("1Gi") > parse("1G"));
        assert!(parse("-1") < parse("0"));
        assert!(parse("1e300") > parse("1Ei"));
        assert_eq!(parse("1500m").value(), 2);
        assert_eq!(parse("0.0001").milli_value(), 1);
        assert_eq!(parse("1Ki").as_i64(), Some(1024));
        assert_eq!(parse("1500m").as_i64(), None);
        let mut sum = parse("500m");
        sum.add(&parse("1.5"));
        assert_eq!(sum.to_string(), "2");
        sum.sub(&parse("3"));
        assert_eq!((sum.to_string().as_str(), sum.sign()), ("-1", -1));
        let mut fine = parse("1.00001");
        assert!(!fine.round_up(MILLI));
        assert_eq!(fine.to_string(), "1001m");
    }
}
