//! Static tokens: a CSV file of token, user, UID and groups (`--token-auth-file`).

use std::collections::HashMap;

use super::cache::{self, Key};
use crate::auth::User;

/// The tokens of a file. They are known by their hashes, so that how long a comparison takes tells
/// nothing of them.
#[derive(Clone, Debug, Default)]
pub struct StaticTokens(HashMap<Key, User>);

/// The reason a token file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    #[error("token file must have at least 3 columns (token, user name, user uid), found {0}")]
    Columns(usize),
    #[error("a quote is not closed")]
    Quote,
}

impl StaticTokens {
    /// Reads a CSV file. Records without a token are passed over; of two with the same token the
    /// last counts.
    ///
    /// # Errors
    /// A record with too few columns, or broken quotes.
    pub fn from_csv(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        for record in records(text)? {
            let columns = record.len();
            let mut fields = record.into_iter();
            let (Some(token), Some(name), Some(uid)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(TokenFileError::Columns(columns));
            };
            if token.is_empty() {
                tracing::warn!("the token file has a record without a token");
                continue;
            }
            let groups = fields
                .next()
                .map(|groups| groups.split(',').map(str::to_owned).collect())
                .unwrap_or_default();
            if tokens
                .insert(
                    cache::key(&token, &[]),
                    User {
                        name,
                        uid,
                        groups,
                        ..User::default()
                    },
                )
                .is_some()
            {
                tracing::warn!("the token file has a token twice");
            }
        }
        Ok(Self(tokens))
    }

    /// The user of a token.
    pub fn authenticate(&self, token: &str) -> Option<&User> {
        self.0.get(&cache::key(token, &[]))
    }
}

/// The records of a CSV text (RFC 4180): fields in double quotes may hold commas, line ends and
/// doubled quotes.
fn records(text: &str) -> Result<Vec<Vec<String>>, TokenFileError> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted && letters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            letter => field.push(letter),
        }
    }
    if quoted {
        return Err(TokenFileError::Quote);
    }
    record.push(field);
    records.push(record);
    // Empty lines are no records.
    records.retain(|record| record.len() > 1 || record.iter().any(|field| !field.is_empty()));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_is_read_as_go_reads_csv() {
        let tokens = StaticTokens::from_csv(
            "t1,admin,uid,\"system:masters,ops\"\r\n\nt2,\"a\"\"b\",\n,x,y\n",
        )
        .expect("a file");
        let admin = tokens.authenticate("t1").expect("known");
        assert_eq!((admin.name.as_str(), admin.uid.as_str()), ("admin", "uid"));
        assert_eq!(admin.groups, ["system:masters", "ops"]);
        assert_eq!(
            tokens.authenticate("t2").map(|user| user.name.as_str()),
            Some("a\"b")
        );
        assert!(tokens.authenticate("").is_none() && tokens.authenticate("t").is_none());
    }

    #[test]
    fn token_file_with_a_short_record_is_an_error() {
        assert_eq!(
            StaticTokens::from_csv("t,u\n").err(),
            Some(TokenFileError::Columns(2))
        );
        assert_eq!(
            StaticTokens::from_csv("t,\"u,i\n").err(),
            Some(TokenFileError::Quote)
        );
    }
}
