//! Collects all records of a window for a user's function. Until then they are bytes, which take a fraction
//! of the memory of objects.

use flownet_runtime::operator::{Fold, InspectedState, KeyedRecord, StateKind};
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_block, put_signed};
use flownet_runtime::varint::put_varint;
use flownet_runtime::window::Window;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::KeyedBase;
use super::mapping_values::pass_option;
use super::results::Results;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::codec::Decoder;

/// Calls a user's function once for each key and window.
pub(in crate::chain) struct Collect {
    base: KeyedBase,
    results: Results,
    evictor: Option<Evictor>,
}

/// Removes records from a window.
pub(in crate::chain) struct Evictor {
    evictor: Py<PyAny>,
    /// True if it runs after the function, false if before.
    after: bool,
}

impl Evictor {
    pub(in crate::chain) fn new(py: Python<'_>, evictor: Py<PyAny>) -> PyResult<Self> {
        let after = evictor.bind(py).getattr(intern!(py, "after"))?.is_truthy()?;
        Ok(Self { evictor, after })
    }
}

/// The records of a window.
#[derive(Default)]
pub(in crate::chain) struct Records {
    /// Their encodings, one after the other.
    bytes: Vec<u8>,
    /// With an evictor: the time of each record, and the end of its encoding.
    places: Vec<(i64, usize)>,
    /// State of the user's function for the window.
    state: Option<Py<PyDict>>,
}

impl Collect {
    pub(in crate::chain) fn new(base: KeyedBase, results: Results, evictor: Option<Evictor>) -> Self {
        Self { base, results, evictor }
    }

    fn decode_all<'py>(&self, py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyList>, TaskError> {
        let values = PyList::empty(py);
        let mut decoder = Decoder::new(bytes, &self.base.classes);
        while !decoder.is_empty() {
            let value = decoder.next_value(py).and_then(|value| Ok(values.append(value)?));
            value.map_err(|error| self.base.info.codec_failed(py, error, None))?;
        }
        Ok(values)
    }

    /// Asks the evictor which records to retain, and drops the others.
    fn evict<'py>(
        &self,
        window: Window,
        records: &mut Records,
        values: Bound<'py, PyList>,
    ) -> Result<Bound<'py, PyList>, TaskError> {
        let Some(Evictor { evictor, .. }) = &self.evictor else { return Ok(values) };
        let py = values.py();
        let failed = |error: PyErr| self.base.info.failed(py, &error, None);
        let times: Vec<i64> = records.places.iter().map(|(timestamp_ms, _)| *timestamp_ms).collect();
        let kept: Vec<usize> = evictor
            .bind(py)
            .call_method1(intern!(py, "_kept"), (times, &values, window.end_ms))
            .and_then(|kept| kept.extract())
            .map_err(failed)?;
        if kept.len() == values.len() {
            return Ok(values);
        }
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        let left = PyList::empty(py);
        for at in kept {
            let start = if at == 0 { 0 } else { records.places[at - 1].1 };
            let (timestamp_ms, end) = records.places[at];
            bytes.extend_from_slice(&records.bytes[start..end]);
            places.push((timestamp_ms, bytes.len()));
            values.get_item(at).and_then(|value| left.append(value)).map_err(failed)?;
        }
        (records.bytes, records.places) = (bytes, places);
        Ok(left)
    }
}

impl Fold<PythonFormat> for Collect {
    type Value = Records;

    #[inline]
    fn absorb(&self, record: &KeyedRecord<'_>, records: &mut Records) -> bool {
        records.bytes.extend_from_slice(record.value());
        if self.evictor.is_some() {
            records.places.push((record.timestamp_ms, records.bytes.len()));
        }
        true
    }

    fn fold(&self, _: Python<'_>, record: &KeyedRecord<'_>, records: &mut Records) -> Result<(), TaskError> {
        self.absorb(record, records);
        Ok(())
    }

    fn merge(&self, py: Python<'_>, records: &mut Records, later: &Records) -> Result<(), TaskError> {
        let before = records.bytes.len();
        records.bytes.extend_from_slice(&later.bytes);
        records.places.extend(later.places.iter().map(|(timestamp_ms, end)| (*timestamp_ms, before + end)));
        if records.state.is_none() {
            records.state = later.state.as_ref().map(|state| state.clone_ref(py));
        }
        Ok(())
    }

    fn has_records(&self, records: &Records) -> bool {
        !records.bytes.is_empty()
    }

    fn emit(
        &mut self,
        window: Window,
        key: &[u8],
        records: &mut Records,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        let values = self.decode_all(collector.token, &records.bytes)?;
        if !self.evictor.as_ref().is_some_and(|evictor| evictor.after) {
            let values = self.evict(window, records, values)?;
            if values.is_empty() {
                return Ok(());
            }
            return self.results.process(&self.base, (window, key), values, Some(&mut records.state), collector);
        }
        self.results.process(&self.base, (window, key), values, Some(&mut records.state), collector)?;
        // The function may have changed the objects that it received, so decode them again.
        let values = self.decode_all(collector.token, &records.bytes)?;
        self.evict(window, records, values).map(drop)
    }

    fn emit_so_far(&mut self, _: &[u8], _: &Records, _: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        Err(TaskError::Config("a function over the records of a window was given none".into()))
    }

    fn purge(&self, records: &mut Records) {
        records.bytes.clear();
        records.places.clear();
    }

    fn clear(
        &mut self,
        window: Window,
        key: &[u8],
        records: Records,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        self.results.clear(&self.base, (window, key), records.state, collector)
    }

    fn write(&self, py: Python<'_>, key: &[u8], records: &Records, out: &mut Vec<u8>) -> Result<(), TaskError> {
        put_block(out, &records.bytes);
        put_varint(out, records.places.len() as u64);
        for (timestamp_ms, end) in &records.places {
            put_signed(out, *timestamp_ms);
            put_varint(out, *end as u64);
        }
        let state = records.state.as_ref().map(|state| state.bind(py).as_any());
        self.base.put_option(py, ("window_state", key), state, out)
    }

    fn read(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<Records, TaskError> {
        let mut places = Vec::new();
        let bytes = read_records(input, |timestamp_ms, end| places.push((timestamp_ms, end)))?.to_vec();
        Ok(Records { bytes, places, state: self.base.take_optional_dict(py, input)? })
    }

    fn pass(&self, _: Python<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        read_records(input, |_, _| ())?;
        pass_option(input)
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        self.results.snapshot(py, &self.base, to)
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.results.restore(py, &self.base, from)
    }

    fn on_watermark(&mut self, watermark_ms: i64) {
        self.results.set_watermark(watermark_ms);
    }

    fn record<'py>(
        &self,
        record: &KeyedRecord<'_>,
        collector: &Collector<'_, 'py>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        self.base.decode(collector.token, record.value())
    }

    fn without_timestamp(&self, py: Python<'_>, record: &KeyedRecord<'_>) -> TaskError {
        self.base.without_timestamp(py, record)
    }

    fn inspect_value<'py>(
        &self,
        py: Python<'py>,
        (key, window): (&[u8], Option<Window>),
        records: &Records,
        found: &mut InspectedState<Bound<'py, PyAny>>,
    ) -> Result<(), TaskError> {
        found.add(StateKind::Window, Some(key), window, self.decode_all(py, &records.bytes)?.into_any());
        if let Some(state) = &records.state {
            found.add(StateKind::WindowState, Some(key), window, state.bind(py).clone().into_any());
        }
        Ok(())
    }

    fn inspect<'py>(&self, py: Python<'py>, found: &mut InspectedState<Bound<'py, PyAny>>) -> Result<(), TaskError> {
        self.results.inspect(py, found);
        Ok(())
    }

    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.results.open(py, &self.base, cx)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        self.results.close(py, &self.base)
    }
}

/// Reads the bytes of written records. Calls `each` with the time of each record and the end of its bytes.
fn read_records<'a>(input: &mut Input<'a>, mut each: impl FnMut(i64, usize)) -> Result<&'a [u8], TaskError> {
    let (bytes, mut last) = (input.block()?, 0);
    for _ in 0..input.varint()? {
        let (timestamp_ms, end) = (input.signed()?, usize::try_from(input.varint()?).unwrap_or(usize::MAX));
        if !(last..=bytes.len()).contains(&end) {
            return Err(input.broken("records of a window that overlap or end beyond it"));
        }
        last = end;
        each(timestamp_ms, end);
    }
    Ok(bytes)
}
