//! Leniencies for pods that were stored before a rule existed (upstream `pkg/api/pod`,
//! GetValidationOptions).

use super::scope::each_container;
use crate::builtin::compute_resources::{is_divisible, is_huge_page};
use crate::meta::{ErrorList, Map, Path, Value, names};
use crate::registry::Context;
use crate::registry::validation::{
    Fields, SelectorOptions, requirement_has_invalid_value, validate_label_selector,
};

pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Reports whether a cost is a 32 bit integer without a plus sign or leading zeros.
pub fn is_deletion_cost(cost: &str) -> bool {
    let digits = cost.strip_prefix('-').unwrap_or(cost);
    let canonical = digits == "0" || !digits.starts_with('0');
    canonical && !cost.starts_with('+') && cost.parse::<i32>().is_ok()
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Invalid values that an update may keep although a new pod may not have them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodValidationOptions {
    /// Selectors of pods may hold values that are no label values.
    pub allow_invalid_selector_values: bool,
    /// Selectors of nodes may hold values that are no label values.
    pub allow_invalid_node_labels: bool,
    /// Selectors of spread constraints may be malformed.
    pub allow_invalid_spread_selector: bool,
    /// Huge pages may come in parts.
    pub allow_indivisible_huge_pages: bool,
    /// The cost of a deletion may be no number.
    pub allow_invalid_deletion_cost: bool,
    /// SELinux labels may be applied with mount options (gate SELinuxMount, off in v1.36).
    pub allow_selinux_mount: bool,
    /// The pod is an object of its own, not a template.
    pub is_pod: bool,
    /// Containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
}

impl PodValidationOptions {
    /// The options for a template that replaces an `old` one.
    pub fn of_templates(ctx: &Context, _new: Option<&Value>, old: Option<&Value>) -> Self {
        let lenient = old
            .and_then(Value::as_object)
            .map_or_else(Self::default, Self::of_old);
        Self {
            allow_privileged: ctx.allow_privileged,
            ..lenient
        }
    }

    /// The options for a pod that replaces an `old` one.
    pub fn of_pods(ctx: &Context, old: Option<&Map>) -> Self {
        Self {
            is_pod: true,
            allow_privileged: ctx.allow_privileged,
            ..old.map_or_else(Self::default, Self::of_old)
        }
    }

    /// Allows what the old pod or template (a struct of metadata and spec) has already.
    fn of_old(old: &Map) -> Self {
        let spec = old.section("spec");
        let cost = old
            .map("metadata")
            .and_then(|metadata| metadata.map("annotations"))
            .and_then(|all| all.opt_str(DELETION_COST));
        Self {
            allow_invalid_selector_values: spec.map("affinity").is_some_and(has_invalid_selector),
            allow_invalid_node_labels: spec.map("affinity").is_some_and(has_invalid_node_label),
            allow_invalid_spread_selector: spec.list("topologySpreadConstraints").iter().any(
                |constraint| {
                    let mut errors = ErrorList::new();
                    validate_label_selector(
                        &mut errors,
                        &Path::default(),
                        constraint.map("labelSelector"),
                        SelectorOptions::default(),
                    );
                    !errors.is_empty()
                },
            ),
            allow_indivisible_huge_pages: has_indivisible_huge_pages(spec),
            allow_invalid_deletion_cost: cost.is_some_and(|cost| !is_deletion_cost(cost)),
            allow_selinux_mount: spec
                .map("securityContext")
                .is_some_and(|context| context.field("seLinuxChangePolicy").is_some()),
            is_pod: false,
            allow_privileged: false,
        }
    }
}

fn has_invalid_selector(affinity: &Map) -> bool {
    ["podAffinity", "podAntiAffinity"]
        .into_iter()
        .filter_map(|kind| affinity.map(kind))
        .any(|pods| {
            let preferred = pods
                .list(PREFERRED)
                .iter()
                .filter_map(|one| one.field("podAffinityTerm"));
            pods.list(REQUIRED).iter().chain(preferred).any(|term| {
                requirement_has_invalid_value(term.map("labelSelector"))
                    || requirement_has_invalid_value(term.map("namespaceSelector"))
            })
        })
}

fn has_invalid_node_label(affinity: &Map) -> bool {
    let required = affinity
        .map("nodeAffinity")
        .and_then(|nodes| nodes.map(REQUIRED));
    required
        .into_iter()
        .flat_map(|selector| selector.list("nodeSelectorTerms"))
        .any(|term| {
            let values = term
                .list("matchExpressions")
                .iter()
                .flat_map(|one| one.list("values"));
            values
                .filter_map(Value::as_str)
                .any(|value| !names::label_value(value).is_empty())
        })
}

fn has_indivisible_huge_pages(spec: &Map) -> bool {
    each_container(spec, &Path::default()).any(|(_, container)| {
        let resources = container.map("resources");
        let amounts = resources
            .into_iter()
            .flat_map(|one| one.entries("limits").chain(one.entries("requests")));
        amounts
            .filter(|(name, _)| is_huge_page(name))
            .any(|(name, amount)| !is_divisible(name, amount))
    })
}
