//! Discovery and OpenAPI documents, rendered from the registry.
