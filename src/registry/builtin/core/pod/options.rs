//! Leniencies for pods that were stored before a rule existed (upstream `pkg/api/pod`, GetValidationOptions).

use serde_json::Value;

/// What an update may keep that a new pod may not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodOptions {
    /// Label selectors may hold values that are no label values.
    pub allow_invalid_selector_values: bool,
    /// The pod is an object of its own, not a template.
    pub is_pod: bool,
}

impl PodOptions {
    /// The options for a template and what it replaces.
    pub fn of_templates(_new: Option<&Value>, _old: Option<&Value>) -> Self {
        Self::default()
    }
}
