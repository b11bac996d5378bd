//! YAML to trees, by the rules of `sigs.k8s.io/yaml`.
