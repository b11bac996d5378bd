//! One of the `x-kubernetes-validations` of a schema.

use crate::meta::{Value, json};
use crate::registry::validation::Fields;

/// A CEL rule with the message of its violations.
#[derive(Debug, Default, Clone)]
pub struct ValidationRule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

impl ValidationRule {
    pub fn read(tree: &Value) -> Self {
        Self {
            rule: tree.str("rule").to_owned(),
            message: tree.str("message").to_owned(),
            message_expression: tree.str("messageExpression").to_owned(),
            reason: tree.opt_str("reason").map(str::to_owned),
            field_path: tree.str("fieldPath").to_owned(),
            optional_old_self: tree.opt_flag("optionalOldSelf"),
        }
    }

    /// The rule in messages: its own message, or its expression.
    pub fn shown_in_errors(&self) -> &str {
        match self.message.trim() {
            "" => self.rule.trim(),
            message => message,
        }
    }

    /// The rule as errors show it: upstream prints its internal type.
    pub fn go_value(&self) -> Value {
        json!({
            "Rule": self.rule,
            "Message": self.message,
            "MessageExpression": self.message_expression,
            "Reason": self.reason,
            "FieldPath": self.field_path,
            "OptionalOldSelf": self.optional_old_self,
        })
    }
}
