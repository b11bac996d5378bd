//! The check of a request against quotas (apiserver `resourcequota/controller.go`, `CheckRequest`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::configuration::{LimitedResource, Requirement};
use super::usage::{Usage, scopes};
use crate::admission::resource_list::{self, ResourceList};
use crate::admission::{Attributes, Operation};
use crate::meta::status::Result;
use crate::meta::{Map, Object, Status};

/// A quota that is about the object of a request.
struct Concerned<'a> {
    quota: &'a Object,
    hard: ResourceList,
    used: ResourceList,
}

/// The names and scopes that a quota must cover, and those that one covers.
#[derive(Default)]
struct Coverage {
    needed: BTreeSet<String>,
    needed_scopes: Vec<Requirement>,
    covered: BTreeSet<String>,
    covered_scopes: BTreeSet<String>,
}

/// Returns the quotas that the request changes, with what is used after it.
///
/// # Errors
/// 403 if a quota does not allow it or has no status yet, or if there is none where one is needed.
pub fn check(
    attributes: &Attributes<'_>,
    usage: &Usage<'_>,
    quotas: &[Arc<Object>],
    limited: &[LimitedResource],
) -> Result<Vec<Object>> {
    let mut coverage = Coverage::needed(attributes, usage, limited);
    let concerned = concerned(attributes, usage, quotas, &mut coverage)?;
    let whole = usage.of_object();
    let negative = whole.iter().filter(|(_, amount)| amount.sign() < 0);
    let negative: Vec<&str> = negative.map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        let names = negative.join(",");
        let why = format!("quota usage is negative for resource(s): {names}");
        return Err(attributes.forbidden(&why));
    }
    let delta = match attributes.operation {
        Operation::Create => whole.clone(),
        _ => usage.added(),
    };
    // An update costs what it adds, unless the quota was not about the object before.
    let costs: Vec<(Concerned<'_>, ResourceList)> = concerned
        .into_iter()
        .map(|one| {
            let was_about_it = usage.old.is_some_and(|old| usage.matches(one.quota, old));
            let cost = if was_about_it { &delta } else { &whole };
            (one, without_zeros(cost))
        })
        .collect();
    let costs_something = match costs.is_empty() {
        true => !without_zeros(&delta).is_empty(),
        false => costs.iter().any(|(_, cost)| !cost.is_empty()),
    };
    if !costs_something {
        return Ok(Vec::new());
    }
    coverage.check(attributes)?;
    let mut updates = Vec::new();
    for (one, cost) in costs {
        updates.extend(booked(attributes, &one, cost)?);
    }
    Ok(updates)
}

impl Coverage {
    /// Collects what needs a quota.
    fn needed(attributes: &Attributes<'_>, usage: &Usage<'_>, limited: &[LimitedResource]) -> Self {
        let mut coverage = Self::default();
        let scopes = limited.iter().flat_map(|one| &one.match_scopes);
        let matching = scopes.filter(|scope| usage.evaluator.in_scope(usage.object, scope));
        coverage.needed_scopes = matching.cloned().collect();
        for one in limited.iter().filter(|one| one.is_of(attributes.gvr)) {
            let used = usage
                .of_object()
                .into_iter()
                .filter(|(_, amount)| amount.sign() > 0);
            let is_limited = |name: &String| {
                one.match_contains
                    .iter()
                    .any(|part| name.contains(part.as_str()))
            };
            coverage
                .needed
                .extend(used.map(|(name, _)| name).filter(is_limited));
        }
        coverage
    }

    /// Checks that a quota covers all that needs one.
    fn check(&self, attributes: &Attributes<'_>) -> Result<()> {
        let missing = self.needed.difference(&self.covered);
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            let why = format!("insufficient quota to consume: {}", missing.join(","));
            return Err(attributes.forbidden(&why));
        }
        let missing = self.needed_scopes.iter();
        let missing = missing.filter(|scope| !self.covered_scopes.contains(&scope.scope));
        let missing: Vec<String> = missing.map(ToString::to_string).collect();
        if !missing.is_empty() {
            // Upstream's error is no Status: clients get a 500 with its text.
            let scopes = missing.join(" ");
            let why = format!("insufficient quota to match these scopes: [{scopes}]");
            return Err(Status::failure(500, "", why));
        }
        Ok(())
    }
}

/// Returns the quotas that are about the object, and notes what they cover.
fn concerned<'a>(
    attributes: &Attributes<'_>,
    usage: &Usage<'_>,
    quotas: &'a [Arc<Object>],
    coverage: &mut Coverage,
) -> Result<Vec<Concerned<'a>>> {
    let mut concerned = Vec::new();
    for quota in quotas {
        let own = scopes(quota);
        let matching = own
            .iter()
            .filter(|scope| usage.evaluator.in_scope(usage.object, scope));
        coverage
            .covered_scopes
            .extend(matching.map(|scope| scope.scope.clone()));
        if !usage.matches(quota, usage.object) {
            continue;
        }
        let (hard, used) = (amounts(quota, "/hard"), amounts(quota, "/used"));
        let names = hard.keys().filter(|name| usage.matches_resource(name));
        let names: Vec<String> = names.cloned().collect();
        if let Some(why) = usage.evaluator.missing(&names, usage.object) {
            return Err(attributes.forbidden(&format!("failed quota: {}: {why}", quota.name())));
        }
        if names.iter().any(|name| !used.contains_key(name)) {
            let why = format!(
                "status unknown for quota: {}, resources: {}",
                quota.name(),
                names.join(",")
            );
            return Err(attributes.forbidden(&why));
        }
        coverage.covered.extend(names);
        concerned.push(Concerned { quota, hard, used });
    }
    Ok(concerned)
}

/// The amounts of a quota's status.
fn amounts(quota: &Object, which: &str) -> ResourceList {
    let status = quota.get("status");
    status
        .map(|status| resource_list::read(status, which))
        .unwrap_or_default()
}

fn without_zeros(amounts: &ResourceList) -> ResourceList {
    let mut amounts = amounts.clone();
    amounts.retain(|_, amount| !amount.is_zero());
    amounts
}

/// Returns the quota with a cost; `None` if it does not limit what costs.
///
/// # Errors
/// 403 if the quota does not allow so much; what is told in the status has happened already.
fn booked(
    attributes: &Attributes<'_>,
    concerned: &Concerned<'_>,
    mut cost: ResourceList,
) -> Result<Option<Object>> {
    let Concerned { quota, hard, used } = concerned;
    cost.retain(|name, _| hard.contains_key(name));
    if cost.is_empty() {
        return Ok(None);
    }
    let mut total = used.clone();
    resource_list::add(&mut total, &cost);
    let is_over = |name: &&String| total.get(*name) > hard.get(*name);
    let exceeded: Vec<&String> = cost.keys().filter(is_over).collect();
    if !exceeded.is_empty() && attributes.subresource != "status" {
        let tell = |list: &ResourceList| {
            let amounts = exceeded
                .iter()
                .filter_map(|name| Some((*name, list.get(*name)?)));
            let parts = amounts.map(|(name, amount)| format!("{name}={amount}"));
            parts.collect::<Vec<_>>().join(",")
        };
        let why = format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.name(),
            tell(&cost),
            tell(used),
            tell(hard)
        );
        return Err(attributes.forbidden(&why));
    }
    let mut updated = (*quota).clone();
    let status: &mut Map = updated.section_mut("status");
    status.insert("used", resource_list::to_value(&total));
    Ok(Some(updated))
}
