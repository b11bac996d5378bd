//! Features of etcd that depend on its version.

/// The first versions of the minor ones before 3.6 that report the progress of watches reliably
/// (apiserver `storage/feature`, of kubernetes#123192): older ones may report that everything up to
/// a revision has been told while some of it is on its way.
const RELIABLE_3_4: [u32; 3] = [3, 4, 31];
const RELIABLE_3_5: [u32; 3] = [3, 5, 13];

/// Reports whether an etcd of this version reports the progress of its watches reliably; one that
/// does not report its version does not.
pub fn has_reliable_progress(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<u32> = core
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    let Ok(version) = <[u32; 3]>::try_from(parts) else {
        return false;
    };
    version >= RELIABLE_3_5 || (version >= RELIABLE_3_4 && version < [3, 5, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_not_relied_on() {
        for (version, reliable) in [
            ("3.3.99", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.4.100", true),
            ("3.5.0", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("3.6.16", true),
            ("4.0.0", true),
            ("", false),
            ("new", false),
            ("3.6", false),
        ] {
            assert_eq!(has_reliable_progress(version), reliable, "{version}");
        }
    }
}
