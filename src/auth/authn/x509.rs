//! X.509: verification of client certificates and the users they name, as Go's `crypto/x509` does
//! it. Certificates of version 1 are accepted, which webpki refuses.

use std::sync::{Arc, LazyLock, OnceLock};

use jiff::Timestamp;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use x509_parser::asn1_rs::{Class, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, GeneralSubtree, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_EXT_NAME_CONSTRAINTS, OID_X509_EXT_SUBJECT_ALT_NAME};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Version};

use super::AuthnError;
use crate::auth::User;

/// The maximum number of certificates between a client's and a trusted one.
pub const MAX_INTERMEDIATES: usize = 8;
/// The maximum number of signature checks in search of a chain (as in Go).
pub const MAX_SIGNATURE_CHECKS: usize = 100;

/// The attribute of a subject that is the user's UID (apimachinery `asn1.X509UID`).
const UID_OID: &str = "1.3.6.1.4.1.57683.2";

static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> = LazyLock::new(|| {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
});

/// The signature algorithms that certificates and handshakes may use.
pub fn algorithms() -> &'static WebPkiSupportedAlgorithms {
    &ALGORITHMS
}

/// Trusted authorities. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CaBundle(Arc<[Authority]>);

#[derive(Clone, Debug)]
struct Authority {
    /// Its name in DER, by which issuers are found.
    subject: Vec<u8>,
    der: Vec<u8>,
}

/// A certificate that leads to a trusted authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// The UIDs in the subject: none or one, if all is well.
    pub uids: Vec<String>,
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: String,
    /// The time at which the first certificate of the chain expires.
    pub not_after: Timestamp,
    /// The user that it names, once somebody has asked: all requests of a connection share it.
    pub user: OnceLock<Result<Arc<User>, AuthnError>>,
    /// The time at which the certificate itself expires.
    pub own_not_after: Timestamp,
}

/// The reason a certificate is not accepted, in words for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x509: {0}")]
pub struct X509Error(String);

fn error(message: impl Into<String>) -> X509Error {
    X509Error(message.into())
}

impl CaBundle {
    /// Reads the certificates of a PEM file; other blocks are passed over.
    ///
    /// # Errors
    /// Broken PEM, broken certificates, or none at all.
    pub fn from_pem(pem: &[u8]) -> Result<Self, X509Error> {
        let mut authorities = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|why| error(format!("broken PEM: {why}")))?;
            let subject = parse(&der)?.subject().as_raw().to_vec();
            authorities.push(Authority {
                subject,
                der: der.to_vec(),
            });
        }
        if authorities.is_empty() {
            return Err(error("no certificate found"));
        }
        Ok(Self(authorities.into()))
    }

    /// Reports whether both are what was read at the same time, so that the verdicts of one are
    /// those of the other.
    pub fn is(&self, other: &CaBundle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reports whether an authority is in both.
    pub fn overlaps(&self, other: &CaBundle) -> bool {
        self.0
            .iter()
            .any(|one| other.0.iter().any(|another| one.der == another.der))
    }

    /// Verifies a client's certificate (the first of `presented`, its intermediates behind it) at a
    /// moment.
    ///
    /// # Errors
    /// No chain to an authority; expired, not made for clients, or not understood.
    pub fn verify(
        &self,
        presented: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Verified, X509Error> {
        let (leaf_der, rest) = presented
            .split_first()
            .ok_or_else(|| error("no certificate"))?;
        let leaf = parse(leaf_der)?;
        check_certificate(&leaf, now)?;
        let intermediates: Vec<(&[u8], X509Certificate<'_>)> = rest
            .iter()
            .take(MAX_INTERMEDIATES)
            .filter_map(|der| Some((der.as_ref(), parse(der).ok()?)))
            .collect();
        let mut search = Search {
            bundle: self,
            intermediates: &intermediates,
            now,
            checks: 0,
            reason: None,
        };
        let expires = search.chain(leaf_der, &leaf, &mut Vec::new(), false)?;
        subject_of(&leaf, leaf_der, expires)
    }
}

/// A search for a chain, depth first.
struct Search<'a> {
    bundle: &'a CaBundle,
    intermediates: &'a [(&'a [u8], X509Certificate<'a>)],
    now: Timestamp,
    checks: usize,
    /// The reason the last candidate would not do.
    reason: Option<X509Error>,
}

impl Search<'_> {
    /// The earliest end of validity on a way from `certificate` to an authority; `used` are the
    /// intermediates on it, and `named` says whether a certificate before this one has alternative
    /// names.
    fn chain(
        &mut self,
        der: &[u8],
        certificate: &X509Certificate<'_>,
        used: &mut Vec<usize>,
        named: bool,
    ) -> Result<Timestamp, X509Error> {
        let own_end = not_after(certificate);
        let named = named
            || certificate
                .extensions()
                .iter()
                .any(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
        if self.bundle.0.iter().any(|authority| authority.der == der) {
            return Ok(own_end);
        }
        let issuer = certificate.issuer().as_raw();
        for authority in self
            .bundle
            .0
            .iter()
            .filter(|authority| authority.subject == issuer)
        {
            let parent = parse(&authority.der)?;
            if self.signed_by(der, &parent, used.len(), named) {
                return Ok(own_end.min(not_after(&parent)));
            }
        }
        let intermediates = self.intermediates;
        for (at, (parent_der, parent)) in intermediates.iter().enumerate() {
            if used.contains(&at)
                || parent.subject().as_raw() != issuer
                || !self.signed_by(der, parent, used.len(), named)
            {
                continue;
            }
            used.push(at);
            let end = self.chain(parent_der, parent, used, named);
            used.pop();
            if let Ok(end) = end {
                return Ok(own_end.min(end));
            }
        }
        Err(self
            .reason
            .clone()
            .unwrap_or_else(|| error("certificate signed by unknown authority")))
    }

    /// Reports whether `parent`, with `below` authorities between it and the client's certificate,
    /// of which some have alternative names if `named`, signed the certificate `der`.
    fn signed_by(
        &mut self,
        der: &[u8],
        parent: &X509Certificate<'_>,
        below: usize,
        named: bool,
    ) -> bool {
        if self.checks >= MAX_SIGNATURE_CHECKS {
            self.reason = Some(error(
                "signature check attempts limit reached while verifying certificate chain",
            ));
            return false;
        }
        self.checks += 1;
        let allowed = check_authority(parent, below, self.now)
            .and_then(|()| check_name_constraints(parent, named));
        match allowed.and_then(|()| check_signature(der, parent.public_key().raw)) {
            Ok(()) => true,
            Err(why) => {
                self.reason = Some(why);
                false
            }
        }
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, X509Error> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(error("trailing data")),
        Err(why) => Err(error(format!("malformed certificate: {why}"))),
    }
}

fn not_after(certificate: &X509Certificate<'_>) -> Timestamp {
    Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MIN)
}

/// Checks what must hold for every certificate of a chain: it is valid now, may be used by clients,
/// and is understood.
fn check_certificate(certificate: &X509Certificate<'_>, now: Timestamp) -> Result<(), X509Error> {
    let seconds = now.as_second();
    let validity = certificate.validity();
    if seconds < validity.not_before.timestamp() || now > not_after(certificate) {
        return Err(error("certificate has expired or is not yet valid"));
    }
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) if !usage.client_auth && !usage.any => {
                return Err(error("certificate specifies an incompatible key usage"));
            }
            ParsedExtension::UnsupportedExtension { .. }
            | ParsedExtension::ParseError { .. }
            | ParsedExtension::Unparsed
                if extension.critical =>
            {
                return Err(error("unhandled critical extension"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks whether a certificate may sign others with `below` authorities between (Go's
/// `CheckSignatureFrom` and `isValid`).
fn check_authority(
    certificate: &X509Certificate<'_>,
    below: usize,
    now: Timestamp,
) -> Result<(), X509Error> {
    check_certificate(certificate, now)?;
    let unauthorized = || error("certificate is not authorized to sign other certificates");
    match certificate
        .basic_constraints()
        .map_err(|_| unauthorized())?
    {
        Some(constraints) => {
            if !constraints.value.ca {
                return Err(unauthorized());
            }
            if constraints
                .value
                .path_len_constraint
                .is_some_and(|limit| below > limit as usize)
            {
                return Err(error("too many intermediates for path length constraint"));
            }
        }
        // Versions 1 and 2 have no extensions to say it with.
        None if certificate.version() == X509Version::V3 => return Err(unauthorized()),
        None => {}
    }
    match certificate.key_usage().map_err(|_| unauthorized())? {
        Some(usage) if !usage.value.key_cert_sign() => Err(unauthorized()),
        _ => Ok(()),
    }
}

/// Checks whether what an authority says of the alternative names of those below it is of no
/// concern, for there are none. Names are not compared; constraints of other names than Go knows,
/// such as those of the subject, are never met.
fn check_name_constraints(certificate: &X509Certificate<'_>, named: bool) -> Result<(), X509Error> {
    for extension in certificate
        .extensions()
        .iter()
        .filter(|extension| extension.oid == OID_X509_EXT_NAME_CONSTRAINTS)
    {
        let ParsedExtension::NameConstraints(constraints) = extension.parsed_extension() else {
            return Err(error("invalid NameConstraints extension"));
        };
        let known = |subtree: &GeneralSubtree<'_>| {
            use GeneralName::{DNSName, IPAddress, RFC822Name, URI};
            matches!(
                subtree.base,
                DNSName(_) | IPAddress(_) | RFC822Name(_) | URI(_)
            )
        };
        if ![
            &constraints.permitted_subtrees,
            &constraints.excluded_subtrees,
        ]
        .into_iter()
        .flatten()
        .flatten()
        .all(known)
        {
            return Err(error("unhandled critical extension"));
        }
        if named {
            return Err(error("name constraints are not supported"));
        }
    }
    Ok(())
}

/// Checks the signature of the certificate `der` with a key (a SubjectPublicKeyInfo in DER).
fn check_signature(der: &[u8], key: &[u8]) -> Result<(), X509Error> {
    let broken = || error("malformed certificate");
    let (_, content, _) = tlv(der).ok_or_else(broken)?;
    let (signed, _, rest) = tlv(content).ok_or_else(broken)?;
    let (_, algorithm, rest) = tlv(rest).ok_or_else(broken)?;
    let (_, signature, _) = tlv(rest).ok_or_else(broken)?;
    let signature = signature.get(1..).ok_or_else(broken)?;
    let candidates = ALGORITHMS
        .all
        .iter()
        .copied()
        .filter(|candidate| candidate.signature_alg_id().as_ref() == algorithm);
    if verify_signature(key, candidates, signed, signature) {
        Ok(())
    } else {
        Err(error("certificate signed by unknown authority"))
    }
}

/// Reports whether one of `algorithms` that suits the key (a SubjectPublicKeyInfo in DER) accepts
/// the signature.
pub fn verify_signature<'a>(
    key: &[u8],
    algorithms: impl IntoIterator<Item = &'a dyn SignatureVerificationAlgorithm>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Some((_, content, _)) = tlv(key) else {
        return false;
    };
    let Some((_, algorithm, rest)) = tlv(content) else {
        return false;
    };
    // The first byte of a bit string counts the unused bits.
    let Some(bits) = tlv(rest).and_then(|(_, bits, _)| bits.get(1..)) else {
        return false;
    };
    let suitable = |candidate: &&dyn SignatureVerificationAlgorithm| {
        candidate.public_key_alg_id().as_ref() == algorithm
    };
    algorithms
        .into_iter()
        .filter(suitable)
        .any(|candidate| candidate.verify_signature(bits, message, signature).is_ok())
}

/// The SubjectPublicKeyInfo (DER) of a certificate.
///
/// # Errors
/// The certificate is broken.
pub fn public_key(der: &[u8]) -> Result<Vec<u8>, X509Error> {
    Ok(parse(der)?.public_key().raw.to_vec())
}

/// Splits DER behind its first value: that value whole, its content, and what follows.
fn tlv(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = *der.get(1)?;
    let (header, length) = if first < 0x80 {
        (2, usize::from(first))
    } else {
        let bytes = usize::from(first & 0x7f);
        // Four bytes of length are more than any certificate has.
        let digits = der.get(2..2 + bytes).filter(|_| (1..=4).contains(&bytes))?;
        (
            2 + bytes,
            digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit)),
        )
    };
    let end = header.checked_add(length)?;
    Some((der.get(..end)?, der.get(header..end)?, der.get(end..)?))
}

fn subject_of(
    certificate: &X509Certificate<'_>,
    der: &[u8],
    not_after: Timestamp,
) -> Result<Verified, X509Error> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
    let mut verified = Verified {
        common_name: String::new(),
        organizations: Vec::new(),
        uids: Vec::new(),
        fingerprint: digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        not_after,
        user: OnceLock::new(),
        own_not_after: super::x509::not_after(certificate),
    };
    let subject = certificate.subject();
    // The last common name counts, as in Go.
    for name in subject.iter_common_name() {
        verified.common_name = attribute_text(name)?;
    }
    verified.organizations = subject
        .iter_organization()
        .map(attribute_text)
        .collect::<Result<_, _>>()?;
    for attribute in subject
        .iter_attributes()
        .filter(|attribute| attribute.attr_type().to_id_string() == UID_OID)
    {
        verified.uids.push(attribute_text(attribute)?);
    }
    Ok(verified)
}

/// The text of an attribute of a name, read as Go does (`crypto/x509.parseASN1String`).
///
/// # Errors
/// It is of no type of text, or not what its type allows.
pub fn attribute_text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, X509Error> {
    let (value, bytes) = (attribute.attr_value(), attribute.attr_value().data);
    let ascii = |allowed: fn(u8) -> bool| {
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.bytes().all(allowed));
        text.map(str::to_owned)
    };
    let text = match value.tag() {
        Tag::Utf8String => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Tag::PrintableString => ascii(is_printable),
        Tag::Ia5String => ascii(|byte| byte.is_ascii()),
        Tag::NumericString => ascii(|byte| byte.is_ascii_digit() || byte == b' '),
        // Read as Latin-1, which it nearly is.
        Tag::T61String => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => bmp_text(bytes),
        _ => None,
    };
    text.filter(|_| value.header.class() == Class::Universal && !value.header.is_constructed())
        .ok_or_else(|| error("invalid RDNSequence: invalid attribute value"))
}

/// The characters of a PrintableString, and those that Go lets pass for the sake of old
/// certificates.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

/// UCS-2, less a terminator.
fn bmp_text(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_suffix(&[0, 0]).unwrap_or(bytes);
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    let units = bytes
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    // Surrogates are no characters; the others are not assigned.
    units
        .map(|unit| {
            char::from_u32(unit.into())
                .filter(|c| !matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{fffe}'..))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    /// A root of 2048-bit RSA and a version 1 certificate by it, CN=admin, O=system:masters, made
    /// with `openssl x509 -req`.
    const V1_CA: &[u8] = include_bytes!("testdata/v1-ca.crt");
    const V1_LEAF: &[u8] = include_bytes!("testdata/v1-leaf.crt");

    fn now() -> Timestamp {
        "2027-06-01T00:00:00Z".parse().expect("a time")
    }

    fn ca(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
    }

    fn leaf(usage: Option<ExtendedKeyUsagePurpose>) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "devs");
        params.extended_key_usages.extend(usage);
        params
    }

    fn key() -> KeyPair {
        KeyPair::generate().expect("a key")
    }

    #[test]
    fn certificate_version_1_is_accepted() {
        let bundle = CaBundle::from_pem(V1_CA).expect("a bundle");
        let leaf = CertificateDer::from_pem_slice(V1_LEAF).expect("a certificate");
        let verified = bundle
            .verify(std::slice::from_ref(&leaf), now())
            .expect("verified");
        assert_eq!(
            (verified.common_name.as_str(), verified.organizations),
            ("admin", vec!["system:masters".to_owned()])
        );
        assert_eq!(verified.fingerprint.len(), 64);
        let late = "2126-06-01T00:00:00Z".parse().expect("a time");
        assert_eq!(
            bundle
                .verify(&[leaf], late)
                .expect_err("expired")
                .to_string(),
            "x509: certificate has expired or is not yet valid"
        );
    }

    #[test]
    fn certificate_chain_uses_the_clients_intermediates() {
        let root_key = key();
        let root = Issuer::new(ca("root"), &root_key);
        let root_der = ca("root")
            .self_signed(&root_key)
            .expect("a root")
            .der()
            .clone();
        let middle_key = key();
        let middle_der = ca("middle")
            .signed_by(&middle_key, &root)
            .expect("an intermediate")
            .der()
            .clone();
        let middle = Issuer::new(ca("middle"), &middle_key);
        let leaf_der = leaf(Some(ExtendedKeyUsagePurpose::ClientAuth))
            .signed_by(&key(), &middle)
            .expect("a leaf")
            .der()
            .clone();
        let bundle = CaBundle(
            [Authority {
                subject: parse(&root_der).expect("root").subject().as_raw().to_vec(),
                der: root_der.to_vec(),
            }]
            .into(),
        );

        assert!(
            bundle
                .verify(&[leaf_der.clone(), middle_der.clone()], now())
                .is_ok()
        );
        let alone = bundle
            .verify(std::slice::from_ref(&leaf_der), now())
            .expect_err("no way to the root");
        assert_eq!(
            alone.to_string(),
            "x509: certificate signed by unknown authority"
        );

        // A leaf is no authority, even if it signed.
        let not_ca_key = key();
        let not_ca = leaf(None)
            .signed_by(&not_ca_key, &root)
            .expect("a leaf")
            .der()
            .clone();
        let forged = leaf(None)
            .signed_by(&key(), &Issuer::new(leaf(None), &not_ca_key))
            .expect("a leaf")
            .der()
            .clone();
        assert!(bundle.verify(&[forged, not_ca], now()).is_err());

        // The right name, another key.
        let impostor = Issuer::new(ca("root"), key());
        let forged = leaf(None)
            .signed_by(&key(), &impostor)
            .expect("a leaf")
            .der()
            .clone();
        assert!(bundle.verify(&[forged], now()).is_err());
    }

    #[test]
    fn extended_key_usage_must_allow_clients() {
        let root_key = key();
        let root_pem = ca("root").self_signed(&root_key).expect("a root").pem();
        let root = Issuer::new(ca("root"), &root_key);
        let bundle = CaBundle::from_pem(root_pem.as_bytes()).expect("a bundle");
        for (usage, accepted) in [
            (None, true),
            (Some(ExtendedKeyUsagePurpose::ClientAuth), true),
            (Some(ExtendedKeyUsagePurpose::Any), true),
            (Some(ExtendedKeyUsagePurpose::ServerAuth), false),
        ] {
            let der = leaf(usage.clone())
                .signed_by(&key(), &root)
                .expect("a leaf")
                .der()
                .clone();
            assert_eq!(bundle.verify(&[der], now()).is_ok(), accepted, "{usage:?}");
        }
    }

    #[test]
    fn name_constraints_do_not_matter_to_certificates_without_such_names() {
        use rcgen::{DistinguishedName, GeneralSubtree, NameConstraints};
        let dns = || GeneralSubtree::DnsName("example.com".to_owned());
        let subject = || GeneralSubtree::DirectoryName(DistinguishedName::new());
        for (subtrees, names, accepted) in [
            ([vec![dns()], vec![]], vec![], true),
            ([vec![], vec![dns()]], vec![], true),
            ([vec![dns()], vec![]], vec!["example.com".to_owned()], false),
            ([vec![dns(), subject()], vec![]], vec![], false),
            ([vec![], vec![subject()]], vec![], false),
        ] {
            let root_key = key();
            let constrained = |name| {
                let mut ca = ca(name);
                let [permitted_subtrees, excluded_subtrees] = subtrees.clone();
                ca.name_constraints = Some(NameConstraints {
                    permitted_subtrees,
                    excluded_subtrees,
                });
                ca
            };
            let pem = constrained("root")
                .self_signed(&root_key)
                .expect("a root")
                .pem();
            let bundle = CaBundle::from_pem(pem.as_bytes()).expect("a bundle");
            let root = Issuer::new(constrained("root"), &root_key);
            let named = |mut params: CertificateParams| {
                params.subject_alt_names = CertificateParams::new(names.clone())
                    .expect("names")
                    .subject_alt_names;
                params
            };
            let direct = named(leaf(None))
                .signed_by(&key(), &root)
                .expect("a leaf")
                .der()
                .clone();
            assert_eq!(
                bundle.verify(&[direct], now()).is_ok(),
                accepted,
                "{subtrees:?} {names:?}"
            );
            // The names of an authority between them count, too.
            let middle_key = key();
            let middle_der = named(ca("middle"))
                .signed_by(&middle_key, &root)
                .expect("an intermediate")
                .der()
                .clone();
            let through = leaf(None)
                .signed_by(&key(), &Issuer::new(ca("middle"), &middle_key))
                .expect("a leaf")
                .der()
                .clone();
            assert_eq!(
                bundle.verify(&[through, middle_der], now()).is_ok(),
                accepted,
                "{subtrees:?} {names:?}"
            );
        }
    }

    #[test]
    fn ca_bundle_of_garbage_is_an_error() {
        let bundle = CaBundle::from_pem(V1_CA).expect("a bundle");
        assert!(bundle.verify(&[], now()).is_err());
        assert!(
            bundle
                .verify(&[CertificateDer::from(vec![0x30, 0x84, 0xff])], now())
                .is_err()
        );
        assert!(CaBundle::from_pem(b"nothing").is_err());
        assert_eq!(tlv(&[0x30, 0x81]), None);
        assert_eq!(tlv(&[0x30, 0x80]), None);
    }
}
