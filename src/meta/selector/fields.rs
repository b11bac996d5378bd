//! Field selectors: `metadata.name=a,spec.nodeName!=b`.
