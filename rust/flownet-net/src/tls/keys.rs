//! Keys of one direction of a session, and their successors.
//!
//! All keys are derived from the traffic secret that the handshake agreed on (RFC 8446, sections 5.3, 7.2 and 7.3).
//!
//! # Invariants
//! - K1: no nonce is used twice under one key. Each record takes the next sequence number, and a new key starts at 0.

use aws_lc_rs::aead::{self, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::tls13::OkmBlock;
use rustls::{CipherSuite, ConnectionTrafficSecrets, Error, Tls13CipherSuite};

/// Current key of one direction. See the [module docs](self).
pub(super) struct Keys {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
    cipher: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    /// Sequence number of the next record.
    sequence: u64,
}

impl Keys {
    /// Derives the keys from `secret`, after `sequence` records.
    pub(super) fn new(suite: &'static Tls13CipherSuite, secret: OkmBlock, sequence: u64) -> Result<Self, Error> {
        let (cipher, iv) = derive(suite, &secret, |key| {
            let key = UnboundKey::new(algorithm(suite)?, key).map_err(|_| unusable())?;
            Ok(LessSafeKey::new(key))
        })?;
        Ok(Self { suite, secret, cipher, iv, sequence })
    }

    /// Advances to the keys of the next generation, which both ends derive on their own.
    pub(super) fn renew(&mut self) -> Result<(), Error> {
        let mut secret = [0; OkmBlock::MAX_LEN];
        let secret = &mut secret[..self.suite.common.hash_provider.output_len()];
        expand(self.suite, &self.secret, b"traffic upd", secret)?;
        *self = Self::new(self.suite, OkmBlock::new(secret), 0)?;
        Ok(())
    }

    /// Returns the number of records that one key may seal.
    pub(super) fn limit(&self) -> u64 {
        self.suite.common.confidentiality_limit
    }

    /// Returns the number of records that this key has sealed or opened.
    pub(super) fn records(&self) -> u64 {
        self.sequence
    }

    /// Returns the nonce of the next record and advances the sequence number (K1).
    pub(super) fn next_nonce(&mut self) -> Result<Nonce, Error> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[aead::NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    pub(super) fn cipher(&self) -> &LessSafeKey {
        &self.cipher
    }
}

/// Returns true if the session derived the same key from `secret`: it has not been renewed since.
pub(super) fn stands_for(
    secret: &OkmBlock,
    suite: &'static Tls13CipherSuite,
    found: &ConnectionTrafficSecrets,
) -> Result<bool, Error> {
    let (key, iv) = match found {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => return Err(unusable()),
    };
    let (is_same_key, same_iv) = derive(suite, secret, |derived| Ok(derived == key.as_ref()))?;
    Ok(is_same_key && same_iv == iv.as_ref())
}

fn derive<K>(
    suite: &'static Tls13CipherSuite,
    secret: &OkmBlock,
    take_key: impl FnOnce(&[u8]) -> Result<K, Error>,
) -> Result<(K, [u8; aead::NONCE_LEN]), Error> {
    let mut key = [0; OkmBlock::MAX_LEN];
    let key = &mut key[..algorithm(suite)?.key_len()];
    expand(suite, secret, b"key", key)?;
    let mut iv = [0; aead::NONCE_LEN];
    expand(suite, secret, b"iv", &mut iv)?;
    Ok((take_key(key)?, iv))
}

/// HKDF-Expand-Label of RFC 8446, without a context.
fn expand(suite: &'static Tls13CipherSuite, secret: &OkmBlock, label: &[u8], expanded: &mut [u8]) -> Result<(), Error> {
    let length = u16::try_from(expanded.len()).map_err(|_| unusable())?.to_be_bytes();
    let label_length = u8::try_from(LABEL_PREFIX.len() + label.len()).map_err(|_| unusable())?;
    let info = [&length[..], &[label_length], LABEL_PREFIX, label, &[0]];
    suite.hkdf_provider.expander_for_okm(secret).expand_slice(&info, expanded).map_err(|_| unusable())
}

fn algorithm(suite: &Tls13CipherSuite) -> Result<&'static aead::Algorithm, Error> {
    match suite.common.suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Ok(&aead::AES_128_GCM),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Ok(&aead::AES_256_GCM),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Ok(&aead::CHACHA20_POLY1305),
        _ => Err(unusable()),
    }
}

fn unusable() -> Error {
    Error::General("a cipher suite that nobody offered".into())
}

const LABEL_PREFIX: &[u8] = b"tls13 ";
