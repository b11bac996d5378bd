//! Names of container images, as far as pull policies depend on them (the grammar of
//! `distribution/reference`).

/// The longest path of a repository, in bytes.
const PATH_MAX: usize = 255;

/// Reports whether an image reference means the tag `latest`: named so, or by neither tag nor
/// digest. References that are not well formed do not.
pub fn is_latest(image: &str) -> bool {
    tag(image) == Some("latest")
}

/// The tag of a well-formed reference: `latest` where there is neither tag nor digest, empty where
/// there is only a digest.
fn tag(image: &str) -> Option<&str> {
    // A bare identifier of 64 hex digits is not a name.
    if image.len() == 64
        && image
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
    {
        return None;
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match rest.rfind(':') {
        Some(at) if !rest[at..].contains('/') => (&rest[..at], Some(&rest[at + 1..])),
        _ => (rest, None),
    };
    let well_formed = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    match (well_formed, tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, Some(_)) => Some(""),
        (true, None, None) => Some("latest"),
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|c| word(c) || matches!(c, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length
        && hex
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|c| c.is_ascii_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, name),
    };
    // Names of one word without a host are in the library of Docker's registry.
    let implied = match (host, path.contains('/')) {
        (None, false) => "library/".len(),
        _ => 0,
    };
    path.len() + implied <= PATH_MAX
        && host.is_none_or(is_host)
        && path.split('/').all(is_path_component)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let port_fine =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()));
    let bracketed = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let name_fine = match bracketed {
        Some(address) => {
            !address.is_empty() && address.bytes().all(|c| c.is_ascii_hexdigit() || c == b':')
        }
        None => name.split('.').all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || c == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        }),
    };
    port_fine && name_fine
}

/// Lower case letters and digits, separated by one dot, one or two underscores, or dashes.
fn is_path_component(component: &str) -> bool {
    let alnum = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !alnum(first) || !alnum(last) {
        return false;
    }
    component
        .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|c| c == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        let cases = [
            ("nginx", Some("latest")),
            ("nginx:1.27", Some("1.27")),
            ("nginx:latest", Some("latest")),
            ("registry:5000/a/b", Some("latest")),
            ("registry.io:5000/a/b:v1", Some("v1")),
            ("localhost/a", Some("latest")),
            (digest.as_str(), Some("")),
            ("", None),
            ("A", None),
            ("a:", None),
            ("a//b", None),
            ("a__b/c-d.e", Some("latest")),
            ("a___b", None),
            ("nginx@sha256:1", None),
        ];
        for (image, want) in cases {
            assert_eq!(tag(image), want, "{image}");
        }
    }
}
