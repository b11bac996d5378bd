//! Compiles `proto/`, the IDL of the API, to the descriptor set that `schema::builtin` reads, and
//! `build/kms` and `build/externaljwt`, the interfaces of plugins, to Rust.

#[path = "build/descriptions.rs"]
mod descriptions;

use std::path::{Path, PathBuf};
use std::{env, error, fs, io};

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files = Vec::new();
    collect(Path::new("proto"), &mut files)?;
    files.sort();
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler
        .include_imports(false)
        .include_source_info(false)
        .open_files(files)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = compiler.encode_file_descriptor_set();
    fs::write(out.join("api.binpb"), &descriptors)?;
    descriptions::write(&out, &descriptors)?;
    plugins(
        "build/kms",
        &["v1beta1.proto", "v2.proto", "envelope.proto"],
    )?;
    plugins("build/externaljwt", &["v1.proto"])
}

/// Writes the client and the server of a kind of plugins.
fn plugins(folder: &str, files: &[&str]) -> Result<(), Box<dyn error::Error>> {
    println!("cargo:rerun-if-changed={folder}");
    let mut compiler = protox::Compiler::new([folder])?;
    compiler.open_files(files)?;
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .build_transport(false)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    Ok(())
}
