//! Labels of nodes that are no longer used, and what to say to who still selects by them (upstream
//! `pkg/api/node`).

use crate::meta::{Map, Path, names};
use crate::registry::validation::Fields;

const DEPRECATED: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

/// Returns the warning about a label, if it is deprecated.
pub fn deprecation(label: &str) -> Option<&'static str> {
    DEPRECATED
        .iter()
        .find(|(name, _)| *name == label)
        .map(|(_, text)| *text)
}

/// Warns of such labels in a selector by labels alone; `path` is where a label is shown.
pub fn selector_warnings(
    selector: Option<&Map>,
    path: impl Fn(&str) -> String,
) -> impl Iterator<Item = String> {
    let told = selector
        .into_iter()
        .flat_map(Map::keys)
        .filter_map(|label| Some((label, deprecation(label)?)));
    told.map(move |(label, text)| format!("{}: {text}", path(label)))
}

/// Warns of such labels in one term of a node selector, and of values that no label can have where
/// `values` asks for it.
pub fn term_warnings(warnings: &mut Vec<String>, path: &Path, term: &Map, values: bool) {
    for (index, expression) in term.list("matchExpressions").iter().enumerate() {
        let at = || path.child("matchExpressions").index(index);
        let key = expression.str("key");
        if let Some(text) = deprecation(key) {
            warnings.push(format!("{}: {key} is {text}", at().child("key")));
        }
        if !values {
            continue;
        }
        for (place, value) in expression.list("values").iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            for problem in names::label_value(value) {
                warnings.push(format!(
                    "{}: {value} is invalid, {problem}",
                    at().child("values").index(place)
                ));
            }
        }
    }
}
