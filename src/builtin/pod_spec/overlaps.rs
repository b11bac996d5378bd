//! Files of one volume that would lie in each other's way.

use std::rc::Rc;

use crate::meta::Value;
use crate::meta::go;
use crate::registry::validation::Fields;

/// A file of a volume, and where its content comes from (empty where the volume has one source).
struct File<'a> {
    path: &'a str,
    source: Rc<str>,
}

/// The maximum number of files of one volume that are compared with each other.
const MAX_FILES: usize = 2_000;

impl File<'_> {
    fn shown(&self) -> String {
        let path = go::quote(self.path);
        if self.source.is_empty() {
            path
        } else {
            format!("{path} ({})", self.source)
        }
    }

    /// Reports whether one is the other, or a directory of it.
    fn overlaps(&self, other: &File) -> bool {
        let (a, b) = (self.path, other.path);
        let below = |path: &str, folder: &str| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !a.is_empty() && !b.is_empty() && (below(a, b) || below(b, a))
    }
}

/// Warns of files of one volume with the same path, and of files where others need a folder.
pub fn overlapping_paths(warnings: &mut Vec<String>, volumes: &[Value]) {
    for volume in volumes {
        let name = go::quote(volume.str("name"));
        let sources = [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ];
        for (key, title, member) in sources {
            let Some(source) = volume.map(key) else {
                continue;
            };
            let title = if member.is_empty() {
                title.to_owned()
            } else {
                format!("{title} {}", go::quote(source.str(member)))
            };
            let mut files = Vec::new();
            for item in source.list("items") {
                add(
                    warnings,
                    &name,
                    &title,
                    &mut files,
                    File {
                        path: item.str("path"),
                        source: "".into(),
                    },
                );
            }
        }
        let Some(projected) = volume.map("projected") else {
            continue;
        };
        let mut files = Vec::new();
        for source in projected.list("sources") {
            if source
                .as_object()
                .is_none_or(|source| source.values().all(Value::is_null))
            {
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
                continue;
            }
            for file in projected_files(source) {
                add(warnings, &name, "Projected", &mut files, file);
            }
        }
    }
}

fn add<'a>(
    warnings: &mut Vec<String>,
    volume: &str,
    title: &str,
    files: &mut Vec<File<'a>>,
    mut file: File<'a>,
) {
    if files.len() >= MAX_FILES {
        return;
    }
    file.path = file.path.trim_end_matches('/');
    for other in files.iter().filter(|other| file.overlaps(other)) {
        if is_full(warnings) {
            break;
        }
        warnings.push(format!(
            "volume {volume} ({title}): overlapping paths: {} with {}",
            file.shown(),
            other.shown()
        ));
    }
    files.push(file);
}

/// The files of one source of a projected volume. Only the first kind that it has counts.
fn projected_files(source: &Value) -> Vec<File<'_>> {
    let named = [("configMap", "ConfigMap"), ("secret", "Secret")];
    for (key, title) in named {
        if let Some(part) = source.map(key).filter(|part| part.field("items").is_some()) {
            let title: Rc<str> = format!("{title} {}", go::quote(part.str("name"))).into();
            return part
                .list("items")
                .iter()
                .map(|item| File {
                    path: item.str("path"),
                    source: title.clone(),
                })
                .collect();
        }
    }
    if let Some(part) = source
        .map("downwardAPI")
        .filter(|part| part.field("items").is_some())
    {
        return part
            .list("items")
            .iter()
            .map(|item| File {
                path: item.str("path"),
                source: "DownwardAPI".into(),
            })
            .collect();
    }
    if let Some(part) = source.map("serviceAccountToken") {
        return vec![File {
            path: part.str("path"),
            source: "ServiceAccountToken".into(),
        }];
    }
    if let Some(part) = source.map("clusterTrustBundle") {
        let name = part
            .opt_str("name")
            .unwrap_or_else(|| part.str("signerName"));
        return vec![File {
            path: part.str("path"),
            source: format!("ClusterTrustBundle {}", go::quote(name)).into(),
        }];
    }
    let Some(part) = source.map("podCertificate") else {
        return Vec::new();
    };
    [
        ("certificateChainPath", "chain"),
        ("keyPath", "key"),
        ("credentialBundlePath", "credential bundle"),
    ]
    .into_iter()
    .filter(|(key, _)| !part.str(key).is_empty())
    .map(|(key, title)| File {
        path: part.str(key),
        source: format!("PodCertificate {title}").into(),
    })
    .collect()
}

/// The bytes of warnings about one pod after which no more are looked for: many more than a
/// response may have.
const MAX_WARNING_BYTES: usize = 64 * 1024;

/// Reports whether there are more warnings already than a response carries.
pub fn is_full(warnings: &[String]) -> bool {
    warnings.iter().map(String::len).sum::<usize>() >= MAX_WARNING_BYTES
}
