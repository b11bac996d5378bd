//! Plugins for certificate signing requests: permissions to approve and to sign for a signer, and
//! subjects that nobody may request (`plugin/pkg/admission/certificates`).

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Attributes, Operation, Plugin};
use crate::auth::authn::certificate_request::{self, Subject};
use crate::auth::authz::{self, Authorizer};
use crate::auth::{MASTERS, User};
use crate::meta::Object;
use crate::meta::go;
use crate::meta::status::Result;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Reports whether `user` may `verb` for `signer`, by its own name or for all of its domain.
pub async fn may(authorizer: &dyn Authorizer, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let attributes = authz::Attributes {
            user: user.clone().into(),
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            resource_request: true,
            ..authz::Attributes::default()
        };
        if authorizer.authorize(&attributes).await.is_allowed() {
            return true;
        }
    }
    false
}

async fn check(authorizer: &dyn Authorizer, attributes: &Attributes<'_>, verb: &str) -> Result<()> {
    // The stored signer decides, not the update's.
    let signer = attributes
        .old
        .map_or("", |old| old.str_at("/spec/signerName"));
    match may(authorizer, attributes.user, verb, signer).await {
        true => Ok(()),
        false => Err(attributes.forbidden(&format!(
            "user not permitted to {verb} requests with signerName {}",
            go::quote(signer)
        ))),
    }
}

fn updates(attributes: &Attributes<'_>, subresource: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.is_any(GROUP, "certificatesigningrequests")
        && attributes.subresource == subresource
}

/// Approving or denying needs the verb `approve` on the signer.
pub struct CertificateApproval(pub Arc<dyn Authorizer>);

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        updates(attributes, "approval")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        check(self.0.as_ref(), attributes, "approve").await
    }
}

/// Setting the certificate or the conditions needs the verb `sign` on the signer.
pub struct CertificateSigning(pub Arc<dyn Authorizer>);

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        updates(attributes, "status")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let same = |new: &Object, old: &Object| {
            new.str_at("/status/certificate") == old.str_at("/status/certificate")
                && new.array_at("/status/conditions") == old.array_at("/status/conditions")
        };
        match (attributes.object(), attributes.old) {
            (Some(new), Some(old)) if same(new, old) => Ok(()),
            _ => check(self.0.as_ref(), attributes, "sign").await,
        }
    }
}

/// No client certificate for the group that may do everything.
pub struct CertificateSubjectRestriction;

/// Returns the subject of a CertificateSigningRequest; an error says what is wrong with it.
pub(super) fn subject(object: &Object) -> std::result::Result<Subject, String> {
    certificate_request::subject(
        &STANDARD
            .decode(object.str_at("/spec/request"))
            .unwrap_or_default(),
    )
}

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && attributes.is(GROUP, "certificatesigningrequests")
    }

    async fn validate(&self, attributes: &Attributes<'_>) -> Result<()> {
        let Some(request) = attributes.object() else {
            return Ok(());
        };
        if request.str_at("/spec/signerName") != CLIENT_SIGNER {
            return Ok(());
        }
        match subject(request) {
            Err(why) => Err(attributes.forbidden(&format!("failed to parse CSR: {why}"))),
            Ok(subject) if subject.organizations.iter().any(|group| group == MASTERS) => {
                Err(attributes.forbidden(&format!(
                    "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
                )))
            }
            Ok(_) => Ok(()),
        }
    }
}
