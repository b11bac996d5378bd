//! Which strategy a built-in resource has.
