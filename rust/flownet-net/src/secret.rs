//! Secret of a job. A peer must prove that it knows the secret before anything else is read from it.

use std::fmt;

use crate::error::SecretError;

/// 32 random bytes shared by the processes of one job.
///
/// Never printed: `Debug` is redacted. The only conversion to text is [`Secret::to_hex`], for passing the secret to a
/// child process over a private pipe.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Length of a secret in bytes.
    pub const BYTES: usize = 32;

    /// Generates a secret from the operating system's random source.
    pub fn generate() -> Result<Self, SecretError> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes).map_err(|source| SecretError::NoRandomness { reason: source.to_string() })?;
        Ok(Self(bytes))
    }

    /// Creates a secret from bytes agreed on elsewhere.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses the output of [`Secret::to_hex`]: exactly 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, SecretError> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::BYTES {
            return Err(SecretError::WrongLength { digits: digits.len() });
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
        }
        Ok(Self(bytes))
    }

    /// Returns 64 lower-case hexadecimal digits. Anyone with them can join the job.
    pub fn to_hex(&self) -> String {
        self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(HEX[usize::from(digit)])).collect()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

fn hex_value(digit: u8) -> Result<u8, SecretError> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok()).ok_or(SecretError::NotHex)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_the_way_through_hex() {
        let secret = Secret::generate().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()).unwrap(), secret);
        assert_eq!(Secret::from_bytes([0xa5; 32]).to_hex(), "a5".repeat(32));
    }

    #[test]
    fn two_generated_secrets_differ() {
        assert_ne!(Secret::generate().unwrap(), Secret::generate().unwrap());
    }

    #[test]
    fn debug_does_not_show_the_secret() {
        let secret = Secret::from_bytes([7; 32]);
        assert_eq!(format!("{secret:?}"), "Secret(redacted)");
    }

    #[test]
    fn text_that_is_no_secret_is_refused() {
        assert!(matches!(Secret::from_hex("ab"), Err(SecretError::WrongLength { digits: 2 })));
        assert!(matches!(Secret::from_hex(&"g".repeat(64)), Err(SecretError::NotHex)));
        assert!(matches!(Secret::from_hex(&"é".repeat(32)), Err(SecretError::NotHex)));
    }
}
