//! Reconciliation of field sets that were recorded under an older schema with the present one
//! (structured-merge-diff `typed.ReconcileFieldSetWithSchema`).

use super::path::PathElement;
use super::set::{Node, Set};
use super::topology::{Shape, Ty};

/// Replaces the parts of a list or map in `set` by the whole where its type is atomic now. `None`
/// where nothing changes. The other direction is not reconciled: parts of what was owned whole stay
/// owned by nobody.
pub fn reconcile<'a>(set: &Set<'a>, ty: Ty<'_>) -> Option<Set<'a>> {
    let mut now_whole = Set::default();
    collect(Some(ty), set, false, &mut Vec::new(), &mut now_whole);
    if now_whole.is_empty() {
        return None;
    }
    let mut out = set.clone();
    out.subtract_recursively(&now_whole);
    out.add(now_whole);
    Some(out)
}

/// Finds the fields at and below `path` that are owned whole now. `whole` is true if the set
/// already sees it so.
fn collect<'a>(
    ty: Option<Ty<'_>>,
    set: &Set<'a>,
    whole: bool,
    path: &mut Vec<PathElement<'a>>,
    found: &mut Set<'a>,
) {
    let Some(shape) = ty.and_then(|ty| ty.atom().shape()) else {
        return;
    };
    let mut descend = |node: &Node<'a>, ty| {
        path.push(node.element.clone());
        collect(
            Some(ty),
            &node.children,
            node.member && node.children.is_empty(),
            path,
            found,
        );
        path.pop();
    };
    match shape {
        Shape::Scalar(_) => {}
        Shape::Map(map) if map.untyped() => {}
        Shape::List(list) if !list.atomic() => set
            .nodes()
            .iter()
            .for_each(|node| descend(node, list.element)),
        Shape::List(_) if whole => {}
        Shape::List(_) => found.insert(path),
        Shape::Map(map) if !map.atomic => {
            for node in set.nodes() {
                let ty = match &node.element {
                    PathElement::Field(name) => map.type_of(name),
                    _ => map.element,
                };
                if let Some(ty) = ty {
                    descend(node, ty);
                }
            }
        }
        Shape::Map(_) if whole || set.is_empty() => {}
        Shape::Map(_) => found.insert(path),
    }
}
