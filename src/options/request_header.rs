//! The flags of front proxies (apiserver `server/options/authentication.go`).

use std::path::PathBuf;

use super::flags::{FlagError, Flags};

/// The front proxy whose headers name users. Without a `client_ca` there is none.
#[derive(Clone, Debug, Default)]
pub struct RequestHeader {
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) allowed_names: Vec<String>,
    pub(crate) username_headers: Vec<String>,
    pub(crate) uid_headers: Vec<String>,
    pub(crate) group_headers: Vec<String>,
    pub(crate) extra_prefixes: Vec<String>,
}

impl RequestHeader {
    /// Returns the configuration of the flags.
    ///
    /// # Errors
    /// A name that is empty, and headers without the one that aggregated servers know.
    pub fn from_flags(flags: &Flags) -> Result<Self, FlagError> {
        let list = |name: &str, standard: &str| {
            let values = flags.list(name);
            if values.iter().any(|value| value.trim().is_empty()) {
                return Err(FlagError::new(format!("empty value in \"{name}\"")));
            }
            let is_standard = |value: &String| value.eq_ignore_ascii_case(standard);
            if !standard.is_empty() && !values.is_empty() && !values.iter().any(is_standard) {
                let why = "API aggregation will not work";
                let what = match name {
                    "requestheader-extra-headers-prefix" => "header prefix",
                    _ => "header",
                };
                let text = format!(
                    "--{name} is set without specifying the standard {standard} {what} - {why}"
                );
                match name {
                    "requestheader-uid-headers" => return Err(FlagError::new(text)),
                    _ => tracing::warn!("{text}"),
                }
            }
            Ok(values)
        };
        let client_ca = flags.text("requestheader-client-ca-file");
        Ok(Self {
            client_ca: (!client_ca.is_empty()).then(|| client_ca.into()),
            username_headers: list("requestheader-username-headers", "X-Remote-User")?,
            group_headers: list("requestheader-group-headers", "X-Remote-Group")?,
            extra_prefixes: list("requestheader-extra-headers-prefix", "X-Remote-Extra-")?,
            allowed_names: list("requestheader-allowed-names", "")?,
            uid_headers: list("requestheader-uid-headers", "X-Remote-Uid")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::{Command, parse};
    use super::*;

    fn read(arg: &str) -> Result<RequestHeader, FlagError> {
        match parse([arg.to_owned()])? {
            Command::Run(flags) => RequestHeader::from_flags(&flags),
            other => panic!("{arg} gave {other:?}"),
        }
    }

    #[test]
    fn names_must_be_names() {
        let read = |arg: &str| read(arg).map(|_| ()).map_err(|why| why.to_string());
        assert_eq!(
            read("--requestheader-uid-headers=X-Own,x-remote-uid"),
            Ok(())
        );
        assert_eq!(read("--requestheader-username-headers=X-Own"), Ok(()));
        assert_eq!(
            read("--requestheader-group-headers=a, "),
            Err(r#"empty value in "requestheader-group-headers""#.to_owned())
        );
        assert_eq!(
            read("--requestheader-uid-headers=X-Own"),
            Err("--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work".to_owned())
        );
    }
}
