//! The embedded store (redb): durable, versioned, one process.
