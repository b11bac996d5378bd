//! The Accept header, read as the Go server reads it (goautoneg, then apiserver
//! `handlers/negotiation`; go-restful for the outer check).

/// One alternative of an Accept header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<'a> {
    pub main: &'a str,
    pub sub: &'a str,
    pub quality: f32,
    /// Parameters other than `q`, in the order given.
    pub params: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    /// The value of the parameter `name`, empty where absent.
    pub fn param(&self, name: &str) -> &str {
        self.params
            .iter()
            .rev()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }

    /// Reports whether `media_type` (such as `application/json`) is covered.
    pub fn covers(&self, media_type: &str) -> bool {
        let Some((main, sub)) = media_type.split_once('/') else {
            return false;
        };
        (self.main == main && (self.sub == sub || self.sub == "*"))
            || (self.main == "*" && self.sub == "*")
    }

    /// Reports whether the clause asks for another type of object than the endpoint's own.
    pub fn converts(&self) -> bool {
        self.params
            .iter()
            .any(|(key, _)| matches!(*key, "as" | "g" | "v"))
    }
}

/// The alternatives, best first: by quality, then exact types before wildcards, then in the order
/// given.
pub fn parse(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause> = header.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        let wild = |clause: &Clause| (clause.main == "*", clause.sub == "*");
        b.quality
            .total_cmp(&a.quality)
            .then_with(|| wild(a).cmp(&wild(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';');
    let media_type = parts.next()?.trim();
    let (main, sub) = if media_type == "*" {
        ("*", "*")
    } else {
        media_type.split_once('/')?
    };
    if sub.contains('/') {
        return None;
    }
    let mut clause = Clause {
        main: main.trim(),
        sub: sub.trim(),
        quality: 1.0,
        params: Vec::new(),
    };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match (key.trim(), value.trim()) {
            ("q", value) => clause.quality = value.parse().unwrap_or(0.0),
            param => clause.params.push(param),
        }
    }
    Some(clause)
}

/// The check that go-restful makes before a route runs: it knows exact types and `*/*` only, and no
/// parameters. No header accepts everything.
pub fn route_produces(header: &str, produced: &[&str]) -> bool {
    header.trim().is_empty()
        || header.split(',').any(|part| {
            let media_type = part.split(';').next().unwrap_or("").trim();
            media_type == "*/*" || produced.contains(&media_type)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_clauses_come_first() {
        let order = |header| {
            parse(header)
                .iter()
                .map(|clause| format!("{}/{}", clause.main, clause.sub))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            order("*/*, text/html;q=0.5, application/json"),
            ["application/json", "*/*", "text/html"]
        );
        assert_eq!(
            order("application/yaml, application/json"),
            ["application/yaml", "application/json"]
        );
        assert_eq!(order("nonsense, a/b/c, *"), ["*/*"]);
        assert_eq!(
            order("a/b;q=x, c/d;q=0.1"),
            ["c/d", "a/b"],
            "a quality that is no number is none"
        );
    }

    #[test]
    fn parameters_lose_their_spaces() {
        let clauses = parse("application/json; as=Table ;g=meta.k8s.io;v = v1");
        assert_eq!(
            (
                clauses[0].param("as"),
                clauses[0].param("v"),
                clauses[0].param("sv")
            ),
            ("Table", "v1", "")
        );
        assert!(clauses[0].converts() && clauses[0].covers("application/json"));
    }

    #[test]
    fn routes_know_no_wildcard_subtypes() {
        let produced = ["application/json", "application/yaml"];
        for (header, want) in [
            ("", true),
            ("text/html, */*;q=0.1", true),
            ("application/*", false),
            ("application/json;as=X", true),
        ] {
            assert_eq!(route_produces(header, &produced), want, "{header}");
        }
    }
}
