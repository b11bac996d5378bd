//! Names of fields that are no identifiers, as expressions write them (apiserver
//! `cel/escaping.go`).

use super::RESERVED;

/// Returns the name that an escaped one stands for: `a__dot__b` for `a.b`. `None` if it is not
/// escaped, or not as it should be.
pub fn unescape(name: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find("__") {
        let (before, from) = rest.split_at(at);
        let inner = from.strip_prefix("__")?;
        let Some(end) = inner
            .find('_')
            .filter(|end| *end > 0 && inner[*end..].starts_with("__"))
        else {
            // Not a sequence: it stays, and the next may begin in it.
            out.push_str(before);
            out.push('_');
            rest = from.strip_prefix('_')?;
            continue;
        };
        out.push_str(before);
        let (content, behind) = inner.split_at(end);
        match content {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && content.len() + 4 == name.len() => {
                out.push_str(word);
            }
            _ => return None,
        }
        rest = behind.strip_prefix("__")?;
    }
    out.push_str(rest);
    (out != name).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_what_no_identifier_has() {
        for (name, want) in [
            ("a__dot__b", Some("a.b")),
            ("a__dash__b__slash__c", Some("a-b/c")),
            ("a__underscores__b", Some("a__b")),
            ("__in__", Some("in")),
            ("x__in__", None),
            ("a__nope__b", None),
            ("a_b", None),
            ("a__b", None),
            ("plain", None),
            ("___dot__", Some("_.")),
        ] {
            assert_eq!(unescape(name).as_deref(), want, "{name}");
        }
    }
}
