//! The keys of maps.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A key of a [`Map`](super::Map): text that costs nothing to copy.
#[derive(Clone)]
pub struct Key(Text);

#[derive(Clone)]
enum Text {
    /// The name of a built-in field.
    Static(&'static str),
    Shared(Arc<str>),
}

impl Key {
    /// A key that is known when the program is compiled.
    pub const fn new(text: &'static str) -> Self {
        Self(Text::Static(text))
    }

    /// A key that stays until the program ends, as the names of built-in fields do: never for what
    /// a client says.
    pub fn forever(text: &str) -> Self {
        Self::new(Box::leak(Box::from(text)))
    }

    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl Deref for Key {
    type Target = str;
    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new("")
    }
}

impl From<&'static str> for Key {
    fn from(text: &'static str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(Text::Shared(text.into()))
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self(Text::Shared(text.as_str().into()))
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        Self(Text::Shared((&*text).into()))
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.as_str().to_owned()
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Key {}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Key {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Key> for str {
    fn eq(&self, other: &Key) -> bool {
        other.as_str() == self
    }
}

impl PartialEq<Key> for &str {
    fn eq(&self, other: &Key) -> bool {
        other.as_str() == *self
    }
}

impl PartialEq<Key> for String {
    fn eq(&self, other: &Key) -> bool {
        other.as_str() == self
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
