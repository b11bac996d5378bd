//! A cache of validated tokens, which saves signature checks and look-ups on a client's next
//! requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::TokenUser;

/// The time for which a token counts as valid without being checked again (apiserver's
/// `TokenSuccessCacheTTL`).
pub const TTL: Duration = Duration::from_secs(10);
/// The maximum number of tokens in the cache.
pub const MAX_TOKENS: usize = 16 * 1024;

/// The bytes of a user that is kept. A larger one is looked up for each request: who it is may come
/// from another server.
pub const MAX_USER_BYTES: usize = 16 * 1024;
/// The bytes of all users that are kept.
const MAX_BYTES: usize = 64 << 20;

/// A hash of the token and the audiences, so that tokens do not lie around in memory.
pub type Key = [u8; digest::SHA256_OUTPUT_LEN];

struct Entry {
    until: Timestamp,
    user: Arc<TokenUser>,
}

/// The valid tokens of the last moments.
#[derive(Default)]
pub struct TokenCache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<Key, Entry>,
    bytes: usize,
}

/// The key of a token that is asked for some audiences.
pub fn key(token: &str, audiences: &[String]) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
        // Lengths tell "ab" and "c" from "a" and "bc".
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut key = Key::default();
    key.copy_from_slice(context.finish().as_ref());
    key
}

impl TokenCache {
    pub fn get(&self, key: &Key, now: Timestamp) -> Option<Arc<TokenUser>> {
        let entries = self.0.lock();
        let entry = entries.by_key.get(key);
        entry
            .filter(|entry| now < entry.until)
            .map(|entry| entry.user.clone())
    }

    pub fn put(&self, key: Key, user: Arc<TokenUser>, now: Timestamp) {
        let bytes = user.user.bytes();
        if bytes > MAX_USER_BYTES {
            return;
        }
        let mut entries = self.0.lock();
        if !entries.have_room(bytes) {
            entries.retain(|entry| now < entry.until);
            if !entries.have_room(bytes) {
                entries.retain(|_| false);
            }
        }
        let until = now.checked_add(TTL).unwrap_or(now);
        entries.bytes += bytes;
        if let Some(before) = entries.by_key.insert(key, Entry { until, user }) {
            entries.bytes -= before.user.user.bytes();
        }
    }
}

impl Entries {
    fn have_room(&self, bytes: usize) -> bool {
        self.by_key.len() < MAX_TOKENS && self.bytes + bytes <= MAX_BYTES
    }

    fn retain(&mut self, keeps: impl Fn(&Entry) -> bool) {
        self.by_key.retain(|_, entry| keeps(entry));
        let kept = self.by_key.values();
        self.bytes = kept.map(|entry| entry.user.user.bytes()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    #[test]
    fn token_cache_entries_expire() {
        let (cache, start) = (TokenCache::default(), Timestamp::UNIX_EPOCH);
        let user = Arc::new(TokenUser::default());
        let key = key("t", &["a".to_owned()]);
        cache.put(key, user, start);
        let after = |seconds| {
            start
                .checked_add(Duration::from_secs(seconds))
                .expect("a time")
        };
        assert!(cache.get(&key, after(9)).is_some());
        assert!(cache.get(&key, after(10)).is_none());
        assert_ne!(key, super::key("ta", &[]));
    }

    #[test]
    fn token_cache_is_bounded() {
        let (cache, now) = (TokenCache::default(), Timestamp::UNIX_EPOCH);
        let user = Arc::new(TokenUser::default());
        for at in 0..=MAX_TOKENS {
            cache.put(key(&at.to_string(), &[]), user.clone(), now);
        }
        assert!(cache.0.lock().by_key.len() <= MAX_TOKENS);
        // A user who is known by many words.
        let named = |bytes: usize| {
            let user = User {
                groups: vec!["g".repeat(bytes)],
                ..User::default()
            };
            Arc::new(TokenUser {
                user: Arc::new(user),
                ..TokenUser::default()
            })
        };
        let large = named(MAX_USER_BYTES);
        for at in 0..2 * MAX_BYTES / MAX_USER_BYTES {
            // The same token twice takes the place of one.
            for _ in 0..2 {
                let key = key(&format!("large {at}"), &[]);
                cache.put(key, large.clone(), now);
                assert!(cache.get(&key, now).is_some());
            }
            let entries = cache.0.lock();
            let kept = entries.by_key.values();
            let bytes: usize = kept.map(|entry| entry.user.user.bytes()).sum();
            assert!(bytes == entries.bytes && bytes <= MAX_BYTES, "{bytes}");
        }
        let key = key("too large", &[]);
        cache.put(key, named(MAX_USER_BYTES + 1), now);
        assert!(cache.get(&key, now).is_none());
    }
}
