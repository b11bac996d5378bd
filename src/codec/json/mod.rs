//! JSON as Go's `encoding/json` and `sigs.k8s.io/json` read and write it. `serde_json` has neither
//! their errors nor duplicate fields, and escapes other characters.

mod decode;
mod encode;
mod escape;
mod indent;
mod lexer;
mod reader;
mod scan;
mod tree;

pub use decode::decode;
pub use encode::{encode, encode_value, text_of};
pub(super) use encode::{write_f64, write_i64};
pub use escape::write_string;
pub(super) use escape::{compact_part, write_part};
pub use indent::{Indenter, indent};
pub use reader::Reader;
pub use tree::parse;

use super::{DecodeError, Decoded, text};
use crate::meta::Map;
use crate::meta::go;
use crate::schema::TypeRef;
pub use lexer::Lexer;

/// The depth to which JSON may nest (Go's `encoding/json`).
pub const MAX_DEPTH: usize = 10_000;

/// Bytes that are well-formed JSON.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a>(&'a [u8]);

/// The apiVersion and kind of a document, before its type is known. Both are empty where the
/// document has none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}

impl<'a> Document<'a> {
    /// Checks the syntax of the whole document. In strings, bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// Go's syntax errors, such as `invalid character 'o' in literal null (expecting 'u')`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        scan::check(bytes).map(|()| Self(bytes))
    }

    /// The `apiVersion` and `kind` at the top. As upstream's `SimpleMetaFactory`, this does not
    /// mind the case of the keys.
    ///
    /// # Errors
    /// Go's type errors, where one of the two is not a string or the document not an object.
    pub fn type_meta(self) -> Result<TypeMeta, DecodeError> {
        const STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let mut out = TypeMeta::default();
        let text = text(self.0);
        let mut lexer = Lexer::new(&text);
        match lexer.peek() {
            b'{' => {}
            b'n' => return Ok(out),
            other => {
                let found = lexer::type_name(other);
                return Err(DecodeError(format!(
                    "json: cannot unmarshal {found} into Go value of type {STRUCT}"
                )));
            }
        }
        let mut error = None;
        lexer.enter();
        while let Some(key) = lexer.next_key() {
            let (slot, name) = match fold(&key).as_str() {
                "apiversion" => (&mut out.api_version, "apiVersion"),
                "kind" => (&mut out.kind, "kind"),
                _ => {
                    lexer.skip();
                    continue;
                }
            };
            match lexer.peek() {
                b'"' => *slot = lexer.string().into_owned(),
                b'n' => {
                    lexer.skip();
                }
                other => {
                    let found = lexer::type_name(other);
                    lexer.skip();
                    error.get_or_insert_with(|| {
                        DecodeError(format!("json: cannot unmarshal {found} into Go struct field .{name} of type string"))
                    });
                }
            }
        }
        error.map_or(Ok(out), Err)
    }

    /// Decodes the document as an object of a type; see [`decode`].
    ///
    /// # Errors
    /// Malformed JSON, a value that does not fit its type, or a bound that is exceeded.
    pub fn decode(self, ty: TypeRef) -> Result<Decoded, DecodeError> {
        decode::run(&text(self.0), ty)
    }

    /// The text of an object that [`encode_value`] would write just so, as far as can be told at a
    /// glance: one of plain ASCII without white space, in which nothing but quotes is escaped, and
    /// not too deep for [`Map::from_raw_json`].
    pub fn canonical_object(self) -> Option<&'a str> {
        let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
        for &byte in self.0 {
            match byte {
                _ if escaped && byte != b'"' => return None,
                _ if escaped => escaped = false,
                b'"' => in_string = !in_string,
                b'\\' => escaped = true,
                b'<' | b'>' | b'&' => return None,
                0x21..=0x7e | b' ' if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b':' | b',' => {}
                // Numbers have several forms.
                _ => return None,
            }
            if depth > Map::MAX_RAW_DEPTH {
                return None;
            }
        }
        str::from_utf8(self.0)
            .ok()
            .filter(|text| text.starts_with('{'))
    }

    /// The document as a tree without a type, without looking for duplicates.
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn value(self) -> Result<crate::meta::Value, DecodeError> {
        tree::value(&mut Lexer::new(&text(self.0)), 0)
    }

    /// The document as a tree without a type; see [`parse`].
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn parse(self) -> Result<(crate::meta::Value, Vec<String>), DecodeError> {
        tree::run(&text(self.0))
    }
}

/// Lower case, with the two letters beyond ASCII that Go folds into it.
fn fold(key: &str) -> String {
    key.chars()
        .map(|c| match c {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

/// Returns the number of bytes at the start of `rest` that a string has as they are: up to a quote,
/// backslash or control character.
fn plain_length(rest: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    // Eight bytes at a time: the lowest high bit that stays marks the first byte to stop at.
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = 0;
    while let Some(chunk) = rest.get(at..at + 8).and_then(|chunk| chunk.try_into().ok()) {
        let word = u64::from_le_bytes(chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let found = control
            | zero_byte(word ^ (ONES * b'"' as u64))
            | zero_byte(word ^ (ONES * b'\\' as u64));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let tail = rest.get(at..).unwrap_or_default();
    at + tail
        .iter()
        .position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20)
        .unwrap_or(tail.len())
}

/// A byte as Go's syntax errors show it.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => r#"'"'"#.to_owned(),
        byte => format!(
            "'{}'",
            go::quote(&(byte as char).to_string()).trim_matches('"')
        ),
    }
}

#[cfg(test)]
mod tests;
