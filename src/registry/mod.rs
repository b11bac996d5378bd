//! Resources: what each kind does beyond its schema (Strategy), and the generic store that every verb goes through.

pub mod builtin;
pub mod printers;
pub mod strategy;
pub mod table;
pub mod validation;

pub use strategy::{Context, NameRule, Strategy, Subresource};
