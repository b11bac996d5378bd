//! The names of functions, from the program's symbols or the file of them beside it.

use std::ffi::c_void;

/// A place in the sources.
#[derive(Debug, Default)]
pub struct Symbol {
    pub function: String,
    pub file: String,
    pub line: u32,
}

/// Returns the functions at an address: the innermost of those that were inlined comes first. None
/// where the program has been stripped of its symbols.
pub fn resolve(address: u64) -> Vec<Symbol> {
    let mut found = Vec::new();
    let Ok(address) = usize::try_from(address) else {
        return found;
    };
    backtrace::resolve(
        std::ptr::without_provenance_mut::<c_void>(address),
        |symbol| {
            let Some(name) = symbol.name() else { return };
            found.push(Symbol {
                // Without the hash of the mangled name.
                function: format!("{name:#}"),
                file: symbol
                    .filename()
                    .map_or_else(String::new, |file| file.display().to_string()),
                line: symbol.lineno().unwrap_or(0),
            });
        },
    );
    found
}

/// The names of addresses as pprof asks for them.
pub fn text(addresses: &[u64]) -> String {
    let mut text = "num_symbols: 1\n".to_owned();
    for address in addresses {
        if let Some(symbol) = resolve(*address).last() {
            text.push_str(&format!("{address:#x} {}\n", symbol.function));
        }
    }
    text
}
