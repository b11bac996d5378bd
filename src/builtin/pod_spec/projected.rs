//! Projected volumes: several sources in one directory.

use std::collections::HashSet;

use super::paths::check_not_reserved;
use super::volume_items::{check_downward_file, check_key_to_path, required};
use crate::builtin::internal_types;
use crate::meta::{ErrorList, FieldError, Map, Path, names};
use crate::registry::validation::{Fields, SelectorOptions, invalid_each, validate_label_selector};

const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
/// Seconds that a token or certificate lives.
const TOKEN_MIN: i64 = 600;
const TOKEN_MAX: i64 = 1 << 32;
const CERTIFICATE_MIN: i64 = 3600;
const CERTIFICATE_MAX: i64 = 91 * 24 * 3600;
const KUBERNETES_CERTIFICATE_MAX: i64 = 24 * 3600;

/// The files that sources make, each at most once.
struct Files<'a> {
    path: &'a Path,
    taken: HashSet<&'a str>,
}

impl<'a> Files<'a> {
    /// Notes a file; `shown` is what an error blames for one that is there already.
    fn add(&mut self, errors: &mut ErrorList, file: &'a str, shown: &str) {
        if !self.taken.insert(file) {
            errors.invalid(self.path, shown, "conflicting duplicate paths");
        }
    }
}

/// Checks all sources.
pub fn check_projected(errors: &mut ErrorList, path: &Path, projected: &Map) {
    let mut files = Files {
        path,
        taken: HashSet::new(),
    };
    for (index, source) in projected.list("sources").iter().enumerate() {
        let source_path = path.child("sources").index(index);
        let mut sources = 0;
        for kind in ["secret", "configMap"] {
            let Some(one) = source.map(kind) else {
                continue;
            };
            sources += 1;
            let path = source_path.child(kind);
            required(errors, &path, one, "name");
            for (index, item) in one.list("items").iter().enumerate() {
                check_key_to_path(errors, &path.child("items").index(index), item);
                let file = item.str("path");
                if !file.is_empty() {
                    files.add(errors, file, one.str("name"));
                }
            }
        }
        if let Some(downward) = source.map("downwardAPI") {
            sources += 1;
            for file in downward.list("items") {
                check_downward_file(errors, &source_path.child("downwardAPI"), file);
                let file = file.str("path");
                if !file.is_empty() {
                    files.add(errors, file, file);
                }
            }
        }
        if let Some(token) = source.map("serviceAccountToken") {
            sources += 1;
            check_token(
                errors,
                path,
                &source_path.child("serviceAccountToken"),
                token,
            );
        }
        if let Some(bundle) = source.map("clusterTrustBundle") {
            sources += 1;
            check_trust_bundle(errors, &source_path.child("clusterTrustBundle"), bundle);
            files.add(errors, bundle.str("path"), bundle.str("path"));
        }
        if let Some(certificate) = source.map("podCertificate") {
            sources += 1;
            check_certificate(
                errors,
                &source_path.child("podCertificate"),
                certificate,
                &mut files,
            );
        }
        if sources > 1 {
            errors.forbidden(
                &source_path,
                "may not specify more than 1 volume type per source",
            );
        }
    }
}

fn check_token(errors: &mut ErrorList, volume: &Path, path: &Path, token: &Map) {
    let seconds = token.int("expirationSeconds").unwrap_or(0);
    let detail = if seconds < TOKEN_MIN {
        Some("may not specify a duration less than 10 minutes")
    } else {
        (seconds > TOKEN_MAX).then_some("may not specify a duration larger than 2^32 seconds")
    };
    if let Some(detail) = detail {
        errors.invalid(&path.child("expirationSeconds"), seconds, detail);
    }
    let file = token.str("path");
    if file.is_empty() {
        errors.required(&volume.child("path"), "");
    } else {
        check_not_reserved(errors, &volume.child("path"), file);
    }
}

fn check_trust_bundle(errors: &mut ErrorList, path: &Path, bundle: &Map) {
    match (bundle.opt_str("name"), bundle.opt_str("signerName")) {
        (Some(_), Some(_)) => {
            let shown = internal_types::json("ClusterTrustBundleProjection", bundle);
            errors.invalid(path, shown, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&path.child("name"), "must be a valid object name");
            }
            // A bundle of a signer is named `signer:rest`, the slash of the signer written as a
            // colon.
            let own = name.rsplit_once(':').map_or(name, |(_, own)| own);
            for problem in names::dns1123_subdomain(own) {
                errors.invalid(
                    &path.child("name"),
                    name,
                    format!("not a valid clustertrustbundlename: {problem}"),
                );
            }
            if let Some(selector) = bundle.field("labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), selector.clone(), detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.child("signerName"), "must be a valid signer name");
            }
            check_signer_name(errors, &path.child("signerName"), signer);
            let selector = bundle.map("labelSelector");
            validate_label_selector(
                errors,
                &path.child("labelSelector"),
                selector,
                SelectorOptions::default(),
            );
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    required(errors, path, bundle, "path");
    check_not_reserved(errors, &path.child("path"), bundle.str("path"));
}

fn check_certificate<'a>(
    errors: &mut ErrorList,
    path: &Path,
    certificate: &'a Map,
    files: &mut Files<'a>,
) {
    let signer = certificate.str("signerName");
    check_signer_name(errors, &path.child("signerName"), signer);
    for (key, _) in certificate.entries("userAnnotations") {
        let path = path.child("userAnnotations");
        let lower = key.to_lowercase();
        let problems = names::qualified_name(&lower);
        if problems.is_empty() && !lower.contains('/') {
            errors.invalid(
                &path,
                lower.as_str(),
                "must be a domain-prefixed key (such as \"acme.io/foo\")",
            );
        }
        invalid_each(errors, &path, &lower, problems);
    }
    let key_type = certificate.str("keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&path.child("keyType"), key_type, &KEY_TYPES);
    }
    if let Some(seconds) = certificate.int("maxExpirationSeconds") {
        let path = path.child("maxExpirationSeconds");
        if seconds < CERTIFICATE_MIN {
            errors.invalid(
                &path,
                seconds,
                "if provided, maxExpirationSeconds must be >= 3600",
            );
        }
        let domain = signer.split('/').next().unwrap_or("");
        let kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        let max = if kubernetes {
            KUBERNETES_CERTIFICATE_MAX
        } else {
            CERTIFICATE_MAX
        };
        if seconds > max {
            errors.invalid(
                &path,
                seconds,
                format!("if provided, maxExpirationSeconds must be <= {max}"),
            );
        }
    }
    let mut given = false;
    for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = certificate.str(key);
        if file.is_empty() {
            continue;
        }
        given = true;
        check_not_reserved(errors, &path.child(key), file);
        files.add(errors, file, file);
    }
    if !given {
        errors.required(
            path,
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        );
    }
}

/// A signer: a domain, a slash and a path of names.
pub fn check_signer_name(errors: &mut ErrorList, path: &Path, signer: &str) {
    const TAIL_MAX: usize = names::SUBDOMAIN_MAX + names::LABEL_MAX + 1;
    if signer.is_empty() {
        errors.required(path, "");
        return;
    }
    let (Some((domain, tail)), 1) = (signer.split_once('/'), signer.matches('/').count()) else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(path, signer, detail);
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(path, names::SUBDOMAIN_MAX);
    }
    check_signer_labels(errors, path, domain, names::dns1123_label);
    if !domain.contains('.') {
        errors.invalid(
            path,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    check_signer_labels(errors, path, tail, names::dns1123_subdomain);
    let max = names::SUBDOMAIN_MAX + TAIL_MAX + 1;
    if signer.len() > max {
        errors.too_long(path, max);
    }
}

/// Blames the first label of a signer's part that is not well formed.
fn check_signer_labels(
    errors: &mut ErrorList,
    path: &Path,
    part: &str,
    check: fn(&str) -> names::Problems,
) {
    let bad = part
        .split('.')
        .map(|label| (label, check(label)))
        .find(|(_, problems)| !problems.is_empty());
    let Some((label, problems)) = bad else { return };
    errors.extend(problems.into_iter().map(|problem| {
        FieldError::invalid(path, part, format!("validating label {label:?}: {problem}"))
    }));
}
