//! Parts of the caches: requests of one part find nothing of another.
//!
//! A shared prefix cache tells a tenant, by the time to the first token and by the counts of cached
//! tokens, whether another tenant has sent a prompt (CVE-2025-46570). A part is a number that takes
//! part in the names of KV blocks and in the digests of remembered turns.

use crate::request::RequestOptions;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Who shares the caches with whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheIsolation {
    /// All requests share them.
    #[default]
    Off,
    /// The requests of a key do.
    Key,
    /// The requests of a user of a key do.
    User,
}

impl CacheIsolation {
    /// All values with their names.
    pub const ALL: [(&str, Self); 3] =
        [("off", Self::Off), ("key", Self::Key), ("user", Self::User)];
}

impl fmt::Display for CacheIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, value)| value == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for CacheIsolation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("expected one of {names}, found {name:?}")
        })
    }
}

/// One part of the caches; by default the common part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CachePartition {
    isolation: CacheIsolation,
    /// The number of the part; zero for the common part.
    pub space: [u8; 16],
}

impl CachePartition {
    /// The part of the requests with this key.
    pub fn of_key(isolation: CacheIsolation, key: Option<&str>) -> Self {
        let all = Self { isolation, space: [0; 16] };
        match (isolation, key) {
            (CacheIsolation::Off, _) | (_, None) => all,
            (CacheIsolation::Key | CacheIsolation::User, Some(key)) => all.split("key", key),
        }
    }

    /// The part of the requests of the user and with the salt of `options` within this one.
    pub fn of_options(self, options: &RequestOptions) -> Self {
        self.of_user(options.user.as_deref()).of_salt(options.cache_salt.as_deref())
    }

    /// The part as a part of the requests of its key alone, whichever key that is.
    pub fn within_key(self) -> Self {
        Self { space: [0; 16], ..self }
    }

    /// The part of the requests of `user` within this one.
    fn of_user(self, user: Option<&str>) -> Self {
        match (self.isolation, user) {
            (CacheIsolation::User, Some(user)) => self.split("user", user),
            _ => self,
        }
    }

    /// The part of the requests with this salt within this one.
    fn of_salt(self, salt: Option<&str>) -> Self {
        salt.map_or(self, |salt| self.split("salt", salt))
    }

    /// A part of this one: the first half of SHA-256 over its number, and the label and the text
    /// with their lengths in bytes (64 bits, little-endian).
    fn split(self, label: &str, text: &str) -> Self {
        let mut hash = Sha256::new_with_prefix(self.space);
        for part in [label, text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let mut space = [0; 16];
        space.copy_from_slice(&hash.finalize()[..16]);
        Self { space, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_isolation() {
        let part =
            |isolation, key, user| CachePartition::of_key(isolation, key).of_user(user).space;
        let (off, key, user) = (CacheIsolation::Off, CacheIsolation::Key, CacheIsolation::User);
        assert_eq!(part(off, Some("a"), Some("u")), [0; 16]);
        assert_eq!(part(key, None, Some("u")), [0; 16]);
        assert_eq!(part(key, Some("a"), Some("u")), part(key, Some("a"), None));
        assert_ne!(part(key, Some("a"), None), part(key, Some("b"), None));
        assert_ne!(part(user, Some("a"), Some("u")), part(user, Some("a"), Some("v")));
        assert_ne!(part(user, Some("a"), Some("u")), part(user, Some("b"), Some("u")));
        assert_ne!(part(user, None, Some("u")), [0; 16]);
        assert_ne!(part(user, Some("au"), None), part(user, Some("a"), Some("u")));
    }

    #[test]
    fn salts_part_further() {
        let all = CachePartition::default();
        assert_eq!(all.of_salt(None), all);
        let [one, other] = ["a", "b"].map(|salt| all.of_salt(Some(salt)));
        assert!(one != other && one != all);
        let keyed = CachePartition::of_key(CacheIsolation::Key, Some("a"));
        assert_ne!(keyed.of_salt(Some("x")).space, all.of_salt(Some("x")).space);
        assert_ne!(keyed.space, all.of_salt(Some("a")).space);
    }

    #[test]
    fn names_are_read_back() {
        for (name, value) in CacheIsolation::ALL {
            assert_eq!((name.parse(), value.to_string()), (Ok(value), name.to_owned()));
        }
        let error = "keys".parse::<CacheIsolation>().unwrap_err();
        assert!(error.contains("off, key, user") && error.contains("keys"), "{error}");
    }
}
