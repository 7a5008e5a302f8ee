//! Format of objects that detect damage: kind, format and length, a checksum, the body.
//!
//! Little-endian: kind \[u8; 8\], format u32, length u64, CRC32C u32 of all of that and the body, body. An object in
//! the signed format ends with the [signature](crate::keys) of all preceding bytes.

use crate::keys::{SIGNATURE_BYTES, StateKeys};

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Entry,
    Manifest,
    Snapshot,
}

/// Reason why bytes are not a valid object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    /// The object is torn, foreign, or changed.
    Damaged(String),
    /// The object has this unknown format.
    Version(u32),
    /// The object has no signature, and a key is set.
    Unsigned,
    /// The object has a signature, and no key is set.
    Signed,
    /// The signature belongs to none of the keys, or to another object.
    Forged,
}

/// Format version. Changes with the layout of any object.
pub(crate) const FORMAT: u32 = 1;
/// The same format, followed by a signature.
const SIGNED_FORMAT: u32 = 2;
/// Number of bytes before the body.
pub(crate) const HEADER_BYTES: usize = 24;

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Entry => b"flownetE",
            Self::Manifest => b"flownetM",
            Self::Snapshot => b"flownetS",
        }
    }
}

/// Returns the header of an object with this body, which may be in pieces.
pub(crate) fn header<'a>(kind: Kind, body: impl Iterator<Item = &'a [u8]> + Clone) -> [u8; HEADER_BYTES] {
    header_of(kind, FORMAT, body)
}

fn header_of<'a>(kind: Kind, format: u32, body: impl Iterator<Item = &'a [u8]> + Clone) -> [u8; HEADER_BYTES] {
    let length: u64 = body.clone().map(|piece| piece.len() as u64).sum();
    let mut head = [0; HEADER_BYTES];
    head[..8].copy_from_slice(kind.magic());
    head[8..12].copy_from_slice(&format.to_le_bytes());
    head[12..20].copy_from_slice(&length.to_le_bytes());
    let crc = body.fold(crc32c::crc32c(&head[..20]), crc32c::crc32c_append);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Encodes an object for `path`, signed if there is a key.
pub(crate) fn seal(kind: Kind, path: &str, body: &[u8], keys: &StateKeys) -> Vec<u8> {
    let format = if keys.are_set() { SIGNED_FORMAT } else { FORMAT };
    let mut bytes = [&header_of(kind, format, [body].into_iter()), body].concat();
    let signature = keys.sign(path, &bytes);
    bytes.extend(signature.into_iter().flatten());
    bytes
}

/// Returns the body of a complete object of this kind at `path`. With a key, its signature must be valid.
pub(crate) fn unseal<'a>(kind: Kind, path: &str, bytes: &'a [u8], keys: &StateKeys) -> Result<&'a [u8], SealError> {
    let format = bytes.get(8..12).and_then(|format| format.try_into().ok()).map(u32::from_le_bytes);
    match (keys.are_set(), format == Some(SIGNED_FORMAT)) {
        (false, false) => unseal_unsigned(kind, FORMAT, bytes),
        (false, true) => Err(SealError::Signed),
        (true, false) => Err(SealError::Unsigned),
        (true, true) => {
            let signed = bytes.len().checked_sub(SIGNATURE_BYTES).map(|end| bytes.split_at(end));
            let signed = signed.filter(|(bytes, signature)| keys.have_signed(path, bytes, signature));
            signed.map_or(Err(SealError::Forged), |(bytes, _)| unseal_unsigned(kind, SIGNED_FORMAT, bytes))
        }
    }
}

/// Returns the body of a snapshot. Snapshots are unsigned, because a manifest has digests of their parts.
pub(crate) fn unseal_snapshot(bytes: &[u8]) -> Result<&[u8], SealError> {
    unseal_unsigned(Kind::Snapshot, FORMAT, bytes)
}

fn unseal_unsigned(kind: Kind, known: u32, bytes: &[u8]) -> Result<&[u8], SealError> {
    let damaged = |why: &str| Err(SealError::Damaged(why.to_owned()));
    let Some((head, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(SealError::Damaged(format!("it ends after {} bytes", bytes.len())));
    };
    if head[..8] != *kind.magic() {
        return damaged("it is something else");
    }
    let format = head[8..12].try_into().map_or(0, u32::from_le_bytes);
    if format != known {
        return Err(SealError::Version(format));
    }
    let length = head[12..20].try_into().map_or(0, u64::from_le_bytes);
    if length != body.len() as u64 {
        return Err(SealError::Damaged(format!("it has {} bytes of {length}", body.len())));
    }
    if head[20..] != crc32c::crc32c_append(crc32c::crc32c(&head[..20]), body).to_le_bytes() {
        return damaged("its checksum does not fit");
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_read_again_and_nothing_else_is() {
        let none = StateKeys::default();
        let sealed = seal(Kind::Manifest, "a", b"state", &none);
        assert_eq!(unseal(Kind::Manifest, "a", &sealed, &none), Ok(&b"state"[..]));
        assert!(unseal(Kind::Entry, "a", &sealed, &none).is_err());
        for end in 0..sealed.len() {
            assert!(unseal(Kind::Manifest, "a", &sealed[..end], &none).is_err(), "torn after {end} bytes");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert!(unseal(Kind::Manifest, "a", &changed, &none).is_err(), "byte {at} changed");
        }
        assert!(unseal(Kind::Manifest, "a", &[&sealed[..], &sealed[..]].concat(), &none).is_err(), "doubled");
        let mut newer = sealed;
        newer[8] = 9;
        assert_eq!(unseal(Kind::Manifest, "a", &newer, &none), Err(SealError::Version(9)));
    }
}
