//! The levels of the Pod Security Standards, their versions, and the labels of a namespace that
//! choose them (pod-security-admission `api/helpers.go`).

use std::fmt;

use crate::meta::field::Path;
use crate::meta::{ErrorList, Map, Value};

pub const PREFIX: &str = "pod-security.kubernetes.io/";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
const AUDIT: &str = "pod-security.kubernetes.io/audit";
const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
const WARN: &str = "pod-security.kubernetes.io/warn";
const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";

/// A level, from the least to the most strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Parses the name of a level.
    ///
    /// # Errors
    /// The detail of the field error for any other text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        [Self::Privileged, Self::Baseline, Self::Restricted]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or("must be one of privileged, baseline, restricted")
    }
}

/// The Kubernetes version that defines what a level forbids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// v1.N.
    Minor(u64),
    /// The newest that this server knows.
    #[default]
    Latest,
}

impl Version {
    /// Parses `latest` or `v1.N`.
    ///
    /// # Errors
    /// The detail of the field error for any other text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(WRONG)?;
        let is_canonical = minor.bytes().all(|byte| byte.is_ascii_digit())
            && (minor == "0" || !minor.starts_with('0'));
        match minor.parse::<i64>() {
            Ok(minor) if is_canonical => Ok(Self::Minor(minor.unsigned_abs())),
            _ => Err(WRONG),
        }
    }
}

/// A level as a version defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

impl LevelVersion {
    /// The name of the version as it is counted, where `newest` is the newest minor version that
    /// is known.
    pub fn counted_version(self, newest: u32) -> String {
        match (self.level, self.version) {
            (Level::Privileged, _) | (_, Version::Latest) => "latest".to_owned(),
            (_, Version::Minor(minor)) if minor > u64::from(newest) => "future".to_owned(),
            (_, Version::Minor(minor)) => format!("v1.{minor}"),
        }
    }

    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Latest => write!(f, "{}:latest", self.level.as_str()),
            Version::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
        }
    }
}

/// The levels of a namespace: what is refused, what is audited, what is warned of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

impl Levels {
    /// Returns the levels that the labels of a namespace choose over the defaults, and what is
    /// wrong with the labels. An unreadable level is enforced as `restricted`, and neither audited
    /// nor warned of.
    pub fn of(labels: Option<&Map>, defaults: Self) -> (Self, ErrorList) {
        let mut levels = defaults;
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else {
            return (levels, ErrorList::new());
        };
        let mut reader = Reader {
            labels,
            errors: ErrorList::new(),
        };
        let enforced = reader.read(ENFORCE, Level::parse);
        reader.version(ENFORCE_VERSION, &mut levels.enforce);
        if let Some(level) = enforced {
            levels.enforce.level = level.unwrap_or(Level::Restricted);
        }
        if let Some(level) = reader.read(AUDIT, Level::parse) {
            levels.audit.level = level.unwrap_or_default();
        }
        reader.version(AUDIT_VERSION, &mut levels.audit);
        let warned = reader.read(WARN, Level::parse);
        if let Some(level) = warned {
            levels.warn.level = level.unwrap_or_default();
        }
        let has_warn_version = reader.version(WARN_VERSION, &mut levels.warn);
        // What will be refused is warned of, too, in objects that pods are made from.
        let enforced = enforced.flatten();
        if warned.is_none() && enforced.is_some_and(|level| level > levels.warn.level) {
            levels.warn.level = levels.enforce.level;
            if !has_warn_version {
                levels.warn.version = levels.enforce.version;
            }
        }
        (levels, reader.errors)
    }

    /// Reports whether nothing is forbidden, audited or warned of.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|mode| mode.level == Level::Privileged)
    }

    /// Returns the warning about labels of a namespace that is exempt; `None` where they change
    /// nothing.
    pub fn exempt_warning(
        &self,
        namespace: &str,
        labels: Option<&Map>,
        defaults: &Self,
    ) -> Option<String> {
        let is_default = self.enforce.is_equivalent(defaults.enforce)
            && self.audit.is_equivalent(defaults.audit)
            && self.warn.is_equivalent(defaults.warn);
        if self.is_privileged() || is_default {
            return None;
        }
        let has = |label: &str| labels.is_some_and(|labels| labels.contains_key(label));
        let modes = [
            (
                "enforce",
                self.enforce,
                has(ENFORCE) || has(ENFORCE_VERSION),
            ),
            ("audit", self.audit, has(AUDIT) || has(AUDIT_VERSION)),
            ("warn", self.warn, has(WARN) || has(WARN_VERSION)),
        ];
        let chosen: Vec<String> = modes
            .iter()
            .filter(|(_, mode, labelled)| *labelled && mode.level != Level::Privileged)
            .map(|(name, mode, _)| format!("{name}={mode}"))
            .collect();
        Some(format!(
            "namespace {namespace:?} is exempt from Pod Security, and the policy ({}) will be ignored",
            chosen.join(", ")
        ))
    }
}

struct Reader<'a> {
    labels: &'a Map,
    errors: ErrorList,
}

impl Reader<'_> {
    /// Parses a label: `None` where it is absent, `Some(None)` where it is wrong.
    fn read<T>(
        &mut self,
        label: &str,
        parse: fn(&str) -> Result<T, &'static str>,
    ) -> Option<Option<T>> {
        let text = self.labels.get(label).and_then(Value::as_str)?;
        Some(
            parse(text)
                .map_err(|detail| {
                    let path = Path::new("metadata").child("labels").key(label);
                    self.errors.invalid(&path, text, detail);
                })
                .ok(),
        )
    }

    /// Sets the version that a label names and reports whether there is that label.
    fn version(&mut self, label: &str, mode: &mut LevelVersion) -> bool {
        let read = self.read(label, Version::parse);
        if let Some(version) = read {
            mode.version = version.unwrap_or_default();
        }
        read.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    fn of(labels: Value) -> (String, Vec<String>) {
        let (levels, errors) = Levels::of(labels.as_object(), Levels::default());
        let text = format!("{} {} {}", levels.enforce, levels.audit, levels.warn);
        (text, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn labels_choose_levels_and_enforced_ones_are_warned_of() {
        for (labels, expected) in [
            (
                json!({}),
                "privileged:latest privileged:latest privileged:latest",
            ),
            (
                json!({ENFORCE: "baseline", ENFORCE_VERSION: "v1.22"}),
                "baseline:v1.22 privileged:latest baseline:v1.22",
            ),
            (
                json!({ENFORCE: "restricted", WARN_VERSION: "v1.8"}),
                "restricted:latest privileged:latest restricted:v1.8",
            ),
            (
                json!({ENFORCE: "restricted", WARN: "baseline", AUDIT: "baseline"}),
                "restricted:latest baseline:latest baseline:latest",
            ),
            (
                json!({ENFORCE: "privileged", WARN: "restricted"}),
                "privileged:latest privileged:latest restricted:latest",
            ),
        ] {
            assert_eq!(
                of(labels.clone()),
                (expected.to_owned(), Vec::new()),
                "{labels}"
            );
        }
    }

    #[test]
    fn wrong_labels_are_reported_and_only_enforcement_fails_closed() {
        let (levels, errors) = of(json!({
            ENFORCE: "strict", AUDIT: "strict", WARN: "strict",
            ENFORCE_VERSION: "v1.01", AUDIT_VERSION: "1.2", WARN_VERSION: "v1.99999999999999999999",
        }));
        assert_eq!(
            levels,
            "restricted:latest privileged:latest privileged:latest"
        );
        assert_eq!(errors.len(), 6);
        assert_eq!(
            errors[0],
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": \
             must be one of privileged, baseline, restricted"
        );
        assert!(errors[1].ends_with("Invalid value: \"v1.01\": must be \"latest\" or \"v1.x\""));
    }

    #[test]
    fn exempt_namespaces_are_warned_of_levels_that_they_choose() {
        let labels = json!({ENFORCE: "baseline", AUDIT_VERSION: "v1.2"});
        let (levels, _) = Levels::of(labels.as_object(), Levels::default());
        assert_eq!(
            levels
                .exempt_warning("a", labels.as_object(), &Levels::default())
                .as_deref(),
            Some(
                "namespace \"a\" is exempt from Pod Security, and the policy \
                 (enforce=baseline:latest) will be ignored"
            )
        );
        assert_eq!(
            Levels::default().exempt_warning("a", None, &Levels::default()),
            None
        );
    }
}
