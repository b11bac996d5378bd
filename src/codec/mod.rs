//! Bytes to objects and back, driven by the schema: JSON, YAML, protobuf. No headers, no storage.
