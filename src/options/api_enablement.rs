//! The API versions and resources that are served: the built-in ones as `--runtime-config` changes
//! them (apiserver `server/options/api_enablement.go`, `server/resourceconfig`).

use std::collections::{BTreeMap, BTreeSet};

use super::flags::{FlagError, parse_bool};
use crate::meta::Gvr;
use crate::meta::go;
use crate::schema::{ResourceDecl, builtin};

/// The versions that kube-apiserver v1.36 serves on request, and that this server does not have
/// (`pkg/controlplane/instance.go`).
const ABSENT: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "v1alpha1"),
    ("admissionregistration.k8s.io", "v1beta1"),
    ("authentication.k8s.io", "v1beta1"),
    ("certificates.k8s.io", "v1alpha1"),
    ("certificates.k8s.io", "v1beta1"),
    ("coordination.k8s.io", "v1alpha2"),
    ("coordination.k8s.io", "v1beta1"),
    ("internal.apiserver.k8s.io", "v1alpha1"),
    ("networking.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1alpha3"),
    ("resource.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1beta2"),
    ("scheduling.k8s.io", "v1alpha2"),
    ("storage.k8s.io", "v1beta1"),
    ("storagemigration.k8s.io", "v1beta1"),
];

/// The versions that kube-apiserver v1.36 knows and never serves (`pkg/apis/*/install`).
const NEVER_SERVED: &[(&str, &str)] = &[
    ("admission.k8s.io", "v1"),
    ("admission.k8s.io", "v1beta1"),
    ("apiextensions.k8s.io", "v1beta1"),
    ("apiregistration.k8s.io", "v1beta1"),
    ("apps", "v1beta1"),
    ("apps", "v1beta2"),
    ("authentication.k8s.io", "v1alpha1"),
    ("authorization.k8s.io", "v1beta1"),
    ("batch", "v1beta1"),
    ("discovery.k8s.io", "v1beta1"),
    ("events.k8s.io", "v1beta1"),
    ("extensions", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1beta1"),
    ("flowcontrol.apiserver.k8s.io", "v1beta2"),
    ("flowcontrol.apiserver.k8s.io", "v1beta3"),
    ("imagepolicy.k8s.io", "v1alpha1"),
    ("node.k8s.io", "v1alpha1"),
    ("node.k8s.io", "v1beta1"),
    ("policy", "v1beta1"),
    ("rbac.authorization.k8s.io", "v1alpha1"),
    ("rbac.authorization.k8s.io", "v1beta1"),
    ("scheduling.k8s.io", "v1beta1"),
    ("storage.k8s.io", "v1alpha1"),
];

type Version = (String, String);

/// The API versions and resources that are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiEnablement {
    /// The versions that are not served, of those that this server has.
    versions: BTreeSet<Version>,
    /// The resources that are (or are not) served independently of their versions.
    resources: BTreeMap<(String, String, String), bool>,
}

/// The keys that mean many versions, in the order in which they are obeyed.
const LEVELS: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// Reports whether one of [`LEVELS`] means a version.
fn is_meant(level: &str, version: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let staged = |stage: &str| {
        let numbers = version
            .strip_prefix('v')
            .and_then(|rest| rest.split_once(stage));
        numbers.is_some_and(|(major, minor)| digits(major) && digits(minor))
    };
    match level {
        "api/all" => true,
        "api/ga" => version.strip_prefix('v').is_some_and(digits),
        "api/beta" => staged("beta"),
        _ => staged("alpha"),
    }
}

impl ApiEnablement {
    /// Reads the values of `--runtime-config`, each a comma-separated list of `key=true|false`,
    /// where no value is `true`.
    ///
    /// # Errors
    /// kube-apiserver's, and where a version would have to be served that this server does not
    /// have.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, FlagError> {
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        for pair in values
            .into_iter()
            .flat_map(|value| value.split(','))
            .filter(|pair| !pair.is_empty())
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            given.insert(key.trim(), value.trim());
        }
        check_keys(&given)?;
        let mut versions: BTreeMap<Version, bool> = BTreeMap::new();
        for decl in &builtin().group_versions {
            versions.insert((decl.group.clone(), decl.version.clone()), true);
        }
        versions.extend(
            ABSENT
                .iter()
                .map(|(group, version)| (((*group).to_owned(), (*version).to_owned()), false)),
        );
        for level in LEVELS {
            let on = match given.get(level) {
                None => continue,
                Some(&"true") => true,
                Some(&"false") => false,
                Some(other) => {
                    return Err(FlagError::new(format!("invalid value {level}={other}")));
                }
            };
            versions
                .iter_mut()
                .filter(|((_, version), _)| is_meant(level, version))
                .for_each(|(_, served)| *served = on);
        }
        let mut resources = BTreeMap::new();
        for (&key, &value) in given.iter().filter(|(key, _)| !LEVELS.contains(key)) {
            let on = enabled(key, value)?;
            let mut parts = key.split('/').map(str::to_owned);
            let (group, version) = (
                parts.next().unwrap_or_default(),
                parts.next().unwrap_or_default(),
            );
            match parts.next() {
                None if versions.contains_key(&(group.clone(), version.clone())) => {
                    versions.insert((group, version), on);
                }
                // Nothing serves it, here or there.
                None => {}
                Some(resource) => {
                    resources.insert((group, version, resource), on);
                }
            }
        }
        refuse_absent(&versions, &resources)?;
        versions.retain(|(group, version), served| !*served && !is_absent(group, version));
        let off = versions.into_keys();
        Ok(Self {
            versions: off.collect(),
            resources,
        })
    }

    /// Reports whether a resource is served.
    pub fn serves(&self, decl: &ResourceDecl) -> bool {
        let version = (decl.group.clone(), decl.version.clone());
        let named = (
            decl.group.clone(),
            decl.version.clone(),
            decl.resource.clone(),
        );
        self.resources
            .get(&named)
            .copied()
            .unwrap_or_else(|| !self.versions.contains(&version))
    }

    /// The built-in resources that are not served.
    pub fn hidden(&self) -> impl Iterator<Item = Gvr> {
        builtin()
            .resources
            .iter()
            .filter(|decl| !self.serves(decl))
            .map(|decl| Gvr::new(&decl.group, &decl.version, &decl.resource))
    }
}

/// Refuses what kube-apiserver refuses before it looks at any value.
fn check_keys(given: &BTreeMap<&str, &str>) -> Result<(), FlagError> {
    if given.len() == 1 && given.get("api/all") == Some(&"false") {
        return Err(FlagError::new(
            "invalid runtime-config with only api/all=false",
        ));
    }
    let mut unknown = BTreeSet::new();
    for key in given.keys().filter(|key| !LEVELS.contains(key)) {
        let parts: Vec<&str> = key.split('/').collect();
        let (group, version) = match parts.as_slice() {
            [group, version] | [group, version, _] => (*group, *version),
            _ => return Err(FlagError::new(format!("runtime-config invalid key {key}"))),
        };
        if !known().any(|(one, _)| one == group) {
            unknown.insert(format!("{group}/{version}"));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    Err(FlagError::new(format!(
        "unknown api groups {}",
        unknown.into_iter().collect::<Vec<_>>().join(",")
    )))
}

/// Every group and version that kube-apiserver knows.
fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    let served = builtin()
        .group_versions
        .iter()
        .map(|decl| (decl.group.as_str(), decl.version.as_str()));
    served
        .chain(ABSENT.iter().copied())
        .chain(NEVER_SERVED.iter().copied())
}

/// The parsed key of a version or a resource.
fn enabled(key: &str, value: &str) -> Result<bool, FlagError> {
    let mut parts = key.split('/');
    let (group, version) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    if !known().any(|one| one == (group, version)) {
        let named = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        return Err(FlagError::new(format!(
            "group version {named} that has not been registered"
        )));
    }
    let on = if value.is_empty() {
        Some(true)
    } else {
        parse_bool(value)
    };
    let on = on.ok_or_else(|| {
        FlagError::new(format!(
            "invalid value of {key}: {value}, err: strconv.ParseBool: parsing {}: invalid syntax",
            go::quote(value)
        ))
    })?;
    if let Some(resource) = parts
        .next()
        .filter(|resource| resource.to_lowercase() != *resource)
    {
        let why = format!(
            "invalid key {key}: group/version/resource and resource is always lowercase plural, not {}",
            go::quote(resource)
        );
        return Err(FlagError::new(why));
    }
    Ok(on)
}

fn is_absent(group: &str, version: &str) -> bool {
    ABSENT.contains(&(group, version))
}

/// Refuses to leave out what would have to be served.
fn refuse_absent(
    versions: &BTreeMap<Version, bool>,
    resources: &BTreeMap<(String, String, String), bool>,
) -> Result<(), FlagError> {
    let whole = versions
        .iter()
        .filter(|((group, version), on)| **on && is_absent(group, version));
    let single = resources
        .iter()
        .filter(|((group, version, _), on)| **on && is_absent(group, version));
    let names = whole.map(|((group, version), _)| format!("{group}/{version}"));
    let names: BTreeSet<String> = names
        .chain(
            single.map(|((group, version, resource), _)| format!("{group}/{version}/{resource}")),
        )
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Err(FlagError::new(format!(
        "--runtime-config is not supported as given: alpha and beta versions are not implemented ({names})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(value: &str) -> Result<Vec<String>, String> {
        let parsed = ApiEnablement::parse([value]).map_err(|why| why.to_string())?;
        Ok(parsed
            .hidden()
            .map(|gvr| format!("{}/{}/{}", gvr.group, gvr.version, gvr.resource))
            .collect())
    }

    #[test]
    fn runtime_config_selects_the_served_versions() {
        for all in [
            "",
            "api/ga=true",
            "api/beta=false,api/alpha=false",
            "api/all=true,api/beta=false,api/alpha=false",
            "apps/v1",
            "apps/v1=",
        ] {
            assert_eq!(hidden(all), Ok(Vec::new()), "{all}");
        }
        assert_eq!(
            hidden("autoscaling/v1=false").expect("understood"),
            ["autoscaling/v1/horizontalpodautoscalers"]
        );
        assert_eq!(
            hidden("batch/v1/cronjobs=0").expect("understood"),
            ["batch/v1/cronjobs"]
        );
        let but_jobs = hidden("batch/v1=false,batch/v1/jobs=true").expect("understood");
        assert_eq!(but_jobs, ["batch/v1/cronjobs"]);
        assert!(
            hidden("/v1=false")
                .expect("understood")
                .contains(&"/v1/pods".to_owned())
        );
        let core = hidden("api/all=false,/v1=true").expect("understood");
        assert!(
            core.contains(&"apps/v1/deployments".to_owned())
                && !core.contains(&"/v1/pods".to_owned())
        );
        // The single version wins over the level, in whatever order they come.
        assert_eq!(
            hidden("apps/v1=true,api/ga=false")
                .expect("understood")
                .iter()
                .filter(|one| one.starts_with("apps/"))
                .count(),
            0
        );
        assert_eq!(
            hidden("apps/v1=true,extensions/v1beta1=true,apps/v1beta2=true,apps/v1/none=false"),
            Ok(Vec::new())
        );
    }

    #[test]
    fn mistakes_are_told_as_kube_apiserver_tells_them() {
        for (value, want) in [
            (
                "api/all=false",
                "invalid runtime-config with only api/all=false",
            ),
            ("v1=true", "runtime-config invalid key v1"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            ("api/legacy=true", "unknown api groups api/legacy"),
            (
                "example.com/v1=true,another.com/v2/x=false",
                "unknown api groups another.com/v2,example.com/v1",
            ),
            (
                "apps/v9=true",
                "group version apps/v9 that has not been registered",
            ),
            ("api/ga=yes", "invalid value api/ga=yes"),
            (
                "apps/v1=maybe",
                r#"invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
            ),
            (
                "apps/v1/Deployments=false",
                r#"invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments""#,
            ),
        ] {
            assert_eq!(hidden(value), Err(want.to_owned()), "{value}");
        }
    }

    #[test]
    fn a_version_that_there_is_not_cannot_be_had() {
        for (value, named) in [
            ("resource.k8s.io/v1beta2=true", "(resource.k8s.io/v1beta2)"),
            (
                "certificates.k8s.io/v1beta1/clustertrustbundles=true",
                "(certificates.k8s.io/v1beta1/clustertrustbundles)",
            ),
            ("api/all=true", "scheduling.k8s.io/v1alpha2"),
            ("api/beta=true", "storagemigration.k8s.io/v1beta1"),
            ("api/alpha=true", "internal.apiserver.k8s.io/v1alpha1"),
        ] {
            let said = hidden(value).expect_err(value);
            assert!(
                said.starts_with("--runtime-config is not supported as given: ")
                    && said.contains(named),
                "{said}"
            );
        }
        assert!(
            !hidden("api/alpha=true")
                .expect_err("refused")
                .contains("beta1")
        );
    }
}
