//! The claims of a token, and the user that they make by a configuration.

use std::collections::BTreeMap;

use super::configuration::{JwtAuthenticator, Mapping};
use super::validation::Mapper;
use crate::auth::User;
use crate::auth::authn::CREDENTIAL_ID;
use crate::auth::cel::Expression;
use crate::cel;
use crate::codec::json::Document;
use crate::meta::{Value, json};

/// The claims that tell where others are to be had (OpenID Connect Core 5.6.2).
const CLAIM_NAMES: &str = "_claim_names";
const CLAIM_SOURCES: &str = "_claim_sources";

/// The claims of a token: a JSON object.
#[derive(Clone, Debug)]
pub struct Claims(Value);

/// The place of a claim that is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub endpoint: String,
    pub access_token: String,
}

impl Claims {
    /// # Errors
    /// It is no JSON object, with the reason.
    pub fn parse(payload: &[u8]) -> Result<Self, String> {
        let document = Document::new(payload).map_err(|why| why.0)?;
        let value = document.value().map_err(|why| why.0)?;
        match value.is_object() {
            true => Ok(Self(value)),
            false => Err("json: cannot unmarshal into Go value of type oidc.idToken".to_owned()),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_object()?.get(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    pub fn insert(&mut self, name: &str, value: Value) {
        if let Some(map) = self.0.as_object_mut() {
            map.insert(name.to_owned(), value);
        }
    }

    /// A number, which may be written as a text.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&self, name: &str) -> Result<Option<f64>, String> {
        let number = match self.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.parse().ok(),
            Some(value) => value.as_f64(),
        };
        let wrong = || format!("oidc: failed to unmarshal claims: {name} is no number");
        number.map(Some).ok_or_else(wrong)
    }

    /// The audiences: one text or a list.
    ///
    /// # Errors
    /// They are something else.
    pub fn audiences(&self) -> Result<Vec<String>, String> {
        let wrong = || "oidc: failed to unmarshal claims: aud is no list of strings".to_owned();
        match self.get("aud") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => texts(value).ok_or_else(wrong),
        }
    }

    /// Checks that every claim that is elsewhere has a source.
    ///
    /// # Errors
    /// One has none.
    pub fn check_sources(&self) -> Result<(), String> {
        let Some(names) = self.get(CLAIM_NAMES).and_then(Value::as_object) else {
            return Ok(());
        };
        let sources = self.get(CLAIM_SOURCES).and_then(Value::as_object);
        for source in names
            .iter()
            .map(|(_, source)| source.as_str().unwrap_or_default())
        {
            if source.is_empty() {
                return Err("oidc: failed to obtain source from claim name".to_owned());
            }
            if !sources.is_some_and(|all| all.contains_key(source)) {
                return Err("oidc: source does not exist".to_owned());
            }
        }
        Ok(())
    }

    /// Returns the place of a claim; `None` if it is here, or nowhere.
    ///
    /// # Errors
    /// It is not told in a way that one could understand.
    pub fn source_of(&self, claim: &str) -> Result<Option<Source>, String> {
        if self.get(claim).is_some() {
            return Ok(None);
        }
        let Some(names) = self.get(CLAIM_NAMES) else {
            return Ok(None);
        };
        let names = names
            .as_object()
            .ok_or("oidc: error parsing distributed claim names: they are no object")?;
        let sources = self.get(CLAIM_SOURCES).ok_or("oidc: no claim sources")?;
        let sources = sources
            .as_object()
            .ok_or("oidc: could not parse claim sources: they are no object")?;
        let Some(name) = names.get(claim).and_then(Value::as_str) else {
            return Ok(None);
        };
        let source = sources.get(name).ok_or_else(|| {
            format!("id token _claim_names contained a source {name} missing in _claims_sources")
        })?;
        let text = |field| {
            source
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let endpoint = text("endpoint").to_owned();
        // One without an endpoint is an aggregated claim, which nobody supports.
        Ok((!endpoint.is_empty()).then(|| Source {
            endpoint,
            access_token: text("access_token").to_owned(),
        }))
    }
}

/// One text, or a list of them.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => many
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    }
}

/// The claims as expressions see them: every number is a double, as in Go.
fn as_variable(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let double = number.as_f64().and_then(serde_json::Number::from_f64);
            double.map_or(Value::Null, Value::Number)
        }
        Value::Array(items) => items.iter().map(as_variable).collect(),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| (key.clone(), as_variable(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Returns the user that the claims make.
///
/// # Errors
/// Upstream's text: a claim misses or is of another type, an expression has no value, or a rule
/// does not hold.
pub fn user(claims: &Claims, config: &JwtAuthenticator, mapper: &Mapper) -> Result<User, String> {
    let has_expressions = mapper.username.is_some()
        || mapper.groups.is_some()
        || mapper.uid.is_some()
        || !mapper.extra.is_empty()
        || !mapper.claim_rules.is_empty();
    let variable = match has_expressions {
        true => as_variable(&claims.0),
        false => Value::Null,
    };
    let user = User {
        name: username(claims, config, mapper, &variable)?,
        groups: groups(claims, &config.groups, mapper.groups.as_ref(), &variable)?,
        uid: uid(claims, &config.uid, mapper.uid.as_ref(), &variable)?,
        extra: extra(claims, mapper, &variable)?,
    };
    check_required(claims, config)?;
    let failed = |why| format!("oidc: error evaluating claim validation expression: {why}");
    check_rules(&mapper.claim_rules, &variable).map_err(failed)?;
    if !mapper.user_rules.is_empty() {
        let about = json!({
            "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
        });
        let failed = |why| format!("oidc: error evaluating user info validation rule: {why}");
        check_rules(&mapper.user_rules, &about).map_err(failed)?;
    }
    Ok(user)
}

/// The text of Go's `json.Unmarshal` about a value of another type.
fn mistyped(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// A text that a claim must be.
fn claim_text<'a>(claims: &'a Claims, claim: &str) -> Result<&'a str, String> {
    match claims.get(claim) {
        None => Err("claim not present".to_owned()),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Null) => Ok(""),
        Some(other) => Err(mistyped(other, "string")),
    }
}

fn username(
    claims: &Claims,
    config: &JwtAuthenticator,
    mapper: &Mapper,
    variable: &Value,
) -> Result<String, String> {
    if let Some(expression) = &mapper.username {
        let failed = |why| format!("oidc: error evaluating username claim expression: {why}");
        let name = text_of(expression, variable, "username").map_err(failed)?;
        return match name.is_empty() {
            true => Err("oidc: empty username via CEL expression is not allowed".to_owned()),
            false => Ok(name),
        };
    }
    let claim = config.username.claim.as_str();
    let name = claim_text(claims, claim)
        .map_err(|why| format!("oidc: parse username claims \"{claim}\": {why}"))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false) | Value::Null) => {
                return Err("oidc: email not verified".to_owned());
            }
            Some(other) => {
                let why = mistyped(other, "bool");
                return Err(format!("oidc: parse 'email_verified' claim: {why}"));
            }
        }
    }
    let prefix = config.username.prefix.as_deref().unwrap_or_default();
    Ok(format!("{prefix}{name}"))
}

fn groups(
    claims: &Claims,
    mapping: &Mapping,
    expression: Option<&Expression>,
    variable: &Value,
) -> Result<Vec<String>, String> {
    if let Some(found) = claims.get(&mapping.claim)
        && !mapping.claim.is_empty()
    {
        if found.is_null() {
            return Ok(Vec::new());
        }
        let wrong = || {
            let why = mistyped(found, "string");
            format!("oidc: parse groups claim \"{}\": {why}", mapping.claim)
        };
        let prefix = mapping.prefix.as_deref().unwrap_or_default();
        let groups = texts(found).ok_or_else(wrong)?;
        return Ok(groups
            .into_iter()
            .map(|group| format!("{prefix}{group}"))
            .collect());
    }
    let Some(expression) = expression else {
        return Ok(Vec::new());
    };
    let failed = |why| format!("oidc: error evaluating group claim expression: {why}");
    texts_of(expression, variable).map_err(failed)
}

fn uid(
    claims: &Claims,
    mapping: &Mapping,
    expression: Option<&Expression>,
    variable: &Value,
) -> Result<String, String> {
    if !mapping.claim.is_empty() {
        let found = claim_text(claims, &mapping.claim);
        let failed = |why| format!("oidc: parse uid claim \"{}\": {why}", mapping.claim);
        return found.map(str::to_owned).map_err(failed);
    }
    let Some(expression) = expression else {
        return Ok(String::new());
    };
    let failed = |why| format!("oidc: error evaluating uid claim expression: {why}");
    text_of(expression, variable, "uid").map_err(failed)
}

fn extra(
    claims: &Claims,
    mapper: &Mapper,
    variable: &Value,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut extra = BTreeMap::new();
    if let Some(id) = claims.text("jti").filter(|id| !id.is_empty()) {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for (key, expression) in &mapper.extra {
        let failed = |why| {
            format!(
                "oidc: error evaluating extra claim expression: {}: {why}",
                expression.text()
            )
        };
        let values = texts_of(expression, variable).map_err(failed)?;
        if !values.is_empty() {
            extra.insert(key.clone(), values);
        }
    }
    Ok(extra)
}

/// Checks the claims that must have a value.
fn check_required(claims: &Claims, config: &JwtAuthenticator) -> Result<(), String> {
    for rule in &config.claim_validation_rules {
        let (claim, wanted) = (rule.claim.as_str(), rule.required_value.as_str());
        if claim.is_empty() {
            continue;
        }
        if claims.get(claim).is_none() {
            return Err(format!(
                "oidc: required claim {claim} not present in ID token"
            ));
        }
        let found =
            claim_text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if found != wanted {
            return Err(format!(
                "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
            ));
        }
    }
    Ok(())
}

fn check_rules(rules: &[(Expression, String)], variable: &Value) -> Result<(), String> {
    for (expression, message) in rules {
        match expression.evaluate(variable)? {
            cel::Value::Bool(true) => {}
            cel::Value::Bool(false) => {
                let text = expression.text();
                return Err(format!("validation expression '{text}' failed: {message}"));
            }
            _ => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

/// The text that an expression must return.
fn text_of(expression: &Expression, variable: &Value, what: &str) -> Result<String, String> {
    match expression.evaluate(variable)? {
        cel::Value::String(text) => Ok(text.as_str().to_owned()),
        _ => Err(format!("{what} claim expression must return a string")),
    }
}

/// The texts that an expression returns: one, or a list. Empty ones count as absent.
fn texts_of(expression: &Expression, variable: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let text = |value: &cel::Value<'_>| match value {
        cel::Value::String(text) => Ok(text.as_str().to_owned()),
        _ => Err(wrong()),
    };
    let all: Vec<String> = match expression.evaluate(variable)? {
        cel::Value::Null => Vec::new(),
        cel::Value::List(items) => items
            .iter()
            .map(|item| {
                item.map_err(|why| why.to_string())
                    .and_then(|item| text(&item))
            })
            .collect::<Result<_, _>>()?,
        one => vec![text(&one)?],
    };
    Ok(all.into_iter().filter(|one| !one.is_empty()).collect())
}
