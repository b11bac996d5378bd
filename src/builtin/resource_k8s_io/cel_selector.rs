//! Expressions that select devices (dynamic-resource-allocation `cel`).

use std::sync::{Arc, LazyLock};

use crate::cel::{self, Environment, Schema, Shape, Type};
use crate::meta::{ErrorList, Path};

/// The most that an expression may cost, by estimate.
const MAX_COST: u64 = 1_000_000;

/// Bounds of devices: names of drivers and of the domains of attributes, names and values of
/// attributes, attributes of a device.
const DOMAIN_MAX: u64 = 63;
const ID_MAX: u64 = 32;
const VALUE_MAX: u64 = 64;
const ATTRIBUTES_MAX: u64 = 32;

/// The variable `device`.
static DEVICE: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let text = |max| sized(Shape::String, max);
    // By domain, then by name.
    let grouped = |value: Arc<Schema>| {
        let named = map(value, ID_MAX);
        map(named, DOMAIN_MAX)
    };
    Schema::object(
        "kubernetes.DRADevice",
        [
            ("driver", text(DOMAIN_MAX)),
            ("allowMultipleAllocations", sized(Shape::Bool, 1)),
            (
                "attributes",
                grouped(sized(Shape::Typed(Type::Any), VALUE_MAX)),
            ),
            (
                "capacity",
                grouped(sized(Shape::Typed(Type::object("kubernetes.Quantity")), 0)),
            ),
        ],
    )
});

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new()
        .with_schema("device", &DEVICE)
        .with_bindings()
});

fn sized(shape: Shape, max_elements: u64) -> Arc<Schema> {
    Arc::new(Schema {
        max_elements,
        ..Schema::of(shape, 1)
    })
}

/// A map of at most as many entries as a device has attributes, with keys up to a length.
fn map(value: Arc<Schema>, max_key: u64) -> Arc<Schema> {
    Arc::new(Schema {
        max_elements: ATTRIBUTES_MAX,
        max_key,
        ..Schema::of(Shape::Map(value), 1)
    })
}

/// Checks that an expression compiles, returns a bool or what may be one, and does not cost too
/// much. In v1.36 new and stored expressions have the same environment.
pub fn check_expression(errors: &mut ErrorList, path: &Path, text: &str) {
    let checked = match cel::compile(text, &ENVIRONMENT) {
        Ok(checked) => checked,
        Err(issues) => {
            let detail = format!("compilation failed: {issues}");
            errors.invalid(path, text, detail);
            return;
        }
    };
    let ty = checked.type_of(checked.root.id);
    if !matches!(ty, Type::Bool | Type::Any) {
        let got = ty.declared_name();
        let detail = format!("must evaluate to bool or the unknown type, not {got}");
        errors.invalid(path, text, detail);
        return;
    }
    if let Err(why) = cel::plan(&checked, &ENVIRONMENT) {
        let detail = format!("program instantiation failed: {why}");
        errors.internal(path, detail);
        return;
    }
    if cel::estimate(&checked, Some(&DEVICE)).max > MAX_COST {
        errors.forbidden(path, "too complex, exceeds cost limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(text: &str) -> Vec<String> {
        let mut errors = ErrorList::new();
        check_expression(&mut errors, &Path::new("x"), text);
        errors.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn expressions_about_devices_are_accepted() {
        let all = [
            "device.driver == 'a'",
            "device.allowMultipleAllocations",
            "device.attributes['dra.example.com'].name",
            "device.attributes['dra.example.com']['int'] > 0",
            "device.attributes['dra.example.com'].version.isGreaterThan(semver('0.0.1'))",
            "cel.bind(dra, device.attributes['dra.example.com'], dra.name)",
            "cel.bind(dra, device.attributes['dra.example.com'], dra.one && dra.two == 'x')",
            "device.capacity['dra.example.com'].memory.isGreaterThan(quantity('1Gi'))",
            "'name' in device.attributes['dra.example.com']",
            "device.attributes['dra.example.com'].exists_one(x, x == 'services')",
            "device.attributes['dra.example.com'].services.matches('[^a]?sym')",
        ];
        for text in all {
            assert_eq!(errors_of(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn expressions_of_another_type_and_unknown_names_are_refused() {
        let checks = [
            ("1", "must evaluate to bool or the unknown type, not int"),
            (
                "dyn(true)",
                "must evaluate to bool or the unknown type, not dyn",
            ),
            (
                "device.capacity['a'].b",
                "must evaluate to bool or the unknown type, not kubernetes.Quantity",
            ),
            (
                "device.nothing",
                "compilation failed: ERROR: <input>:1:7: undefined field 'nothing'",
            ),
            (
                "self.a",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'self'",
            ),
            (
                "noSuchVar",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'noSuchVar'",
            ),
            (
                "device.attributes['a'].b.includes('c')",
                "undeclared reference to 'includes'",
            ),
            (
                "device.attributes['a'].b.exists(x, x == 1)",
                "expression of type 'any' cannot be range of a comprehension",
            ),
            (
                "cel.bind(1, 2, true)",
                "cel.bind() variable names must be simple identifiers",
            ),
            ("other.bind(a, 2, true)", "undeclared reference to 'other'"),
        ];
        for (text, why) in checks {
            let errors = errors_of(text);
            assert!(
                errors.len() == 1 && errors.concat().contains(why),
                "{text}: {errors:?}"
            );
        }
    }

    #[test]
    fn costs_are_those_of_upstream() {
        let checks = [
            ("device.driver == 'dra.example.com'", 4),
            ("device.attributes['dra.example.com'].name", 4),
            (
                "cel.bind(dra, device.attributes['dra.example.com'], dra.name)",
                15,
            ),
            ("device.attributes['dra.example.com'].name > 0", 5),
            ("device.attributes['dra.example.com'].name == 'fish'", 5),
            (
                "device.attributes['dra.example.com'].name.isGreaterThan(semver('0.0.1'))",
                6,
            ),
            (
                "device.attributes['dra.example.com'].a && device.attributes['dra.example.com'].b && \
              device.attributes['dra.example.com'].c",
                12,
            ),
            (
                "device.attributes['dra.example.com'].exists_one(x, x == 'services')",
                133,
            ),
            (
                "device.attributes['dra.example.com'].services.split('example').size() >= 2",
                19,
            ),
            (
                "device.attributes['dra.example.com'].services.matches('[^a]?sym')",
                18,
            ),
        ];
        for (text, cost) in checks {
            let checked = cel::compile(text, &ENVIRONMENT).expect(text);
            assert_eq!(cel::estimate(&checked, Some(&DEVICE)).max, cost, "{text}");
        }
    }

    #[test]
    fn expressions_that_may_cost_too_much_are_refused() {
        let digits = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let mut text = "int('1'.find('[0-9]*')) < 100".to_owned();
        for depth in 0..7 {
            text = format!("{digits}.all(x{depth}, {text})");
        }
        assert_eq!(
            errors_of(&text),
            ["x: Forbidden: too complex, exceeds cost limit"]
        );
    }
}
