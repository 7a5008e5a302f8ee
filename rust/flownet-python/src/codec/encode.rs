//! Encodes values to bytes. It finds common types by pointer comparison of their exact type; other types have
//! their own files.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use super::exact::exact;
use super::{CodecError, MAX_DEPTH, SentClasses, number, numpy, object, ordered, pandas, tag, temporal};
use flownet_runtime::canonical;
use flownet_runtime::varint::put_varint;

/// Appends the encoding of `value` to `out`.
///
/// On an error `out` may hold a part of the value: the caller truncates or drops it.
pub fn encode(value: &Bound<'_, PyAny>, classes: &mut SentClasses, out: &mut Vec<u8>) -> Result<(), CodecError> {
    Encoder::new(classes, out).value(value, 0)
}

/// One walk over a value.
pub struct Encoder<'o> {
    pub(super) classes: &'o mut SentClasses,
    pub(super) out: &'o mut Vec<u8>,
    /// True while encoding parts of an instance of a class.
    pub(super) inside_object: bool,
}

impl<'o> Encoder<'o> {
    /// Encodes to the end of `out`.
    pub fn new(classes: &'o mut SentClasses, out: &'o mut Vec<u8>) -> Self {
        Self { classes, out, inside_object: false }
    }

    #[inline]
    pub(super) fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Result<(), CodecError> {
        if let Some(text) = exact::<PyString>(value) {
            self.string(text)
        } else if let Some(int) = exact::<PyInt>(value) {
            self.int(int)
        } else if let Some(float) = exact::<PyFloat>(value) {
            self.float(float.value());
            Ok(())
        } else {
            self.other(value, depth)
        }
    }

    #[inline]
    pub(super) fn string(&mut self, text: &Bound<'_, PyString>) -> Result<(), CodecError> {
        let Ok(utf8) = text.to_str() else { return self.surrogate_string(text) };
        canonical::put_text(self.out, utf8.as_bytes());
        Ok(())
    }

    #[inline]
    pub(super) fn int(&mut self, int: &Bound<'_, PyInt>) -> Result<(), CodecError> {
        match number::small_int(int) {
            Some(small) => {
                self.small_int(small);
                Ok(())
            }
            None => number::encode_big_int(int, self.out),
        }
    }

    #[inline]
    pub(super) fn small_int(&mut self, value: i64) {
        canonical::put_int(self.out, value);
    }

    #[inline]
    pub(super) fn float(&mut self, value: f64) {
        canonical::put_float(self.out, value);
    }

    pub(super) fn blob(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        put_varint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn count(&mut self, tag: u8, count: usize) {
        self.out.push(tag);
        put_varint(self.out, count as u64);
    }

    fn other(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Result<(), CodecError> {
        if value.is_none() {
            self.out.push(tag::NONE);
        } else if let Some(flag) = exact::<PyBool>(value) {
            self.out.push(if flag.is_true() { tag::TRUE } else { tag::FALSE });
        } else if let Some(bytes) = exact::<PyBytes>(value) {
            self.blob(tag::BYTES, bytes.as_bytes());
        } else if let Some(tuple) = exact::<PyTuple>(value) {
            return self.tuple(tuple, depth);
        } else if let Some(list) = exact::<PyList>(value) {
            return self.list(list, depth);
        } else if let Some(dict) = exact::<PyDict>(value) {
            return self.dict(dict, depth);
        } else {
            return self.rare(value, depth);
        }
        Ok(())
    }

    /// Checks that a container at this depth may have contents.
    #[inline]
    pub(super) fn enter(&self, depth: usize) -> Result<(), CodecError> {
        if depth == MAX_DEPTH { Err(CodecError::TooDeep { limit: MAX_DEPTH }) } else { Ok(()) }
    }

    fn rare(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> Result<(), CodecError> {
        if let Some(class) = self.classes.find(value) {
            object::encode(self, value, &class, depth)
        } else if let Some(set) = exact::<PySet>(value) {
            self.items(tag::SET, set.len(), set.try_iter()?, depth)
        } else if let Some(set) = exact::<PyFrozenSet>(value) {
            self.items(tag::FROZENSET, set.len(), set.try_iter()?, depth)
        } else if let Some(bytes) = exact::<PyByteArray>(value) {
            self.blob(tag::BYTEARRAY, &bytes.to_vec());
            Ok(())
        } else if let Some(complex) = exact::<PyComplex>(value) {
            number::encode_complex(complex, self.out);
            Ok(())
        } else if temporal::encode(self, value)?
            || number::encode_other(self, value)?
            || ordered::encode(self, value, depth)?
            || pandas::encode(self, value)?
            || numpy::encode(self, value)?
        {
            Ok(())
        } else {
            let class = self.classes.learn(&value.get_type())?;
            object::encode(self, value, &class, depth)
        }
    }

    fn surrogate_string(&mut self, text: &Bound<'_, PyString>) -> Result<(), CodecError> {
        let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
        self.blob(tag::SURROGATE_STR, bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
        Ok(())
    }

    fn tuple(&mut self, tuple: &Bound<'_, PyTuple>, depth: usize) -> Result<(), CodecError> {
        self.enter(depth)?;
        self.count(tag::TUPLE, tuple.len());
        tuple.iter_borrowed().try_for_each(|item| self.value(&item, depth + 1))
    }

    /// Encodes a list. Code that a pickled item runs may change the list, so its length is read at each step,
    /// and must equal the count.
    fn list(&mut self, list: &Bound<'_, PyList>, depth: usize) -> Result<(), CodecError> {
        self.enter(depth)?;
        let count = list.len();
        self.count(tag::LIST, count);
        for index in 0..count {
            self.value(&list.get_item(index).map_err(|_| CodecError::Changed("list"))?, depth + 1)?;
        }
        if list.len() == count { Ok(()) } else { Err(CodecError::Changed("list")) }
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>, depth: usize) -> Result<(), CodecError> {
        self.enter(depth)?;
        let count = dict.len();
        self.count(tag::DICT, count);
        let (mut position, mut seen) = (0, 0);
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: `dict` is a dict and the interpreter is attached. PyDict_Next lends key and value; both are
        // owned below before any other code runs. A dict that changed size stops the walk before the next call.
        // PyO3's own iterator panics in that case, which here a user's `__reduce__` could cause.
        while unsafe { ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value) } != 0 {
            // SAFETY: PyDict_Next returned both as borrowed, non-null references.
            let (key, value) =
                unsafe { (Bound::from_borrowed_ptr(dict.py(), key), Bound::from_borrowed_ptr(dict.py(), value)) };
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
            seen += 1;
            if dict.len() != count {
                return Err(CodecError::Changed("dict"));
            }
        }
        if seen == count { Ok(()) } else { Err(CodecError::Changed("dict")) }
    }

    fn items<'py>(
        &mut self,
        tag: u8,
        count: usize,
        mut items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
        depth: usize,
    ) -> Result<(), CodecError> {
        self.enter(depth)?;
        self.count(tag, count);
        let mut seen = 0;
        items.try_for_each(|item| {
            seen += 1;
            self.value(&item?, depth + 1)
        })?;
        if seen == count { Ok(()) } else { Err(CodecError::Changed("set")) }
    }
}
