//! Sets of fields as tries of path elements, and their FieldsV1 form (structured-merge-diff
//! `fieldpath.Set`).

use std::borrow::Cow;
use std::cmp::Ordering;

use super::path::{FieldPath, PathElement};
use super::topology::Ty;
use crate::codec::json::{self, Lexer};
use crate::meta::{Map, Value};

/// Maximum nesting depth of FieldsV1. Deeper ones are refused as broken.
const MAX_DEPTH: usize = 10_000;
/// Room for the JSON of most sets, in bytes.
const ENCODED_BYTES: usize = 1024;

/// A set of fields. A field and what is below it are members independently of one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a> {
    /// Sorted by element, each element once; a node is a member or has nodes below it.
    nodes: Vec<Node<'a>>,
}

/// A field and the part of a set that is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    pub element: PathElement<'a>,
    /// True if the field itself is in the set.
    pub member: bool,
    pub children: Set<'a>,
}

impl<'a> Set<'a> {
    /// The set of nothing.
    pub const EMPTY: Self = Self { nodes: Vec::new() };

    /// A set of nodes in any order, each element once. Empty nodes are left out.
    pub fn from_nodes(mut nodes: Vec<Node<'a>>) -> Self {
        nodes.retain(Node::holds);
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
        }
        Self { nodes }
    }

    pub fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes
            .binary_search_by(|node| node.element.cmp(element))
    }

    pub fn get(&self, element: &PathElement) -> Option<&Node<'a>> {
        self.position(element).ok().map(|at| &self.nodes[at])
    }

    /// Adds the field at `path`. The root itself is never in a set.
    pub fn insert(&mut self, path: &[PathElement<'a>]) {
        let [first, rest @ ..] = path else { return };
        let at = self.position(first).unwrap_or_else(|at| {
            self.nodes.insert(
                at,
                Node {
                    element: first.clone(),
                    member: false,
                    children: Set::default(),
                },
            );
            at
        });
        match rest {
            [] => self.nodes[at].member = true,
            _ => self.nodes[at].children.insert(rest),
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// Adds everything that is in `other`.
    pub fn add(&mut self, other: Set<'a>) {
        if self.nodes.is_empty() {
            self.nodes = other.nodes;
            return;
        }
        if other.nodes.is_empty() {
            return;
        }
        let mut merged = Vec::with_capacity(self.nodes.len() + other.nodes.len());
        let mut theirs = other.nodes.into_iter().peekable();
        for mut node in std::mem::take(&mut self.nodes) {
            while let Some(earlier) = theirs.next_if(|other| other.element < node.element) {
                merged.push(earlier);
            }
            if let Some(same) = theirs.next_if(|other| other.element == node.element) {
                node.member |= same.member;
                node.children.add(same.children);
            }
            merged.push(node);
        }
        merged.extend(theirs);
        self.nodes = merged;
    }

    /// Returns the fields that are in both sets.
    pub fn intersection(&self, other: &Set) -> Set<'a> {
        let mut nodes = Vec::new();
        for (mine, theirs) in common(&self.nodes, &other.nodes) {
            let node = Node {
                element: mine.element.clone(),
                member: mine.member && theirs.member,
                children: mine.children.intersection(&theirs.children),
            };
            if node.holds() {
                nodes.push(node);
            }
        }
        Set { nodes }
    }

    /// Takes out the fields that are in `other`; what is below them stays unless it is in `other`
    /// as well.
    pub fn subtract(&mut self, other: &Set) {
        self.take_out(other, false);
    }

    /// Takes out the fields that are in `other` and everything below them.
    pub fn subtract_recursively(&mut self, other: &Set) {
        self.take_out(other, true);
    }

    fn take_out(&mut self, other: &Set, recursively: bool) {
        if other.nodes.is_empty() {
            return;
        }
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while theirs
                .next_if(|other| other.element < node.element)
                .is_some()
            {}
            let Some(same) = theirs.peek().filter(|other| other.element == node.element) else {
                return true;
            };
            if same.member {
                node.member = false;
                if recursively {
                    return false;
                }
            }
            node.children.take_out(&same.children, recursively);
            node.holds()
        });
    }

    /// The part of the set that is on the way to or below one of the paths; `*` in a path stands
    /// for any element.
    #[must_use]
    pub fn only(mut self, paths: &[&[&str]]) -> Self {
        self.nodes.retain_mut(|node| {
            let matching = paths.iter().filter_map(|path| path.split_first());
            let matching = matching
                .filter(|(first, _)| **first == "*" || node.element == PathElement::Field(first));
            let rests: Vec<&[&str]> = matching.map(|(_, rest)| rest).collect();
            if !rests.iter().any(|rest| rest.is_empty()) {
                node.children = std::mem::take(&mut node.children).only(&rests);
            }
            !rests.is_empty() && node.holds()
        });
        self
    }

    /// The set with every declared struct field that has something below it as a member itself:
    /// what ownership of a part says about the whole (upstream's `EnsureNamedFieldsAreMembers`).
    #[must_use]
    pub fn with_named_fields(mut self, ty: Option<Ty<'_>>) -> Self {
        let atom = ty.map(Ty::atom).unwrap_or_default();
        for node in self
            .nodes
            .iter_mut()
            .filter(|node| !node.children.is_empty())
        {
            let below = match &node.element {
                PathElement::Field(name) => {
                    let declared = atom.map.and_then(|map| map.declared(name));
                    node.member |= declared.is_some();
                    declared.or(atom.map.and_then(|map| map.element))
                }
                PathElement::Key(_) => atom.list.map(|list| list.element),
                _ => None,
            };
            node.children = std::mem::take(&mut node.children).with_named_fields(below);
        }
        self
    }

    /// The members that have no member below them.
    #[must_use]
    pub fn leaves(&self) -> Set<'a> {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        });
        Set {
            nodes: nodes.collect(),
        }
    }

    /// Every member, those of a level before those below it.
    pub fn paths(&self) -> Vec<FieldPath<'a>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement<'a>>, paths: &mut Vec<FieldPath<'a>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            paths.push(FieldPath(path));
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// The FieldsV1 object.
    pub fn encode(&self) -> Map {
        if self.depth() > Map::MAX_RAW_DEPTH {
            return self.encode_map(false);
        }
        let mut out = Vec::with_capacity(ENCODED_BYTES);
        self.write(false, &mut String::new(), &mut out);
        String::from_utf8(out)
            .map(Map::from_raw_json)
            .unwrap_or_else(|_| self.encode_map(false))
    }

    fn depth(&self) -> usize {
        1 + self
            .nodes
            .iter()
            .map(|node| node.children.depth())
            .max()
            .unwrap_or(0)
    }

    /// Appends the FieldsV1 object as JSON. `key` is room to write keys in.
    fn write(&self, itself: bool, key: &mut String, out: &mut Vec<u8>) {
        out.push(b'{');
        if itself && !self.nodes.is_empty() {
            out.extend_from_slice(b"\".\":{},");
        }
        for node in &self.nodes {
            key.clear();
            node.element.write_key(key);
            json::write_string(key, out);
            out.push(b':');
            node.children.write(node.member, key, out);
            out.push(b',');
        }
        out.pop_if(|byte| *byte == b',');
        out.push(b'}');
    }

    fn encode_map(&self, itself: bool) -> Map {
        let mut out = Map::with_capacity(self.nodes.len() + usize::from(itself));
        if itself && !self.nodes.is_empty() {
            out.insert(".", Value::Object(Map::new()));
        }
        for node in &self.nodes {
            out.insert(
                node.element.to_key(),
                Value::Object(node.children.encode_map(node.member)),
            );
        }
        out
    }

    /// Reads a FieldsV1 object. Elements of an unknown kind are passed over; anything else that is
    /// wrong is an error.
    ///
    /// # Errors
    /// The reason that the object is no FieldsV1.
    pub fn decode(value: &'a Value) -> Result<Self, String> {
        let text = value.as_object().and_then(Map::raw_json);
        let decoded = match text.map(|text| decode_text(&mut Lexer::new(text), MAX_DEPTH)) {
            Some(Some(decoded)) => decoded,
            _ => decode(value, MAX_DEPTH),
        };
        decoded.map(|(set, _)| set.unwrap_or_default())
    }
}

impl Node<'_> {
    fn holds(&self) -> bool {
        self.member || !self.children.is_empty()
    }
}

/// The nodes that both have, in order.
fn common<'n, 'a, 'b>(
    left: &'n [Node<'a>],
    right: &'n [Node<'b>],
) -> impl Iterator<Item = (&'n Node<'a>, &'n Node<'b>)> {
    let (mut i, mut j) = (0, 0);
    std::iter::from_fn(move || {
        while let (Some(a), Some(b)) = (left.get(i), right.get(j)) {
            let order = a.element.cmp(&b.element);
            i += usize::from(order != Ordering::Greater);
            j += usize::from(order != Ordering::Less);
            if order == Ordering::Equal {
                return Some((a, b));
            }
        }
        None
    })
}

/// The set below a FieldsV1 key, if there is any, and whether the key itself is a member.
type Decoded<'a> = Result<(Option<Set<'a>>, bool), String>;

fn decode(value: &Value, depth: usize) -> Decoded<'_> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok((None, true)),
        _ => return Err("expect { or n".to_owned()),
    };
    if depth == 0 {
        return Err("exceeded max depth".to_owned());
    }
    let mut set = Set {
        nodes: Vec::with_capacity(map.len()),
    };
    let mut itself = false;
    for (key, below) in map {
        if key == "." {
            itself = true;
            continue;
        }
        let Some(element) = PathElement::parse(key)? else {
            continue;
        };
        let (children, member) = decode(below, depth - 1)?;
        // Most sets come in order.
        if set.nodes.last().is_none_or(|last| last.element < element) {
            set.nodes.push(Node {
                element,
                member,
                children: children.unwrap_or_default(),
            });
            continue;
        }
        match set.position(&element) {
            Err(at) => set.nodes.insert(
                at,
                Node {
                    element,
                    member,
                    children: children.unwrap_or_default(),
                },
            ),
            Ok(at) => {
                let node = &mut set.nodes[at];
                node.member |= member;
                node.children = children.unwrap_or_else(|| std::mem::take(&mut node.children));
            }
        }
    }
    Ok(if set.is_empty() {
        (None, true)
    } else {
        (Some(set), itself)
    })
}

/// [`decode`] of the text of a set in order, as nearly all are; `None` for any other.
fn decode_text<'a>(lexer: &mut Lexer<'a>, depth: usize) -> Option<Decoded<'a>> {
    if lexer.peek() != b'{' || depth == 0 {
        return None;
    }
    let mut set = Set::default();
    let mut itself = false;
    lexer.enter();
    while let Some(key) = lexer.next_key() {
        if key == "." {
            lexer.skip();
            itself = true;
            continue;
        }
        let element = match &key {
            Cow::Borrowed(key) => PathElement::parse(key),
            Cow::Owned(key) => PathElement::parse_passing(key)?,
        };
        let element = element.ok()??;
        let (children, member) = decode_text(lexer, depth - 1)?.ok()?;
        if set.nodes.last().is_some_and(|last| last.element >= element) {
            return None;
        }
        set.nodes.push(Node {
            element,
            member,
            children: children.unwrap_or_default(),
        });
    }
    Some(Ok(if set.is_empty() {
        (None, true)
    } else {
        (Some(set), itself)
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::meta::{json, on_deep_stack};

    fn set(fields: &Value) -> Set<'_> {
        Set::decode(fields).expect("FieldsV1")
    }

    #[test]
    fn members_and_what_is_below_are_told_apart() {
        let fields = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}, "v:1": {}});
        let set = set(&fields);
        assert_eq!(Value::Object(set.encode()), fields);
        let paths: Vec<String> = set.paths().iter().map(ToString::to_string).collect();
        assert_eq!(paths, [".a", "[=1]", ".a.b", ".c.d"]);
        assert!(!set.has(&[PathElement::Field("c")]));
    }

    #[test]
    fn unordered_field_sets_are_sorted() {
        let fields = json!({"f:b": {}, "f:a": {"f:y": {}, "f:x": null}, "x:unknown": {"f:z": {}}});
        assert_eq!(
            serde_json::to_string(&set(&fields).encode()).expect("JSON"),
            r#"{"f:a":{"f:x":{},"f:y":{}},"f:b":{}}"#
        );
    }

    #[test]
    fn broken_fields_are_refused() {
        for fields in [
            json!({"f": {}}),
            json!({"f:a": "x"}),
            json!([]),
            json!({"f:a": {"k:x": {}}}),
        ] {
            assert!(Set::decode(&fields).is_err(), "{fields}");
        }
        on_deep_stack(|| {
            let deep =
                (1..MAX_DEPTH).fold(json!({}), |below, _| Value::from_iter([("f:a", below)]));
            assert_eq!(
                Set::decode(&deep).map(|set| Value::Object(set.encode())),
                Ok(deep.clone())
            );
            assert!(Set::decode(&Value::from_iter([("f:a", deep)])).is_err());
        });
    }

    #[test]
    fn sets_combine() {
        let left = json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}});
        let right = json!({"f:a": {"f:c": {}}, "f:d": {".": {}, "f:e": {}}});
        let both = json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {".": {}, "f:e": {}}});
        let (left, right) = (set(&left), set(&right));
        let mut sum = left.clone();
        sum.add(right.clone());
        assert_eq!(Value::Object(sum.encode()), both);
        assert_eq!(
            Value::Object(left.intersection(&right).encode()),
            json!({"f:a": {"f:c": {}}, "f:d": {}})
        );
        let mut rest = left.clone();
        rest.subtract(&right);
        assert_eq!(
            Value::Object(rest.encode()),
            json!({"f:a": {".": {}, "f:b": {}}})
        );
        let mut rest = right;
        rest.subtract_recursively(&left);
        assert_eq!(Value::Object(rest.encode()), json!({}));
        assert_eq!(
            Value::Object(left.leaves().encode()),
            json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})
        );
    }

    prop_compose! {
        fn element()(kind in 0..4, name in "[a-c<\"é]{0,2}", number in -3i64..3) -> String {
            match kind {
                0 => format!("f:{name}"),
                1 => PathElement::key(vec![("k".into(), std::borrow::Cow::Owned(name.into()))]).to_key(),
                2 => format!("v:{number}"),
                _ => format!("i:{number}"),
            }
        }
    }

    fn fields() -> impl Strategy<Value = Value> {
        Just(json!({})).prop_recursive(4, 32, 4, |inner| {
            prop::collection::vec(
                (
                    prop_oneof![4 => element(), 1 => Just(".".to_owned())],
                    inner,
                ),
                0..4,
            )
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(555), ..ProptestConfig::default() })]

        #[test]
        fn fields_survive_a_round_trip(fields in fields()) {
            let first = set(&fields).encode();
            let again = Value::Object(first.clone());
            prop_assert_eq!(Value::Object(set(&again).encode()), Value::Object(first));
        }

        #[test]
        fn union_and_difference_undo_one_another(a in fields(), b in fields()) {
            let (a, b) = (set(&a), set(&b));
            let mut sum = a.clone();
            sum.add(b.clone());
            let mut swapped = b.clone();
            swapped.add(a.clone());
            prop_assert_eq!(&sum, &swapped);
            prop_assert_eq!(sum.intersection(&a), a.clone());
            sum.subtract(&b);
            let mut only_a = a.clone();
            only_a.subtract(&b);
            prop_assert_eq!(sum, only_a);
        }
    }
}
