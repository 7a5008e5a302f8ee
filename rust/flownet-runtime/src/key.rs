//! Keys as keyed state and windows store them: short keys inline, so that finding a key touches one place in memory.

/// The immutable bytes of a key.
#[derive(Clone, Debug)]
pub(crate) struct Key(Form);

#[derive(Clone, Debug)]
enum Form {
    Short { len: u8, bytes: [u8; SHORT_BYTES] },
    Long(Box<[u8]>),
}

impl Key {
    /// Returns the bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Form::Short { len, bytes } => &bytes[..usize::from(*len)],
            Form::Long(bytes) => bytes,
        }
    }

    /// Returns the number of its bytes on the heap.
    pub(crate) fn bytes_elsewhere(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Long(bytes) => bytes.len(),
        }
    }

    /// Returns true if it equals this key.
    #[inline]
    pub(crate) fn is(&self, key: &[u8]) -> bool {
        equal(self.as_slice(), key)
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(key);
                Self(Form::Short { len, bytes })
            }
            _ => Self(Form::Long(key.into())),
        }
    }
}

impl From<Key> for Box<[u8]> {
    fn from(key: Key) -> Self {
        match key.0 {
            Form::Short { len, bytes } => bytes[..usize::from(len)].into(),
            Form::Long(bytes) => bytes,
        }
    }
}

/// `one == other`, up to 16 bytes without a call. The first and the last bytes, read as words, cover all bytes then.
#[inline]
fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        0..4 => one.iter().zip(other).all(|(one, other)| one == other),
        4..=8 => ends::<4>(one) == ends::<4>(other),
        9..=16 => ends::<8>(one) == ends::<8>(other),
        _ => one == other,
    }
}

#[inline]
fn ends<const N: usize>(bytes: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
    (bytes.first_chunk(), bytes.last_chunk())
}

/// Fills the 24 bytes that a long key needs in any case, except the tag and the length.
const SHORT_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_takes_three_words() {
        assert_eq!(size_of::<Key>(), 24);
    }

    #[test]
    fn a_difference_in_any_byte_is_seen_at_every_length() {
        for len in 0..40usize {
            let bytes: Vec<u8> = (0..len as u8).collect();
            let key = Key::from(&bytes[..]);
            assert!(key.is(&bytes) && !key.is(&[&bytes[..], &[0]].concat()), "{len}");
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(!key.is(&other), "byte {at} of {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn keys_keep_their_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..50), other in proptest::collection::vec(0u8..2, 0..10)) {
            let key = Key::from(&bytes[..]);
            prop_assert_eq!(key.as_slice(), &bytes[..]);
            prop_assert_eq!(key.is(&other), bytes == other);
            prop_assert_eq!(Box::from(key), bytes.into_boxed_slice());
        }
    }
}
