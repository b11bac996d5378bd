//! Evaluates expressions for those who compare them with cel-go's: takes a request on each line of
//! standard input and writes what comes of it on a line of standard output, both as JSON.
//!
//! A request has the expression (`expr`) and its variables, each with a `name` and either a `type`
//! and an `expression` that makes its value, or an `object` and the OpenAPI `schema` that describes
//! it, if one does. The answer has the `error` of an expression that does not compile, or its
//! `type` and estimated cost (`min`, `max`), and its `value` or `failure` with the real `cost`.

use std::io::{BufRead, Write};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keelson::internals::cel::{
    Environment, PER_CALL_LIMIT, Schema, Type, Value, compile, estimate, plan,
};
use keelson::internals::extensions::{JsonSchemaProps, cel_schema};
use keelson::internals::meta;
use serde_json::{Value as Json, json};

/// The type that JSON describes: a name, or an object with the name and parameters.
fn ty(json: &Json) -> Type {
    let params = |name: &str| json.get(name);
    if let Some(of) = params("list") {
        return Type::list(ty(of));
    }
    if let Some(of) = params("map") {
        return Type::map(ty(&of[0]), ty(&of[1]));
    }
    if let Some(of) = params("optional") {
        return Type::optional(ty(of));
    }
    if let Some(of) = params("type") {
        return Type::type_of(ty(of));
    }
    match json.as_str() {
        Some("null") => Type::Null,
        Some("bool") => Type::Bool,
        Some("int") => Type::Int,
        Some("uint") => Type::Uint,
        Some("double") => Type::Double,
        Some("string") => Type::String,
        Some("bytes") => Type::Bytes,
        Some("timestamp") => Type::Timestamp,
        Some("duration") => Type::Duration,
        _ => Type::Dyn,
    }
}

/// A value with the name of its type before it. Doubles are told by their bits.
fn tagged(value: &Value<'_>) -> Json {
    match value {
        Value::Null => json!(["null", null]),
        Value::Bool(value) => json!(["bool", value]),
        Value::Int(number) => json!(["int", number.to_string()]),
        Value::Uint(number) => json!(["uint", number.to_string()]),
        Value::Double(number) if number.is_nan() => json!(["double", "nan"]),
        Value::Double(number) => json!(["double", format!("{:016x}", number.to_bits())]),
        Value::String(text) => json!(["string", text.as_str()]),
        Value::Bytes(bytes) => json!(["bytes", STANDARD.encode(bytes)]),
        Value::Timestamp(_) => json!(["timestamp", value.shown()]),
        Value::Duration(_) => json!(["duration", value.shown()]),
        Value::Type(name) => json!(["type", name.as_str()]),
        Value::Optional(None) => json!(["optional", null]),
        Value::Optional(Some(value)) => json!(["optional", tagged(value)]),
        Value::List(list) => {
            let item = |item: Result<Value<'_>, _>| match item {
                Ok(item) => tagged(&item),
                Err(error) => json!(["error", format!("{error}")]),
            };
            json!(["list", list.iter().map(item).collect::<Vec<_>>()])
        }
        Value::Map(map) => {
            let entry = |(key, value): (Value<'_>, Result<Value<'_>, _>)| match value {
                Ok(value) => json!([tagged(&key), tagged(&value)]),
                Err(error) => json!([tagged(&key), ["error", format!("{error}")]]),
            };
            json!([
                "map",
                map.entries().into_iter().map(entry).collect::<Vec<_>>()
            ])
        }
        other => json!(["extension", other.type_name()]),
    }
}

/// The value of an expression without variables.
fn constant(text: &str) -> Result<Value<'static>, String> {
    let environment = Environment::new();
    let checked = compile(text, &environment).map_err(|error| error.0)?;
    let program = plan(&checked, &environment).map_err(|error| error.to_string())?;
    let outcome = program.evaluate(&[], PER_CALL_LIMIT);
    outcome.value.map_err(|error| error.to_string())
}

/// The source of the value of a variable.
enum Source {
    Made(Value<'static>),
    Object(meta::Value, Option<Arc<Schema>>),
}

fn answer(request: &Json) -> Result<Json, String> {
    let mut environment = Environment::new();
    let mut sources = Vec::new();
    let empty = Vec::new();
    for variable in request["variables"].as_array().unwrap_or(&empty) {
        let name = variable["name"].as_str().unwrap_or_default();
        if let Some(text) = variable["expression"].as_str() {
            environment = environment.with_variable(name, ty(&variable["type"]));
            sources.push(Source::Made(constant(text)?));
            continue;
        }
        let object = meta::Value::from(variable["object"].clone());
        let schema = variable.get("schema").map(|schema| {
            let props = JsonSchemaProps::read(&meta::Value::from(schema.clone()));
            cel_schema::Schemas::default().of(&props, false)
        });
        environment = match &schema {
            Some(schema) => environment.with_schema(name, schema),
            None => environment.with_variable(name, ty(&variable["type"])),
        };
        sources.push(Source::Object(object, schema));
    }
    let root = sources.iter().find_map(|source| match source {
        Source::Object(_, Some(schema)) => Some(&**schema),
        _ => None,
    });
    let values: Result<Vec<Value<'_>>, _> = sources
        .iter()
        .map(|source| match source {
            Source::Made(value) => Ok(value.clone()),
            Source::Object(object, None) => Ok(Value::from_unknown(object)),
            Source::Object(object, Some(schema)) => schema.value(object),
        })
        .collect();
    let values = values.map_err(|error| error.to_string())?;
    let text = request["expr"].as_str().unwrap_or_default();
    let checked = compile(text, &environment).map_err(|error| error.0)?;
    let range = estimate(&checked, root);
    let ty = checked.type_of(checked.root.id).to_string();
    let mut out = json!({"type": ty, "min": range.min, "max": range.max});
    let program = plan(&checked, &environment).map_err(|error| format!("program: {error}"))?;
    let outcome = program.evaluate(&values, PER_CALL_LIMIT);
    match &outcome.value {
        Ok(value) => out["value"] = tagged(value),
        Err(error) => out["failure"] = error.to_string().into(),
    }
    out["cost"] = outcome.cost.into();
    Ok(out)
}

/// The stack for the deepest expressions in builds that are not optimized.
const STACK_BYTES: usize = 64 << 20;

fn serve() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request = line.map(|line| serde_json::from_str::<Json>(&line));
        let answer = match request {
            Ok(Ok(request)) => answer(&request).unwrap_or_else(|error| json!({"error": error})),
            Ok(Err(error)) => json!({"error": format!("no request: {error}")}),
            Err(_) => return,
        };
        if writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
}

fn main() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let server = thread.spawn(serve).expect("a thread");
    server.join().expect("no panic");
}
