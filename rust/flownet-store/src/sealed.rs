//! Objects that show whether they are whole: eight bytes that say what it is, format and length, a checksum, the body.
//!
//! Little-endian: kind \[u8; 8\], format u32, length u64, CRC32C u32 of all of that and the body, body.

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Entry,
    Manifest,
    Snapshot,
}

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Torn, foreign, or changed.
    Damaged(String),
    /// Of this format.
    Version(u32),
}

/// Changes with the layout of any object.
pub(crate) const FORMAT: u32 = 1;
/// Length of what precedes the body.
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

/// The head of an object with this body, which may be in pieces.
pub(crate) fn header<'a>(kind: Kind, body: impl Iterator<Item = &'a [u8]> + Clone) -> [u8; HEADER_BYTES] {
    let length: u64 = body.clone().map(|piece| piece.len() as u64).sum();
    let mut head = [0; HEADER_BYTES];
    head[..8].copy_from_slice(kind.magic());
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..20].copy_from_slice(&length.to_le_bytes());
    let crc = body.fold(crc32c::crc32c(&head[..20]), crc32c::crc32c_append);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

pub(crate) fn seal(kind: Kind, body: &[u8]) -> Vec<u8> {
    [&header(kind, [body].into_iter()), body].concat()
}

/// The body of a whole object of this kind.
pub(crate) fn unseal(kind: Kind, bytes: &[u8]) -> Result<&[u8], Broken> {
    let damaged = |why: &str| Err(Broken::Damaged(why.to_owned()));
    let Some((head, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(Broken::Damaged(format!("it ends after {} bytes", bytes.len())));
    };
    if head[..8] != *kind.magic() {
        return damaged("it is something else");
    }
    let format = head[8..12].try_into().map_or(0, u32::from_le_bytes);
    if format != FORMAT {
        return Err(Broken::Version(format));
    }
    let length = head[12..20].try_into().map_or(0, u64::from_le_bytes);
    if length != body.len() as u64 {
        return Err(Broken::Damaged(format!("it has {} bytes of {length}", body.len())));
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
        let sealed = seal(Kind::Manifest, b"state");
        assert_eq!(unseal(Kind::Manifest, &sealed), Ok(&b"state"[..]));
        assert!(unseal(Kind::Entry, &sealed).is_err());
        for end in 0..sealed.len() {
            assert!(unseal(Kind::Manifest, &sealed[..end]).is_err(), "torn after {end} bytes");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert!(unseal(Kind::Manifest, &changed).is_err(), "byte {at} changed");
        }
        assert!(unseal(Kind::Manifest, &[&sealed[..], &sealed[..]].concat()).is_err(), "doubled");
        let mut newer = sealed;
        newer[8] = 9;
        assert_eq!(unseal(Kind::Manifest, &newer), Err(Broken::Version(9)));
    }
}
