//! Quantities: parsing, canonical form, comparison (apimachinery `api/resource`).
