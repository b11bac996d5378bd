//! The mutations of policies: configurations to apply and JSON patches, made by expressions
//! (apiserver `admission/plugin/policy/mutating/patch`).

use std::time::Instant;

use super::activation::{Activation, Inputs};
use super::compiler::{Expression, Variables};
use super::evaluation::evaluate_one;
use super::tree::{self, Foreign, Step};
use crate::cel::{JSON_PATCH, Value as CelValue, metrics};
use crate::codec;
use crate::codec::normalize::{Rules, normalize};
use crate::codec::unstructured;
use crate::merge::combine;
use crate::merge::patch::{PatchError as JsonPatchError, json};
use crate::merge::path::PathElement;
use crate::merge::topology::{Map as MapType, Scalar, Shape, Ty};
use crate::merge::typed::list_element;
use crate::merge::validate::{validate_map, validate_with_duplicates};
use crate::meta::{Map, Object, Status, Value};
use crate::schema::{ListType, TypeRef};

/// A mutation. Its expression was compiled with the patch types.
#[derive(Debug)]
pub enum Patcher {
    /// The expression returns an `Object`.
    ApplyConfiguration(Expression),
    /// The expression returns a list of `JSONPatch`.
    JsonPatch(Expression),
}

/// The reason why a mutation did not change an object.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchError {
    /// Refuses the request, whatever the policy says of failures.
    Status(Status),
    /// Counts as a failure of the policy.
    Policy(String),
}

/// The types of the object that is mutated.
#[derive(Clone, Copy, Debug)]
pub struct PatchTypes<'a> {
    /// The type by which configurations are merged.
    pub merge: Ty<'a>,
    /// The type of a built-in kind.
    pub native: Option<TypeRef<'a>>,
}

impl Patcher {
    /// Returns the object of the inputs, changed. It is not defaulted.
    ///
    /// # Errors
    /// The expression does not compile or cannot be evaluated, or the patch cannot be applied.
    pub async fn patch(
        &self,
        variables: &Variables,
        inputs: Inputs<'_>,
        types: PatchTypes<'_>,
        mut budget: u64,
    ) -> Result<Object, PatchError> {
        let (Self::ApplyConfiguration(expression) | Self::JsonPatch(expression)) = self;
        if let Some(error) = expression.error() {
            return Err(PatchError::Policy(error.to_string()));
        }
        let Some(object) = inputs.object else {
            return Err(PatchError::Policy("there is no object".to_owned()));
        };
        let begun = Instant::now();
        let mut activation = Activation::new(variables, inputs);
        let value = evaluate_one(&mut activation, expression, &mut budget).await;
        metrics::evaluated(begun);
        let value = value
            .map_err(|ended| PatchError::Policy(ended.to_string()))?
            .map_err(PatchError::Policy)?;
        match self {
            Self::ApplyConfiguration(_) => applied(object, &value, types),
            Self::JsonPatch(_) => patched(object, &value, types),
        }
    }
}

/// Reports the objects in a value that are of another type than their places say.
fn check_type_names(value: &CelValue<'_>) -> Result<(), PatchError> {
    let CelValue::Struct(root) = value else {
        return Ok(());
    };
    let mut errors = Vec::new();
    tree::check_type_names(value, &root.name, &mut errors);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(PatchError::Policy(format!(
            "type mismatch: {}",
            errors.join("\n")
        ))),
    }
}

/// The object with a configuration applied to it.
fn applied(
    object: &Object,
    value: &CelValue<'_>,
    types: PatchTypes<'_>,
) -> Result<Object, PatchError> {
    check_type_names(value)?;
    let CelValue::Struct(made) = value else {
        return Err(PatchError::Policy(format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            value.type_name()
        )));
    };
    let (mut path, mut foreign) = (Vec::new(), Vec::new());
    let mut configuration = tree::configuration(made, &mut path, &mut foreign)
        .ok_or_else(|| PatchError::Policy("invalid return type: *dynamic.ObjectVal".to_owned()))?;
    configuration.insert("apiVersion", Value::from(object.api_version()));
    configuration.insert("kind", Value::from(object.kind()));
    let merged = merged(object, &configuration, &foreign, types.merge)
        .map_err(|why| PatchError::Policy(format!("error applying patch: {why}")))?;
    typed(merged, types.native, Rules::Unstructured).map_err(|why| {
        let (version, kind) = (object.api_version(), object.kind());
        PatchError::Policy(format!(
            "unable to convert unstructured object to {version}, Kind={kind}: {why}"
        ))
    })
}

fn merged(
    object: &Object,
    configuration: &Map,
    foreign: &[Foreign],
    ty: Ty<'_>,
) -> Result<Object, String> {
    let misfit = foreign
        .iter()
        .find_map(|foreign| misfit(ty, configuration, foreign));
    misfit
        .map_or_else(
            || validate_map(ty, configuration).map_err(|errors| errors.to_string()),
            Err,
        )
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    if let Some(map) = ty.atom().map {
        atomics_of_map(&map, "", configuration, &mut atomics);
    }
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    validate_with_duplicates(ty, &object.0)
        .map_err(|why| format!("failed to convert original object to typed object: {why}"))?;
    let mut merged = object.clone();
    combine(ty, &mut merged.0, configuration)
        .map_err(|why| format!("failed to merge patch: {why}"))?;
    Ok(merged)
}

/// The error that a value of the expression does not fit its type; `None` where no type is known.
fn misfit(ty: Ty<'_>, configuration: &Map, foreign: &Foreign) -> Option<String> {
    let mut ty = ty;
    let mut path = String::new();
    let (mut entries, mut value) = (Some(configuration), None);
    for step in &foreign.path {
        match step {
            Step::Field(name) => {
                ty = ty.atom().map?.type_of(name)?;
                path.push_str(&PathElement::Field(name).to_string());
                value = entries?.get(name);
            }
            Step::Item(index) => {
                let list = ty.atom().list?;
                let item = value?.as_array()?.get(*index)?;
                if item.is_null() && matches!(list.relation, ListType::Map(_)) {
                    return Some(format!(
                        "{path}: element {index}: associative list with keys may not have non-map \
                         elements"
                    ));
                }
                let element = match list.relation {
                    ListType::Map(_) => list_element(&list, item).ok()?,
                    _ => PathElement::Index(i64::try_from(*index).ok()?),
                };
                path.push_str(&element.to_string());
                (ty, value) = (list.element, Some(item));
            }
        }
        entries = value.and_then(Value::as_object);
    }
    let Foreign {
        plain,
        syntax,
        ty: go,
        ..
    } = foreign;
    Some(match ty.atom().shape()? {
        Shape::Scalar(Scalar::Numeric) => {
            format!("{path}: expected numeric (int or float), got {go}")
        }
        Shape::Scalar(Scalar::String) => {
            format!("{path}: expected string, got &value.valueUnstructured{{Value:{syntax}}}")
        }
        Shape::Scalar(Scalar::Boolean) => format!("{path}: expected boolean, got &{{{plain}}}"),
        Shape::Scalar(Scalar::Untyped) => format!("{path}: expected any scalar, got &{{{plain}}}"),
        Shape::List(_) => format!("{path}: expected list, got &{{{plain}}}"),
        Shape::Map(_) => format!("{path}: expected map, got &{{{plain}}}"),
    })
}

/// The paths of what an applied value would replace as a whole.
fn atomics_of(ty: Ty<'_>, path: &str, value: &Value, found: &mut Vec<String>) {
    let atom = ty.atom();
    match (value, atom.map, atom.list) {
        (Value::Object(entries), Some(map), _) => atomics_of_map(&map, path, entries, found),
        (Value::Array(items), _, Some(list)) => {
            if list.atomic() {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                let index = PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX));
                atomics_of(list.element, &format!("{path}{index}"), item, found);
            }
        }
        _ => {}
    }
}

fn atomics_of_map(map: &MapType<'_>, path: &str, entries: &Map, found: &mut Vec<String>) {
    if map.atomic {
        found.push(path.to_owned());
    }
    for (name, value) in entries {
        if let Some(ty) = map.declared(name) {
            let path = format!("{path}{}", PathElement::Field(name));
            atomics_of(ty, &path, value, found);
        }
    }
}

/// The object with operations of a JSON patch applied to it. Where a test fails, none is.
fn patched(
    object: &Object,
    value: &CelValue<'_>,
    types: PatchTypes<'_>,
) -> Result<Object, PatchError> {
    let CelValue::List(list) = value else {
        return Err(PatchError::Policy(
            "type mismatch: JSONPatchType.expression should evaluate to array".to_owned(),
        ));
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item.map_err(|error| PatchError::Policy(error.to_string()))?;
        operations.push(operation(&item)?);
    }
    let mut document = Value::Object(object.0.clone());
    match json::apply(&mut document, operations) {
        Ok(()) => {}
        Err(JsonPatchError::Unfit(why)) if json::is_failed_test(&why) => return Ok(object.clone()),
        Err(why) => return Err(PatchError::Policy(format!("JSON Patch: {why}"))),
    }
    let internal = |why: &str| PatchError::Status(Status::internal(why));
    let Value::Object(patched) = document else {
        return Err(internal("the patched object is none"));
    };
    typed(Object(patched), types.native, Rules::Json).map_err(|why| internal(&why))
}

/// An operation that an expression made.
fn operation(value: &CelValue<'_>) -> Result<Map, PatchError> {
    let CelValue::Struct(made) = value else {
        return Err(PatchError::Policy(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: \
             cannot convert {} to {JSON_PATCH}",
            value.type_name()
        )));
    };
    let text = |name: &str| match made.fields.get(name) {
        Some(CelValue::String(text)) => text.as_str().to_owned(),
        _ => String::new(),
    };
    let mut operation = Map::new();
    operation.insert("op", Value::from(text("op")));
    operation.insert("path", Value::from(text("path")));
    let from = text("from");
    if !from.is_empty() {
        operation.insert("from", Value::from(from));
    }
    if let Some(value) = made.fields.get("value") {
        check_type_names(value)?;
        let value = tree::json(value).map_err(|why| {
            PatchError::Policy(format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}"
            ))
        })?;
        operation.insert("value", value);
    }
    Ok(operation)
}

/// An object in the form of its type; what it is not known by is refused.
fn typed(object: Object, native: Option<TypeRef<'_>>, rules: Rules) -> Result<Object, String> {
    let Some(ty) = native else {
        let below = object.values().map(json::depth).max().unwrap_or(0);
        return match below < codec::MAX_TREE_DEPTH {
            true => Ok(object),
            false => Err("exceeded max depth".to_owned()),
        };
    };
    let mut form = object.clone();
    if normalize(&mut form, ty, rules) {
        return Ok(form);
    }
    if rules == Rules::Unstructured
        && let Some(why) = unstructured::conversion_error(&object, ty)
    {
        return Err(why);
    }
    let decoded = codec::from_value(&Value::Object(object.0), ty).map_err(|why| why.0)?;
    match decoded.issues.is_empty() {
        true => Ok(decoded.object),
        false => Err(format!(
            "strict decoding error: {}",
            decoded.issues.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Compiler, Declarations, RUNTIME_COST_BUDGET, Request, Returns};
    use super::*;
    use crate::admission::Operation;
    use crate::auth::User;
    use crate::meta::{Gvk, Gvr, json};
    use crate::schema;

    const DECLARED: Declarations = Declarations {
        params: false,
        authorizer: true,
        patch_types: true,
    };

    fn config_map() -> Object {
        object(json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}
        }))
    }

    fn deployment() -> Object {
        object(json!({
            "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [
                        {"name": "a", "image": "a:1", "args": ["x"], "resources": {}}
                    ]}
                },
                "strategy": {}
            },
            "status": {}
        }))
    }

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    /// An object changed by an expression, or the error that it does not compile or change.
    async fn mutated(object: &Object, expression: &str) -> Result<Object, String> {
        let compiler = Compiler::new();
        let patcher = match expression.starts_with('[') {
            true => {
                Patcher::JsonPatch(compiler.compile(expression, Returns::JsonPatches, DECLARED))
            }
            false => {
                let compiled = compiler.compile(expression, Returns::Object, DECLARED);
                Patcher::ApplyConfiguration(compiled)
            }
        };
        let gvk = Gvk::from_api_version(object.api_version(), object.kind());
        let (gvr, user) = (Gvr::new("", "v1", "things"), User::default());
        let ty = schema::builtin().get(&gvk).expect("a kind");
        let types = PatchTypes {
            merge: Ty::root(Some(ty)),
            native: Some(ty),
        };
        let request = Request {
            kind: &gvk,
            resource: &gvr,
            sub_resource: "",
            request_kind: &gvk,
            request_resource: &gvr,
            request_sub_resource: "",
            name: "a",
            namespace: "n",
            operation: Operation::Create,
            user: &user,
            dry_run: false,
            options: None,
        };
        let inputs = Inputs {
            object: Some(object),
            old_object: None,
            request: &request,
            params: None,
            namespace: None,
            authorizer: None,
        };
        let variables = compiler.finish();
        let done = patcher.patch(&variables, inputs, types, RUNTIME_COST_BUDGET);
        done.await.map_err(|error| match error {
            PatchError::Status(status) => format!("{}: {}", status.code, status.message),
            PatchError::Policy(why) => why,
        })
    }

    /// The configuration of the template of a deployment's pods.
    fn of_pods(fields: &str) -> String {
        format!(
            "Object{{spec: Object.spec{{template: Object.spec.template{{spec: \
             Object.spec.template.spec{{{fields}}}}}}}}}"
        )
    }

    #[tokio::test]
    async fn configurations_are_merged_by_the_type_of_the_object() {
        let checks = [
            (
                "Object{data: {'n': 'm'}}",
                "/data",
                json!({"k": "v", "n": "m"}),
            ),
            (
                "Object{metadata: Object.metadata{labels: {'n': 'm'}}}",
                "/metadata/labels",
                json!({"x": "y", "n": "m"}),
            ),
            (
                "Object{metadata: Object.metadata{labels: Object.metadata.labels{n: 'm'}}}",
                "/metadata/labels",
                json!({"x": "y", "n": "m"}),
            ),
            (
                "Object{?data: optional.none(), metadata: \
                 Object.metadata{?labels: optional.of({'q': 'r'})}}",
                "/metadata/labels",
                json!({"x": "y", "q": "r"}),
            ),
            (
                "Object{apiVersion: 'x', kind: 'y', data: {'w': 'w'}}",
                "/data",
                json!({"k": "v", "w": "w"}),
            ),
            (
                "Object{data: {'x': string(Object{a: 1}.a) + string(has(Object{a: 1}.b))}}",
                "/data/x",
                json!("1false"),
            ),
            (
                "Object{data: {'x': string(Object{a: 1} == Object{a: 1})}}",
                "/data/x",
                json!("true"),
            ),
            ("Object{data: {'x': type(1)}}", "/data/x", json!("int")),
            (
                "Object{data: {'x': optional.of('y')}}",
                "/data/x",
                json!("y"),
            ),
        ];
        for (expression, path, want) in checks {
            let done = mutated(&config_map(), expression).await.expect(expression);
            assert_eq!(
                Value::Object(done.0).pointer(path),
                Some(&want),
                "{expression}"
            );
        }
        let image = "containers: object.spec.template.spec.containers.map(c, \
                     Object.spec.template.spec.containers{name: c.name, image: 'b:2'})";
        let container = "/spec/template/spec/containers/0";
        let checks = [
            (
                "Object{spec: Object.spec{replicas: 3}}".to_owned(),
                "/spec/replicas",
                json!(3),
            ),
            (
                "Object{spec: Object.spec{replicas: 3.0}}".to_owned(),
                "/spec/replicas",
                json!(3),
            ),
            (
                of_pods(image),
                container,
                json!({"name": "a", "image": "b:2", "args": ["x"], "resources": {}}),
            ),
            (
                of_pods("securityContext: {'runAsUser': 1}"),
                "/spec/template/spec/securityContext",
                json!({"runAsUser": 1}),
            ),
        ];
        for (expression, path, want) in checks {
            let done = mutated(&deployment(), &expression)
                .await
                .expect(&expression);
            assert_eq!(
                Value::Object(done.0).pointer(path),
                Some(&want),
                "{expression}"
            );
        }
    }

    #[tokio::test]
    async fn configurations_that_do_not_fit_are_told_in_the_words_of_upstream() {
        let untyped = "error applying patch: failed to convert patch object to typed object: ";
        let atomic = "error applying patch: invalid ApplyConfiguration: may not mutate atomic \
                      arrays, maps or structs: ";
        let checks = [
            (
                "Object{data: {'a': b'm'}}",
                ".data.a: expected string, got \
              &value.valueUnstructured{Value:[]uint8{0x6d}}",
            ),
            (
                "Object{data: {'a': null}}",
                ".data.a: expected string, got \
              &value.valueUnstructured{Value:0}",
            ),
            (
                "Object{data: null}",
                ".data: expected map, got &{NULL_VALUE}",
            ),
            (
                "Object{data: Object{}.a}",
                ".data: expected map, got &{NULL_VALUE}",
            ),
            ("Object{data: ['y']}", ".data: expected map, got &{[y]}"),
            (
                "Object{data: {'x': {'y': 'z'}}}",
                ".data.x: expected string, got \
              &value.valueUnstructured{Value:map[ref.Val]ref.Val{\"y\":\"z\"}}",
            ),
            (
                "Object{data: {'x': ['y']}}",
                ".data.x: expected string, got \
              &value.valueUnstructured{Value:[]ref.Val{\"y\"}}",
            ),
            (
                "Object{data: {'x': duration('1s')}}",
                ".data.x: expected string, got \
              &value.valueUnstructured{Value:1000000000}",
            ),
            (
                "Object{immutable: 1u}",
                ".immutable: expected boolean, got &{1}",
            ),
            (
                "Object{spec: Object.spec{}}",
                ".spec: field not declared in schema",
            ),
        ];
        for (expression, why) in checks {
            let done = mutated(&config_map(), expression).await;
            assert_eq!(done, Err(format!("{untyped}{why}")), "{expression}");
        }
        let containers = ".spec.template.spec.containers";
        let with = |fields: &str| {
            of_pods(&format!(
                "containers: [Object.spec.template.spec.containers{{name: 'a', {fields}}}]"
            ))
        };
        let checks = [
            (
                "Object{spec: Object.spec{replicas: null}}".to_owned(),
                format!(
                    "{untyped}.spec.replicas: expected numeric (int or float), got structpb.NullValue"
                ),
            ),
            (
                "Object{spec: Object.spec{replicas: '3'}}".to_owned(),
                format!("{untyped}.spec.replicas: expected numeric (int or float), got string"),
            ),
            (
                "Object{spec: Object.spec{replicas: 3u}}".to_owned(),
                format!("{untyped}.spec.replicas: expected numeric (int or float), got uint64"),
            ),
            (
                of_pods("containers: null"),
                format!("{untyped}{containers}: expected list, got &{{NULL_VALUE}}"),
            ),
            (
                of_pods("containers: [null]"),
                format!(
                    "{untyped}{containers}: element 0: associative list with keys may not have non-map elements"
                ),
            ),
            (
                of_pods("containers: [{'name': 'a'}]"),
                format!(
                    "{untyped}{containers}: element 0: associative list with keys may not have non-map elements"
                ),
            ),
            (
                with("resources: {'limits': {'cpu': '1'}}"),
                format!(
                    "{untyped}{containers}[name=\"a\"].resources.limits: expected map, got &{{map[cpu:1]}}"
                ),
            ),
            (
                with("tty: null"),
                format!(
                    "{untyped}{containers}[name=\"a\"].tty: expected boolean, got &{{NULL_VALUE}}"
                ),
            ),
            (
                of_pods("hostNetwork: 'x'"),
                format!("{untyped}.spec.template.spec.hostNetwork: expected boolean, got &{{x}}"),
            ),
            (with("args: ['q']"), format!("{atomic}{containers}[0].args")),
            (
                of_pods("nodeSelector: {'a': 'b'}"),
                format!("{atomic}.spec.template.spec.nodeSelector"),
            ),
            (
                of_pods("terminationGracePeriodSeconds: 1.5"),
                "unable to convert unstructured object \
              to apps/v1, Kind=Deployment: cannot convert float64 to int64"
                    .to_owned(),
            ),
            (
                "Object{metadata: Object.wrong{labels: {'n': 'm'}}}".to_owned(),
                "type mismatch: \
              unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches \
              field name path from root Object type"
                    .to_owned(),
            ),
            (
                "Object{metadata: {1: 'm'}}".to_owned(),
                "invalid return type: *dynamic.ObjectVal".to_owned(),
            ),
            (
                "object.x".to_owned(),
                "must evaluate to Object but got dyn".to_owned(),
            ),
            (
                "Object{data: {'x': string(type(Object{}) == Object)}}".to_owned(),
                "program instantiation failed: reference to undefined type: Object".to_owned(),
            ),
            (
                "Object{?data: 1}".to_owned(),
                "compilation failed: ERROR: <input>:1:15: expected type \
              'optional_type(int)' but found 'int'\n | Object{?data: 1}\n | ..............^"
                    .to_owned(),
            ),
            (
                "Foo{}".to_owned(),
                "compilation failed: ERROR: <input>:1:4: undeclared reference to \
              'Foo' (in container '')\n | Foo{}\n | ...^"
                    .to_owned(),
            ),
        ];
        for (expression, why) in checks {
            assert_eq!(
                mutated(&deployment(), &expression).await,
                Err(why),
                "{expression}"
            );
        }
    }

    #[tokio::test]
    async fn json_patches_are_applied_and_none_of_them_where_a_test_fails() {
        let checks = [
            (
                "[JSONPatch{op: 'add', path: '/data/q', value: 'w'}]",
                "/data",
                json!({"k": "v", "q": "w"}),
            ),
            (
                "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, \
              JSONPatch{op: 'add', path: '/data/q', value: 'w'}]",
                "/data",
                json!({"k": "v"}),
            ),
            (
                "[JSONPatch{op: 'replace', path: '/data/q', value: 'w'}]",
                "/data",
                json!({"k": "v", "q": "w"}),
            ),
            (
                "[JSONPatch{op: 'copy', from: '/data/k', path: '/data/q'}]",
                "/data",
                json!({"k": "v", "q": "v"}),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data/q', value: JSONPatch{op: 'add'}.op + \
              string(has(JSONPatch{}.op))}]",
                "/data/q",
                json!("addfalse"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data/q', value: JSONPatch{}.op}]",
                "/data/q",
                json!(""),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b~c'), value: '1'}]",
                "/data/a~1b~0c",
                json!("1"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/annotations', value: \
              {'t': timestamp('2024-01-01T00:00:00Z'), 'u': timestamp('2024-01-01T00:00:01Z')}}]",
                "/metadata/annotations",
                json!({"t": "2024-01-01T00:00:00Z", "u": "2024-01-01T00:00:01Z"}),
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'d': duration('90s')}}]",
                "/metadata/annotations",
                json!({"d": "90s"}),
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/annotations', value: \
              Object.metadata.annotations{a: '1'}}]",
                "/metadata/annotations",
                json!({"a": "1"}),
            ),
        ];
        for (expression, path, want) in checks {
            let done = mutated(&config_map(), expression).await.expect(expression);
            assert_eq!(
                Value::Object(done.0).pointer(path),
                Some(&want),
                "{expression}"
            );
        }
        let expression = "[JSONPatch{op: 'add', path: '/spec/replicas', value: 4}]";
        let done = mutated(&deployment(), expression)
            .await
            .expect("a patch that fits");
        assert_eq!(done.i64_at("/spec/replicas"), Some(4));
    }

    #[tokio::test]
    async fn json_patches_that_do_not_fit_are_told_in_the_words_of_upstream() {
        let marshal =
            "JSONPath valueExpression evaluated to a type that could not marshal to JSON: ";
        let checks = [
            (
                "[JSONPatch{op: 'remove', path: '/data/none'}]",
                "JSON Patch: error in remove for path: \
              '/data/none': Unable to remove nonexistent key: none: missing value"
                    .to_owned(),
            ),
            (
                "[JSONPatch{op: 'nope', path: '/data/none'}]",
                "JSON Patch: Unexpected kind: nope".to_owned(),
            ),
            (
                "[JSONPatch{path: '/data/none'}]",
                "JSON Patch: Unexpected kind: ".to_owned(),
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/annotations/a', value: '1'}]",
                "JSON Patch: add \
              operation does not apply: doc is missing path: \"/metadata/annotations/a\": missing \
              value"
                    .to_owned(),
            ),
            (
                "[JSONPatch{op: 'add', path: '/spec', value: 1}]",
                "500: Internal error occurred: \
              strict decoding error: unknown field \"spec\""
                    .to_owned(),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data/q', value: 1}]",
                "500: Internal error occurred: \
              json: cannot unmarshal number into Go struct field ConfigMap.data of type \
              string"
                    .to_owned(),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data', value: {1: 'a'}}]",
                format!("{marshal}unsupported type conversion from 'int' to string"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data', value: {'a': type(1)}}]",
                format!("{marshal}type conversion not supported for 'type'"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data', value: {'a': optional.none()}}]",
                format!("{marshal}optional.none() dereference"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data', value: quantity('1')}]",
                format!("{marshal}type conversion error from 'Quantity' to '*structpb.Value'"),
            ),
            (
                "[JSONPatch{op: 'add', path: '/data', value: JSONPatch{}}]",
                format!("{marshal}cannot convert to native type: *structpb.Value"),
            ),
            (
                "[JSONPatch{op: dyn(1), path: '/x'}]",
                "expression '[JSONPatch{op: dyn(1), path: \
              '/x'}]' resulted in error: unexpected type int64 for JSONPatchType 'op' \
              field"
                    .to_owned(),
            ),
            (
                "[JSONPatch{op: 1}]",
                "compilation failed: ERROR: <input>:1:14: expected type of field \
              'op' is 'string' but provided type is 'int'\n | [JSONPatch{op: 1}]\n | \
              .............^"
                    .to_owned(),
            ),
            (
                "[JSONPatch{foo: 'x'}]",
                "compilation failed: ERROR: <input>:1:15: expected type of \
              field 'foo' is '' but provided type is 'string'\n | [JSONPatch{foo: 'x'}]\n | \
              ..............^"
                    .to_owned(),
            ),
            (
                "[]",
                "must evaluate to list(JSONPatch) but got list(dyn)".to_owned(),
            ),
        ];
        for (expression, why) in checks {
            assert_eq!(
                mutated(&config_map(), expression).await,
                Err(why),
                "{expression}"
            );
        }
        let fraction = "[JSONPatch{op: 'add', path: '/spec/replicas', value: 4.5}]";
        let large = "[JSONPatch{op: 'add', path: '/spec/replicas', value: 99999999999999999}]";
        let of = "into Go struct field DeploymentSpec.spec.replicas of type int32";
        for (expression, got) in [(fraction, "number 4.5"), (large, "string")] {
            let want = format!("500: Internal error occurred: json: cannot unmarshal {got} {of}");
            assert_eq!(mutated(&deployment(), expression).await, Err(want));
        }
    }
}
