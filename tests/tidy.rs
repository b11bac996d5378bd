//! Keeps the source tree as ARCHITECTURE.md describes it: the direction of modules, sizes, opening
//! lines. Knows only text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file under `src`, its tests not counted.
const FILE_LINES: usize = 800;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 80;
/// Columns of a line with nothing but a comment; rustfmt breaks the rest.
const COMMENT_COLUMNS: usize = 100;
/// Words that no documentation opens with: it names its item, or says what the item does.
const QUESTIONS: [&str; 24] = [
    "What",
    "Whatever",
    "Whether",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Where",
    "Wherever",
    "How",
    "However",
    "Which",
    "Whichever",
    "When",
    "Whenever",
    "Why",
    "Says",
    "Tells",
    "Is",
    "Are",
    "Does",
    "Has",
    "Can",
    "May",
];
/// Folders that hold no source of ours.
const SKIPPED: [&str; 7] = [
    "target",
    ".git",
    ".tools",
    ".cargo",
    "keelson-data",
    "node_modules",
    "vendor",
];
/// Modules whose parts do not use each other in circles. Two still have some: `cel`, whose
/// libraries are part of the environment, and `server`, whose filters hold their own chain.
const ACYCLIC: &[&str] = &[
    "base",
    "telemetry",
    "meta",
    "schema",
    "codec",
    "merge",
    "storage",
    "cacher",
    "auth",
    "admission",
    "registry",
    "registry/store",
    "registry/validation",
    "builtin",
    "storage/embedded",
    "storage/etcd3",
    "extensions",
    "discovery",
    "endpoints",
    "options",
    "controlplane",
];
/// Texts that no file may contain, in two halves so that this file passes too: the project stands
/// alone.
const OUTSIDE: [(&str, &str); 2] = [("../", "shared"), ("/wor", "k/")];

/// A file of the tree: its path from the root of the project, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn in_src(&self) -> bool {
        self.path.starts_with("src/") && self.is_rust()
    }

    /// Reports whether the whole file is tests: `tests.rs`, or a file under a folder `tests`.
    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.split('/').any(|part| part == "tests")
    }

    /// The path of the file's module: `["registry", "store", "read"]`.
    fn module_path(&self) -> Vec<&str> {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let path = path.strip_suffix(".rs").unwrap_or(path);
        path.strip_suffix("/mod")
            .unwrap_or(path)
            .split('/')
            .collect()
    }

    /// The module of the crate that the file belongs to; none for lib.rs and main.rs.
    fn module(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("src/")?;
        let name = rest.split('/').next()?;
        let name = name.strip_suffix(".rs").unwrap_or(name);
        (!matches!(name, "lib" | "main")).then_some(name)
    }
}

/// Every text file of the project.
fn tree() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path: PathBuf = entry.expect("a readable entry").path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if SKIPPED.contains(&name) {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path
                    .strip_prefix(root)
                    .expect("below the root")
                    .to_string_lossy()
                    .into_owned();
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Rust with comments and what is inside string and character literals blanked: the braces and
/// words left are code. Lines stay lines.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Returns the end of the comment or literal that starts at `at`; `at` itself if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |rest| rest[0] == '\n'),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => quoted_end(chars, at, '"'),
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => {
            quoted_end(chars, at, '\'')
        }
        'r' if !after_word || matches!(chars[at - 1], 'b' | 'c') => raw_string_end(chars, at),
        _ => at,
    }
}

fn find(chars: &[char], from: usize, holds: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|i| holds(&chars[*i..]))
        .unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(chars.len())
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return start;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|c| *c == '#')
    };
    (find(chars, start + 2 + hashes, closes) + 1 + hashes).min(chars.len())
}

/// The offset behind the brace that closes the first one opened at or after `from`; none where a
/// `;` comes first.
fn block_end(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, c) in code[from..].char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ';' if depth == 0 => return None,
            _ => continue,
        }
        if depth == 0 && c == '}' {
            return Some(from + offset + 1);
        }
    }
    None
}

/// The code without its `#[cfg(test)]` items; their lines become empty.
fn without_tests(code: &str) -> String {
    let mut code = code.to_owned();
    while let Some(start) = code.find("#[cfg(test)]") {
        let body = start + "#[cfg(test)]".len();
        let end = block_end(&code, body)
            .or_else(|| code[body..].find(';').map(|at| body + at + 1))
            .unwrap_or(code.len());
        let blank: String = code[start..end].chars().filter(|c| *c == '\n').collect();
        code.replace_range(
            start..end,
            &format!("{}\u{1}", blank.replace('\n', "\u{1}\n")),
        );
    }
    code
}

/// Counts the lines of a file, its test modules not included. A blanked line ends with a mark.
fn lines_without_tests(code: &str) -> usize {
    without_tests(code)
        .lines()
        .filter(|line| !line.ends_with('\u{1}'))
        .count()
}

/// Returns the offsets of `word` as a whole word.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            !code[..*at].chars().next_back().is_some_and(part)
                && !code[at + word.len()..].chars().next().is_some_and(part)
        })
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The name and length in lines of every function, with the line it starts at.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name: String = code[at + 2..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let Some(end) = (!name.is_empty()).then(|| block_end(code, at)).flatten() else {
            continue;
        };
        found.push((
            name,
            line_of(code, at),
            code[at..end].matches('\n').count() + 1,
        ));
    }
    found
}

/// The top-level modules that the code names behind `root::`, with the line: `crate::a::b`,
/// `crate::{a, b::{c}}`.
fn uses(code: &str, root: &str) -> Vec<(String, usize)> {
    let ident = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = Vec::new();
    for at in words(code, root) {
        let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else {
            continue;
        };
        let line = line_of(code, at);
        let Some(group) = rest.trim_start().strip_prefix('{') else {
            found.push((ident(rest), line));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (offset, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.push((ident(&group[offset..]), line));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// The file that declares the parts of `module` (`registry`, `registry/store`), or those of the
/// crate where that is empty.
fn declaring<'t>(tree: &'t [Source], module: &str) -> &'t Source {
    let path = match module {
        "" => "src/lib.rs".to_owned(),
        module => format!("src/{module}/mod.rs"),
    };
    tree.iter()
        .find(|source| source.path == path)
        .unwrap_or_else(|| panic!("{path}"))
}

/// The modules that a file declares, in its order, tests not counted.
fn declared(source: &Source) -> Vec<String> {
    let name = |line: &str| {
        let (_, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
        name.chars()
            .all(|c| c.is_alphanumeric() || c == '_')
            .then(|| name.to_owned())
    };
    let code = without_tests(&code_of(&source.text));
    code.lines()
        .filter(|line| line.starts_with("mod ") || line.starts_with("pub"))
        .filter_map(name)
        .collect()
}

/// The lines at which documentation opens with one of `QUESTIONS`.
fn questions(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().map(str::trim_start).enumerate() {
        let marker = ["///", "//!"].into_iter().find(|m| line.starts_with(m));
        if let Some(marker) = marker.filter(|marker| !before.starts_with(marker)) {
            let word: String = line[marker.len()..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric())
                .collect();
            if QUESTIONS.contains(&word.as_str()) {
                found.push(number + 1);
            }
        }
        before = line;
    }
    found
}

/// The public functions that return a `Result` and whose documentation has no `# Errors`.
fn silent_failures(text: &str) -> Vec<(String, usize)> {
    let code = without_tests(&code_of(text));
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for at in words(&code, "fn") {
        let line = line_of(&code, at);
        let name: String = code[at + 2..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let end = code[at..]
            .find(['{', ';'])
            .map_or(code.len(), |end| at + end);
        // `->` may also stand in the bounds of a parameter; the last one is the function's.
        let returned = code[at..end].rsplit_once("->").map_or("", |(_, ty)| ty);
        let head = returned.trim().split(['<', ' ']).next().unwrap_or("");
        let public = lines[line - 1].trim_start().starts_with("pub ");
        if !public || head.rsplit("::").next() != Some("Result") {
            continue;
        }
        let documented = lines[..line - 1]
            .iter()
            .rev()
            .map(|above| above.trim_start())
            .take_while(|above| above.starts_with("//") || above.starts_with("#["))
            .any(|above| above == "/// # Errors");
        if !documented {
            found.push((name, line));
        }
    }
    found
}

/// The modules of lib.rs, in the order it lists them.
fn modules(tree: &[Source]) -> Vec<String> {
    declared(declaring(tree, ""))
}

/// Every path that the code names from the root of the crate, from a parent or from itself, as the
/// names from the root on, with its line. `own` is the path of the module that the code is of.
fn paths(code: &str, own: &[&str]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    for root in ["crate", "super", "self"] {
        for at in words(code, root) {
            let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else {
                continue;
            };
            if code[..at].trim_end().ends_with("::") {
                continue;
            }
            let above = match root {
                "crate" => own.len(),
                "super" => 1,
                _ => 0,
            };
            let base: Vec<String> = own[..own.len().saturating_sub(above)]
                .iter()
                .map(|name| (*name).to_owned())
                .collect();
            let mut leaves = Vec::new();
            use_tree(rest, base, &mut leaves);
            let line = line_of(code, at);
            found.extend(leaves.into_iter().map(|path| (path, line)));
        }
    }
    found
}

/// Reads what follows `::` in a path or a `use`, adds each full path to `found` and returns the
/// text behind it.
fn use_tree<'c>(text: &'c str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'c str {
    let mut rest = text.trim_start();
    if let Some(group) = rest.strip_prefix('{') {
        rest = group.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            let before = rest.len();
            rest = use_tree(rest, path.clone(), found).trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            if rest.len() == before {
                break;
            }
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    match name {
        "" | "self" => {}
        "super" => drop(path.pop()),
        name => path.push(name.to_owned()),
    }
    match rest.trim_start().strip_prefix("::") {
        Some(below) if !name.is_empty() => use_tree(below, path, found),
        _ => {
            found.push(path);
            let alias = rest.trim_start().strip_prefix("as ");
            alias.map_or(rest, |alias| {
                alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ' ')
            })
        }
    }
}

/// One part of a module uses another: their places in its list, and what is to be told of it.
struct Use {
    from: usize,
    to: usize,
    told: String,
}

/// The uses in `module` by one of its parts of another. What `module` re-exports counts as its
/// part's.
fn uses_between_parts(tree: &[Source], module: &str) -> Vec<Use> {
    let declaring = declaring(tree, module);
    let parts = declared(declaring);
    let own: Vec<&str> = module.split('/').filter(|name| !name.is_empty()).collect();
    let exported = exports(&code_of(&declaring.text), &parts);
    let place = |name: &str| {
        let part = exported.get(name).map_or(name, String::as_str);
        parts.iter().position(|one| one == part)
    };
    let mut found = Vec::new();
    for source in tree {
        if !source.in_src() || source.is_test() || source.path == declaring.path {
            continue;
        }
        let file = source.module_path();
        let part = file.strip_prefix(&own[..]).and_then(|below| below.first());
        let Some((part, from)) = part.and_then(|part| Some((part, place(part)?))) else {
            continue;
        };
        for (path, line) in paths(&without_tests(&code_of(&source.text)), &file) {
            let inside = path.iter().zip(&own).all(|(a, b)| a == b);
            let used = path.get(own.len()).filter(|_| inside);
            let Some((used, to)) = used.and_then(|used| Some((used, place(used)?))) else {
                continue;
            };
            let told = format!("{}:{line}: `{part}` uses `{used}`", source.path);
            found.push(Use { from, to, told });
        }
    }
    found
}

/// The uses that belong to circles: what is left when parts that use no other go, again and again.
fn circular(mut uses: Vec<Use>) -> Vec<String> {
    uses.retain(|one| one.from != one.to);
    loop {
        let users: BTreeSet<usize> = uses.iter().map(|one| one.from).collect();
        let used: BTreeSet<usize> = uses.iter().map(|one| one.to).collect();
        let before = uses.len();
        uses.retain(|one| users.contains(&one.to) && used.contains(&one.from));
        if uses.len() == before {
            return uses.into_iter().map(|one| one.told).collect();
        }
    }
}

/// The names that a module re-exports from its parts, with the part.
fn exports(code: &str, parts: &[String]) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for part in parts {
        for at in words(code, part) {
            let before = code[..at].trim_end();
            let before = before.strip_suffix("self::").unwrap_or(before).trim_end();
            let is_export = before.strip_suffix("use").is_some_and(|before| {
                before
                    .rsplit('\n')
                    .next()
                    .is_some_and(|line| line.contains("pub"))
            });
            if let (true, Some(rest)) = (is_export, code[at + part.len()..].strip_prefix("::")) {
                let mut names = Vec::new();
                use_tree(rest, Vec::new(), &mut names);
                let names = names.into_iter().filter_map(|mut path| path.pop());
                exported.extend(names.map(|name| (name, part.clone())));
            }
        }
    }
    exported
}

/// Fails with the list of what is wrong and the rule it breaks.
fn check(rule: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{rule}:\n  {}\n", wrong.join("\n  "));
}

#[test]
fn modules_use_only_those_above_them() {
    let uses = uses_between_parts(&tree(), "");
    let upward = uses.into_iter().filter(|one| one.to > one.from);
    check(
        "a module uses only those above it in lib.rs",
        upward.map(|one| one.told).collect(),
    );
}

#[test]
fn parts_of_a_module_do_not_use_each_other_in_circles() {
    let tree = tree();
    let wrong = ACYCLIC
        .iter()
        .flat_map(|module| circular(uses_between_parts(&tree, module)));
    check(
        "the parts of a module do not use each other in circles",
        wrong.collect(),
    );
}

#[test]
fn every_file_of_src_belongs_to_a_declared_module() {
    let tree = tree();
    let modules = modules(&tree);
    let stray = tree
        .iter()
        .filter(|source| source.in_src())
        .filter(|source| {
            source
                .module()
                .is_some_and(|module| !modules.iter().any(|one| one == module))
        });
    check(
        "lib.rs lists every module",
        stray.map(|source| source.path.clone()).collect(),
    );
}

#[test]
fn architecture_lists_the_modules_in_the_order_of_lib_rs() {
    let tree = tree();
    let page = tree
        .iter()
        .find(|source| source.path == "ARCHITECTURE.md")
        .expect("ARCHITECTURE.md");
    let row = |line: &str| {
        line.strip_prefix("| `")?
            .split_once("` |")
            .map(|(name, _)| name.to_owned())
    };
    let described: Vec<String> = page.text.lines().filter_map(row).collect();
    assert_eq!(
        described,
        modules(&tree),
        "the table of ARCHITECTURE.md (left) is not the list of lib.rs (right)"
    );
}

/// The spellings of a path with alternatives in braces: `a/{b,c}` is `a/b` and `a/c`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, (inside, after))) = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    inside
        .split(',')
        .map(|one| format!("{before}{one}{after}"))
        .collect()
}

#[test]
fn architecture_names_only_files_that_exist() {
    let tree = tree();
    let page = tree
        .iter()
        .find(|source| source.path == "ARCHITECTURE.md")
        .expect("ARCHITECTURE.md");
    let is_path = |text: &&str| {
        text.contains('/')
            && !text.contains('<')
            && text.chars().all(|c| !c.is_whitespace() && c != '=')
            && text.starts_with(|c: char| c.is_ascii_lowercase())
    };
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        let (file, folder) = (format!("{path}.rs"), format!("{path}/"));
        tree.iter().any(|source| {
            let under_src = source.path.strip_prefix("src/").unwrap_or(&source.path);
            [source.path.as_str(), under_src]
                .iter()
                .any(|known| *known == path || *known == file || known.starts_with(&folder))
        })
    };
    let code = page.text.split('`').skip(1).step_by(2);
    let wrong = code
        .filter(is_path)
        .flat_map(|text| alternatives(text.split("::").next().unwrap_or_default()))
        .filter(|path| !exists(path))
        .collect();
    check("ARCHITECTURE.md names only files that exist", wrong);
}

/// The names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A row of the table of limits: the constants that it names are in its modules, and what it says
/// is measured is.
#[test]
fn limits_of_architecture_exist_and_are_measured() {
    let tree = tree();
    let find = |path: &str| tree.iter().find(|source| source.path == path);
    let page = find("ARCHITECTURE.md").expect("ARCHITECTURE.md");
    let measured = &find("benches/worst_case.rs").expect("benchmarks").text;
    let is_measured = |name: &str| {
        let last = name.rsplit(": ").next().unwrap_or_default();
        find(name).is_some()
            || measured.contains(&format!("\"{name}\""))
            || measured.contains(&format!("\"{last}\""))
    };
    let (_, table) = page.text.split_once("| input | limit |").expect("limits");
    let mut wrong = Vec::new();
    for row in table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [input, limits, modules, _, benchmarks] = cells[..] else {
            wrong.push(format!("{row}: not five cells"));
            continue;
        };
        let paths: Vec<String> = quoted(modules)
            .flat_map(|path| alternatives(path.split("::").next().unwrap_or_default()))
            .collect();
        let is_there = |name: &str| {
            let in_module = |source: &&Source| {
                let path = source.path.strip_prefix("src/").unwrap_or_default();
                paths.iter().any(|module| path.starts_with(module.as_str()))
            };
            tree.iter()
                .filter(in_module)
                .any(|source| source.text.contains(name))
        };
        let is_constant = |name: &&str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        for name in quoted(limits)
            .filter(is_constant)
            .filter(|name| !is_there(name))
        {
            wrong.push(format!("{input}: {name} is not in {modules}"));
        }
        for name in quoted(benchmarks).filter(|name| !is_measured(name)) {
            wrong.push(format!("{input}: {name} is not measured"));
        }
    }
    check(
        "the limits of ARCHITECTURE.md exist and are measured",
        wrong,
    );
}

#[test]
fn registry_does_not_use_admission() {
    let mut wrong = Vec::new();
    for source in tree()
        .iter()
        .filter(|source| source.module() == Some("registry"))
    {
        let used = uses(&without_tests(&code_of(&source.text)), "crate");
        wrong.extend(
            used.iter()
                .filter(|(name, _)| name == "admission")
                .map(|(_, line)| format!("{}:{line}", source.path)),
        );
    }
    check(
        "`registry` does not use `admission`: the handlers pass what was admitted",
        wrong,
    );
}

#[test]
fn only_main_the_library_commands_and_tests_use_the_server() {
    let mut wrong = Vec::new();
    for source in tree().iter().filter(|source| {
        source.is_rust()
            && !source.is_test()
            && !matches!(source.path.as_str(), "src/main.rs" | "src/lib.rs")
    }) {
        if matches!(source.module(), Some("server" | "library" | "commands")) {
            continue;
        }
        let code = without_tests(&code_of(&source.text));
        let used = uses(&code, "crate")
            .into_iter()
            .chain(uses(&code, "keelson"));
        wrong.extend(
            used.filter(|(name, _)| name == "server")
                .map(|(_, line)| format!("{}:{line}", source.path)),
        );
    }
    check(
        "nothing but main.rs, lib.rs, `library`, `commands` and tests uses `server`",
        wrong,
    );
}

#[test]
fn every_file_opens_with_what_it_knows() {
    let tree = tree();
    let silent = tree
        .iter()
        .filter(|source| source.is_rust() && !source.text.starts_with("//! "));
    check(
        "every .rs file opens with a `//!` line",
        silent.map(|source| source.path.clone()).collect(),
    );
}

#[test]
fn comments_are_narrow() {
    let mut wrong = Vec::new();
    for source in tree().iter().filter(|source| source.is_rust()) {
        for (number, line) in source.text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS {
                wrong.push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    check(
        &format!("no comment reaches beyond column {COMMENT_COLUMNS}"),
        wrong,
    );
}

#[test]
fn documentation_opens_with_a_noun_or_a_verb() {
    let tree = tree();
    let wrong = tree
        .iter()
        .filter(|source| source.is_rust())
        .flat_map(|source| {
            questions(&source.text)
                .into_iter()
                .map(|line| format!("{}:{line}", source.path))
        });
    check(
        "no documentation opens with an interrogative",
        wrong.collect(),
    );
}

#[test]
fn public_functions_document_their_errors() {
    let mut wrong = Vec::new();
    for source in tree()
        .iter()
        .filter(|source| source.in_src() && !source.is_test())
    {
        for (name, line) in silent_failures(&source.text) {
            wrong.push(format!("{}:{line}: `{name}`", source.path));
        }
    }
    check("a public function that can fail has `# Errors`", wrong);
}

#[test]
fn files_are_short() {
    let mut wrong = Vec::new();
    for source in tree()
        .iter()
        .filter(|source| source.in_src() && !source.is_test())
    {
        let lines = lines_without_tests(&code_of(&source.text));
        if lines > FILE_LINES {
            wrong.push(format!("{}: {lines} lines", source.path));
        }
    }
    check(
        &format!("no file has over {FILE_LINES} lines, tests not counted"),
        wrong,
    );
}

#[test]
fn functions_are_short() {
    let mut wrong = Vec::new();
    for source in tree()
        .iter()
        .filter(|source| source.is_rust() && !source.is_test())
    {
        for (name, line, lines) in functions(&without_tests(&code_of(&source.text))) {
            if lines > FUNCTION_LINES {
                wrong.push(format!(
                    "{}:{line}: `{name}` has {lines} lines",
                    source.path
                ));
            }
        }
    }
    check(
        &format!("no function has over {FUNCTION_LINES} lines"),
        wrong,
    );
}

#[test]
fn no_file_is_named_for_having_no_subject() {
    let tree = tree();
    let vague = |path: &str| {
        matches!(
            path.rsplit('/').next(),
            Some("utils.rs" | "util.rs" | "helpers.rs" | "misc.rs")
        )
    };
    check(
        "a file is named for what it knows",
        tree.iter()
            .filter(|source| vague(&source.path))
            .map(|source| source.path.clone())
            .collect(),
    );
}

#[test]
fn nothing_names_a_place_outside_the_project() {
    let outside = OUTSIDE.map(|(head, tail)| format!("{head}{tail}"));
    let mut wrong = Vec::new();
    for source in tree() {
        for (number, line) in source.text.lines().enumerate() {
            if outside.iter().any(|place| line.contains(place)) {
                wrong.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    check("the project stands alone", wrong);
}

/// The checks can fail: each sees what it is there to see, and only that.
mod sees {
    use super::*;

    #[test]
    fn code_without_comments_and_literals() {
        let cases = [
            ("a // {\n}", "a }"),
            ("a /* { /* } */ { */ b", "a b"),
            (r#"x("}\"{", '{', 'a', '\'')"#, "x( , , , )"),
            ("f(r#\"{ \"} \"#, r\"{\", br\"{\")", "f( , , b )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("for r in rows", "for r in rows"),
        ];
        for (text, code) in cases {
            let spaced: Vec<&str> = code.split(' ').collect();
            assert_eq!(
                code_of(text).split_whitespace().collect::<Vec<_>>(),
                spaced,
                "{text}"
            );
        }
    }

    #[test]
    fn functions_with_their_lengths() {
        let text = "trait T {\n    fn declared(&self) -> [u8; 2];\n}\nfn long(x: [u8; 4]) {\n    if x {\n    }\n}\nfn short() {}\n";
        let found = functions(&code_of(text));
        assert_eq!(
            found,
            [("long".to_owned(), 4, 4), ("short".to_owned(), 8, 1)]
        );
    }

    #[test]
    fn documentation_that_opens_with_a_question() {
        let text =
            "//! What it is.\n/// A line.\n/// Where it goes on.\nfn a() {}\n    /// Whether b.\n";
        assert_eq!(questions(text), [1, 5]);
    }

    #[test]
    fn public_functions_without_errors() {
        let text = "/// A.\n///\n/// # Errors\n/// None.\n#[inline]\npub fn a() -> Result<u8> {}\n/// B.\npub async fn b<T>(\n    f: impl Fn() -> T,\n) -> io::Result<u8> {}\nfn c() -> Result<u8> {}\npub fn d() -> Option<Result<u8>> {}\n";
        assert_eq!(silent_failures(text), [("b".to_owned(), 8)]);
    }

    #[test]
    fn the_modules_that_are_used() {
        let text = "use crate::{meta::{A, B}, schema, codec::C};\nlet x = crate::storage::after(k); // crate::server\nmy_crate::auth";
        let names: Vec<(String, usize)> = uses(&code_of(text), "crate");
        let want = [("meta", 1), ("schema", 1), ("codec", 1), ("storage", 2)]
            .map(|(name, line)| (name.to_owned(), line));
        assert_eq!(names, want);
    }

    #[test]
    fn paths_from_the_root_of_the_crate() {
        let text = "use super::super::{x::Y as Z, z};\nuse crate::{a::{self, b::C}, D};\nself::e::f::<T>()";
        let found: Vec<(String, usize)> = paths(text, &["m", "n", "o"])
            .into_iter()
            .map(|(path, line)| (path.join("/"), line))
            .collect();
        let want = [
            ("a", 2),
            ("a/b/C", 2),
            ("D", 2),
            ("m/x/Y", 1),
            ("m/z", 1),
            ("m/n/o/e/f", 3),
        ];
        assert_eq!(found, want.map(|(path, line)| (path.to_owned(), line)));
        let parts = ["a", "b"].map(str::to_owned);
        let exported = exports("pub use a::{X, y::Z};\nuse b::W;", &parts);
        let names: Vec<_> = exported.keys().map(String::as_str).collect();
        assert_eq!(names, ["X", "Z"]);
    }

    #[test]
    fn circles_and_what_leads_to_them() {
        let uses = [(0, 1), (1, 2), (2, 1), (2, 3), (4, 4)].map(|(from, to)| Use {
            from,
            to,
            told: format!("{from}{to}"),
        });
        assert_eq!(circular(uses.into()), ["12", "21"]);
    }

    #[test]
    fn lines_that_are_not_tests() {
        let text =
            "//! x\nfn a() {\n}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        assert_eq!(lines_without_tests(&code_of(text)), 4);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 2);
        let names: BTreeSet<String> = functions(&without_tests(&code_of(text)))
            .into_iter()
            .map(|(name, _, _)| name)
            .collect();
        assert_eq!(names, BTreeSet::from(["a".to_owned(), "c".to_owned()]));
    }
}
