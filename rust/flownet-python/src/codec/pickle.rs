//! Opt-in encoding of types outside the codec.
//!
//! cloudpickle writes and plain pickle reads. The bytes name classes by number, as instances of the codec do.
//! So a class of the script is sent once, and not with each value.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyType};

use super::decode::Decoder;
use super::encode::Encoder;
use super::{CodecError, tag};

static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub(super) fn encode(encoder: &mut Encoder<'_>, value: &Bound<'_, PyAny>) -> Result<(), CodecError> {
    let py = value.py();
    let dumps = DUMPS.import(py, "flownet.internal.record_classes", "dumps")?;
    let pickled = dumps.call1((value, encoder.classes.shared()))?;
    let (bytes, met): (Bound<'_, PyBytes>, Bound<'_, PyList>) = pickled.extract()?;
    for class in met {
        let class = encoder.classes.learn(class.cast::<PyType>().map_err(PyErr::from)?)?;
        encoder.classes.tell(&class, py)?;
    }
    encoder.blob(tag::PICKLE, bytes.as_bytes());
    Ok(())
}

pub(super) fn decode<'py>(decoder: &mut Decoder<'_>, py: Python<'py>) -> Result<Bound<'py, PyAny>, CodecError> {
    let bytes = PyBytes::new(py, decoder.blob()?);
    Ok(LOADS.import(py, "flownet.internal.record_classes", "loads")?.call1((bytes, decoder.classes.shared()))?)
}
