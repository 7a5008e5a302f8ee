//! Decodes bytes to a value in one pass. It checks every length before it uses it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use super::{
    CodecError, KnownClasses, MAX_DEPTH, Pickle, number, numpy, object, ordered, pandas, pickle, tag, temporal,
};
use flownet_runtime::varint::{take_varint, unzigzag};
use flownet_runtime::work::Work;

/// Rows of an encoded numpy array, by its first extent. `None` for any other value, which is one row.
#[inline]
pub fn array_rows(bytes: &[u8], classes: &KnownClasses) -> Option<u64> {
    if bytes.first() != Some(&tag::NDARRAY) {
        return None;
    }
    // Decoding reports malformed bytes.
    numpy::rows(&mut Decoder::new(bytes, classes)).ok().flatten()
}

/// Decodes `bytes` as exactly one value.
pub fn decode<'py>(py: Python<'py>, bytes: &[u8], classes: &KnownClasses) -> Result<Bound<'py, PyAny>, CodecError> {
    let mut decoder = Decoder::new(bytes, classes);
    let value = decoder.next_value(py)?;
    if decoder.is_empty() { Ok(value) } else { Err(CodecError::Trailing(decoder.rest.len())) }
}

/// Reads values one after the other.
pub struct Decoder<'a> {
    rest: &'a [u8],
    pub(super) classes: &'a KnownClasses,
    /// Items that containers may still announce. Each costs a byte at least, so this starts at the number of
    /// bytes. Nested containers that all claim the same bytes are refused before they allocate (I2).
    items_left: usize,
}

impl<'a> Decoder<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8], classes: &'a KnownClasses) -> Self {
        Self { rest: bytes, classes, items_left: bytes.len() }
    }

    /// Returns true if all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next value; an error leaves the decoder at an unspecified place.
    #[inline]
    pub fn next_value<'py>(&mut self, py: Python<'py>) -> Result<Bound<'py, PyAny>, CodecError> {
        let _serialising = self.classes.work.during(Work::Serialising);
        self.value(py, 0)
    }

    /// Skips the next byte if it is `marker`.
    pub fn skip_marker(&mut self, marker: u8) -> bool {
        match self.rest.split_first() {
            Some((&first, rest)) if first == marker => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// The unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], CodecError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(CodecError::Truncated { needed: len, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(CodecError::Truncated { needed: N, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, CodecError> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, CodecError> {
        let (value, rest) = take_varint(self.rest)?;
        self.rest = rest;
        Ok(value)
    }

    /// Reads a length that the unread bytes can hold.
    pub(super) fn len(&mut self) -> Result<usize, CodecError> {
        let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if len > self.rest.len() {
            return Err(CodecError::Truncated { needed: len, left: self.rest.len() });
        }
        Ok(len)
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8], CodecError> {
        let len = self.len()?;
        self.take(len)
    }

    #[inline]
    pub(super) fn value<'py>(&mut self, py: Python<'py>, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        let tag = self.byte()?;
        let small = tag & tag::SMALL_MAX;
        match tag {
            tag::SMALL_INT..=0xff => Ok(int(py, i64::from(small))),
            tag::SHORT_STR..tag::SMALL_INT => Ok(PyString::from_bytes(py, self.take(usize::from(small))?)?.into_any()),
            tag::INT => Ok(int(py, unzigzag(self.varint()?))),
            tag::FLOAT => Ok(PyFloat::new(py, f64::from_le_bytes(self.array()?)).into_any()),
            tag::STR => Ok(PyString::from_bytes(py, self.blob()?)?.into_any()),
            tag::TUPLE..=tag::FROZENSET => self.container(py, tag, depth + 1),
            _ => self.rare(py, tag, depth),
        }
    }

    fn rare<'py>(&mut self, py: Python<'py>, tag: u8, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        match tag {
            tag::NONE => Ok(py.None().into_bound(py)),
            tag::FALSE | tag::TRUE => Ok(PyBool::new(py, tag == tag::TRUE).to_owned().into_any()),
            tag::BIG_INT => number::decode_big_int(py, self.blob()?),
            tag::COMPLEX => {
                let (real, imaginary) = (f64::from_le_bytes(self.array()?), f64::from_le_bytes(self.array()?));
                Ok(PyComplex::from_doubles(py, real, imaginary).into_any())
            }
            tag::SURROGATE_STR => {
                Ok(PyBytes::new(py, self.blob()?).call_method1("decode", ("utf-8", "surrogatepass"))?)
            }
            tag::BYTES => Ok(PyBytes::new(py, self.blob()?).into_any()),
            tag::BYTEARRAY => Ok(PyByteArray::new(py, self.blob()?).into_any()),
            tag::DATE..=tag::TIMEDELTA => temporal::decode(self, py, tag),
            tag::DECIMAL => number::decode_decimal(py, self.blob()?),
            tag::UUID => number::decode_uuid(py, &self.array::<16>()?),
            tag::NUMPY_SCALAR => numpy::decode_scalar(self, py),
            tag::NDARRAY => numpy::decode_array(self, py),
            tag::ORDERED_DICT => ordered::decode(self, py, depth + 1),
            tag::TIMESTAMP => pandas::decode(self, py),
            tag::OBJECT => object::decode(self, py, false, depth + 1),
            tag::OBJECT_ATTRIBUTES => object::decode(self, py, true, depth + 1),
            tag::PICKLE if self.classes.pickle() == Pickle::Allowed => pickle::decode(self, py),
            tag::PICKLE => Err(CodecError::PickleRefused),
            unknown => Err(CodecError::UnknownTag(unknown)),
        }
    }

    fn container<'py>(&mut self, py: Python<'py>, tag: u8, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        self.enter(depth)?;
        let count = self.item_count(if tag == tag::DICT { 2 } else { 1 })?;
        match tag {
            tag::TUPLE => self.tuple(py, count, depth),
            tag::LIST => self.list(py, count, depth),
            tag::DICT => self.dict(py, count, depth),
            tag::SET => {
                let set = PySet::empty(py)?;
                (0..count).try_for_each(|_| Ok::<_, CodecError>(set.add(self.value(py, depth)?)?))?;
                Ok(set.into_any())
            }
            _ => {
                let items = (0..count).map(|_| self.value(py, depth)).collect::<Result<Vec<_>, _>>()?;
                Ok(PyFrozenSet::new(py, items)?.into_any())
            }
        }
    }

    /// Checks the depth of a container.
    #[inline]
    pub(super) fn enter(&self, depth: usize) -> Result<(), CodecError> {
        if depth > MAX_DEPTH { Err(CodecError::TooDeep { limit: MAX_DEPTH }) } else { Ok(()) }
    }

    /// Reads a count of items (or pairs) that the unread bytes can hold.
    #[inline]
    pub(super) fn item_count(&mut self, per_item: usize) -> Result<usize, CodecError> {
        let count = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        self.claim(count.saturating_mul(per_item))?;
        Ok(count)
    }

    /// Claims bytes for this many items, so that no bytes are claimed twice.
    #[inline]
    pub(super) fn claim(&mut self, items: usize) -> Result<(), CodecError> {
        let left = self.rest.len().min(self.items_left);
        if items > left {
            return Err(CodecError::Truncated { needed: items, left });
        }
        self.items_left -= items;
        Ok(())
    }

    pub(super) fn tuple<'py>(
        &mut self,
        py: Python<'py>,
        count: usize,
        depth: usize,
    ) -> Result<Bound<'py, PyAny>, CodecError> {
        // SAFETY: attached; a fresh tuple of `count` empty slots, or null with an exception set. PyO3's
        // constructor wants all items first: a vector for each tuple, which costs more than the tuple itself.
        let tuple = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(count.cast_signed()))? };
        for index in 0..count {
            let item = self.value(py, depth)?;
            // SAFETY: `tuple` is a tuple with one reference (nobody else has seen it), `index < count`, and the
            // call takes over the reference that `into_ptr` gives up.
            if unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index.cast_signed(), item.into_ptr()) } != 0 {
                return Err(PyErr::fetch(py).into());
            }
        }
        debug_assert!(tuple.is_exact_instance_of::<PyTuple>());
        Ok(tuple)
    }

    fn list<'py>(&mut self, py: Python<'py>, count: usize, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        // SAFETY: attached; a fresh list of `count` empty slots, or null with an exception set.
        let list = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(count.cast_signed()))? };
        for index in 0..count {
            let item = self.value(py, depth)?;
            // SAFETY: `list` is a list, `index` is checked by the call, which takes over the reference given up.
            if unsafe { ffi::PyList_SetItem(list.as_ptr(), index.cast_signed(), item.into_ptr()) } != 0 {
                return Err(PyErr::fetch(py).into());
            }
        }
        debug_assert!(list.is_exact_instance_of::<PyList>());
        Ok(list)
    }

    fn dict<'py>(&mut self, py: Python<'py>, count: usize, depth: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        let dict = PyDict::new(py);
        for _ in 0..count {
            let key = self.value(py, depth)?;
            dict.set_item(key, self.value(py, depth)?)?;
        }
        Ok(dict.into_any())
    }
}

#[inline]
fn int(py: Python<'_>, value: i64) -> Bound<'_, PyAny> {
    PyInt::new(py, value).into_any()
}
