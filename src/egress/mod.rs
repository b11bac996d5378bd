//! The ways out of this server (`--egress-selector-config-file`): directly, or through a proxy that
//! is asked to connect (apiserver `server/egressselector`).

mod configuration;
mod http_connect;
pub mod metrics;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::base::dial::{Egress, Way};
use configuration::{Protocol, Selection};
use http_connect::HttpConnect;

/// Reads a file, and returns the ways that it chooses.
///
/// # Errors
/// Upstream's text: it cannot be read or is not valid, or its certificates cannot be used.
pub fn load(path: &Path) -> Result<Egress, String> {
    let shown = path.display();
    if !path.exists() {
        return Err(format!(
            "egress-selector-config-file {shown} does not exist"
        ));
    }
    let bytes = fs::read(path).map_err(|why| {
        format!("failed to read egress selector config: unable to read egress selector configuration from \"{shown}\" [{why}]")
    })?;
    let selections = configuration::read(&bytes)
        .map_err(|why| format!("failed to read egress selector config: {why}"))?;
    let selections = configuration::validate(&selections)
        .map_err(|why| format!("failed to validate egress selector configuration: {why}"))?;
    let mut egress = Egress::default();
    for selection in selections {
        let network = selection.network;
        let way = way(selection).map_err(|why| {
            let name = configuration::name(network);
            format!("failed to setup egress selector: failed to create dialer for egressSelection \"{name}\": {why}")
        })?;
        egress = egress.with(network, way);
    }
    Ok(egress)
}

fn way(selection: Selection) -> Result<Way, String> {
    Ok(match selection.protocol {
        Protocol::Direct => Way::Direct,
        Protocol::HttpConnect(transport) => Way::Through(Arc::new(HttpConnect::new(transport)?)),
        Protocol::Grpc => {
            return Err("the protocol GRPC is not implemented, use HTTPConnect".to_owned());
        }
    })
}
