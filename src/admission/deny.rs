//! Plugins that only refuse: AlwaysDeny refuses everything, DenyServiceExternalIPs new external
//! addresses of services (`plugin/pkg/admission/{deny,network/denyserviceexternalips}`).

use std::collections::HashSet;

use async_trait::async_trait;

use super::{Attributes, Operation, Plugin};
use crate::meta::Value;
use crate::meta::status::Result;

/// Refuses every write.
pub struct AlwaysDeny;

impl AlwaysDeny {
    const WHY: &str = "admission control is denying all modifications";
}

#[async_trait]
impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, _attributes: &Attributes<'_>) -> bool {
        true
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        Err(attributes.forbidden(Self::WHY))
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        Err(attributes.forbidden(Self::WHY))
    }
}

/// Refuses external addresses that a service does not have already.
pub struct DenyServiceExternalIPs;

#[async_trait]
impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is("", "services")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(service) = attributes.object() else {
            return Ok(());
        };
        let had = attributes
            .old
            .map_or(&[][..], |old| old.array_at("/spec/externalIPs"));
        let had: HashSet<&str> = had.iter().filter_map(Value::as_str).collect();
        match service.array_at("/spec/externalIPs").iter().all(|address| {
            address
                .as_str()
                .is_some_and(|address| had.contains(address))
        }) {
            true => Ok(()),
            false => {
                Err(attributes.forbidden("Use of external IPs is denied by admission control"))
            }
        }
    }
}
