//! Certificate signing requests (PKCS #10 in PEM): the subject, read as signers read it (Go's
//! `encoding/pem` and `crypto/x509`). Requests that two readers could understand differently are
//! refused.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::x509::attribute_text;

const LABEL: &str = "CERTIFICATE REQUEST";
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Base64 as Go decodes it: bits behind the last byte do not count.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The error for text that is not a request in PEM (`certificates.ParseCSR`).
pub const NOT_A_REQUEST: &str = "PEM block type must be CERTIFICATE REQUEST";

/// The subject of a certificate request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The last common name, as in Go; empty for none.
    pub common_name: String,
    pub organizations: Vec<String>,
}

/// The DER of the one block of a PEM text. Versions of Go do not agree which of several blocks is
/// the first that is whole, so there may be but one.
///
/// # Errors
/// There is no block or more than one, or it is not a request.
pub fn der(text: &[u8]) -> Result<Vec<u8>, String> {
    block(text).ok_or_else(|| NOT_A_REQUEST.to_owned())
}

fn block(text: &[u8]) -> Option<Vec<u8>> {
    let start = find(text, BEGIN)?;
    let (before, rest) = (text.get(..start)?, text.get(start + BEGIN.len()..)?);
    if !before.is_empty() && !before.ends_with(b"\n") || find(rest, BEGIN).is_some() {
        return None;
    }
    let (label, mut rest) = line(rest);
    if label.strip_suffix(DASHES)? != LABEL.as_bytes() {
        return None;
    }
    // Lines with a colon are headers.
    while !rest.is_empty() {
        let (header, next) = line(rest);
        if !header.contains(&b':') {
            break;
        }
        rest = next;
    }
    let end = find(rest, END)?;
    let (encoded, trailer) = (rest.get(..end)?, line(rest.get(end + END.len()..)?).0);
    if !encoded.is_empty() && !encoded.ends_with(b"\n")
        || trailer.strip_suffix(DASHES)? != LABEL.as_bytes()
    {
        return None;
    }
    let encoded: Vec<u8> = encoded
        .iter()
        .copied()
        .filter(|byte| !b" \t\r\n".contains(byte))
        .collect();
    LENIENT.decode(encoded).ok()
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// The first line without what is blank at its end, and what follows it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => text.split_at(at),
        None => (text, &[][..]),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let blank = line
        .iter()
        .rev()
        .take_while(|byte| b" \t".contains(byte))
        .count();
    (
        line.get(..line.len() - blank).unwrap_or_default(),
        rest.get(1..).unwrap_or_default(),
    )
}

/// Returns the subject of a request in PEM.
///
/// # Errors
/// It is no request, or its common names or organizations are no text.
pub fn subject(text: &[u8]) -> Result<Subject, String> {
    let der = der(text)?;
    let (rest, request) =
        X509CertificationRequest::from_der(&der).map_err(|why| why.to_string())?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    let names = &request.certification_request_info.subject;
    let common_names: Vec<String> = names
        .iter_common_name()
        .map(attribute_text)
        .collect::<Result<_, _>>()
        .map_err(|why| why.to_string())?;
    let organizations = names
        .iter_organization()
        .map(attribute_text)
        .collect::<Result<_, _>>()
        .map_err(|why| why.to_string())?;
    Ok(Subject {
        common_name: common_names.into_iter().next_back().unwrap_or_default(),
        organizations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_STANDARD;
    use rcgen::string::{BmpString, TeletexString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn request(names: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().expect("a key");
        params
            .serialize_request(&key)
            .expect("a request")
            .pem()
            .expect("PEM")
    }

    #[test]
    fn csr_subject_is_read_in_every_string_encoding() {
        let masters = "system:masters";
        for value in [
            DnValue::Utf8String(masters.to_owned()),
            DnValue::TeletexString(TeletexString::try_from(masters).expect("text")),
            DnValue::BmpString(BmpString::try_from(masters).expect("text")),
            // Go drops a terminator.
            DnValue::BmpString(BmpString::try_from("system:masters\0").expect("text")),
        ] {
            let text = request(&[
                (DnType::CommonName, value.clone()),
                (DnType::OrganizationName, value),
            ]);
            let want = Subject {
                common_name: masters.to_owned(),
                organizations: vec![masters.to_owned()],
            };
            assert_eq!(subject(text.as_bytes()), Ok(want));
        }
    }

    #[test]
    fn csr_subject_that_is_not_text_is_refused() {
        let text = request(&[(
            DnType::OrganizationName,
            DnValue::Utf8String("system:masters".to_owned()),
        )]);
        let mut der = der(text.as_bytes()).expect("a request");
        let at = find(&der, b"system:masters").expect("the name") - 2;
        // INTEGER, OCTET STRING, VideotexString, UniversalString, VisibleString.
        for tag in [2, 4, 21, 28, 26] {
            der[at] = tag;
            let text = format!(
                "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
                BASE64_STANDARD.encode(&der)
            );
            assert!(subject(text.as_bytes()).is_err(), "{tag}");
        }
    }

    #[test]
    fn csr_must_be_a_single_pem_block() {
        let good = request(&[(DnType::CommonName, DnValue::Utf8String("good".to_owned()))]);
        let evil = request(&[(DnType::CommonName, DnValue::Utf8String("evil".to_owned()))]);
        let name = |text: &str| subject(text.as_bytes()).map(|subject| subject.common_name);
        let headed = good.replacen("-----\n", "-----\nProc-Type: 4\n\n", 1);
        for text in [
            good.clone(),
            format!("text before\n{good}text behind"),
            good.replace('\n', "\r\n"),
            headed,
        ] {
            assert_eq!(name(&text).as_deref(), Ok("good"), "{text}");
        }
        for text in [
            format!("{good}{evil}"),
            // Some readers take the first, others see that its end is another's.
            format!(
                "{}{evil}",
                good.replace("END CERTIFICATE REQUEST", "END OTHER")
            ),
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{evil}"),
            good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            good.replace("END CERTIFICATE REQUEST", "END OTHER"),
            good.replacen("-----BEGIN", "x-----BEGIN", 1),
            good.replacen("-----END", "x-----END", 1),
            "-----BEGIN CERTIFICATE REQUEST-----\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(name(&text), Err(NOT_A_REQUEST.to_owned()), "{text}");
        }
    }
}
