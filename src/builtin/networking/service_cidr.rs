//! ServiceCIDR (`pkg/apis/networking/validation`).

use crate::builtin::columns::{AGE, ColumnPrinter, NAME, join, text};
use crate::builtin::resource_traits::{ResourceEntry, STATUS_ALONE};
use crate::meta::{ErrorList, Object, Path, Value, json, names};
use crate::registry::validation::{IMMUTABLE, invalid_each};
use crate::registry::{Context, Strategy, Subresource};

/// The entry of `servicecidrs`.
pub static ENTRY: ResourceEntry = ResourceEntry {
    resource: "servicecidrs",
    traits: STATUS_ALONE,
    strategy: &ServiceCidrStrategy,
    printer: &PRINTER,
};

pub struct ServiceCidrStrategy;

impl Strategy for ServiceCidrStrategy {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_cidrs(&mut errors, &cidrs(object));
        errors
    }

    fn validate_update(&self, ctx: &Context, object: &Object, old: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if ctx.subresource == Subresource::Status {
            return errors;
        }
        let path = Path::new("spec").child("cidrs");
        let (new, old) = (cidrs(object), cidrs(old));
        let mut unchanged = |count: usize| {
            for (index, (new, _)) in new
                .iter()
                .zip(&old)
                .enumerate()
                .take(count)
                .filter(|(_, (new, old))| new != old)
            {
                errors.invalid(&path.index(index), *new, IMMUTABLE);
            }
        };
        if old.len() == new.len() {
            unchanged(new.len());
        } else if old.len() == 1 && new.len() == 2 {
            unchanged(1);
            check_cidrs(&mut errors, &new);
        } else {
            errors.invalid(&path, json!(new), IMMUTABLE);
        }
        errors
    }
}

fn cidrs(object: &Object) -> Vec<&str> {
    object
        .array_at("/spec/cidrs")
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

fn check_cidrs(errors: &mut ErrorList, cidrs: &[&str]) {
    let path = Path::new("spec").child("cidrs");
    if cidrs.is_empty() {
        errors.required(&path, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        errors.invalid(
            &path,
            json!({"CIDRs": cidrs}),
            "may only hold up to 2 values",
        );
        return;
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        invalid_each(errors, &path.index(index), cidr, names::cidr(cidr));
    }
    let families: Vec<bool> = cidrs
        .iter()
        .filter_map(|cidr| names::parse_cidr_sloppy(cidr))
        .map(|(ip, _)| ip.is_ipv4())
        .collect();
    if matches!(families.as_slice(), [one, other] if one == other) {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, json!(cidrs), detail);
    }
}

pub static PRINTER: ColumnPrinter = ColumnPrinter {
    columns: &[
        NAME,
        text("CIDRs", "The ranges that service addresses are taken from"),
        AGE,
    ],
    paths: "spec.cidrs",
    fill: |row| {
        let cidrs = join(
            row.object
                .array_at("/spec/cidrs")
                .iter()
                .filter_map(Value::as_str),
            ",",
        );
        row.name().cell(cidrs).age();
    },
};
