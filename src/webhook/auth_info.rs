//! The credentials for webhooks, by host: the users of a kubeconfig file (apiserver
//! `util/webhook/authentication.go`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::tls::ClientCert;
use crate::codec::yaml;
use crate::meta::{Value, array_at, go, map_at, str_at, value_at};

/// The users of a kubeconfig file. Their names are the hosts that they are for, with patterns such
/// as `*.example.com` and `*`.
#[derive(Clone, Debug, Default)]
pub struct AuthInfos {
    users: HashMap<String, AuthInfo>,
    /// The user of the current context.
    current: Option<String>,
}

/// The credentials of a user.
#[derive(Clone, Default)]
pub struct AuthInfo {
    token: String,
    token_file: Option<PathBuf>,
    /// A name and a password.
    basic: Option<String>,
    cert: Option<(PemSource, PemSource)>,
    /// The headers of impersonation.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Shows no secrets.
impl std::fmt::Debug for AuthInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthInfo").finish_non_exhaustive()
    }
}

/// PEM text, or the file that has it.
#[derive(Clone)]
pub enum PemSource {
    Data(Vec<u8>),
    File(PathBuf),
}

impl PemSource {
    /// Reads `<field>-data`, or else the file that `<field>` names.
    pub fn of(user: &Value, field: &str, folder: &Path) -> Option<Self> {
        match (
            str_at(user, &format!("/{field}-data")),
            str_at(user, &format!("/{field}")),
        ) {
            ("", "") => None,
            ("", file) => Some(Self::File(folder.join(file))),
            (data, _) => Some(Self::Data(go::base64::decode(data))),
        }
    }

    /// # Errors
    /// A file that cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(bytes) => Ok(bytes.clone()),
            Self::File(path) => {
                fs::read(path).map_err(|why| format!("open {}: {why}", path.display()))
            }
        }
    }
}

/// Reads a kubeconfig file as a tree.
///
/// # Errors
/// A file that cannot be read or is malformed.
pub fn load(path: &Path) -> Result<Value, String> {
    parse(&fs::read(path).map_err(|why| why.to_string())?)
}

/// Reads the text of a kubeconfig file as a tree.
///
/// # Errors
/// It is malformed.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    match yaml::to_value(bytes) {
        Ok((value, issues)) if issues.is_empty() => Ok(value),
        Ok((_, issues)) => Err(issues.join("; ")),
        Err(why) => Err(why.to_string()),
    }
}

impl AuthInfos {
    /// Reads a kubeconfig file.
    ///
    /// # Errors
    /// A file that cannot be read or understood, and credentials that this client does not know.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("{}: {why}", path.display());
        let config = load(path).map_err(wrong)?;
        if str_at(&config, "/kind") != "Config" {
            return Err(wrong(
                "expected a kubeconfig file of kind Config".to_owned(),
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut users = HashMap::new();
        for user in array_at(&config, "/users") {
            let name = str_at(user, "/name");
            let none = Value::Null;
            let info = AuthInfo::read(value_at(user, "/user").unwrap_or(&none), folder)
                .map_err(|why| wrong(format!("user {}: {why}", go::quote(name))))?;
            users.insert(name.to_owned(), info);
        }
        let context = str_at(&config, "/current-context");
        let current = array_at(&config, "/contexts")
            .iter()
            .find(|one| !context.is_empty() && str_at(one, "/name") == context)
            .map(|one| str_at(one, "/context/user").to_owned());
        Ok(Self { users, current })
    }

    /// Returns the credentials for a host with its port; `None` for none.
    pub fn of(&self, host: &str) -> Option<&AuthInfo> {
        let named = |host: &str| {
            let mut suffixes = host.match_indices('.').map(|(at, _)| &host[at..]);
            self.users
                .get(host)
                .or_else(|| suffixes.find_map(|suffix| self.users.get(&format!("*{suffix}"))))
        };
        let current = || self.current.as_ref().and_then(|name| self.users.get(name));
        named(host)
            .or_else(|| host.strip_suffix(":443").and_then(named))
            .or_else(|| self.users.get("*"))
            .or_else(current)
    }
}

impl AuthInfo {
    /// Reads a user of a kubeconfig file in `folder`.
    ///
    /// # Errors
    /// Credentials that this client does not know.
    pub fn read(user: &Value, folder: &Path) -> Result<Self, String> {
        for unsupported in ["exec", "auth-provider"] {
            if value_at(user, &format!("/{unsupported}")).is_some_and(|value| !value.is_null()) {
                return Err(format!("{unsupported} is not supported"));
            }
        }
        let text = |field: &str| str_at(user, &format!("/{field}"));
        let file = text("tokenFile");
        let (name, password) = (text("username"), text("password"));
        let cert = PemSource::of(user, "client-certificate", folder);
        let key = PemSource::of(user, "client-key", folder);
        Ok(Self {
            token: text("token").to_owned(),
            token_file: (!file.is_empty()).then(|| folder.join(file)),
            basic: (!name.is_empty() || !password.is_empty()).then(|| format!("{name}:{password}")),
            cert: match (cert, key) {
                (None, None) => None,
                (Some(cert), Some(key)) => Some((cert, key)),
                _ => return Err("a client certificate and its key go together".to_owned()),
            },
            headers: impersonation(user)?,
        })
    }

    #[cfg(test)]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the client certificate, as its files are now.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn client_cert(&self) -> Result<Option<ClientCert>, String> {
        let Some((chain, key)) = &self.cert else {
            return Ok(None);
        };
        Ok(Some(ClientCert {
            chain: chain.read()?,
            key: key.read()?,
        }))
    }

    /// Adds what a request says of its sender. A token file is read for each request, so that a
    /// renewed token is used at once.
    ///
    /// # Errors
    /// A token file that cannot be read, or a token that is none.
    pub async fn authorize(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        let token = match &self.token_file {
            None => self.token.clone(),
            Some(path) => {
                let read = tokio::fs::read_to_string(path).await;
                let text = read.map_err(|why| format!("open {}: {why}", path.display()))?;
                text.trim().to_owned()
            }
        };
        let credentials = match &self.basic {
            _ if !token.is_empty() => format!("Bearer {token}"),
            Some(basic) => format!("Basic {}", go::base64::encode(basic.as_bytes())),
            None => return Ok(()),
        };
        let mut value = HeaderValue::try_from(credentials)
            .map_err(|_| "net/http: invalid header field value for \"Authorization\"")?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok(())
    }
}

/// The headers of the user that a user acts as.
fn impersonation(user: &Value) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let name = str_at(user, "/as");
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let mut named = vec![("Impersonate-User".to_owned(), name)];
    let uid = str_at(user, "/as-uid");
    if !uid.is_empty() {
        named.push(("Impersonate-Uid".to_owned(), uid));
    }
    let texts = |values: &'_ [Value]| -> Vec<String> {
        values
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let groups = texts(array_at(user, "/as-groups"));
    named.extend(
        groups
            .iter()
            .map(|group| ("Impersonate-Group".to_owned(), group.as_str())),
    );
    let mut extra = Vec::new();
    for (key, values) in map_at(user, "/as-user-extra")
        .into_iter()
        .flat_map(|map| map.iter())
    {
        let values = values.as_array().map_or(&[][..], Vec::as_slice);
        extra.extend(
            texts(values)
                .into_iter()
                .map(|value| (format!("Impersonate-Extra-{key}"), value)),
        );
    }
    named.extend(
        extra
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str())),
    );
    named
        .into_iter()
        .map(|(name, value)| {
            let header = HeaderName::try_from(&name)
                .ok()
                .zip(HeaderValue::try_from(value).ok());
            header.ok_or_else(|| format!("{name}: {} cannot be sent", go::quote(value)))
        })
        .collect()
}
