//! Indents compact JSON as Go's `json.Indent` does, piece by piece. Knows bytes, not values.

/// Spaces for each level.
const STEP: usize = 2;

/// The state at the end of a piece of a document.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    depth: usize,
    within: Container,
    /// A bracket was opened and nothing came after it yet.
    opened: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Container {
    #[default]
    Nothing,
    Text,
    /// The next byte of a text is escaped.
    Escape,
}

impl Indenter {
    /// Appends the next piece of a document, indented. Whitespace between values goes; a newline
    /// behind the document stays.
    pub fn indent(&mut self, compact: &[u8], out: &mut Vec<u8>) {
        out.reserve(compact.len() + compact.len() / 2);
        let mut rest = compact;
        while let [byte, tail @ ..] = rest {
            rest = match self.within {
                Container::Nothing => {
                    self.between(*byte, out);
                    tail
                }
                Container::Text => self.text(rest, out),
                Container::Escape => {
                    out.push(*byte);
                    self.within = Container::Text;
                    tail
                }
            };
        }
    }

    /// A byte outside of texts.
    fn between(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                if self.depth == 0 {
                    out.push(byte);
                }
                return;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if !std::mem::take(&mut self.opened) {
                    self.new_line(out);
                }
                out.push(byte);
                return;
            }
            _ if std::mem::take(&mut self.opened) => self.new_line(out),
            _ => {}
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            b'"' => self.within = Container::Text,
            _ => {}
        }
    }

    /// Copies a text up to its end or the next escape. Returns what is behind that.
    fn text<'a>(&mut self, rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let Some(end) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
            out.extend_from_slice(rest);
            return &[];
        };
        self.within = if rest[end] == b'"' {
            Container::Nothing
        } else {
            Container::Escape
        };
        let (text, rest) = rest.split_at(end + 1);
        out.extend_from_slice(text);
        rest
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + self.depth * STEP, b' ');
    }
}

/// A whole document, indented.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Indenter::default().indent(compact, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Indents the document in one piece, and byte by byte.
    fn check(compact: &str, want: &str) {
        assert_eq!(String::from_utf8_lossy(&indent(compact.as_bytes())), want);
        let (mut indenter, mut out) = (Indenter::default(), Vec::new());
        compact
            .as_bytes()
            .chunks(1)
            .for_each(|byte| indenter.indent(byte, &mut out));
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn indent_puts_each_value_on_a_line() {
        check(
            r#"{"a":[1,{"b":{}}],"c":[],"d":null}"#,
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": [],\n  \"d\": null\n}",
        );
        check(
            "[[],[[true]]]\n",
            "[\n  [],\n  [\n    [\n      true\n    ]\n  ]\n]\n",
        );
        check("\"a\"", "\"a\"");
    }

    #[test]
    fn indent_keeps_strings() {
        check(
            r#"{"a{[,:\"\\":"}]\\\"","b":"\\"}"#,
            "{\n  \"a{[,:\\\"\\\\\": \"}]\\\\\\\"\",\n  \"b\": \"\\\\\"\n}",
        );
    }

    #[test]
    fn indent_is_idempotent() {
        let indented = "{\n  \"a\": [\n    1,\n    \"b c\"\n  ]\n}\n";
        check("{ \"a\" : [1,\t\"b c\" ]\r\n}\n", indented);
        check(indented, indented);
    }
}
