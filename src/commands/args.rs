//! The arguments of a command: operands, and options with their values.

use std::collections::BTreeMap;

/// An option of a command.
#[derive(Debug)]
pub struct Opt {
    pub name: &'static str,
    /// The value as the help shows it; `None` for a switch.
    pub value: Option<&'static str>,
    pub default: &'static str,
    pub help: &'static str,
}

/// Arguments that a command does not take.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgsError(String);

/// The arguments of a command.
#[derive(Debug)]
pub struct Args {
    options: BTreeMap<&'static str, String>,
    operands: Vec<String>,
    /// The arguments behind `--`, for commands that pass them on.
    rest: Vec<String>,
}

/// Reports whether help is asked for.
pub fn asks_for_help(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "--help" || arg == "-h")
}

impl Args {
    /// Reads arguments. `operands` are those that are to be there, in brackets those that may.
    ///
    /// # Errors
    /// Unknown options, missing values, and operands that are too many or too few.
    pub fn parse(options: &[Opt], operands: &[&str], args: &[String]) -> Result<Self, ArgsError> {
        let mut parsed = Self {
            options: options
                .iter()
                .map(|o| (o.name, o.default.to_owned()))
                .collect(),
            operands: Vec::new(),
            rest: Vec::new(),
        };
        let (operands, passes_on) = match operands.split_last() {
            Some((last, others)) if last.starts_with("[--") => (others, true),
            _ => (operands, false),
        };
        let (mut args, mut only_operands) = (args.iter(), false);
        while let Some(arg) = args.next() {
            let Some(option) = arg.strip_prefix("--").filter(|_| !only_operands) else {
                parsed.operands.push(arg.clone());
                continue;
            };
            if option.is_empty() && passes_on {
                parsed.rest = args.cloned().collect();
                break;
            }
            if option.is_empty() {
                only_operands = true;
                continue;
            }
            let (name, inline) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            let known = options.iter().find(|o| o.name == name);
            let known = known.ok_or_else(|| ArgsError(format!("unknown flag: --{name}")))?;
            let value = match (inline, known.value) {
                (Some(value), _) => value,
                (None, None) => "true".to_owned(),
                (None, Some(_)) => args
                    .next()
                    .cloned()
                    .ok_or_else(|| ArgsError(format!("flag needs an argument: --{name}")))?,
            };
            if known.value.is_none() && !matches!(value.as_str(), "true" | "false") {
                return Err(ArgsError(format!("--{name} is true or false")));
            }
            parsed.options.insert(known.name, value);
        }
        let least = operands.iter().filter(|o| !o.starts_with('[')).count();
        if !(least..=operands.len()).contains(&parsed.operands.len()) {
            let wanted = operands.join(" ");
            let got = &parsed.operands;
            return Err(ArgsError(format!(
                "the arguments are {wanted}, got {got:?}"
            )));
        }
        Ok(parsed)
    }

    /// The value of an option, or its default.
    pub fn text(&self, name: &str) -> &str {
        self.options.get(name).map_or("", String::as_str)
    }

    /// The value of an option that may be empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|value| !value.is_empty())
    }

    pub fn switch(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// The value of an option that is a number.
    ///
    /// # Errors
    /// It is none, or negative.
    pub fn number(&self, name: &str) -> Result<i64, ArgsError> {
        let text = self.text(name);
        let number = text.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| ArgsError(format!("--{name} is no number: {text}")))
    }

    /// The arguments that are passed on.
    pub fn rest(&self) -> &[String] {
        &self.rest
    }

    /// The operand at a place, if it is there.
    pub fn operand(&self, at: usize) -> Option<&str> {
        self.operands.get(at).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt] = &[
        Opt {
            name: "folder",
            value: Some("FOLDER"),
            default: "here",
            help: "",
        },
        Opt {
            name: "force",
            value: None,
            default: "",
            help: "",
        },
        Opt {
            name: "count",
            value: Some("N"),
            default: "7",
            help: "",
        },
    ];

    fn parse(line: &str) -> Result<Args, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Args::parse(OPTIONS, &["FILE", "[OTHER]"], &args).map_err(|error| error.to_string())
    }

    #[test]
    fn options_and_operands_are_told_apart() {
        let args = parse("a --folder=x --force b").unwrap();
        assert_eq!((args.operand(0), args.operand(1)), (Some("a"), Some("b")));
        assert_eq!(args.text("folder"), "x");
        assert!(args.switch("force"));
        assert_eq!(args.number("count"), Ok(7));
        let args = parse("--folder y -- --z").unwrap();
        assert_eq!((args.operand(0), args.text("folder")), (Some("--z"), "y"));
        assert!(!args.switch("force"));
        assert_eq!(parse("-").unwrap().operand(0), Some("-"));
    }

    #[test]
    fn a_command_may_pass_arguments_on() {
        let line = ["a", "--force", "--", "--unknown", "--", "b"].map(str::to_owned);
        let args = Args::parse(OPTIONS, &["FILE", "[-- FLAGS]"], &line).unwrap();
        assert_eq!(args.rest(), ["--unknown", "--", "b"]);
        assert_eq!((args.operand(0), args.operand(1)), (Some("a"), None));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (line, message) in [
            ("", "the arguments are FILE [OTHER], got []"),
            (
                "a b c",
                "the arguments are FILE [OTHER], got [\"a\", \"b\", \"c\"]",
            ),
            ("a --fold=x", "unknown flag: --fold"),
            ("a --folder", "flag needs an argument: --folder"),
            ("a --force=maybe", "--force is true or false"),
        ] {
            assert_eq!(parse(line).unwrap_err(), message);
        }
        let args = parse("a --count=-1").unwrap();
        assert_eq!(
            args.number("count").unwrap_err().to_string(),
            "--count is no number: -1"
        );
    }
}
