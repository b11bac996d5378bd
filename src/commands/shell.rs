//! Commands for shells (`keelson completion`) and for `man`, made of the tables of commands and
//! flags.

use std::fmt::Write;

use super::args::Args;
use super::{COMMANDS, CommandError, Spec, print};
use crate::options::flags::{self, Effect, Kind};

pub const COMPLETION: Spec = Spec {
    name: "completion",
    operands: &["bash|zsh|fish"],
    about: "Prints a script that completes commands and flags: source <(keelson completion bash)",
    options: &[],
    run: completion,
};

pub const MAN: Spec = Spec {
    name: "man",
    operands: &[],
    about: "Prints the manual page: keelson man > keelson.1",
    options: &[],
    run: |_| print(man().trim_end()),
};

fn completion(args: &Args) -> Result<(), CommandError> {
    let script = match args.operand(0).unwrap_or("") {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        other => {
            return Err(CommandError::new(format!(
                "there is completion for bash, zsh and fish, not for {other}"
            )));
        }
    };
    print(script.trim_end())
}

/// The flags of the server that have an effect: name, help, and whether they take a value.
fn server_flags() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    flags::all()
        .filter(|flag| flag.effect == Effect::Used)
        .map(|flag| (flag.name, flag.text, flag.kind != Kind::Switch))
}

fn words(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

/// The words that may come first.
fn first_words() -> String {
    let mut first: Vec<&str> = COMMANDS
        .iter()
        .filter_map(|spec| spec.name.split(' ').next())
        .collect();
    first.dedup();
    first.join(" ")
}

/// The second words of each first word that has some.
fn second_words() -> Vec<(&'static str, String)> {
    let mut groups: Vec<(&str, String)> = Vec::new();
    for (first, second) in COMMANDS.iter().filter_map(|spec| spec.name.split_once(' ')) {
        match groups.iter_mut().find(|(group, _)| *group == first) {
            Some((_, seconds)) => {
                let _ = write!(seconds, " {second}");
            }
            None => groups.push((first, second.to_owned())),
        }
    }
    groups
}

/// The options of a command as they are typed.
fn options(spec: &Spec) -> String {
    words(spec.options.iter().map(|option| match option.value {
        Some(_) => format!("--{}=", option.name),
        None => format!("--{}", option.name),
    }))
}

fn bash() -> String {
    let mut out =
        String::from("_keelson() {\n  local line=\"${COMP_WORDS[*]:1:COMP_CWORD}\" words=\n");
    out.push_str("  case $line in\n");
    for (group, seconds) in second_words() {
        let patterns = seconds
            .split(' ')
            .map(|second| format!("\"{group} {second} \"*"));
        let patterns = patterns.collect::<Vec<_>>().join("|");
        let _ = writeln!(
            out,
            "    {patterns}) ;;\n    \"{group} \"*) words=\"{seconds}\" ;;"
        );
    }
    let _ = writeln!(
        out,
        "    *\" \"*|-*) ;;\n    *) words=\"{}\" ;;\n  esac",
        first_words()
    );
    out.push_str("  case $line in\n");
    for spec in COMMANDS {
        let _ = writeln!(
            out,
            "    \"{} \"*) words+=\" {}\" ;;",
            spec.name,
            options(spec)
        );
    }
    let server = words(server_flags().map(|(name, _, value)| match value {
        true => format!("--{name}="),
        false => format!("--{name}"),
    }));
    let _ = writeln!(out, "    -*) words=\"{server}\" ;;\n  esac");
    out.push_str(
        "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n  \
         [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace\n}\n\
         complete -o default -F _keelson keelson\n",
    );
    out
}

fn zsh() -> String {
    // zsh reads completions of bash.
    format!("autoload -U +X bashcompinit && bashcompinit\n{}", bash())
}

fn fish() -> String {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let mut out = String::new();
    for spec in COMMANDS {
        let about = quote(spec.about);
        let (condition, word) = match spec.name.split_once(' ') {
            None => ("__fish_use_subcommand".to_owned(), spec.name),
            Some((group, second)) => (format!("__fish_seen_subcommand_from {group}"), second),
        };
        let _ = writeln!(
            out,
            "complete -c keelson -n '{condition}' -a {word} -d '{about}'"
        );
        let seen = spec
            .name
            .split(' ')
            .map(|word| format!("__fish_seen_subcommand_from {word}"));
        let seen = seen.collect::<Vec<_>>().join("; and ");
        for option in spec.options {
            let value = if option.value.is_some() { " -r" } else { "" };
            let help = quote(option.help);
            let _ = writeln!(
                out,
                "complete -c keelson -n '{seen}' -l {}{value} -d '{help}'",
                option.name
            );
        }
    }
    for (group, _) in second_words() {
        let _ = writeln!(
            out,
            "complete -c keelson -n __fish_use_subcommand -a {group}"
        );
    }
    for (name, help, value) in server_flags() {
        let value = if value { " -r" } else { "" };
        let help = quote(help);
        let _ = writeln!(
            out,
            "complete -c keelson -n __fish_use_subcommand -l {name}{value} -d '{help}'"
        );
    }
    out
}

/// Text for troff: no line begins with a command, and dashes are those that are typed.
fn troff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn man() -> String {
    let mut out = String::from(
        ".TH KEELSON 1\n.SH NAME\nkeelson \\- an API server for Kubernetes\n.SH SYNOPSIS\n.B keelson\n\
         [flags]\n.br\n.B keelson\ncommand [options]\n.SH DESCRIPTION\nKeelson answers as \
         kube\\-apiserver v1.36 does, from etcd or from a store of its own. Without a command it serves \
         until it gets SIGTERM.\n.SH COMMANDS\n",
    );
    for spec in COMMANDS {
        let operands: String = spec
            .operands
            .iter()
            .map(|operand| format!(" {operand}"))
            .collect();
        let _ = writeln!(
            out,
            ".TP\n.B {}{}\n{}",
            spec.name,
            troff(&operands),
            troff(spec.about)
        );
        for option in spec.options {
            let value = option
                .value
                .map_or(String::new(), |value| format!("={value}"));
            let head = troff(&format!("--{}{value}", option.name));
            let _ = writeln!(out, ".RS\n.TP\n{head}\n{}\n.RE", troff(option.help));
        }
    }
    out.push_str(".SH FLAGS\nThose that have an effect; ");
    out.push_str(&troff("--help"));
    out.push_str(" lists all.\n");
    for flag in flags::all().filter(|flag| flag.effect == Effect::Used) {
        let default = match flag.default {
            "" | "false" => String::new(),
            value => format!(" (default {value})"),
        };
        let (name, text) = (troff(flag.name), troff(flag.text));
        let _ = writeln!(out, ".TP\n.B \\-\\-{name}\n{text}{}", troff(&default));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The words that bash offers for a line whose last word is incomplete.
    fn completed(line: &[&str]) -> Vec<String> {
        let words = line
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" ");
        let script = format!(
            "{}\ncompopt() {{ :; }}\nCOMP_WORDS=({words})\nCOMP_CWORD={}\n_keelson\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            bash(),
            line.len() - 1
        );
        let run = Command::new("bash")
            .args(["-uc", &script])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
        let text = String::from_utf8(run.stdout).unwrap();
        text.lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn bash_completes_commands_their_options_and_flags() {
        assert_eq!(completed(&["keelson", "sn"]), ["snapshot"]);
        assert_eq!(completed(&["keelson", "snapshot", "s"]), ["save", "status"]);
        assert_eq!(
            completed(&["keelson", "snapshot", "restore", "--b"]),
            ["--bump-revision="]
        );
        assert_eq!(completed(&["keelson", "defrag", "--c"]), ["--compact"]);
        assert_eq!(
            completed(&["keelson", "--etcd-ser"]),
            ["--etcd-servers=", "--etcd-servers-overrides="]
        );
        assert_eq!(
            completed(&["keelson", "--v=2", "--quota"]),
            ["--quota-backend-bytes="]
        );
    }

    #[test]
    fn every_command_and_flag_is_in_all_of_them() {
        let (page, fish) = (man(), fish());
        for spec in COMMANDS {
            assert!(page.contains(spec.name));
            let word = spec.name.rsplit(' ').next().unwrap();
            assert!(fish.contains(&format!("-a {word} ")), "{word}");
        }
        for (name, _, _) in server_flags() {
            assert!(
                page.contains(&format!(".B \\-\\-{}\n", troff(name))),
                "{name}"
            );
            assert!(fish.contains(&format!("-l {name}")), "{name}");
        }
        let commands = [".TH", ".SH", ".B", ".TP", ".RS", ".RE", ".br"];
        for line in page.lines().filter(|line| line.starts_with('.')) {
            let word = line.split(' ').next().unwrap();
            assert!(commands.contains(&word), "{line}");
        }
    }
}
