//! DefaultIngressClass: sets the class of ingresses that name none
//! (`plugin/pkg/admission/network/defaultingressclass`).

use std::cmp::Reverse;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Objects, Operation, Plugin};
use crate::meta::status::Result;
use crate::meta::{Gvr, Object};

/// The newest of the objects that carry one of the annotations with the value `true`; of the same
/// age, the first by name.
pub(super) fn newest_default(all: Vec<Arc<Object>>, annotations: &[&str]) -> Option<Arc<Object>> {
    let marked = |object: &Arc<Object>| {
        let of = object.annotations();
        annotations.iter().any(|key| {
            of.and_then(|of| of.get(key))
                .and_then(|value| value.as_str())
                == Some("true")
        })
    };
    all.into_iter().filter(marked).min_by_key(|object| {
        (
            Reverse(object.creation_timestamp().to_owned()),
            object.name().to_owned(),
        )
    })
}

pub struct DefaultIngressClass(pub Arc<dyn Objects>);

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("networking.k8s.io", "ingresses")
    }

    async fn admit(&self, attributes: &mut Attributes<'_>) -> Result<()> {
        let Some(ingress) = attributes.object_mut() else {
            return Ok(());
        };
        let annotated = ingress
            .annotations()
            .is_some_and(|all| all.contains_key("kubernetes.io/ingress.class"));
        if annotated
            || ingress
                .at("/spec/ingressClassName")
                .is_some_and(|name| name.is_string())
        {
            return Ok(());
        }
        let classes = self
            .0
            .list(&Gvr::new("networking.k8s.io", "v1", "ingressclasses"), "")
            .await?;
        if let Some(class) =
            newest_default(classes, &["ingressclass.kubernetes.io/is-default-class"])
        {
            ingress
                .section_mut("spec")
                .insert("ingressClassName", class.name().into());
        }
        Ok(())
    }
}
