//! The command line: the flags of kube-apiserver, parsed as Go's pflag does, with its messages,
//! which no crate reproduces.

mod gates;
mod table;
mod values;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use crate::meta::go;

pub use gates::FeatureGates;
use values::split_map;
pub use values::{parse_bool, parse_duration, split_list};

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A boolean: `--a` is `--a=true`, and the next argument is never its value.
    Switch,
    Int,
    /// A float.
    Number,
    /// A Go duration such as `1m30s`.
    Duration,
    /// Comma-separated; each further use adds to it.
    List,
    /// Each use is one value, commas and all.
    Array,
    /// Comma-separated `key=value` pairs; each further use adds to it.
    Map,
}

impl Kind {
    fn accumulates(self) -> bool {
        matches!(self, Kind::List | Kind::Array | Kind::Map)
    }
}

/// The effect of a flag on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// Accepted; changes nothing that a client could see.
    Ignored,
    /// An error with anything but its default.
    Refused,
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub effect: Effect,
    /// Its help text, or the reason why it does nothing or is refused.
    pub text: &'static str,
}

/// A command line that cannot be obeyed; the message is for the terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FlagError(String);

impl FlagError {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// A value that its flag cannot have, in pflag's words.
    pub fn invalid(flag: &str, value: &str, why: &str) -> Self {
        Self(format!(
            "invalid argument {} for \"--{flag}\" flag: {why}",
            crate::meta::go::quote(value)
        ))
    }
}

/// The command of a command line.
#[derive(Debug)]
pub enum Command {
    Run(Flags),
    Help,
    Version,
}

/// The flags of a command line, checked for their type. Names are those of the table; asking for
/// another is a bug.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, Vec<String>>);

/// Reads a command line (without the program's name).
///
/// # Errors
/// Unknown flags, missing and mistyped values, words that are no flags, and refused flags.
pub fn parse<I>(args: I) -> Result<Command, FlagError>
where
    I: IntoIterator<Item = String>,
{
    let mut flags = Flags::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match split_argument(&arg)? {
            Some(parts) => parts,
            None => {
                let rest: Vec<String> = if arg == "--" {
                    args.collect()
                } else {
                    vec![arg]
                };
                return match rest.first() {
                    None => finish(flags),
                    Some(_) => Err(FlagError::new(format!(
                        "\"kube-apiserver\" does not take any arguments, got {rest:?}"
                    ))),
                };
            }
        };
        let flag = find(&name).ok_or_else(|| FlagError::new(format!("unknown flag: --{name}")))?;
        let value = match inline {
            Some(value) => value,
            None if flag.kind == Kind::Switch || flag.name == "version" => "true".to_owned(),
            None => args
                .next()
                .ok_or_else(|| FlagError::new(format!("flag needs an argument: --{name}")))?,
        };
        check(flag, &value)?;
        let slot = flags.0.entry(flag.name).or_default();
        if !flag.kind.accumulates() {
            slot.clear();
        }
        slot.push(value);
    }
    finish(flags)
}

/// The name and, where it is in the same argument, the value; `None` for a word that is no flag.
fn split_argument(arg: &str) -> Result<Option<(String, Option<String>)>, FlagError> {
    if let Some(long) = arg.strip_prefix("--").filter(|long| !long.is_empty()) {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(FlagError::new(format!("bad flag syntax: {arg}")));
        }
        // Underscores are dashes (component-base `WordSepNormalizeFunc`).
        return Ok(Some((name.replace('_', "-"), value)));
    }
    let Some(short) = arg
        .strip_prefix('-')
        .filter(|short| !short.is_empty() && *short != "-")
    else {
        return Ok(None);
    };
    match short.split_at_checked(1) {
        Some(("v", "")) => Ok(Some(("v".to_owned(), None))),
        Some(("v", value)) => Ok(Some((
            "v".to_owned(),
            Some(value.strip_prefix('=').unwrap_or(value).to_owned()),
        ))),
        Some(("h", _)) => Ok(Some(("help".to_owned(), Some("true".to_owned())))),
        _ => {
            let letter = short.chars().next().unwrap_or('-');
            Err(FlagError::new(format!(
                "unknown shorthand flag: {letter:?} in {arg}"
            )))
        }
    }
}

fn finish(flags: Flags) -> Result<Command, FlagError> {
    if flags.switch("help") {
        return Ok(Command::Help);
    }
    if flags.text("version") != "false" {
        return Ok(Command::Version);
    }
    for (flag, values) in flags
        .given()
        .filter(|(flag, _)| flag.effect == Effect::Refused)
    {
        if !values.iter().all(|value| same(flag, value)) {
            return Err(FlagError::new(format!(
                "--{} is not supported: {}",
                flag.name, flag.text
            )));
        }
    }
    Ok(Command::Run(flags))
}

/// Reports whether a value means the same as the flag's default.
fn same(flag: &Flag, value: &str) -> bool {
    match flag.kind {
        Kind::Switch => parse_bool(value) == parse_bool(flag.default),
        Kind::Duration => parse_duration(value).ok() == parse_duration(flag.default).ok(),
        _ => value == flag.default || is_served_version(flag.name, value),
    }
}

/// The two flags that name versions may name the one that is served.
fn is_served_version(flag: &str, value: &str) -> bool {
    let version = value.strip_prefix("kube=").unwrap_or(value);
    match flag {
        "emulated-version" => version == "1.36",
        "min-compatibility-version" => version == "1.35",
        _ => false,
    }
}

/// Checks that a value is of the flag's type.
fn check(flag: &Flag, value: &str) -> Result<(), FlagError> {
    let quoted = crate::meta::go::quote(value);
    let problem = match flag.kind {
        Kind::Switch if parse_bool(value).is_none() => {
            format!("strconv.ParseBool: parsing {quoted}: invalid syntax")
        }
        Kind::Int if value.parse::<i64>().is_err() => {
            format!("strconv.ParseInt: parsing {quoted}: invalid syntax")
        }
        Kind::Number if value.parse::<f64>().is_err() => {
            format!("strconv.ParseFloat: parsing {quoted}: invalid syntax")
        }
        Kind::Duration => match parse_duration(value) {
            Ok(_) => return Ok(()),
            Err(why) => why,
        },
        Kind::Map => match split_map(value)
            .into_iter()
            .find(|pair| !pair.contains('='))
        {
            Some(pair) => format!("{pair} must be formatted as key=value"),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(FlagError::invalid(flag.name, value, &problem))
}

fn find(name: &str) -> Option<&'static Flag> {
    all().find(|flag| flag.name == name)
}

/// Returns every flag, in the order of `--help`.
pub fn all() -> impl Iterator<Item = &'static Flag> {
    table::SECTIONS.iter().flat_map(|(_, flags)| flags.iter())
}

impl Flags {
    /// The flags that were given, with their values.
    pub fn given(&self) -> impl Iterator<Item = (&'static Flag, &[String])> {
        self.0
            .iter()
            .filter_map(|(name, values)| find(name).map(|flag| (flag, values.as_slice())))
    }

    /// The flags that were given without an effect, each with the reason, to be logged.
    pub fn without_effect(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.given()
            .filter(|(flag, _)| flag.effect == Effect::Ignored)
            .map(|(flag, _)| (flag.name, flag.text))
    }

    /// Returns every flag with its value as pflag prints it.
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        let value = |flag: &Flag| match flag.kind {
            Kind::List => format!("[{}]", self.list(flag.name).join(",")),
            Kind::Array => format!("[{}]", self.array(flag.name).join(",")),
            Kind::Map => {
                let pairs = self.map(flag.name).into_iter();
                let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", pairs.join(","))
            }
            Kind::Switch => self.switch(flag.name).to_string(),
            Kind::Duration => {
                go::format_duration(go::parse_duration(self.text(flag.name)).unwrap_or(0))
            }
            Kind::Text | Kind::Int | Kind::Number => self.text(flag.name).to_owned(),
        };
        all().map(|flag| (flag.name, value(flag))).collect()
    }

    fn raw(&self, name: &str) -> &[String] {
        debug_assert!(find(name).is_some(), "{name} is not in the table");
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The last value, or the default.
    pub fn text(&self, name: &str) -> &str {
        self.raw(name)
            .last()
            .map(String::as_str)
            .or_else(|| find(name).map(|flag| flag.default))
            .unwrap_or("")
    }

    pub fn switch(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or(false)
    }

    pub fn int(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Returns a flag that is a duration below 0: none may be.
    pub fn negative_duration(&self) -> Option<&'static str> {
        self.given()
            .filter(|(flag, _)| flag.kind == Kind::Duration)
            .find(|(flag, _)| {
                let nanos = go::parse_duration(self.text(flag.name));
                nanos.is_ok_and(|nanos| nanos < 0)
            })
            .map(|(flag, _)| flag.name)
    }

    /// A duration; see [`Flags::negative_duration`].
    pub fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }

    /// All values, as they came.
    pub fn array(&self, name: &str) -> Vec<String> {
        self.raw(name).to_vec()
    }

    /// The elements of all values of a comma-separated flag, or those of its default.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.raw(name) {
            [] => split_list(self.text(name)),
            values => values.iter().flat_map(|value| split_list(value)).collect(),
        }
    }
}

impl Flags {
    /// The pairs of a flag that is a map; the last value of a key counts.
    pub fn map(&self, name: &str) -> BTreeMap<String, String> {
        let pairs = self.raw(name).iter().flat_map(|value| split_map(value));
        let pairs = pairs.filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        });
        pairs.collect()
    }
}

/// The text of `--help`.
pub struct Help;

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keelson serves the Kubernetes API as kube-apiserver v1.36 does, from etcd or from a store of its own.\n\n")?;
        f.write_str("Usage:\n  keelson [flags]\n")?;
        for (section, flags) in table::SECTIONS {
            write!(f, "\n{section} flags:\n\n")?;
            for flag in *flags {
                let usage = match flag.kind {
                    Kind::Switch => String::new(),
                    kind => format!(" {}", format!("{kind:?}").to_lowercase()),
                };
                let text = match flag.effect {
                    Effect::Used => flag.text.to_owned(),
                    Effect::Ignored => format!("[no effect] {}", flag.text),
                    Effect::Refused => format!("[refused] {}", flag.text),
                };
                let default = match flag.default {
                    "" | "false" => String::new(),
                    value => format!(" (default {value})"),
                };
                let mut head = String::new();
                write!(head, "--{}{usage}", flag.name)?;
                writeln!(f, "  {head:<52} {text}{default}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Flags {
        match parse(args.iter().map(ToString::to_string)) {
            Ok(Command::Run(flags)) => flags,
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    fn error(args: &[&str]) -> String {
        parse(args.iter().map(ToString::to_string))
            .expect_err("an error")
            .to_string()
    }

    #[test]
    fn every_default_is_of_its_type_and_no_name_comes_twice() {
        let mut names = std::collections::BTreeSet::new();
        for flag in all() {
            assert!(names.insert(flag.name), "{} comes twice", flag.name);
            if !flag.default.is_empty() && flag.name != "version" {
                assert_eq!(check(flag, flag.default), Ok(()));
            }
        }
    }

    #[test]
    fn values_come_in_all_of_pflags_forms() {
        let flags = run(&[
            "--secure-port",
            "1",
            "--etcd_servers=http://a,http://b",
            "--etcd-servers",
            "http://c",
            "--allow-privileged",
            "-v4",
        ]);
        assert_eq!(flags.int("secure-port"), 1);
        assert_eq!(
            flags.list("etcd-servers"),
            ["http://a", "http://b", "http://c"]
        );
        assert!(flags.switch("allow-privileged"));
        assert_eq!(flags.int("v"), 4);
        assert!(!run(&["--anonymous-auth=false"]).switch("anonymous-auth"));
        assert_eq!(
            run(&["--service-account-issuer=a,b", "--service-account-issuer=c"])
                .array("service-account-issuer"),
            ["a,b", "c"]
        );
        assert_eq!(
            run(&["--secure-port=1", "--secure-port=2"]).int("secure-port"),
            2
        );
        assert_eq!(
            run(&["--request-timeout=1m30s"]).duration("request-timeout"),
            Duration::from_secs(90)
        );
        assert_eq!(run(&[]).list("authorization-mode"), ["Node", "RBAC"]);
    }

    #[test]
    fn mistakes_are_told_as_pflag_tells_them() {
        for (args, message) in [
            (vec!["--nope"], "unknown flag: --nope"),
            (vec!["-x"], "unknown shorthand flag: 'x' in -x"),
            (
                vec!["--secure-port"],
                "flag needs an argument: --secure-port",
            ),
            (
                vec!["--secure-port=x"],
                r#"invalid argument "x" for "--secure-port" flag: strconv.ParseInt: parsing "x": invalid syntax"#,
            ),
            (
                vec!["--anonymous-auth=x"],
                r#"invalid argument "x" for "--anonymous-auth" flag: strconv.ParseBool: parsing "x": invalid syntax"#,
            ),
            (
                vec!["--event-ttl=x"],
                r#"invalid argument "x" for "--event-ttl" flag: time: invalid duration "x""#,
            ),
            (
                vec!["word"],
                r#""kube-apiserver" does not take any arguments, got ["word"]"#,
            ),
            (
                vec!["--admission-control=p"],
                "--admission-control is not supported: it is deprecated; use --enable-admission-plugins",
            ),
        ] {
            assert_eq!(error(&args), message);
        }
    }

    #[test]
    fn a_refused_flag_may_have_its_default() {
        let flags = run(&[
            "--storage-backend=etcd3",
            "--enable-garbage-collector",
            "--emulated-version=1.36",
            "--livez-grace-period=1s",
        ]);
        assert_eq!(
            flags
                .without_effect()
                .map(|(name, _)| name)
                .collect::<Vec<_>>(),
            ["livez-grace-period"]
        );
    }

    #[test]
    fn help_and_version_win_over_the_rest() {
        let parse = |arg: &str| parse([arg.to_owned()]);
        assert!(matches!(parse("-h"), Ok(Command::Help)));
        assert!(matches!(parse("--help"), Ok(Command::Help)));
        assert!(matches!(parse("--version"), Ok(Command::Version)));
        assert!(matches!(parse("--version=false"), Ok(Command::Run(_))));
        assert!(Help.to_string().contains("--service-cluster-ip-range text"));
    }
}
