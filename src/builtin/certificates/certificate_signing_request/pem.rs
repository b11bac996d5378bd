//! Requests for certificates, and certificates, in PEM.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::auth::authn::certificate_request;

fn blocks(text: &[u8]) -> impl Iterator<Item = Pem> + '_ {
    Pem::iter_from_buffer(text).filter_map(Result::ok)
}

/// Describes what is wrong with a request: its form, or its signature.
pub fn request_problem(text: &[u8]) -> Option<String> {
    let der = match certificate_request::der(text) {
        Ok(der) => der,
        Err(why) => return Some(why),
    };
    let Ok((rest, request)) = X509CertificationRequest::from_der(&der) else {
        return Some("asn1: structure error: tags don't match".to_owned());
    };
    if !rest.is_empty() {
        return Some("asn1: syntax error: trailing data".to_owned());
    }
    let info = &request.certification_request_info;
    let key = info.subject_pki.subject_public_key.data.as_ref();
    let (signature, signed) = (request.signature_value.data.as_ref(), info.raw);
    let algorithms = algorithms(&request.signature_algorithm.algorithm.to_id_string());
    if algorithms.is_empty() {
        return Some("x509: cannot verify signature: algorithm unimplemented".to_owned());
    }
    let verified = algorithms.iter().any(|one| {
        UnparsedPublicKey::new(*one, key)
            .verify(signed, signature)
            .is_ok()
    });
    (!verified).then(|| "x509: signature verification failed".to_owned())
}

/// The algorithms behind an object identifier: for ECDSA one for each curve.
fn algorithms(oid: &str) -> Vec<&'static dyn VerificationAlgorithm> {
    match oid {
        "1.2.840.113549.1.1.11" => vec![&RSA_PKCS1_2048_8192_SHA256],
        "1.2.840.113549.1.1.12" => vec![&RSA_PKCS1_2048_8192_SHA384],
        "1.2.840.113549.1.1.13" => vec![&RSA_PKCS1_2048_8192_SHA512],
        "1.2.840.10045.4.3.2" => vec![&ECDSA_P256_SHA256_ASN1, &ECDSA_P384_SHA256_ASN1],
        "1.2.840.10045.4.3.3" => vec![&ECDSA_P384_SHA384_ASN1, &ECDSA_P256_SHA384_ASN1],
        "1.2.840.10045.4.3.4" => vec![&ECDSA_P521_SHA512_ASN1],
        "1.3.101.112" => vec![&ED25519],
        _ => Vec::new(),
    }
}

/// Describes what is wrong with a chain of certificates, if anything.
pub fn chain_problem(text: &[u8]) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let mut count = 0;
    for block in blocks(text) {
        if block.label != "CERTIFICATE" {
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.label
            ));
        }
        if X509Certificate::from_der(&block.contents).is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
        count += 1;
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}
