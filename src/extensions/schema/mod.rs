//! The schemas of custom resources: their JSONSchemaProps, and the pruning, defaulting and
//! validation of objects by them (apiextensions `apiserver/schema`).

pub mod cel_rules;
pub mod cel_schema;
pub mod embedded_resource;
pub mod enumeration;
pub mod field_path;
pub mod formats;
pub mod json_schema_props;
pub mod lazy_path;
pub mod list_type;
pub mod numeric;
pub mod metrics;
pub mod old_value;
pub mod pattern;
pub mod prune_and_default;
pub mod structural;
pub mod validation_rule;
pub mod value_validation;
