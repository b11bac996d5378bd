//! Validation of `spec.conversion` of a definition.

use std::collections::HashSet;

use crate::meta::Value;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use x509_parser::pem::Pem;

use crate::builtin::{check_webhook_service, check_webhook_url};
use crate::meta::names;
use crate::meta::{ErrorList, FieldError, Object, Path};
use crate::registry::validation::Fields;

/// The versions of ConversionReview that the server speaks.
const RECOGNIZED: [&str; 2] = ["v1", "v1beta1"];

/// Reports whether one of the versions is known.
pub fn has_recognized_version(versions: &[Value]) -> bool {
    versions
        .iter()
        .any(|one| one.as_str().is_some_and(|name| RECOGNIZED.contains(&name)))
}

/// Reports whether the definition has a CA bundle that holds no certificates.
pub fn has_invalid_ca(object: &Object) -> bool {
    let bundle = object.str_at("/spec/conversion/webhook/clientConfig/caBundle");
    !bundle.is_empty() && !holds_certificates(bundle)
}

/// Reports whether a bundle (PEM in base64) holds a certificate at least.
pub fn holds_certificates(bundle: &str) -> bool {
    let Ok(bytes) = BASE64_STANDARD.decode(bundle) else {
        return false;
    };
    Pem::iter_from_buffer(&bytes)
        .filter_map(Result::ok)
        .any(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok())
}

/// Checks how versions are converted.
pub fn validate(
    errors: &mut ErrorList,
    spec: &Value,
    require_recognized: bool,
    allow_invalid_ca: bool,
    path: &Path,
) {
    let Some(conversion) = spec.field("conversion") else {
        return;
    };
    let strategy = conversion.str("strategy");
    if strategy != "None" && spec.flag("preserveUnknownFields") {
        errors.invalid(
            &path.child("strategy"),
            strategy,
            "must be None if spec.preserveUnknownFields is true",
        );
    }
    match strategy {
        "" => errors.required(&path.child("strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.not_supported(&path.child("strategy"), other, &["None", "Webhook"]),
    }
    let client = conversion
        .pointer("/webhook/clientConfig")
        .filter(|one| !one.is_null());
    let reviews = conversion
        .field("webhook")
        .map_or(&[][..], |webhook| webhook.list("conversionReviewVersions"));
    let place = path.child("webhookClientConfig");
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.forbidden(&place, why);
        }
        if !reviews.is_empty() {
            errors.forbidden(&path.child("conversionReviewVersions"), why);
        }
        return;
    }
    match client {
        None => errors.required(&place, "required when strategy is set to Webhook"),
        Some(client) => {
            match (client.field("url"), client.field("service")) {
                (Some(Value::String(url)), None) => {
                    check_webhook_url(errors, &place.child("url"), url)
                }
                (None, Some(Value::Object(service))) => {
                    check_webhook_service(errors, &place.child("service"), service)
                }
                _ => errors.required(&place, "exactly one of url or service is required"),
            }
            let bundle = client.str("caBundle");
            if !bundle.is_empty() && !allow_invalid_ca && !holds_certificates(bundle) {
                let why = "unable to load root certificates: unable to parse bytes as PEM block";
                errors.invalid(&place.child("caBundle"), bundle, why);
            }
        }
    }
    review_versions(
        errors,
        reviews,
        require_recognized,
        &path.child("conversionReviewVersions"),
    );
}

fn review_versions(
    errors: &mut ErrorList,
    versions: &[Value],
    require_recognized: bool,
    path: &Path,
) {
    if versions.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let (place, name) = (path.index(index), version.as_str().unwrap_or(""));
        if !seen.insert(name) {
            errors.invalid(&place, name, "duplicate version");
            continue;
        }
        errors.extend(
            names::dns1035_label(name)
                .into_iter()
                .map(|why| FieldError::invalid(&place, name, why)),
        );
    }
    if require_recognized && !has_recognized_version(versions) {
        errors.invalid(
            path,
            versions,
            format!("must include at least one of {}", RECOGNIZED.join(", ")),
        );
    }
}
