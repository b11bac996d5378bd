//! The devices of a slice: what they are like, what they take from shared counters, and where they
//! can be reached from.

use super::device_rules::{
    IDENTIFIER_MAX, check_binding, check_label, check_qualified_name, check_size, check_unique,
};
use crate::builtin::defaulting::{part, parts};
use crate::builtin::pod_spec::affinity::check_node_selector;
use crate::builtin::quantities::quantity;
use crate::meta::go::quantity::Quantity;
use crate::meta::{ErrorList, Map, Path, Value, json, names};
use crate::registry::validation::{Fields, invalid_each, required_one_of, same};

/// The most attributes and capacities of a device, and values of its attributes.
const PROPERTIES_MAX: usize = 32;
const ATTRIBUTE_VALUES_MAX: usize = 48;
/// The longest text of an attribute, in bytes.
const ATTRIBUTE_MAX: usize = 64;
/// The longest name of an attribute or a capacity that errors show in full.
const SHOWN_NAME_MAX: usize = 63 + 1 + IDENTIFIER_MAX;
/// The most amounts that a capacity is requested in.
const VALID_VALUES_MAX: usize = 10;
/// The most taints of a device.
const TAINTS_MAX: usize = 16;
/// The most sets that a device takes from, and counters in one set.
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;

/// The members of an attribute that hold one value, and those that hold several.
const SINGLE: [&str; 4] = ["bool", "int", "string", "version"];
const SEVERAL: [&str; 4] = ["bools", "ints", "strings", "versions"];
const ONE_VALUE: &str = "exactly one value must be specified";
const ONE_PLACE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
const NO_PLACE: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// Drops what belongs to feature gates that are off in v1.36 (DRAListTypeAttributes,
/// DRANodeAllocatableResources), unless the old slice has it too.
pub fn drop_gated_fields(spec: &mut Map, old: Option<&Map>) {
    let attributes = |device: &Value| {
        let lists = |(_, value): (_, &Value)| SEVERAL.iter().any(|key| value.field(key).is_some());
        device.entries("attributes").any(lists)
    };
    let mappings = |device: &Value| {
        device
            .map("nodeAllocatableResourceMappings")
            .is_some_and(|mappings| !mappings.is_empty())
    };
    let in_use =
        |uses: &dyn Fn(&Value) -> bool| old.is_some_and(|old| old.list("devices").iter().any(uses));
    let (keep_lists, keep_mappings) = (in_use(&attributes), in_use(&mappings));
    for device in parts(spec, "devices") {
        if !keep_mappings {
            device.shift_remove("nodeAllocatableResourceMappings");
        }
        let Some(attributes) = part(device, "attributes").filter(|_| !keep_lists) else {
            continue;
        };
        for attribute in attributes.values_mut().filter_map(Value::as_object_mut) {
            for key in SEVERAL {
                attribute.shift_remove(key);
            }
        }
    }
}

/// Checks a device; `chosen` says that each device of the slice names its own nodes.
pub fn check_device(
    errors: &mut ErrorList,
    path: &Path,
    device: &Value,
    old: Option<&Value>,
    chosen: bool,
) {
    check_label(errors, &path.child("name"), device.str("name"));
    check_properties(errors, path, device);
    let taints = device.list("taints");
    let kept = old.is_some_and(|old| same(old.field("taints"), device.field("taints")));
    if !kept && check_size(errors, &path.child("taints"), taints, TAINTS_MAX) {
        for (index, taint) in taints.iter().enumerate() {
            check_taint(errors, &path.child("taints").index(index), taint);
        }
    }
    check_consumptions(
        errors,
        &path.child("consumesCounters"),
        device.list("consumesCounters"),
    );
    let placed = ["nodeName", "nodeSelector", "allNodes"]
        .iter()
        .any(|key| device.field(key).is_some());
    if chosen {
        check_place(errors, path, device);
    } else if placed {
        errors.invalid(path, Value::Null, NO_PLACE);
    }
    check_binding(errors, path, device);
}

fn check_properties(errors: &mut ErrorList, path: &Path, device: &Value) {
    let count = device.entries("attributes").count() + device.entries("capacity").count();
    if count > PROPERTIES_MAX {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {PROPERTIES_MAX}"
        );
        errors.invalid(path, count, detail);
    }
    let values: usize = device
        .entries("attributes")
        .map(|(_, attribute)| {
            let listed = SEVERAL
                .iter()
                .map(|key| attribute.list(key).len())
                .sum::<usize>();
            listed.max(1)
        })
        .sum();
    if values > ATTRIBUTE_VALUES_MAX {
        let detail =
            format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}");
        errors.invalid(path, values, detail);
    }
    let attributes = path.child("attributes");
    for (name, attribute) in device.entries("attributes") {
        check_qualified_name(errors, &attributes, name);
        check_attribute(errors, &attributes.key(&shortened(name)), attribute);
    }
    let capacities = path.child("capacity");
    for (name, capacity) in device.entries("capacity") {
        check_qualified_name(errors, &capacities, name);
        let path = capacities.key(&shortened(name)).child("requestPolicy");
        let Some(policy) = capacity.field("requestPolicy") else {
            continue;
        };
        if device.flag("allowMultipleAllocations") {
            let most = capacity.field("value").map(quantity).unwrap_or_default();
            check_request_policy(errors, &path, policy, &most);
        } else {
            let detail = "allowMultipleAllocations must be true";
            errors.forbidden(&path, detail);
        }
    }
}

/// A name as errors show it: without its middle where it is too long.
fn shortened(name: &str) -> String {
    if name.len() <= SHOWN_NAME_MAX {
        return name.to_owned();
    }
    let kept = SHOWN_NAME_MAX - "...".len();
    let (start, end) = (kept.div_ceil(2), name.len() - kept / 2);
    let bytes = name.as_bytes();
    let text = [&bytes[..start], b"...", &bytes[end..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn check_attribute(errors: &mut ErrorList, path: &Path, attribute: &Value) {
    let text = |errors: &mut ErrorList, path: &Path, value: &str| {
        if value.len() > ATTRIBUTE_MAX {
            errors.too_long(path, ATTRIBUTE_MAX);
        }
    };
    let version = |errors: &mut ErrorList, path: &Path, value: &str| {
        if !is_semantic_version(value) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            errors.invalid(path, value, detail);
        }
        text(errors, path, value);
    };
    if let Some(value) = attribute.opt_str("string") {
        text(errors, &path.child("string"), value);
    }
    if let Some(value) = attribute.opt_str("version") {
        version(errors, &path.child("version"), value);
    }
    for (index, value) in attribute.list("strings").iter().enumerate() {
        let path = path.child("strings").index(index);
        text(errors, &path, value.as_str().unwrap_or(""));
    }
    for (index, value) in attribute.list("versions").iter().enumerate() {
        let path = path.child("versions").index(index);
        version(errors, &path, value.as_str().unwrap_or(""));
    }
    let set = SINGLE
        .iter()
        .chain(&SEVERAL)
        .filter(|key| attribute.field(key).is_some());
    match set.count() {
        0 => errors.invalid(path, "", ONE_VALUE),
        1 => {}
        _ => {
            let shown = json!({
                "IntValue": attribute.field("int"),
                "BoolValue": attribute.field("bool"),
                "StringValue": attribute.field("string"),
                "VersionValue": attribute.field("version"),
                "IntValues": attribute.field("ints"),
                "BoolValues": attribute.field("bools"),
                "StringValues": attribute.field("strings"),
                "VersionValues": attribute.field("versions"),
            });
            errors.invalid(path, shown, ONE_VALUE);
        }
    }
}

/// Reports whether a text is a version as semver.org has it.
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (numbers, release) = match text.split_once('-') {
        Some((numbers, release)) => (numbers, Some(release)),
        None => (text, None),
    };
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let number = |part: &str| is_digits(part) && (part == "0" || !part.starts_with('0'));
    numbers.split('.').count() == 3
        && numbers.split('.').all(number)
        && release.is_none_or(|release| {
            release
                .split('.')
                .all(|part| word(part) && (!is_digits(part) || number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

/// Checks the amounts that may be requested of a capacity, of which there is `most`.
fn check_request_policy(errors: &mut ErrorList, path: &Path, policy: &Value, most: &Quantity) {
    let (values, range) = (policy.list("validValues"), policy.field("validRange"));
    let (key, default) = match (values.is_empty(), range) {
        (false, Some(_)) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            errors.forbidden(path, detail);
            return;
        }
        (true, None) => return,
        (false, None) => ("validValues", policy.field("default")),
        (true, Some(_)) => ("validRange", policy.field("default")),
    };
    let Some(default) = default.map(quantity) else {
        let detail = format!("required when {key} is defined");
        errors.required(&path.child("default"), detail);
        return;
    };
    match range {
        Some(range) => check_range(errors, &path.child(key), range, &default, most),
        None => check_valid_values(errors, &path.child(key), values, &default, most),
    }
}

fn check_valid_values(
    errors: &mut ErrorList,
    path: &Path,
    values: &[Value],
    default: &Quantity,
    most: &Quantity,
) {
    let amounts: Vec<Quantity> = values.iter().map(quantity).collect();
    for (index, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let detail = "values must be sorted in ascending order";
            let path = path.index(index + 1);
            errors.invalid(&path, pair[1].to_string(), detail);
        }
    }
    let mut found = false;
    if check_size(errors, path, values, VALID_VALUES_MAX) {
        for (index, amount) in amounts.iter().enumerate() {
            if amount > most {
                let detail = format!("option is larger than capacity value: {most}");
                let path = path.index(index);
                errors.invalid(&path, amount.to_string(), detail);
            }
            found |= amount == default;
        }
        let keys: Vec<String> = amounts.iter().map(|one| one.value().to_string()).collect();
        check_unique(errors, path, keys.iter().map(String::as_str));
    }
    if !found {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.to_string(), detail);
    }
}

fn check_range(
    errors: &mut ErrorList,
    path: &Path,
    range: &Value,
    default: &Quantity,
    most: &Quantity,
) {
    let bound = |key: &str| range.field(key).map(quantity);
    let Some(min) = bound("min") else {
        let detail = "required when validRange is defined";
        errors.required(&path.child("min"), detail);
        return;
    };
    let mut refuse = |key: &str, shown: &Quantity, detail: String| {
        errors.invalid(&path.child(key), shown.to_string(), detail);
    };
    if min > *most {
        refuse(
            "min",
            &min,
            format!("min is larger than capacity value: {most}"),
        );
    }
    if *default < min {
        refuse("min", default, format!("default is less than min: {min}"));
    }
    let max = bound("max");
    if let Some(max) = &max {
        if min > *max {
            refuse("max", &min, format!("min is larger than max: {max}"));
        }
        if max > most {
            refuse(
                "max",
                max,
                format!("max is larger than capacity value: {most}"),
            );
        }
        if default > max {
            refuse("max", default, format!("default is more than max: {max}"));
        }
    }
    let Some(step) = bound("step") else {
        return;
    };
    let mut next = min;
    next.add(&step);
    if next > *most {
        let detail = format!("one step {next} is larger than capacity value: {most}");
        refuse("step", &step, detail);
    }
    for value in std::iter::once(default).chain(&max) {
        let over = value.value().wrapping_sub(min.value());
        // A step of less than one has no value to divide by.
        if over.checked_rem(step.value()).unwrap_or(0) != 0 {
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            refuse("step", value, detail);
        }
    }
}

fn check_taint(errors: &mut ErrorList, path: &Path, taint: &Value) {
    let (key, value) = (taint.str("key"), taint.str("value"));
    invalid_each(errors, &path.child("key"), key, names::label_key(key));
    invalid_each(
        errors,
        &path.child("value"),
        value,
        names::label_value(value),
    );
    required_one_of(
        errors,
        &path.child("effect"),
        taint.str("effect"),
        &["NoExecute", "NoSchedule", "None"],
    );
}

fn check_consumptions(errors: &mut ErrorList, path: &Path, consumptions: &[Value]) {
    if !check_size(errors, path, consumptions, CONSUMPTIONS_MAX) {
        return;
    }
    for (index, consumption) in consumptions.iter().enumerate() {
        check_counters(errors, &path.index(index), consumption, "counterSet");
    }
    let sets = consumptions.iter().map(|one| one.str("counterSet"));
    check_unique(errors, path, sets);
}

/// Checks counters and the name of their set, which is under `name_key`.
pub fn check_counters(errors: &mut ErrorList, path: &Path, set: &Value, name_key: &str) {
    let name = set.str(name_key);
    if name.is_empty() {
        errors.required(&path.child(name_key), "");
    } else {
        check_label(errors, &path.child(name_key), name);
    }
    let path = path.child("counters");
    match set.entries("counters").count() {
        0 => errors.required(&path, ""),
        count if count > COUNTERS_MAX => {
            errors.too_many(&path, count, COUNTERS_MAX);
        }
        _ => {
            for (name, _) in set.entries("counters") {
                check_label(errors, &path, name);
            }
        }
    }
}

/// Checks the nodes that a device can be reached from.
fn check_place(errors: &mut ErrorList, path: &Path, device: &Value) {
    let mut set = Vec::new();
    match device.opt_str("nodeName") {
        Some("") => {
            let path = path.child("nodeName");
            errors.invalid(&path, "", "must not be empty");
        }
        Some(node) => {
            set.push("`nodeName`");
            let path = path.child("nodeName");
            invalid_each(errors, &path, node, names::dns1123_subdomain(node));
        }
        None => {}
    }
    if let Some(selector) = device.map("nodeSelector") {
        set.push("`nodeSelector`");
        check_node_selector(errors, &path.child("nodeSelector"), selector, false);
    }
    match device.opt_flag("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            let detail = "must be either unset or set to true";
            errors.invalid(&path.child("allNodes"), false, detail);
        }
        None => {}
    }
    match set.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.invalid(path, shown, ONE_PLACE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(device: &Value, chosen: bool) -> Vec<String> {
        let mut errors = ErrorList::new();
        check_device(&mut errors, &Path::new("d"), device, None, chosen);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn versions_of_attributes_are_semantic() {
        for fine in [
            "1.2.3",
            "0.0.0",
            "1.0.0-alpha.1",
            "1.0.0-0a+01",
            "1.0.0--",
            "1.2.3+b-1.2",
        ] {
            assert!(is_semantic_version(fine), "{fine}");
        }
        for bad in [
            "", "1", "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "v1.2.3", "1.2.3.4",
        ] {
            assert!(!is_semantic_version(bad), "{bad}");
        }
    }

    #[test]
    fn a_device_is_checked_in_full() {
        let fine = json!({
            "name": "d", "allowMultipleAllocations": true,
            "attributes": {"a": {"int": 0}, "x.io/b": {"version": "1.0.0"}},
            "capacity": {"memory": {"value": "4Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "2Gi"}}}},
            "taints": [{"key": "k", "effect": "NoSchedule"}],
            "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
            "bindingConditions": ["a"], "bindingFailureConditions": ["b"],
        });
        assert_eq!(problems(&fine, false), [""; 0]);
        let rows = [
            (
                json!({"name": "d", "attributes": {"a": {}}}),
                false,
                "d.attributes[a]: Invalid value: \"\": exactly one value must be specified",
            ),
            (
                json!({"name": "d", "attributes": {"a": {"version": "1"}}}),
                false,
                "d.attributes[a].version: Invalid value: \"1\": must be a string compatible with semver.org spec 2.0.0",
            ),
            (
                json!({"name": "d", "attributes": {"/a": {"int": 1}}}),
                false,
                "d.attributes: Invalid value: \"\": the domain must not be empty",
            ),
            (
                json!({"name": "d", "capacity": {"m": {"value": "1", "requestPolicy": {}}}}),
                false,
                "d.capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            ),
            (
                json!({"name": "d", "allNodes": true}),
                false,
                "d: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            (
                json!({"name": "d"}),
                true,
                "d: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            (
                json!({"name": "d", "bindingConditions": ["a"]}),
                false,
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
            ),
            (
                json!({"name": "d", "consumesCounters": [{"counterSet": "s"}]}),
                false,
                "d.consumesCounters[0].counters: Required value",
            ),
            (
                json!({"name": "d", "taints": [{"key": "k", "effect": "X"}]}),
                false,
                "d.taints[0].effect: Unsupported value: \"X\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
            ),
        ];
        for (device, chosen, want) in rows {
            assert_eq!(problems(&device, chosen), [want], "{device}");
        }
    }

    #[test]
    fn amounts_that_may_be_requested_fit_the_capacity() {
        let device = |policy: Value| json!({"name": "d", "allowMultipleAllocations": true, "capacity": {"m": {"value": "4", "requestPolicy": policy}}});
        let at = "d.capacity[m].requestPolicy";
        let rows = [
            (
                json!({"validValues": ["1"]}),
                format!("{at}.default: Required value: required when validValues is defined"),
            ),
            (
                json!({"default": "1", "validValues": ["1", "5"]}),
                format!(
                    "{at}.validValues[1]: Invalid value: \"5\": option is larger than capacity value: 4"
                ),
            ),
            (
                json!({"default": "3", "validValues": ["1", "2"]}),
                format!(
                    "{at}.validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy"
                ),
            ),
            (
                json!({"default": "1", "validRange": {}}),
                format!("{at}.validRange.min: Required value: required when validRange is defined"),
            ),
            (
                json!({"default": "2", "validRange": {"min": "1", "step": "2"}}),
                format!(
                    "{at}.validRange.step: Invalid value: \"2\": value is not a multiple of a given step (2) from (1)"
                ),
            ),
            (
                json!({"default": "1", "validRange": {"min": "1", "step": "0"}}),
                String::new(),
            ),
        ];
        for (policy, want) in rows {
            assert_eq!(
                problems(&device(policy.clone()), false).join("\n"),
                want,
                "{policy}"
            );
        }
    }

    #[test]
    fn fields_of_gates_that_are_off_are_dropped_unless_in_use() {
        let spec = json!({"devices": [{"name": "d", "attributes": {"a": {"ints": [1]}}, "nodeAllocatableResourceMappings": {"cpu": {}}}]});
        let old = spec.as_object().expect("a map").clone();
        let mut new = old.clone();
        drop_gated_fields(&mut new, Some(&old));
        assert_eq!(new, old);
        drop_gated_fields(&mut new, None);
        assert_eq!(
            Value::Object(new),
            json!({"devices": [{"name": "d", "attributes": {"a": {}}}]})
        );
    }
}
