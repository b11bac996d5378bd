//! Specs and templates of pods: defaults, validation and warnings that pods and workloads share.

pub mod affinity;
pub mod annotations;
pub mod containers;
pub mod defaults;
pub mod env;
pub mod feature_gates;
pub mod image;
pub mod mounts;
pub mod overlaps;
pub mod paths;
pub mod pod_level_resources;
pub mod probes;
pub mod projected;
pub mod scheduling;
pub mod scope;
pub mod security;
pub mod template;
pub mod validation;
pub mod validation_options;
pub mod volume_defaults;
pub mod volume_items;
pub mod volume_sources;
pub mod volumes;
pub mod warnings;
pub mod windows;
