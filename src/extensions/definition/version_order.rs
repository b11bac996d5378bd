//! The order of versions: v1 before v1beta1 before v1alpha1 before anything else (apimachinery
//! `util/version`).

use std::cmp::{Ordering, Reverse};

/// Compares two versions; the one to prefer is the greater.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (read(a), read(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => Reverse(a).cmp(&Reverse(b)),
    }
}

/// Stability, major and minor number of `v1`, `v1beta2`; `None` for other names.
fn read(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let number = |text: &str| {
        if text.starts_with('0') {
            None
        } else {
            text.parse::<u32>().ok()
        }
    };
    let major = number(&rest[..end])?;
    let tail = &rest[end..];
    if tail.is_empty() {
        return Some((3, major, 0));
    }
    let (stability, minor) = tail
        .strip_prefix("beta")
        .map(|minor| (2, minor))
        .or_else(|| tail.strip_prefix("alpha").map(|minor| (1, minor)))?;
    Some((stability, major, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = [
            "foo", "v1alpha1", "v10", "v2", "v1beta2", "v1beta1", "v11beta1", "bar",
        ];
        versions.sort_by(|a, b| compare(b, a));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v11beta1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"
            ]
        );
    }
}
