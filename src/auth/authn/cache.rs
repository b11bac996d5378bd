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

/// A hash of the token and the audiences, so that tokens do not lie around in memory.
pub type Key = [u8; digest::SHA256_OUTPUT_LEN];

struct Entry {
    until: Timestamp,
    user: Arc<TokenUser>,
}

/// The valid tokens of the last moments.
#[derive(Default)]
pub struct TokenCache(Mutex<HashMap<Key, Entry>>);

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
        entries
            .get(key)
            .filter(|entry| now < entry.until)
            .map(|entry| entry.user.clone())
    }

    pub fn put(&self, key: Key, user: Arc<TokenUser>, now: Timestamp) {
        let mut entries = self.0.lock();
        if entries.len() >= MAX_TOKENS {
            entries.retain(|_, entry| now < entry.until);
            if entries.len() >= MAX_TOKENS {
                entries.clear();
            }
        }
        let until = now.checked_add(TTL).unwrap_or(now);
        entries.insert(key, Entry { until, user });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(cache.0.lock().len() <= MAX_TOKENS);
    }
}
