//! The proxy: it hands requests on to other servers, kubelets and extension API servers, and
//! their answers and upgraded connections back (apimachinery `util/proxy`, apiserver `util/proxy`).
//!
//! A [`Transport`] says how servers are reached, and keeps connections to them; a [`Location`] is
//! the URL of one. [`forward`] hands a request on: bodies are streamed, and what a slow reader does
//! not take is not read from the other side. Requests that ask for an upgrade get a connection of
//! their own ([`upgrade`]); afterwards bytes are copied both ways ([`tunnel`]). What clients ask of
//! kubelets over WebSocket is asked over SPDY in their place, if the kubelet knows no better:
//! commands ([`translate`]), and ports ([`spdy_tunnel`]).

mod connector;
mod error;
mod forward;
mod headers;
mod html;
mod inbound;
mod lanes;
mod location;
mod rewrite;
pub mod spdy;
pub mod spdy_tunnel;
pub mod translate;
mod transport;
mod tunnel;
mod upgrade;
pub mod websocket;

pub use connector::Direct;
pub use error::ProxyError;
pub use forward::{Options, forward};
pub use headers::settle_connection;
pub use inbound::{Inbound, Lifetime, RequestBody, ResponseBody, empty, incoming};
pub use location::{Location, Scheme};
pub use rewrite::Front;
pub use transport::{Transport, TransportConfig};
