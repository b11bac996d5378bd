//! Takes the descriptions of types and fields out of the source of `k8s-openapi`, whose doc
//! comments are those of the API.

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// The folder of the crate for the version of the API that is served.
const FOLDER: &str = "src/v1_36";

/// Writes `descriptions.json.gz`: for each OpenAPI name the type's text and its fields' texts.
/// Tells the crate a fingerprint of this and of `descriptors`, which together make up the OpenAPI
/// documents.
pub fn write(out: &Path, descriptors: &[u8]) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build/descriptions.rs");
    println!("cargo:rerun-if-changed=Cargo.lock");
    let types = source()
        .and_then(|folder| types(&folder.join(FOLDER)))
        .unwrap_or_else(|error| {
            println!(
                "cargo:warning=the API is served without descriptions, `cargo fetch` helps: {error}"
            );
            BTreeMap::new()
        });
    let table = serde_json::to_vec(&types)?;
    let mut hasher = DefaultHasher::new();
    (&table, descriptors).hash(&mut hasher);
    println!(
        "cargo:rustc-env=KEELSON_API_FINGERPRINT={:016x}",
        hasher.finish()
    );
    let mut encoder = GzEncoder::new(
        fs::File::create(out.join("descriptions.json.gz"))?,
        Compression::best(),
    );
    io::Write::write_all(&mut encoder, &table)?;
    encoder.finish()?;
    Ok(())
}

fn types(folder: &Path) -> Result<BTreeMap<String, Value>, Box<dyn Error>> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    let mut types = BTreeMap::new();
    for file in files {
        types.extend(read(&fs::read_to_string(file)?));
    }
    if types.is_empty() {
        Err("k8s-openapi has no types where they are expected".into())
    } else {
        Ok(types)
    }
}

/// The folder in which cargo keeps the source of k8s-openapi, which is a dependency of the tests:
/// nothing of it is compiled here. A build that has not fetched the dependencies of the tests lets
/// cargo do so.
fn source() -> Result<PathBuf, Box<dyn Error>> {
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&["--locked"]))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|one| one["name"] == "k8s-openapi")
        .find_map(|one| one["manifest_path"].as_str());
    let folder = manifest.and_then(|path| Path::new(path).parent());
    Ok(folder.ok_or("cargo does not know k8s-openapi")?.to_owned())
}

fn metadata(options: &[&str]) -> Result<Value, Box<dyn Error>> {
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let mut cargo = Command::new(env::var("CARGO")?);
    let answer = cargo
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .args(options)
        .output()?;
    if !answer.status.success() {
        return Err(String::from_utf8_lossy(&answer.stderr).into());
    }
    Ok(serde_json::from_slice(&answer.stdout)?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The type that a source file is about. A file says in its first comment which definition it is
/// made from; doc comments stand before `pub struct` (or `enum`) and before each field; the names
/// in JSON stand in its deserializer.
fn read(text: &str) -> Option<(String, Value)> {
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("// Generated from definition "))?;
    let json_names: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix('"')?
                .split_once("\" => Field::Key_")
        })
        .map(|(json, key)| (key.trim_end_matches(','), json))
        .collect();
    let mut about = None;
    let mut fields = BTreeMap::new();
    let mut comment = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(more) = line.strip_prefix("///") {
            comment.push_str(if comment.is_empty() { "" } else { "\n" });
            comment.push_str(more.strip_prefix(' ').unwrap_or(more));
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        let text = plain(&std::mem::take(&mut comment));
        if about.is_none() {
            if line.starts_with("pub struct ") || line.starts_with("pub enum ") {
                about = Some(text);
                if !line.ends_with('{') || line.starts_with("pub enum ") {
                    break;
                }
            }
        } else if line == "}" {
            break;
        } else if let Some((field, _)) = line
            .strip_prefix("pub ")
            .and_then(|field| field.split_once(':'))
            && let Some(json) = json_names.get(field.trim_start_matches("r#"))
            && !text.is_empty()
        {
            fields.insert(*json, text);
        }
    }
    about.map(|about| (name.to_owned(), json!([about, fields])))
}

/// Takes back what was done to the text so that rustdoc does not read it as markup.
fn plain(comment: &str) -> String {
    let mut out = String::with_capacity(comment.len());
    let mut letters = comment.trim_end().chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' || !letters.peek().is_some_and(|next| "<>[]*_`".contains(*next)) {
            out.push(letter);
        }
    }
    out
}
