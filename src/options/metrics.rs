//! The flags about metrics (component-base `metrics/{options.go,api/v1/config.go}`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;

use super::cert_files::path;
use super::flags::{FlagError, Flags};
use crate::codec::yaml;
use crate::meta::{Value, go};
use crate::telemetry::metric_options::{AllowedValues, MINOR, MetricOptions};

const METRIC: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const LABEL: &str = "[a-zA-Z_][a-zA-Z0-9_]*";

/// The configuration of metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    disabled: BTreeSet<String>,
    show_hidden: bool,
    /// The values that are told apart, joined by commas, by metric and label, joined by a comma;
    /// `None` where no flag has them.
    allowed: Option<BTreeMap<String, String>>,
    /// The file that has them otherwise.
    manifest: Option<PathBuf>,
}

impl Metrics {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// Names that are none, a version that is not the one before, or values in two places.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let shown = flags.text("show-hidden-metrics-for-version");
        let before = format!("1.{}", MINOR - 1);
        if !shown.is_empty() && shown != before {
            return Err(invalid(
                "showHiddenMetricsForVersion",
                shown,
                &format!(
                    "must be omitted or have the value '{before}'; only the previous minor version is allowed"
                ),
            ));
        }
        let disabled = flags.list("disabled-metrics");
        static NAME: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(&format!("^(?:{METRIC})$")).ok());
        if let Some(name) = disabled.iter().find(|name| !matches(&NAME, name)) {
            let pattern = go::quote(&format!("^{METRIC}$"));
            let name = go::quote(name);
            let why =
                format!("must be fully qualified metric names matching {pattern}, got {name}");
            return Err(invalid("disabledMetrics", &disabled.join(","), &why));
        }
        let pairs = flags.map("allow-metric-labels");
        let allowed = (!pairs.is_empty()).then(|| pairs.into_iter().collect());
        if let Some(allowed) = &allowed {
            check_keys(allowed)?;
        }
        let manifest = path(flags, "allow-metric-labels-manifest");
        if allowed.is_some() && manifest.is_some() {
            return Err(FlagError::new(
                "metrics: cannot specify both allowListMapping and allowListMappingManifest",
            ));
        }
        Ok(Self {
            disabled: disabled.into_iter().collect(),
            show_hidden: !shown.is_empty(),
            allowed,
            manifest,
        })
    }

    /// Returns the options of metrics, with the values of the file, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or is not in form.
    pub fn options(&self) -> Result<MetricOptions, FlagError> {
        let from_file = match &self.manifest {
            Some(path) => read(path)?,
            None => BTreeMap::new(),
        };
        let mut allowed: HashMap<String, AllowedValues> = HashMap::new();
        for (key, values) in self.allowed.iter().flatten().chain(&from_file) {
            let (metric, label) = key.split_once(',').unwrap_or((key, ""));
            let values = values.split(',').map(str::to_owned).collect();
            let labels = allowed.entry(metric.to_owned()).or_default();
            labels.insert(label.to_owned(), values);
        }
        Ok(MetricOptions {
            disabled: self.disabled.clone(),
            show_hidden: self.show_hidden,
            allowed,
        })
    }
}

/// Reads the file with the values that are told apart: a map of texts in YAML.
fn read(path: &std::path::Path) -> Result<BTreeMap<String, String>, FlagError> {
    let shown = path.display().to_string();
    let wrong = |what: &str, why: &str| {
        let why = format!("failed to {what} allow list manifest: {why}");
        invalid("allowListMappingManifest", &shown, &why)
    };
    let bytes = std::fs::read(path).map_err(|why| wrong("read", &why.to_string()))?;
    let parsed = yaml::to_value(&bytes).map_err(|why| wrong("parse", &why.0))?;
    let entries = match parsed.0 {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(entries) => entries,
        _ => return Err(wrong("parse", "it is no map of texts")),
    };
    let texts = entries.into_iter().map(|(key, value)| match value {
        Value::String(text) => Ok((key.to_string(), text.to_string())),
        _ => Err(wrong("parse", &format!("the value of {key} is no text"))),
    });
    let map = texts.collect::<Result<BTreeMap<_, _>, _>>()?;
    check_keys(&map)?;
    Ok(map)
}

fn check_keys(map: &BTreeMap<String, String>) -> Result<(), FlagError> {
    static KEY: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(&format!("^(?:{METRIC},{LABEL})$")).ok());
    match map.keys().find(|key| !matches(&KEY, key)) {
        None => Ok(()),
        Some(key) => {
            let (metric, label) = (go::quote(METRIC), go::quote(LABEL));
            let why = format!(
                "must have keys with format `metricName,labelName` where metricName matches {metric} and labelName matches {label}"
            );
            Err(invalid("allowListMapping", key, &why))
        }
    }
}

fn matches(pattern: &Option<Regex>, text: &str) -> bool {
    pattern
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(text))
}

fn invalid(field: &str, value: &str, why: &str) -> FlagError {
    let value = go::quote(value);
    FlagError::new(format!("metrics.{field}: Invalid value: {value}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::flags::{Command, parse};

    fn metrics(args: &[&str]) -> Result<Metrics, FlagError> {
        match parse(args.iter().map(ToString::to_string))? {
            Command::Run(flags) => Metrics::from_flags(&flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_that_are_told_apart_come_from_flag_or_file() {
        let given = metrics(&["--allow-metric-labels=a_total,verb=GET,LIST"]).expect("understood");
        let options = given.options().expect("nothing is read");
        assert_eq!(
            options.allowed["a_total"]["verb"],
            ["GET", "LIST"].map(str::to_owned).into()
        );
        let two = metrics(&[r#"--allow-metric-labels="a,x=1,2","a,y=3""#]).expect("understood");
        let allowed = two.options().expect("nothing is read").allowed;
        assert_eq!((allowed["a"]["x"].len(), allowed["a"]["y"].len()), (2, 1));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("labels.yaml");
        let flag = format!("--allow-metric-labels-manifest={}", file.display());
        let from_file = |text: &str| {
            std::fs::write(&file, text).expect("written");
            metrics(&[&flag]).expect("understood").options()
        };
        let allowed = from_file("\"a,x\": \"1,2\"\nb,y: ''\n")
            .expect("read")
            .allowed;
        assert_eq!((allowed["a"]["x"].len(), allowed["b"]["y"].len()), (2, 1));
        for text in ["[", "- a", "a: b", "a,b: [c]"] {
            from_file(text).expect_err(text);
        }
        std::fs::remove_file(&file).expect("removed");
        metrics(&[&flag])
            .expect("understood")
            .options()
            .expect_err("gone");
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for (args, why) in [
            (
                &["--show-hidden-metrics-for-version=1.34"][..],
                "metrics.showHiddenMetricsForVersion: Invalid value: \"1.34\": must be omitted or have the value '1.35'; only the previous minor version is allowed",
            ),
            (
                &["--disabled-metrics=a b"],
                "metrics.disabledMetrics: Invalid value: \"a b\": must be fully qualified metric names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got \"a b\"",
            ),
            (
                &["--allow-metric-labels=a=b"],
                "metrics.allowListMapping: Invalid value: \"a\": must have keys with format `metricName,labelName` where metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"",
            ),
            (
                &["--allow-metric-labels=a"],
                "invalid argument \"a\" for \"--allow-metric-labels\" flag: a must be formatted as key=value",
            ),
            (
                &[
                    "--allow-metric-labels=a,b=c",
                    "--allow-metric-labels-manifest=d",
                ],
                "metrics: cannot specify both allowListMapping and allowListMappingManifest",
            ),
        ] {
            let refused = metrics(args).expect_err(why);
            assert_eq!(refused.to_string(), why);
        }
        assert!(
            metrics(&["--show-hidden-metrics-for-version=1.35"]).is_ok_and(|it| it.show_hidden)
        );
    }
}
