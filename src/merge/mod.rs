//! Field paths and sets, field managers, and every way to patch. Pure functions: schema and objects in, objects out.
