//! Validation of an AuthenticationConfiguration (apiserver `apis/apiserver/validation`). What is
//! valid comes with its expressions compiled.

use std::collections::HashSet;

use super::configuration::{
    ClaimValidationRule, Configuration, ExtraMapping, Issuer, JwtAuthenticator, Mapping,
    UserValidationRule,
};
use crate::auth::authn::x509::CaBundle;
use crate::auth::cel::{self, Expression, Returns, Variable};
use crate::meta::field::{FieldError, domain_prefixed_path};
use crate::meta::{ErrorList, Path, go};

/// The issuers.
const MAX_AUTHENTICATORS: usize = 64;

/// The compiled expressions of one authenticator.
#[derive(Debug, Default)]
pub struct Mapper {
    pub username: Option<Expression>,
    pub groups: Option<Expression>,
    pub uid: Option<Expression>,
    /// With the keys of their values.
    pub extra: Vec<(String, Expression)>,
    /// With the messages of those that do not hold.
    pub claim_rules: Vec<(Expression, String)>,
    pub user_rules: Vec<(Expression, String)>,
}

/// Validates a configuration; returns the compiled expressions of each authenticator.
/// `disallowed` are the issuers of service account tokens.
///
/// # Errors
/// What is wrong, with the paths of the fields.
pub fn validate(
    configuration: &Configuration,
    disallowed: &[String],
) -> Result<Vec<Mapper>, ErrorList> {
    let mut errors = ErrorList::new();
    let root = Path::new("jwt");
    let jwt = &configuration.jwt;
    if jwt.len() > MAX_AUTHENTICATORS {
        errors.push(FieldError::too_many(&root, jwt.len(), MAX_AUTHENTICATORS));
        return Err(errors);
    }
    let mut mappers = Vec::new();
    let (mut issuers, mut discoveries) = (HashSet::new(), HashSet::new());
    for (at, one) in jwt.iter().enumerate() {
        let path = root.index(at);
        mappers.push(validate_authenticator(&mut errors, &path, one, disallowed));
        let path = path.child("issuer");
        if !issuers.insert(&one.issuer.url) {
            errors.duplicate(&path.child("url"), one.issuer.url.as_str());
        }
        let discovery = &one.issuer.discovery_url;
        if !discovery.is_empty() && !discoveries.insert(discovery) {
            errors.duplicate(&path.child("discoveryURL"), discovery.as_str());
        }
    }
    if let Some(anonymous) = &configuration.anonymous
        && !anonymous.enabled
        && !anonymous.paths.is_empty()
    {
        let shown = anonymous.paths.iter();
        let shown = shown.map(|path| crate::meta::json!({"Path": path}));
        let path = Path::new("anonymous").child("conditions");
        errors.invalid(
            &path,
            shown.collect::<crate::meta::Value>(),
            "enabled should be set to true when conditions are defined",
        );
    }
    match errors.is_empty() {
        true => Ok(mappers),
        false => Err(errors),
    }
}

fn validate_authenticator(
    errors: &mut ErrorList,
    path: &Path,
    one: &JwtAuthenticator,
    disallowed: &[String],
) -> Mapper {
    let mut mapper = Mapper::default();
    validate_issuer(errors, &path.child("issuer"), &one.issuer, disallowed);
    let rules = path.child("claimValidationRules");
    mapper.claim_rules = claim_rules(errors, &rules, &one.claim_validation_rules);
    validate_mappings(errors, &path.child("claimMappings"), one, &mut mapper);
    let rules = path.child("userValidationRules");
    mapper.user_rules = user_rules(errors, &rules, &one.user_validation_rules);
    mapper
}

fn validate_issuer(errors: &mut ErrorList, path: &Path, issuer: &Issuer, disallowed: &[String]) {
    let path_of_url = path.child("url");
    match issuer.url.as_str() {
        "" => errors.required(&path_of_url, ""),
        url => validate_url(errors, &path_of_url, url, disallowed),
    }
    let discovery = issuer.discovery_url.as_str();
    if !discovery.is_empty() {
        let path = path.child("discoveryURL");
        let same = issuer.url.trim_end_matches('/') == discovery.trim_end_matches('/');
        if same && !issuer.url.is_empty() {
            errors.invalid(&path, discovery, "discoveryURL must be different from URL");
        }
        validate_url(errors, &path, discovery, &[]);
    }
    validate_audiences(errors, path, issuer);
    let ca = &issuer.certificate_authority;
    if !ca.is_empty()
        && let Err(why) = CaBundle::from_pem(ca.as_bytes())
    {
        let path = path.child("certificateAuthority");
        errors.invalid(&path, "<omitted>", why.to_string());
    }
    let path = path.child("egressSelectorType");
    match issuer.egress_selector_type.as_str() {
        "" | "controlplane" | "cluster" => {}
        other => {
            let why = "egress selector must be either controlplane or cluster";
            errors.invalid(&path, other, why);
        }
    }
}

fn validate_url(errors: &mut ErrorList, path: &Path, url: &str, disallowed: &[String]) {
    if disallowed.iter().any(|one| one == url) {
        let mut sorted = disallowed.to_vec();
        sorted.sort_unstable();
        let why = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            sorted.join(" ")
        );
        errors.invalid(path, url, why);
    }
    let (without_fragment, fragment) = url.split_once('#').unwrap_or((url, ""));
    let parsed = match go::url::parse_request_uri(without_fragment) {
        Ok(parsed) => parsed,
        Err(why) => {
            errors.invalid(path, url, why);
            return;
        }
    };
    if parsed.scheme != "https" {
        errors.invalid(path, url, "URL scheme must be https");
    }
    if parsed.raw_user.is_some() {
        let why = "URL must not contain a username or password";
        errors.invalid(path, url, why);
    }
    if !parsed.raw_query.is_empty() {
        errors.invalid(path, url, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        errors.invalid(path, url, "URL must not contain a fragment");
    }
}

fn validate_audiences(errors: &mut ErrorList, issuer_path: &Path, issuer: &Issuer) {
    let path = issuer_path.child("audiences");
    if issuer.audiences.is_empty() {
        errors.required(&path, format!("at least one {path} is required"));
        return;
    }
    let mut seen = HashSet::new();
    for (at, audience) in issuer.audiences.iter().enumerate() {
        let path = path.index(at);
        if audience.is_empty() {
            errors.required(&path, "");
        }
        if !seen.insert(audience) {
            errors.duplicate(&path, audience.as_str());
        }
    }
    let path = issuer_path.child("audienceMatchPolicy");
    let policy = issuer.audience_match_policy.as_str();
    match (issuer.audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => {}
        (1, _) => {
            let why = "audienceMatchPolicy must be empty or MatchAny for single audience";
            errors.invalid(&path, policy, why);
        }
        _ => {
            let why = "audienceMatchPolicy must be MatchAny for multiple audiences";
            errors.invalid(&path, policy, why);
        }
    }
}

/// Compiles an expression; `None` if it does not compile.
fn compile(
    errors: &mut ErrorList,
    path: &Path,
    text: &str,
    variable: Variable,
    returns: Returns,
) -> Option<Expression> {
    match cel::compile(text, variable, returns) {
        Ok(expression) => Some(expression),
        Err(why) => {
            errors.invalid(path, text, why.to_string());
            None
        }
    }
}

fn claim_rules(
    errors: &mut ErrorList,
    path: &Path,
    rules: &[ClaimValidationRule],
) -> Vec<(Expression, String)> {
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    let mut compiled = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        match (rule.claim.as_str(), rule.expression.as_str()) {
            ("", "") => errors.required(&path, "claim or expression is required"),
            (claim, "") => {
                if !rule.message.is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.invalid(&path.child("message"), rule.message.as_str(), why);
                }
                if !claims.insert(claim) {
                    errors.duplicate(&path.child("claim"), claim);
                }
            }
            ("", expression) => {
                if !rule.required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    let path = path.child("requiredValue");
                    errors.invalid(&path, rule.required_value.as_str(), why);
                }
                let path = path.child("expression");
                if !expressions.insert(expression) {
                    errors.duplicate(&path, expression);
                    continue;
                }
                let (variable, returns) = (Variable::Claims, Returns::Bool);
                let done = compile(errors, &path, expression, variable, returns);
                compiled.extend(done.map(|done| (done, rule.message.clone())));
            }
            (claim, _) => errors.invalid(&path, claim, "claim and expression can't both be set"),
        }
    }
    compiled
}

fn user_rules(
    errors: &mut ErrorList,
    path: &Path,
    rules: &[UserValidationRule],
) -> Vec<(Expression, String)> {
    let mut seen = HashSet::new();
    let mut compiled = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at).child("expression");
        let expression = rule.expression.as_str();
        if expression.is_empty() {
            errors.required(&path, "");
        } else if !seen.insert(expression) {
            errors.duplicate(&path, expression);
        } else {
            let done = compile(errors, &path, expression, Variable::User, Returns::Bool);
            compiled.extend(done.map(|done| (done, rule.message.clone())));
        }
    }
    compiled
}

fn validate_mappings(
    errors: &mut ErrorList,
    path: &Path,
    one: &JwtAuthenticator,
    mapper: &mut Mapper,
) {
    mapper.username = prefixed(errors, &path.child("username"), &one.username, true);
    mapper.groups = prefixed(errors, &path.child("groups"), &one.groups, false);
    let path_of_uid = path.child("uid");
    match (one.uid.claim.as_str(), one.uid.expression.as_str()) {
        (_, "") => {}
        ("", expression) => {
            let path = path_of_uid.child("expression");
            let (variable, returns) = (Variable::Claims, Returns::Any);
            mapper.uid = compile(errors, &path, expression, variable, returns);
        }
        _ => errors.invalid(&path_of_uid, "", "claim and expression can't both be set"),
    }
    mapper.extra = extras(errors, &path.child("extra"), &one.extra);
    let uses = |expression: &Expression, field| expression.uses("claims", field);
    let email = mapper.username.iter().any(|one| uses(one, "email"));
    let verified = |expression: &Expression| uses(expression, "email_verified");
    let checked = mapper.username.iter().any(verified)
        || mapper.extra.iter().any(|(_, one)| verified(one))
        || mapper.claim_rules.iter().any(|(one, _)| verified(one));
    if email && !checked {
        let path = path.child("username").child("expression");
        errors.invalid(
            &path,
            one.username.expression.as_str(),
            "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
        );
    }
}

fn prefixed(
    errors: &mut ErrorList,
    path: &Path,
    mapping: &Mapping,
    is_required: bool,
) -> Option<Expression> {
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if is_required => errors.required(path, "claim or expression is required"),
        ("", "") => {}
        ("", expression) => {
            if let Some(prefix) = &mapping.prefix {
                let why = "may not be specified when expression is set";
                errors.invalid(&path.child("prefix"), prefix.as_str(), why);
            }
            let path = path.child("expression");
            return compile(errors, &path, expression, Variable::Claims, Returns::Any);
        }
        (_, "") => {
            if mapping.prefix.is_none() {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.required(&path.child("prefix"), why);
            }
        }
        _ => errors.invalid(path, "", "claim and expression can't both be set"),
    }
    None
}

fn extras(
    errors: &mut ErrorList,
    path: &Path,
    extra: &[ExtraMapping],
) -> Vec<(String, Expression)> {
    let mut seen = HashSet::new();
    let mut compiled = Vec::new();
    for (at, mapping) in extra.iter().enumerate() {
        let path = path.index(at);
        let (path_of_key, key) = (path.child("key"), mapping.key.as_str());
        domain_prefixed_path(errors, &path_of_key, key);
        if key != key.to_lowercase() {
            errors.invalid(&path_of_key, key, "must be lowercase");
        }
        if is_reserved(key) {
            let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.invalid(&path_of_key, key, why);
        }
        if !seen.insert(key) {
            errors.duplicate(&path_of_key, key);
            continue;
        }
        let path = path.child("valueExpression");
        let expression = mapping.value_expression.as_str();
        if expression.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let (variable, returns) = (Variable::Claims, Returns::Any);
        let done = compile(errors, &path, expression, variable, returns);
        compiled.extend(done.map(|done| (key.to_owned(), done)));
    }
    compiled
}

/// Reports whether the domain of a key is kubernetes' own.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["kubernetes.io", "k8s.io"].iter().any(|own| {
        domain == *own
            || domain
                .strip_suffix(own)
                .is_some_and(|rest| rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the errors of a configuration.
    fn wrong(fields: &str) -> String {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{fields}"
        );
        let configuration = match Configuration::parse(text.as_bytes()) {
            Ok(configuration) => configuration,
            Err(why) => return why,
        };
        match validate(&configuration, &["https://own".to_owned()]) {
            Ok(_) => String::new(),
            Err(errors) => {
                let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
                texts.join("\n")
            }
        }
    }

    fn jwt(issuer: &str, rest: &str) -> String {
        format!("jwt:\n- issuer: {{{issuer}}}\n  claimMappings: {{{rest}}}")
    }

    const ISSUER: &str = "url: 'https://a', audiences: [x]";
    const USERNAME: &str = "username: {claim: sub, prefix: ''}";

    #[test]
    fn valid_configurations_have_nothing_wrong() {
        for text in [
            "jwt: []".to_owned(),
            "anonymous: {enabled: true, conditions: [{path: /livez}]}".to_owned(),
            jwt(ISSUER, USERNAME),
            jwt(
                ISSUER,
                "username: {expression: \"claims.email_verified ? claims.email : ''\"}, uid: {claim: sub}, groups: {expression: \"claims.roles.split(',')\"}, extra: [{key: 'example.com/tenant', valueExpression: claims.tenant}]",
            ),
            jwt(
                "url: 'https://a', discoveryURL: 'https://b/.well-known/openid-configuration', audiences: [x, z], audienceMatchPolicy: MatchAny",
                USERNAME,
            ),
        ] {
            assert_eq!(wrong(&text), "", "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_paths() {
        let rules = |rules: &str| format!("{}\n  {rules}", jwt(ISSUER, USERNAME));
        let checks = [
            (
                jwt("audiences: [x]", USERNAME),
                "jwt[0].issuer.url: Required value",
            ),
            (
                jwt("url: 'http://a', audiences: [x]", USERNAME),
                r#"jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https"#,
            ),
            (
                jwt("url: 'https://u:p@a?b#c', audiences: [x]", USERNAME),
                "URL must not contain a username or password\njwt[0].issuer.url: Invalid value: \"https://u:p@a?b#c\": URL must not contain a query\njwt[0].issuer.url: Invalid value: \"https://u:p@a?b#c\": URL must not contain a fragment",
            ),
            (
                jwt("url: 'https://own', audiences: [x]", USERNAME),
                r#"jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]"#,
            ),
            (
                jwt(
                    "url: 'https://a', discoveryURL: 'https://a/', audiences: [x]",
                    USERNAME,
                ),
                r#"jwt[0].issuer.discoveryURL: Invalid value: "https://a/": discoveryURL must be different from URL"#,
            ),
            (
                jwt("url: 'https://a'", USERNAME),
                "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
            ),
            (
                jwt("url: 'https://a', audiences: [x, x]", USERNAME),
                "jwt[0].issuer.audiences[1]: Duplicate value: \"x\"\njwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
            ),
            (
                jwt(&format!("{ISSUER}, certificateAuthority: x"), USERNAME),
                r#"jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": "#,
            ),
            (
                jwt(&format!("{ISSUER}, egressSelectorType: etcd"), USERNAME),
                r#"jwt[0].issuer.egressSelectorType: Invalid value: "etcd": egress selector must be either controlplane or cluster"#,
            ),
            (
                jwt(ISSUER, ""),
                "jwt[0].claimMappings.username: Required value: claim or expression is required",
            ),
            (
                jwt(ISSUER, "username: {claim: sub}"),
                "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set",
            ),
            (
                jwt(ISSUER, "username: {expression: claims.email}"),
                r#"jwt[0].claimMappings.username.expression: Invalid value: "claims.email": claims.email_verified must be used"#,
            ),
            (
                jwt(
                    ISSUER,
                    &format!("{USERNAME}, extra: [{{key: Foo, valueExpression: '1'}}]"),
                ),
                "jwt[0].claimMappings.extra[0].key: Invalid value: \"Foo\"",
            ),
            (
                jwt(
                    ISSUER,
                    &format!("{USERNAME}, extra: [{{key: a.k8s.io/b, valueExpression: '1'}}]"),
                ),
                "are reserved for Kubernetes use",
            ),
            (
                rules("claimValidationRules: [{claim: a, expression: b}]"),
                r#"jwt[0].claimValidationRules[0]: Invalid value: "a": claim and expression can't both be set"#,
            ),
            (
                rules("claimValidationRules: [{expression: claims.a}]"),
                r#"jwt[0].claimValidationRules[0].expression: Invalid value: "claims.a": must evaluate to bool"#,
            ),
            (
                rules("userValidationRules: [{expression: 'user.name'}]"),
                r#"jwt[0].userValidationRules[0].expression: Invalid value: "user.name": compilation failed"#,
            ),
            (
                "anonymous: {enabled: false, conditions: [{path: /livez}]}".to_owned(),
                r#"anonymous.conditions: Invalid value: [{"Path":"/livez"}]: enabled should be set to true when conditions are defined"#,
            ),
            (
                "jwts: []".to_owned(),
                r#"strict decoding error: unknown field "jwts""#,
            ),
        ];
        for (text, want) in checks {
            let found = wrong(&text);
            assert!(found.contains(want), "{text}:\n{found}\n{want}");
        }
        let twice = jwt(ISSUER, USERNAME).replace("jwt:\n", "");
        let found = wrong(&format!("jwt:\n{twice}\n{twice}"));
        assert_eq!(found, r#"jwt[1].issuer.url: Duplicate value: "https://a""#);
    }
}
