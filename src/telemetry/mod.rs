//! Metrics, tracing and health registries; each module declares its own metrics next to its code.
