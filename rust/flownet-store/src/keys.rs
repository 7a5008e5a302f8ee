//! Keys that sign state.
//!
//! The log and the manifests of checkpoints are signed with HMAC-SHA256, over their path in the storage and all of
//! their bytes. A manifest has the SHA-256 of each part of state. A signature therefore covers everything that a job
//! restores, and processes that only write and read parts need no key.
//!
//! # Invariants
//! - I1: with a key, nothing is decoded before its signature, or the digest in a signed manifest, has been verified.
//! - I2: with a key, no unsigned object is read. Without a key, no signed object is read.
//! - I3: no key appears in an error, in a log, or in the printed form of a store.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::{env, fmt, fs};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Keys of this process. Without keys, state is not signed.
#[derive(Clone, Default)]
pub struct StateKeys(Arc<[Box<[u8]>]>);

/// Reason why the keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key file cannot be read.
    #[error("{FILE_VARIABLE} names {path:?}, which cannot be read: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The system's error text.
        reason: String,
    },
    /// A key is short enough to be guessed.
    #[error(
        "a key in {variable} has {found} characters and needs {LEAST_CHARACTERS} or more: make one with `openssl rand -hex 32`"
    )]
    Short {
        /// Variable that contains the key.
        variable: &'static str,
        /// Length of the key in characters.
        found: usize,
    },
    /// A variable is set but contains no key.
    #[error("{variable} is set and has no key: make one with `openssl rand -hex 32`, or unset it")]
    Empty {
        /// Name of the variable.
        variable: &'static str,
    },
    /// The key is not text.
    #[error("{KEY_VARIABLE} is not UTF-8: make a key with `openssl rand -hex 32`")]
    NotText,
    /// Both variables are set.
    #[error("both {KEY_VARIABLE} and {FILE_VARIABLE} are set: unset one of them")]
    Both,
}

/// Environment variable with keys, separated by white space. The first one signs; signatures by any of them are
/// accepted.
pub const KEY_VARIABLE: &str = "FLOWNET_STATE_KEY";
/// Environment variable with the path of a file with keys.
pub const FILE_VARIABLE: &str = "FLOWNET_STATE_KEY_FILE";

pub(crate) const SIGNATURE_BYTES: usize = 32;
const LEAST_CHARACTERS: usize = 32;

impl StateKeys {
    /// Reads the keys of this process's environment.
    ///
    /// # Errors
    /// Returns an error if the environment names keys that cannot be used.
    pub fn from_environment() -> Result<Self, KeyError> {
        Self::from_variables(env::var_os(KEY_VARIABLE), env::var_os(FILE_VARIABLE))
    }

    fn from_variables(text: Option<OsString>, path: Option<OsString>) -> Result<Self, KeyError> {
        match (text, path) {
            (None, None) => Ok(Self::default()),
            (Some(_), Some(_)) => Err(KeyError::Both),
            (Some(text), None) => Self::parse(text.to_str().ok_or(KeyError::NotText)?, KEY_VARIABLE),
            (None, Some(path)) => {
                let shown = path.to_string_lossy().into_owned();
                let read = fs::read_to_string(Path::new(&path));
                let text = read.map_err(|error| KeyError::File { path: shown, reason: error.to_string() })?;
                Self::parse(&text, FILE_VARIABLE)
            }
        }
    }

    pub(crate) fn parse(text: &str, variable: &'static str) -> Result<Self, KeyError> {
        let keys: Vec<&str> = text.split_whitespace().collect();
        if keys.is_empty() {
            return Err(KeyError::Empty { variable });
        }
        if let Some(short) = keys.iter().find(|key| key.len() < LEAST_CHARACTERS) {
            return Err(KeyError::Short { variable, found: short.len() });
        }
        Ok(Self(keys.into_iter().map(|key| key.as_bytes().into()).collect()))
    }

    /// Returns true if state is signed.
    #[must_use]
    pub fn are_set(&self) -> bool {
        !self.0.is_empty()
    }

    /// Signs the bytes of an object. Returns `None` without a key.
    pub(crate) fn sign(&self, path: &str, bytes: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        self.0.first().map(|key| code(key, path, bytes).finalize().into_bytes().into())
    }

    /// Returns true if one of the keys has signed these bytes at this path.
    pub(crate) fn have_signed(&self, path: &str, bytes: &[u8], signature: &[u8]) -> bool {
        self.0.iter().any(|key| code(key, path, bytes).verify_slice(signature).is_ok())
    }
}

fn code(key: &[u8], path: &str, bytes: &[u8]) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    code.update(&(path.len() as u64).to_le_bytes());
    code.update(path.as_bytes());
    code.update(bytes);
    code
}

/// Returns the SHA-256 of a part of state.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl fmt::Debug for StateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} state keys>", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    fn keys(text: &str) -> StateKeys {
        StateKeys::parse(text, KEY_VARIABLE).unwrap()
    }

    #[test]
    fn a_signature_is_of_bytes_at_a_place_by_a_key() {
        let (one, other) = (keys(ONE), keys(OTHER));
        let signature = one.sign("a/b", b"state").unwrap();
        assert!(one.have_signed("a/b", b"state", &signature));
        assert!(!one.have_signed("a/c", b"state", &signature), "moved");
        assert!(!one.have_signed("a/", b"bstate", &signature), "place and bytes are told apart");
        assert!(!one.have_signed("a/b", b"stat", &signature), "cut");
        assert!(!one.have_signed("a/b", b"state", &signature[..16]), "cut signature");
        assert!(!other.have_signed("a/b", b"state", &signature), "another key");
    }

    #[test]
    fn the_first_key_signs_and_any_is_accepted() {
        let both = keys(&format!("{OTHER}\n{ONE}\n"));
        assert!(both.have_signed("a", b"x", &keys(ONE).sign("a", b"x").unwrap()));
        assert_eq!(both.sign("a", b"x"), keys(OTHER).sign("a", b"x"));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_is_not_text_is_refused_and_not_passed_over() {
        use std::os::unix::ffi::OsStringExt;

        let bytes = || OsString::from_vec(vec![0xFF; 40]);
        assert_eq!(StateKeys::from_variables(Some(bytes()), None).unwrap_err(), KeyError::NotText);
        assert!(matches!(StateKeys::from_variables(None, Some(bytes())).unwrap_err(), KeyError::File { .. }));
        assert!(!StateKeys::from_variables(None, None).unwrap().are_set());
        assert!(StateKeys::from_variables(Some(ONE.into()), None).unwrap().are_set());
    }

    #[test]
    fn keys_are_neither_short_nor_missing_nor_printed() {
        assert_eq!(
            StateKeys::parse("short", KEY_VARIABLE).unwrap_err(),
            KeyError::Short { variable: KEY_VARIABLE, found: 5 }
        );
        assert_eq!(StateKeys::parse(" \n", FILE_VARIABLE).unwrap_err(), KeyError::Empty { variable: FILE_VARIABLE });
        assert_eq!(format!("{:?}", keys(ONE)), "<1 state keys>");
        assert!(!StateKeys::default().are_set());
        assert_eq!(StateKeys::default().sign("a", b"x"), None);
    }
}
