//! IPAddresses and ServiceCIDRs (`pkg/apis/networking/validation`).

use crate::meta::{ErrorList, FieldError, Object, Path, Value, json, names};
use crate::registry::validation::{Fields, IMMUTABLE, invalid_each, required_segment, same};
use crate::registry::{Context, Strategy, Subresource};

pub struct IpAddresses;

pub struct ServiceCidrs;

impl Strategy for IpAddresses {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        if !object.name().is_empty() {
            invalid_each(
                &mut errors,
                &Path::new("metadata").child("name"),
                object.name(),
                names::ip(object.name()),
            );
        }
        let path = Path::new("spec").child("parentRef");
        let Some(parent) = object
            .at("/spec/parentRef")
            .filter(|parent| !parent.is_null())
        else {
            errors.push(FieldError::required(&path, ""));
            return errors;
        };
        let group = parent.str("group");
        if !group.is_empty() {
            invalid_each(
                &mut errors,
                &path.child("group"),
                group,
                names::dns1123_subdomain(group),
            );
        }
        required_segment(&mut errors, &path.child("resource"), parent.str("resource"));
        required_segment(&mut errors, &path.child("name"), parent.str("name"));
        let namespace = parent.str("namespace");
        if !namespace.is_empty() {
            invalid_each(
                &mut errors,
                &path.child("namespace"),
                namespace,
                names::path_segment_name(namespace),
            );
        }
        errors
    }

    fn validate_update(
        &self,
        _ctx: &Context,
        _sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        let (new, old) = (object.at("/spec/parentRef"), old.at("/spec/parentRef"));
        if same(new, old) {
            return ErrorList::new();
        }
        let shown = new.filter(|parent| !parent.is_null()).map_or(Value::Null, |parent| {
            let text = |key: &str| parent.str(key);
            json!({"Group": text("group"), "Resource": text("resource"), "Namespace": text("namespace"), "Name": text("name")})
        });
        [FieldError::invalid(
            &Path::new("spec").child("parentRef"),
            shown,
            IMMUTABLE,
        )]
        .into()
    }
}

impl Strategy for ServiceCidrs {
    fn validate(&self, _ctx: &Context, object: &Object) -> ErrorList {
        let mut errors = ErrorList::new();
        check_cidrs(&mut errors, &cidrs(object));
        errors
    }

    fn validate_update(
        &self,
        _ctx: &Context,
        sub: Subresource,
        object: &Object,
        old: &Object,
    ) -> ErrorList {
        let mut errors = ErrorList::new();
        if sub == Subresource::Status {
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
                errors.push(FieldError::invalid(&path.index(index), *new, IMMUTABLE));
            }
        };
        if old.len() == new.len() {
            unchanged(new.len());
        } else if old.len() == 1 && new.len() == 2 {
            unchanged(1);
            check_cidrs(&mut errors, &new);
        } else {
            errors.push(FieldError::invalid(&path, json!(new), IMMUTABLE));
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
        errors.push(FieldError::required(&path, "at least one CIDR required"));
        return;
    }
    if cidrs.len() > 2 {
        errors.push(FieldError::invalid(
            &path,
            json!({"CIDRs": cidrs}),
            "may only hold up to 2 values",
        ));
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
        errors.push(FieldError::invalid(&path, json!(cidrs), detail));
    }
}
