//! The data directory (`--data-dir`): the embedded store, keys and the administrator's kubeconfig,
//! all readable by the owner only.

use std::path::Path;

use crate::base::files::{restrict_mode, restrict_own_dir};
use crate::storage::embedded;

/// The folder of certificates and keys that the server makes for itself.
pub const PKI: &str = "pki";
/// The kubeconfig that the server makes for its administrator.
pub const KUBECONFIG: &str = "admin.kubeconfig";

/// Removes permissions for others that an earlier version or a user may have left.
pub fn secure(folder: &Path) {
    restrict_own_dir(folder, &[embedded::FILE, PKI, KUBECONFIG]);
    restrict_mode(&folder.join(embedded::FILE));
    restrict_mode(&folder.join(KUBECONFIG));
    let pki = folder.join(PKI);
    restrict_mode(&pki);
    let keys = std::fs::read_dir(&pki)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    keys.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "key" || extension == "new")
    })
    .for_each(|path| restrict_mode(&path));
}
