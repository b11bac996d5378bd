//! Keelson, a drop-in replacement for kube-apiserver. This file knows only the module list, in
//! reading order.
//!
//! A module may use those above it, never those below (`tests/tidy.rs` checks it). ARCHITECTURE.md
//! is the map.

// The filters of a request are one future, nested as deeply as there are filters.
#![recursion_limit = "256"]

mod base;
mod telemetry;
mod meta;
mod cel;
mod schema;
mod codec;
mod merge;
mod storage;
mod cacher;
mod webhook;
mod egress;
mod proxy;
mod auth;
mod audit;
mod flowcontrol;
mod admission;
mod registry;
mod builtin;
mod extensions;
mod discovery;
mod endpoints;
mod options;
mod controlplane;
mod aggregator;
mod controllers;
mod etcd_stand_in;
mod server;
mod library;
mod commands;

pub use commands::{main, main_as};
pub use library::{Builder, Error, Server};

/// The items that tests, benchmarks and fuzz targets outside the crate use. They are no interface:
/// any version may change them.
#[doc(hidden)]
pub mod internals {
    pub mod admission {
        pub use crate::admission::tolerations::{MAX_COMPARED, merge_tolerations};
        pub use crate::admission::{Operation, cel};
    }
    pub mod audit {
        pub use crate::audit::{
            Auditor, Blocking, Format, LogBackend, LogFile, Policy, RequestFacts, RotationSettings,
        };
    }
    pub mod auth {
        pub use crate::auth::User;
        pub use crate::auth::authn::openid::claims::{Claims, user};
        pub use crate::auth::authn::openid::configuration::Configuration as Authentication;
        pub use crate::auth::authn::openid::validation::validate;
        pub use crate::auth::authn::openid::verifier::untrusted_issuer;
        pub mod authn {
            pub use crate::auth::authn::keys::{KeySet, SigningKey};
            pub use crate::auth::authn::service_account::{Issuer, ServiceAccounts, TokenSpec};
            pub use crate::auth::authn::{Authenticator, Chain, Credentials, Options, Peer};
        }
        pub use crate::auth::ObjectSource;
        pub use crate::auth::authn::x509::CaBundle;
        pub use crate::auth::authn::{certificate_request, jwt};
        pub use crate::auth::authz::abac::PolicyList;
        pub use crate::auth::authz::configuration::Configuration as Authorization;
        pub use crate::auth::authz::rule::{Rule, uncovered};
        pub use crate::auth::authz::{
            Attributes, Authorizer, Chain, Decision, Link, PrivilegedGroup, RbacStore,
        };
        pub use crate::auth::cel;
    }
    pub mod base {
        pub use crate::base::clock::Clock;
    }
    pub mod builtin {
        pub use crate::builtin::{printer, strategy};
    }
    pub mod cacher {
        pub use crate::cacher::{
            CachedObject, Cacher, Change, Cursor, CursorError, HistoryLimits, IndexKey, Interest,
            Reflector, Snapshot,
        };
    }
    pub mod cel {
        pub use crate::cel::{
            Environment, PER_CALL_LIMIT, Program, Schema, Type, Value, compile, estimate, plan,
        };
    }
    pub mod codec {
        pub use crate::codec::normalize::{Rules, normalize};
        pub mod json {
            pub use crate::codec::json::{Reader, decode, encode, parse};
        }
        pub mod protobuf {
            pub use crate::codec::protobuf::{
                Message, WithResourceVersion, decode, decode_part, encode, metadata_to_json,
                to_json, unwrap, wrap,
            };
        }
        pub mod yaml {
            pub use crate::codec::yaml::{encode, to_value};
        }
    }
    pub mod extensions {
        pub use crate::extensions::definition::Definition;
        pub use crate::extensions::schema::cel_rules::RuleValidator;
        pub use crate::extensions::schema::cel_schema;
        pub use crate::extensions::schema::json_schema_props::JsonSchemaProps;
        pub use crate::extensions::{Budget, CustomResourceDefinitions, JsonPath, resources};
    }
    pub mod flowcontrol {
        pub use crate::flowcontrol::{
            Controller, FlowSchema, PriorityLevelConfiguration, RequestDetails, RequestDigest,
        };
    }
    pub mod merge {
        pub use crate::merge::set::Set;
        pub use crate::merge::{OneVersion, Ty, Writer, apply, patch, update};
    }
    pub mod meta {
        pub use crate::meta::options::Query;
        pub use crate::meta::selector::FieldReader;
        pub use crate::meta::selector::fields::FieldSelector;
        pub use crate::meta::selector::labels::LabelSelector;
        pub use crate::meta::{Gvk, Gvr, Map, Object, Status, Value, json};
    }
    pub mod options {
        pub use crate::options::{Checked, check};
    }
    pub mod proxy {
        pub use crate::proxy::spdy;
    }
    pub mod registry {
        pub use crate::registry::store::Warnings;
        pub use crate::registry::strategy::{Context, NameRule, Strategy, Subresource};
        pub use crate::registry::table::{Format, IncludeObject, projection, write_partial_of};
        pub use crate::registry::validation::validate_object_meta;
    }
    pub mod schema {
        pub use crate::schema::{TypeRef, builtin};
    }
    pub mod storage {
        pub mod encryption {
            pub use crate::storage::encryption::{Cipher, EncryptedObject, check_configuration};
        }
        pub mod snapshots {
            pub use crate::storage::etcd_snapshot::EtcdSnapshot;
            pub use crate::storage::snapshot::{Entry, Reader};
        }
        pub use crate::storage::compaction::Compactor;
        pub use crate::storage::embedded::Embedded;
        pub use crate::storage::etcd3::{Config, Etcd3};
        pub use crate::storage::{
            ListPage, ListRequest, Result, Revision, Storage, StorageError, Stored, WatchEvent,
            WatchStream, WriteOutcome, next_key,
        };
    }
    pub mod webhook {
        pub use crate::webhook::KubeConfig;
    }
}
