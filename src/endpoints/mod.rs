//! The request path: request info, routing, negotiation and one handler per verb.

pub mod body;
