//! Encodes keys in a canonical form: values that are one key to a `dict` have the same bytes.
//!
//! The bytes choose the key group and index keyed state, in every process alike. They are a codec value
//! themselves, so a native operator can decode them to *a* key. If the user gave the key in another form
//! (`True` for `1`), the sender adds it after [`super::KEY_AS_GIVEN`].
//!
//! - Numbers: `bool`, integral `float`, `complex` without imaginary part, `Decimal` and numpy numbers become
//!   the `int` or `float` they equal; `-0.0` is `0`. All NaNs are one key. To a `dict` each NaN object is a
//!   key of its own, but other processes could not distinguish them.
//! - `datetime` with a zone: its instant in UTC. numpy strings: their Python equals.
//! - Tuples and frozensets of keys; a frozenset's items in the order of their bytes. A NamedTuple becomes the
//!   tuple it equals.
//! - Enums whose members are ints or strings: the value they equal. Other Enums, dataclasses and the like:
//!   the name of the class and the attributes that make instances equal (`class_key.rs`). This form is not a
//!   value, so these keys are always given beside it.

use std::sync::Arc;

use flownet_runtime::canonical;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use super::encode::Encoder;
use super::exact::exact;
use super::{CodecError, MAX_DEPTH, Pickle, SentClasses, class_key, number, numpy, pandas, tag, temporal};

/// Relation of a key's canonical bytes to the key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyForm {
    /// Decoding them returns the key in value and type.
    AsGiven,
    /// Decoding them returns an equal key of another type or form.
    Changed,
}

/// Appends the canonical form of `key` to `out`.
///
/// On an error `out` may hold a part of it: the caller truncates or drops it.
#[inline]
pub fn encode_key(key: &Bound<'_, PyAny>, classes: &mut SentClasses, out: &mut Vec<u8>) -> Result<KeyForm, CodecError> {
    let mut encoder = Encoder::new(classes, out);
    let as_given = if let Some(text) = exact::<PyString>(key) {
        encoder.string(text)?;
        true
    } else {
        encoder.key(key, 0)?
    };
    Ok(if as_given { KeyForm::AsGiven } else { KeyForm::Changed })
}

/// The canonical form of `key` alone.
pub fn canonical_key(key: &Bound<'_, PyAny>) -> Result<Vec<u8>, CodecError> {
    let (mut classes, mut bytes) = (SentClasses::new(Arc::default(), Pickle::Refused), Vec::new());
    encode_key(key, &mut classes, &mut bytes)?;
    Ok(bytes)
}

/// The kind of a canonical key with this first byte. The kind of `None` says nothing: it represents an absent
/// key.
pub fn key_kind(first_byte: u8) -> u8 {
    match first_byte {
        tag::FALSE..=tag::COMPLEX | tag::DECIMAL | tag::NUMPY_SCALAR | tag::SMALL_INT.. => 1,
        tag::STR | tag::SURROGATE_STR | tag::SHORT_STR..tag::SMALL_INT => 2,
        tag::BYTES | tag::BYTEARRAY => 3,
        tag::TUPLE => 4,
        tag::SET | tag::FROZENSET => 5,
        tag::DATE..=tag::TIMEDELTA | tag::TIMESTAMP => 6,
        tag::UUID => 7,
        tag::CLASS_KEY => 8,
        _ => 0,
    }
}

/// The user's name of a kind.
pub fn kind_name(kind: u8) -> &'static str {
    let names = ["number", "str", "bytes", "tuple", "frozenset", "date or time", "UUID", "class of the user's"];
    names.get(usize::from(kind).wrapping_sub(1)).copied().unwrap_or("another")
}

const UNHASHABLE: &str = "a key must be hashable, and this can change";
pub(super) const SUPPORTED: &str = "keys are None, bool, int, float, complex, str, bytes, Decimal, UUID, dates and times, numpy numbers \
                                    and strings, Enums, and tuples, frozensets, NamedTuples and frozen dataclasses of these";

impl Encoder<'_> {
    /// Encodes a key. Returns true if decoding returns the key itself.
    pub(super) fn key(&mut self, key: &Bound<'_, PyAny>, depth: usize) -> Result<bool, CodecError> {
        if let Some(text) = exact::<PyString>(key) {
            self.string(text)?;
        } else if let Some(int) = exact::<PyInt>(key) {
            self.int(int)?;
        } else if let Some(bytes) = exact::<PyBytes>(key) {
            self.blob(tag::BYTES, bytes.as_bytes());
        } else if key.is_none() {
            self.out.push(tag::NONE);
        } else if let Some(flag) = exact::<PyBool>(key) {
            self.small_int(i64::from(flag.is_true()));
            return Ok(false);
        } else if let Some(float) = exact::<PyFloat>(key) {
            return Ok(self.float_key(float.value()));
        } else if depth == MAX_DEPTH {
            return Err(CodecError::TooDeep { limit: MAX_DEPTH });
        } else if let Some(tuple) = exact::<PyTuple>(key) {
            return self.tuple_key(tuple, depth);
        } else if let Some(set) = exact::<PyFrozenSet>(key) {
            return self.frozenset_key(set, depth);
        } else {
            return self.rare_key(key, depth);
        }
        Ok(true)
    }

    pub(super) fn tuple_key(&mut self, tuple: &Bound<'_, PyTuple>, depth: usize) -> Result<bool, CodecError> {
        self.count(tag::TUPLE, tuple.len());
        let mut as_given = true;
        for item in tuple.iter_borrowed() {
            as_given &= self.key(&item, depth + 1)?;
        }
        Ok(as_given)
    }

    fn frozenset_key(&mut self, set: &Bound<'_, PyFrozenSet>, depth: usize) -> Result<bool, CodecError> {
        let mut as_given = true;
        let mut items = Vec::with_capacity(set.len());
        for item in set.try_iter()? {
            let mut bytes = Vec::new();
            as_given &= Encoder::new(self.classes, &mut bytes).key(&item?, depth + 1)?;
            items.push(bytes);
        }
        items.sort_unstable();
        self.count(tag::FROZENSET, items.len());
        items.iter().for_each(|item| self.out.extend_from_slice(item));
        Ok(as_given)
    }

    /// Encodes a float. Integral floats are exact in an int of any size, and -0.0 becomes 0.
    fn float_key(&mut self, value: f64) -> bool {
        canonical::put_float_key(self.out, value);
        !value.is_finite() || value.fract() != 0.0
    }

    fn rare_key(&mut self, key: &Bound<'_, PyAny>, depth: usize) -> Result<bool, CodecError> {
        if let Some(class) = self.classes.find(key) {
            return class_key::encode(self, key, &class, depth);
        }
        if let Some(complex) = exact::<PyComplex>(key) {
            return self.complex_key(complex);
        }
        if let Some(as_given) = temporal::encode_key(self, key)? {
            return Ok(as_given);
        }
        if key.get_type().is(number::decimal_type(key.py())?) {
            return self.decimal_key(key);
        }
        if number::encode_other(self, key)? {
            return Ok(true);
        }
        if pandas::encode_key(self, key)? || numpy::encode_time_key(self, key)? {
            return Ok(false);
        }
        if let Some(equal) = numpy::as_python(key)? {
            self.key(&equal, depth + 1)?;
            return Ok(false);
        }
        let unhashable = key.is_instance_of::<PyList>()
            || key.is_instance_of::<PyDict>()
            || key.is_instance_of::<PySet>()
            || key.is_instance_of::<PyByteArray>();
        if unhashable {
            return Err(CodecError::unsupported_key(key, UNHASHABLE));
        }
        let class = self.classes.learn(&key.get_type())?;
        class_key::encode(self, key, &class, depth)
    }

    fn complex_key(&mut self, complex: &Bound<'_, PyComplex>) -> Result<bool, CodecError> {
        let (real, imaginary) = (complex.real(), complex.imag());
        if imaginary == 0.0 {
            self.float_key(real);
            return Ok(false);
        }
        // Adding zero turns -0.0 into 0.0 and leaves every other number unchanged.
        let plain = PyComplex::from_doubles(complex.py(), real + 0.0, imaginary);
        number::encode_complex(&plain, self.out);
        Ok(real.to_bits() == (real + 0.0).to_bits())
    }

    /// Encodes a Decimal. An integral one becomes the int. One that a float holds exactly becomes the float.
    /// Any other becomes its digits without trailing zeros.
    fn decimal_key(&mut self, key: &Bound<'_, PyAny>) -> Result<bool, CodecError> {
        if key.call_method0("is_nan")?.is_truthy()? {
            self.float(f64::NAN);
            return Ok(false);
        }
        let float: f64 = key.call_method0("__float__").and_then(|float| float.extract()).unwrap_or(f64::INFINITY);
        if key.eq(PyFloat::new(key.py(), float))? {
            self.float_key(float);
            return Ok(false);
        }
        if key.call_method0("adjusted")?.extract::<i64>()? > MAX_DECIMAL_EXPONENT {
            return Err(CodecError::unsupported_key(key, "its exponent is beyond 4096"));
        }
        let ratio = key.call_method0("as_integer_ratio")?;
        if ratio.get_item(1)?.eq(1)? {
            self.int(ratio.get_item(0)?.cast::<PyInt>().map_err(PyErr::from)?)?;
            return Ok(false);
        }
        let digits: String = key.str()?.extract()?;
        let plain = without_trailing_zeros(&digits);
        self.blob(tag::DECIMAL, plain.as_bytes());
        Ok(number::decode_decimal(key.py(), plain.as_bytes())?.str()?.to_str()? == digits)
    }
}

/// Larger integral Decimals would need an int of thousands of digits.
const MAX_DECIMAL_EXPONENT: i64 = 4096;

/// Strips trailing zeros of a fraction's digits, before an exponent if there is one. Then writes
/// `<sign><digits>E<exponent>`, which is one text for all Decimals of one value.
fn without_trailing_zeros(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('E').unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let stripped = digits.trim_end_matches('0');
    // `fraction` and the exponent are far below an i64's range: Decimal bounds both.
    let exponent =
        exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64 + (digits.len() - stripped.len()) as i64;
    format!("{sign}{}E{exponent}", stripped.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::without_trailing_zeros;

    #[test]
    fn equal_decimals_have_one_text() {
        for text in ["0.10", "0.1", "1E-1", "10E-2", "0.1000"] {
            assert_eq!(without_trailing_zeros(text), "1E-1");
        }
        assert_eq!(without_trailing_zeros("-12.340"), "-1234E-2");
    }
}
