//! A kubeconfig file as the description of one remote service: where it is, whom to trust there and
//! who calls (client-go `tools/clientcmd`).

use std::path::Path;

use super::auth_info::{self, AuthInfo, PemSource};
use crate::meta::{Value, array_at, go, str_at, value_at};

/// The remote service of the current context.
#[derive(Clone)]
pub struct KubeConfig {
    /// The URL, with its path.
    pub server: String,
    /// The name that the server's certificate must be for, where it is not the host's.
    pub server_name: Option<String>,
    pub ca: Option<PemSource>,
    /// Any certificate will do.
    pub insecure: bool,
    pub proxy: Option<String>,
    pub user: AuthInfo,
}

impl KubeConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read or understood, one without a server, and what this client cannot
    /// do.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("{}: {why}", path.display());
        let config = auth_info::load(path).map_err(wrong)?;
        Self::of(&config, path.parent().unwrap_or(Path::new(""))).map_err(wrong)
    }

    /// Reads the text of a file in `folder`.
    ///
    /// # Errors
    /// Those of [`KubeConfig::read`], but that there is no such file.
    pub fn parse(bytes: &[u8], folder: &Path) -> Result<Self, String> {
        Self::of(&auth_info::parse(bytes)?, folder)
    }

    fn of(config: &Value, folder: &Path) -> Result<Self, String> {
        let none = Value::Null;
        let kind = str_at(config, "/kind");
        if !config.is_object() || !matches!(kind, "" | "Config") {
            return Err("expected a kubeconfig file of kind Config".to_owned());
        }
        let name = str_at(config, "/current-context");
        let context = match name {
            "" => &none,
            name => named(config, "contexts", "context", name).ok_or_else(|| {
                format!("invalid configuration: [context was not found for specified context: {name}, cluster has no server defined]")
            })?,
        };
        let (cluster_name, user_name) = (str_at(context, "/cluster"), str_at(context, "/user"));
        let cluster = named(config, "clusters", "cluster", cluster_name);
        let cluster = cluster.unwrap_or(&none);
        let user = match named(config, "users", "user", user_name) {
            Some(user) => user,
            None if user_name.is_empty() => &none,
            None => {
                return Err(format!(
                    "invalid configuration: user {} was not found for context {}",
                    go::quote(user_name),
                    go::quote(name)
                ));
            }
        };
        let text = |field: &str| str_at(cluster, &format!("/{field}"));
        let server = text("server");
        if server.is_empty() {
            return Err(match cluster_name {
                "" => "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable".to_owned(),
                name => format!("invalid configuration: no server found for cluster {}", go::quote(name)),
            });
        }
        let insecure = value_at(cluster, "/insecure-skip-tls-verify");
        let insecure = insecure.and_then(Value::as_bool).unwrap_or(false);
        let ca = PemSource::of(cluster, "certificate-authority", folder);
        if insecure && ca.is_some() {
            let why = "specifying a root certificates file with the insecure flag is not allowed";
            return Err(why.to_owned());
        }
        let given = |field: &str| Some(text(field)).filter(|text| !text.is_empty());
        Ok(Self {
            server: absolute(server, ca.is_some() || insecure)?,
            server_name: given("tls-server-name").map(str::to_owned),
            ca,
            insecure,
            proxy: given("proxy-url").map(str::to_owned),
            user: AuthInfo::read(user, folder)
                .map_err(|why| format!("user {}: {why}", go::quote(user_name)))?,
        })
    }
}

/// The `field` of the item of a list that has a name.
fn named<'a>(config: &'a Value, list: &str, field: &str, name: &str) -> Option<&'a Value> {
    array_at(config, &format!("/{list}"))
        .iter()
        .find(|one| str_at(one, "/name") == name)
        .and_then(|one| value_at(one, &format!("/{field}")))
}

/// A server with its scheme: HTTP where none is given and nothing speaks of TLS (client-go
/// `rest.DefaultServerURL`).
fn absolute(server: &str, tls: bool) -> Result<String, String> {
    let full = match (server.contains("://"), tls) {
        (true, _) => server.to_owned(),
        (false, true) => format!("https://{server}"),
        (false, false) => format!("http://{server}"),
    };
    let parsed = go::url::parse_request_uri(&full)?;
    match parsed.scheme.as_str() {
        "http" | "https" if !parsed.host.is_empty() => Ok(full),
        _ => Err(format!(
            "host must be a URL or a host:port pair: {}",
            go::quote(server)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::yaml;

    fn read(text: &str) -> Result<KubeConfig, String> {
        let (value, _) = yaml::to_value(text.as_bytes()).expect("yaml");
        KubeConfig::of(&value, Path::new("/etc"))
    }

    #[test]
    fn the_current_context_says_where_and_who() {
        let found = read(
            "apiVersion: v1\nkind: Config\nclusters:\n- {name: other, cluster: {server: 'https://b'}}\n- name: c\n  cluster:\n    certificate-authority: ca.pem\n    server: https://a/authorize\n    tls-server-name: other\nusers:\n- name: u\n  user: {token: t}\ncurrent-context: w\ncontexts:\n- name: w\n  context: {cluster: c, user: u}\n",
        )
        .expect("a service");
        assert_eq!(found.server, "https://a/authorize");
        assert_eq!(found.server_name.as_deref(), Some("other"));
        assert_eq!(found.user.token(), "t");
        assert!(
            matches!(found.ca, Some(PemSource::File(path)) if path == Path::new("/etc/ca.pem"))
        );
    }

    #[test]
    fn what_names_no_service_is_refused() {
        let cluster = |fields: &str| {
            format!(
                "clusters: [{{name: c, cluster: {{{fields}}}}}]\ncurrent-context: w\ncontexts: [{{name: w, context: {{cluster: c}}}}]"
            )
        };
        let checks = [
            ("a: b".to_owned(), "no configuration has been provided"),
            ("kind: Pod".to_owned(), "expected a kubeconfig file"),
            (
                "current-context: w".to_owned(),
                "context was not found for specified context: w",
            ),
            (cluster(""), "no server found for cluster \"c\""),
            (cluster("server: 'ftp://a'"), "host must be a URL"),
            (
                cluster(
                    "server: 'https://a', insecure-skip-tls-verify: true, certificate-authority: x",
                ),
                "with the insecure flag is not allowed",
            ),
        ];
        for (text, want) in checks {
            let why = read(&text).err().unwrap_or_default();
            assert!(why.contains(want), "{text}: {why}");
        }
        let exec = "clusters: [{name: c, cluster: {server: 'https://a'}}]\nusers: [{name: u, user: {exec: {command: x}}}]\ncurrent-context: w\ncontexts: [{name: w, context: {cluster: c, user: u}}]";
        assert_eq!(
            read(exec).err().as_deref(),
            Some("user \"u\": exec is not supported")
        );
    }
}
