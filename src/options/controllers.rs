//! The controllers that run inside this server (`--controllers`), by the names that
//! kube-controller-manager has for them, old and new, or by short ones.

use super::flags::{FlagError, Flags};

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Namespace,
    GarbageCollector,
    ServiceAccounts,
    TokenSecrets,
    RootCa,
    ResourceQuota,
}

/// The controllers with their names, the first of which is that of `--help`
/// (`cmd/kube-controller-manager/names`).
const NAMES: [(Controller, &[&str]); 6] = [
    (
        Controller::Namespace,
        &["namespace", "namespace-controller"],
    ),
    (
        Controller::GarbageCollector,
        &["garbagecollector", "garbage-collector-controller"],
    ),
    (
        Controller::ServiceAccounts,
        &["serviceaccount", "serviceaccount-controller"],
    ),
    (
        Controller::TokenSecrets,
        &["serviceaccount-token", "serviceaccount-token-controller"],
    ),
    (
        Controller::RootCa,
        &[
            "root-ca",
            "root-ca-cert-publisher",
            "root-ca-certificate-publisher-controller",
        ],
    ),
    (
        Controller::ResourceQuota,
        &["resourcequota", "resourcequota-controller"],
    ),
];

impl Controller {
    /// Returns the name of `--help`.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(controller, _)| *controller == self);
        found
            .and_then(|(_, names)| names.first())
            .copied()
            .unwrap_or_default()
    }
}

/// Returns the controllers that are turned on: those that are named, or all (`*`) but those that
/// are named with a minus.
///
/// # Errors
/// Names that are no controller's, or not of one that this server has.
pub fn enabled(flags: &Flags) -> Result<Vec<Controller>, FlagError> {
    let given = flags.list("controllers");
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for name in given.iter().filter(|name| !name.is_empty()) {
        if name == "*" {
            on.extend(NAMES.iter().map(|(controller, _)| *controller));
            continue;
        }
        let (list, bare) = match name.strip_prefix('-') {
            Some(bare) => (&mut off, bare),
            None => (&mut on, name.as_str()),
        };
        let found = NAMES.iter().find(|(_, names)| names.contains(&bare));
        let (controller, _) = found.ok_or_else(|| {
            FlagError::new(format!(
                "\"{bare}\" is not in the list of known controllers"
            ))
        })?;
        list.push(*controller);
    }
    on.retain(|controller| !off.contains(controller));
    on.sort();
    on.dedup();
    Ok(on)
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn enabled_by(value: &str) -> Result<Vec<Controller>, FlagError> {
        match parse([format!("--controllers={value}")]) {
            Ok(Command::Run(flags)) => enabled(&flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn controllers_are_named_as_in_the_controller_manager() {
        assert_eq!(enabled_by(""), Ok(Vec::new()));
        let one = Ok(vec![Controller::Namespace]);
        assert_eq!(enabled_by("namespace"), one);
        assert_eq!(enabled_by("namespace-controller,namespace"), one);
        assert_eq!(enabled_by("*").map(|all| all.len()), Ok(NAMES.len()));
        assert!(enabled_by("*,-namespace").is_ok_and(|all| !all.contains(&Controller::Namespace)));
        assert_eq!(
            enabled_by("deployment").expect_err("not here").to_string(),
            "\"deployment\" is not in the list of known controllers"
        );
    }
}
