//! The options of a log (core `PodLogOptions`).

use crate::meta::options::{Query, parse_int};
use crate::meta::status::Result;
use crate::meta::time;
use crate::meta::{ErrorList, Gvk, Path, Status};

/// The time of an empty parameter (Go's zero time).
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// A parameter that must be a number in Go's syntax.
fn integer(query: &Query, key: &str) -> Result<Option<i64>> {
    query.get(key).map(parse_int).transpose()
}

/// The `sinceTime` of a query, to the second, as kubelets are told.
fn since_time(query: &Query) -> Result<Option<String>> {
    let read = |text: &str| match text {
        // Old clients wrote JSON (apimachinery `Time.UnmarshalQueryParameter`).
        "" | "null" => Ok(ZERO_TIME.to_owned()),
        text => time::parse(text).map(|time| time::format(time.seconds)),
    };
    let time = query.get("sinceTime").map(read).transpose();
    time.map_err(Status::bad_request)
}

/// The options of a log.
#[derive(Debug, Default)]
pub struct LogOptions {
    pub follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    /// To the second, as kubelets are told.
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    /// Takes any certificate of the kubelet.
    pub is_insecure: bool,
}

impl LogOptions {
    /// Reads the options for the log of a pod.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what breaks a rule.
    pub fn read(query: &Query, name: &str) -> Result<Self> {
        let flag = |key: &str| query.flag(key) == Some(true);
        let options = Self {
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            since_seconds: integer(query, "sinceSeconds")?,
            since_time: since_time(query)?,
            tail_lines: integer(query, "tailLines")?,
            limit_bytes: integer(query, "limitBytes")?,
            is_insecure: flag("insecureSkipTLSVerifyBackend"),
        };
        options.check(query, name)?;
        Ok(options)
    }

    /// The query of a request to a kubelet.
    pub fn to_query(&self) -> String {
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let flag = |flag: bool| flag.then(|| "true".to_owned());
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (key, value) in [
            ("follow", flag(self.follow)),
            ("limitBytes", number(self.limit_bytes)),
            ("previous", flag(self.previous)),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time.clone()),
            ("tailLines", number(self.tail_lines)),
            ("timestamps", flag(self.timestamps)),
        ] {
            if let Some(value) = value {
                query.append_pair(key, &value);
            }
        }
        query.finish()
    }

    /// Checks the rules (core/validation `ValidatePodLogOptions`).
    fn check(&self, query: &Query, name: &str) -> Result<()> {
        let (tail, limit, since) = (self.tail_lines, self.limit_bytes, self.since_seconds);
        let mut errors = ErrorList::new();
        if let Some(tail) = tail.filter(|tail| *tail < 0) {
            errors.invalid(
                &Path::new("tailLines"),
                tail,
                "must be greater than or equal to 0",
            );
        }
        if let Some(limit) = limit.filter(|limit| *limit < 1) {
            errors.invalid(&Path::new("limitBytes"), limit, "must be greater than 0");
        }
        match since {
            Some(_) if self.since_time.is_some() => {
                errors.forbidden(
                    &Path::new(""),
                    "at most one of `sinceTime` or `sinceSeconds` may be specified",
                );
            }
            Some(since) if since < 1 => {
                errors.invalid(&Path::new("sinceSeconds"), since, "must be greater than 0")
            }
            _ => {}
        }
        // The gate PodLogsQuerySplitStreams is off.
        if query.get("stream").is_some() {
            errors.forbidden(&Path::new("stream"), "may not be specified");
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid(
                &Gvk::new("", "", "PodLogOptions"),
                name,
                errors,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_options_are_checked() {
        let check = |query: &str| {
            let read = LogOptions::read(&Query::parse(query), "a");
            read.map_or_else(|status| status.message, |options| options.to_query())
        };
        assert_eq!(
            check("tailLines=3&limitBytes=1&sinceSeconds=1&follow=true&previous=0"),
            "follow=true&limitBytes=1&sinceSeconds=1&tailLines=3"
        );
        for (text, why) in [
            ("x", "invalid syntax"),
            ("", "invalid syntax"),
            ("9223372036854775808", "value out of range"),
        ] {
            let told = check(&format!("tailLines={text}"));
            let want = format!("strconv.ParseInt: parsing \"{text}\": {why}");
            assert_eq!(told, want);
        }
        for text in ["", "null"] {
            let asked = check(&format!("sinceTime={text}"));
            assert_eq!(asked, "sinceTime=0001-01-01T00%3A00%3A00Z");
        }
        assert_eq!(
            check("sinceTime=2020-01-01T01:00:00.5%2B01:00&timestamps=1"),
            "sinceTime=2020-01-01T00%3A00%3A00Z&timestamps=true"
        );
        assert_eq!(
            check("sinceTime=yesterday"),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\""
        );
        for (query, why) in [
            (
                "tailLines=-1",
                "tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "limitBytes=0",
                "limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                "sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z",
                "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=", "stream: Forbidden: may not be specified"),
            ("stream=All", "stream: Forbidden: may not be specified"),
            (
                "stream=Stdout&tailLines=1",
                "stream: Forbidden: may not be specified",
            ),
        ] {
            assert_eq!(
                check(query),
                format!("PodLogOptions \"a\" is invalid: {why}")
            );
        }
    }
}
