//! Acceptance of the names of a definition: those that no other definition of its group has
//! (apiextensions `controller/status`).

use std::collections::{BTreeSet, HashSet};

use crate::extensions::definition::{Condition, ESTABLISHED, NAMES_ACCEPTED, Names, condition};
use crate::meta::Object;
use crate::registry::validation::Fields;

/// The names that the definitions of a group have been given.
#[derive(Debug, Default)]
pub struct NamesInUse {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl NamesInUse {
    pub fn add(&mut self, names: &Names) {
        self.resources
            .extend([names.plural.clone(), names.singular.clone()]);
        self.resources.extend(names.short_names.iter().cloned());
        self.kinds
            .extend([names.kind.clone(), names.list_kind.clone()]);
    }
}

/// The names that a definition is given, and its conditions.
#[derive(Debug)]
pub struct NamingDecision {
    pub names: Names,
    pub accepted: Condition,
    pub established: Condition,
}

/// Gives each name that is free; others stay what they were.
pub fn decide(object: &Object, asked: &Names, has: &Names, taken: &NamesInUse) -> NamingDecision {
    let mut given = has.clone();
    let mut trouble: Option<(&str, String)> = None;
    let free = |name: &str, own: &str, used: &BTreeSet<String>| {
        if name == own || !used.contains(name) {
            Ok(())
        } else {
            Err(format!("{name:?} is already in use"))
        }
    };
    match free(&asked.plural, &has.plural, &taken.resources) {
        Ok(()) => given.plural.clone_from(&asked.plural),
        Err(why) => trouble = Some(("PluralConflict", why)),
    }
    match free(&asked.singular, &has.singular, &taken.resources) {
        Ok(()) => given.singular.clone_from(&asked.singular),
        Err(why) => trouble = Some(("SingularConflict", why)),
    }
    if asked.short_names != has.short_names {
        let mut seen: HashSet<&String> = has.short_names.iter().collect();
        let new = asked.short_names.iter().filter(|name| seen.insert(name));
        let wrong: Vec<String> = new
            .filter_map(|name| free(name, "", &taken.resources).err())
            .collect();
        match wrong.as_slice() {
            [] => given.short_names.clone_from(&asked.short_names),
            [one] => trouble = Some(("ShortNamesConflict", one.clone())),
            many => trouble = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
    }
    match free(&asked.kind, &has.kind, &taken.kinds) {
        Ok(()) => given.kind.clone_from(&asked.kind),
        Err(why) => trouble = Some(("KindConflict", why)),
    }
    match free(&asked.list_kind, &has.list_kind, &taken.kinds) {
        Ok(()) => given.list_kind.clone_from(&asked.list_kind),
        Err(why) => trouble = Some(("ListKindConflict", why)),
    }
    given.categories.clone_from(&asked.categories);
    let accepted = match trouble {
        Some((reason, why)) => Condition::new(NAMES_ACCEPTED, "False", reason, why),
        None => Condition::new(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"),
    };
    let established = establishing(object, accepted.status == "True");
    NamingDecision {
        names: given,
        accepted,
        established,
    }
}

/// Returns the `Established` condition of a definition that is not yet served.
fn establishing(object: &Object, accepted: bool) -> Condition {
    let before = condition(object, ESTABLISHED);
    if let Some(before) = before.filter(|one| one.str("status") == "True" || !accepted) {
        let status = if before.str("status") == "True" {
            "True"
        } else {
            "False"
        };
        return Condition::new(
            ESTABLISHED,
            status,
            before.str("reason"),
            before.str("message"),
        );
    }
    match accepted {
        true => Condition::new(
            ESTABLISHED,
            "False",
            "Installing",
            "the initial names have been accepted",
        ),
        false => Condition::new(
            ESTABLISHED,
            "False",
            "NotAccepted",
            "not all names are accepted",
        ),
    }
}
