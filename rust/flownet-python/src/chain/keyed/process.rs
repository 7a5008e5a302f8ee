//! `process` by key: calls a user's function with state and timers for each key, over one input or two.

use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_core::keygroup::hash_key;
use flownet_runtime::operator::{EventTime, InspectedState, KeyedOperator, KeyedRecord, Operator, StateKind};
use flownet_runtime::snapshot::{IsOver, RestoredState, STATE_KINDS, Snapshot, SnapshotError};
use flownet_runtime::spec::ProcessInputs;
use flownet_runtime::state::{KeyEntry, KeyGroupRange, LargeState};
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::time::{Clock, END_OF_TIME_MS, NO_TIMESTAMP};
use flownet_runtime::timer::{KeptTimers, TimerKey};
use flownet_runtime::{TaskContext, TaskError, TaskMetrics};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use super::KeyedBase;
use super::mapping_values::Mappings;
use super::results::EmitSides;
use crate::chain::call::{call1, call2};
use crate::chain::context::{CallEffects, CallTime, PyProcessContext, PyTaskContext};
use crate::chain::function::methods;
use crate::chain::record_format::{Collector, EmitEach, PythonFormat};

/// The user's function, the mapping of each key, and the timers.
pub(in crate::chain) struct Process {
    base: KeyedBase,
    function: Py<PyAny>,
    inputs: ProcessInputs,
    state: LargeState<Py<PyDict>>,
    /// Timers by the wall clock, and by event time.
    timers: [KeptTimers; 2],
    /// Keys with state that expires, by the wall clock and by event time.
    expiries: [KeptTimers; 2],
    time: EventTime,
    metrics: Option<Arc<TaskMetrics>>,
    bound: Option<BoundMethods>,
    /// Kinds of its typed states, by their names.
    kinds: BTreeMap<String, String>,
}

/// Methods that `open` looks up once for all records.
struct BoundMethods {
    process: Vec<Py<PyAny>>,
    on_timer: Py<PyAny>,
    finish: Option<Py<PyAny>>,
    context: Py<PyProcessContext>,
}

const PROCESSING: usize = 0;
const EVENT: usize = 1;

impl Process {
    /// An operator for the keys of these groups.
    pub(in crate::chain) fn new(
        base: KeyedBase,
        function: Py<PyAny>,
        inputs: ProcessInputs,
        range: KeyGroupRange,
    ) -> Self {
        Self {
            base,
            function,
            inputs,
            state: LargeState::new(range),
            timers: [KeptTimers::new(), KeptTimers::new()],
            expiries: [KeptTimers::new(), KeptTimers::new()],
            time: EventTime::new(),
            metrics: None,
            bound: None,
            kinds: BTreeMap::new(),
        }
    }

    fn bound(&self) -> Result<&BoundMethods, TaskError> {
        self.bound.as_ref().ok_or_else(|| TaskError::Config("process() was called before open()".into()))
    }

    fn method(&self, py: Python<'_>, side: u8) -> Result<Py<PyAny>, TaskError> {
        let method = self.bound()?.process.get(usize::from(side));
        let method = method.ok_or_else(|| TaskError::Config("a process function got a record of no input".into()))?;
        Ok(method.clone_ref(py))
    }

    /// Sets the context to a key. Its mapping is the stored one, or a new one, which is stored if it gets
    /// entries.
    fn enter_key<'py>(
        &mut self,
        py: Python<'py>,
        key: &[u8],
        given: &[u8],
        at: CallTime,
    ) -> Result<Bound<'py, PyProcessContext>, TaskError> {
        let mappings = Mappings { base: &self.base, py, name: STATE };
        let held = self.state.get_mut(key, hash_key(key), &mappings)?;
        let state = held.map(|held| held.value.clone_ref(py));
        let key = self.base.decode(py, given)?;
        let context = self.bound()?.context.bind(py).clone();
        context.get().enter(Some(key.unbind()), state, at);
        Ok(context)
    }

    /// Emits the records that the function returned, then stores its changes of state and timers.
    fn leave_key<'py>(
        &mut self,
        owner: impl Fn() -> TimerKey,
        (key, hash): (&[u8], u32),
        record: Option<&Bound<'py, PyAny>>,
        (function, result): (&Bound<'py, PyAny>, PyResult<Bound<'py, PyAny>>),
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        self.emit(record, (function, result), collector)?;
        let CallEffects { state, timers, expires_ms, late, sides } = self.bound()?.context.get().leave();
        if let (Some(metrics), 1..) = (&self.metrics, late) {
            metrics.add_late_records(late);
        }
        self.keep(collector.token, (key, hash), || owner().given().map(Into::into), state)?;
        for (clock, timestamp_ms, is_set) in timers {
            let timers = &mut self.timers[if clock == Clock::Event { EVENT } else { PROCESSING }];
            if is_set {
                timers.register(timestamp_ms, owner());
            } else {
                timers.delete(timestamp_ms, owner())?;
            }
        }
        for (expiries, expires_ms) in self.expiries.iter_mut().zip(expires_ms) {
            expires_ms.into_iter().for_each(|at_ms| expiries.register(at_ms, owner()));
        }
        self.make_room_for_timers()?;
        sides.emit(collector)
    }

    #[inline]
    fn make_room_for_timers(&mut self) -> Result<(), TaskError> {
        self.timers.iter_mut().chain(&mut self.expiries).try_for_each(KeptTimers::make_room)
    }

    /// Stores a key's mapping, if it has entries.
    fn keep(
        &mut self,
        py: Python<'_>,
        (key, hash): (&[u8], u32),
        given: impl FnOnce() -> Option<Box<[u8]>>,
        mapping: Option<Py<PyDict>>,
    ) -> Result<(), TaskError> {
        let Self { base, state, .. } = self;
        let Some(mapping) = mapping else { return Ok(()) };
        let mappings = Mappings { base, py, name: STATE };
        if mapping.bind(py).is_empty() {
            return state.remove(key, hash);
        }
        match state.get_mut(key, hash, &mappings)? {
            Some(held) => held.value = mapping,
            None => state.insert_new(key, hash, KeyEntry::of(given(), mapping))?,
        }
        state.make_room(&mappings)
    }

    fn emit<'py>(
        &self,
        record: Option<&Bound<'py, PyAny>>,
        (function, result): (&Bound<'py, PyAny>, PyResult<Bound<'py, PyAny>>),
        collector: &mut Collector<'_, 'py>,
    ) -> Result<(), TaskError> {
        let py = collector.token;
        let given = if record.is_some() { "a record and a context" } else { "a time and a context" };
        let failed = |error: PyErr| self.base.info.call_failed(py, &error, function, given, record);
        let items = result.map_err(failed)?;
        // A generator runs here, so the context must still be on its key.
        if items.is_none() { Ok(()) } else { collector.emit_each(&items, failed) }
    }

    fn fire(
        &mut self,
        (clock, timestamp_ms): (Clock, i64),
        owner: &TimerKey,
        collector: &mut Collector<'_, '_>,
    ) -> Result<(), TaskError> {
        collector.cancel().check()?;
        let py = collector.token;
        // Records that a timer of event time emits have its time.
        collector.timestamp_ms = if clock == Clock::Event { timestamp_ms } else { NO_TIMESTAMP };
        let at = CallTime { timestamp_ms, watermark_ms: self.time.of(owner.hash()), clock: Some(clock) };
        let context = self.enter_key(py, owner.key(), owner.key_value(), at)?;
        let timestamp = PyInt::new(py, timestamp_ms).into_any();
        let function = self.bound()?.on_timer.bind(py).clone();
        let result = call2(&function, &timestamp, context.as_any());
        collector.timestamp_ms = context.get().as_of_ms().unwrap_or(collector.timestamp_ms);
        self.leave_key(|| owner.clone(), (owner.key(), owner.hash()), None, (&function, result), collector)
    }

    /// Refuses state that is declared as another kind than before.
    fn check_kinds(&self, from: &RestoredState<'_>) -> Result<(), TaskError> {
        for (_, mut item) in from.items(STATE_KINDS)? {
            let Ok(text) = str::from_utf8(item.rest()) else { return Err(item.broken("a name that is no UTF-8")) };
            let (was, name) = text.split_once(' ').unwrap_or_default();
            if let Some(is) = self.kinds.get(name).filter(|is| *is != was) {
                let reason = format!(
                    "its state '{name}' was of kind {was} and is declared as kind {is} now, which cannot read it; \
                     declare it as it was, or give the new one another name"
                );
                return Err(SnapshotError::Refused { uid: self.base.info.operator.clone(), reason }.into());
            }
        }
        Ok(())
    }

    /// Frees the expired state of the keys that are due by a clock.
    fn expire(&mut self, (clock, now_ms): (usize, i64), py: Python<'_>) -> Result<(), TaskError> {
        while let Some((_, owner)) = self.expiries[clock].pop_due(now_ms)? {
            let mappings = Mappings { base: &self.base, py, name: STATE };
            let Some(held) = self.state.get_mut(owner.key(), owner.hash(), &mappings)? else { continue };
            let mapping = held.value.clone_ref(py);
            let expire = || py.import(intern!(py, "flownet.state"))?.getattr(intern!(py, "expire"));
            let next_ms = expire()
                .and_then(|expire| expire.call1((&mapping, now_ms, clock == EVENT)))
                .and_then(|next_ms| next_ms.extract::<Option<i64>>())
                .map_err(|error| self.base.info.failed(py, &error, None))?;
            let given = || owner.given().map(Into::into);
            self.keep(py, (owner.key(), owner.hash()), given, Some(mapping))?;
            if let Some(next_ms) = next_ms {
                self.expiries[clock].register(next_ms, owner);
                self.expiries[clock].make_room()?;
            }
        }
        Ok(())
    }
}

/// The name of the function's class, if the class does not define `on_timer`.
fn without_on_timer(function: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let (py, class) = (function.py(), function.get_type());
    let base = py.import("flownet.api.functions")?.getattr("KeyedProcessFunction")?;
    let is_missing = class.getattr(intern!(py, "on_timer"))?.is(&base.getattr(intern!(py, "on_timer"))?)
        && function.getattr(intern!(py, "on_timer"))?.hasattr(intern!(py, "__func__"))?;
    Ok(if is_missing { Some(class.name()?.to_string()) } else { None })
}

impl Operator<PythonFormat> for Process {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        self.state.open_beside_timers(STATE, cx)?;
        for (timers, name) in self.timers.iter_mut().chain(&mut self.expiries).zip(TIMERS) {
            timers.open(name, TIMERS.len(), cx);
        }
        let task = PyTaskContext::new(&self.base.info, cx);
        let function = self.function.bind(py);
        let open = || {
            let context = PyProcessContext::new(py, task.clone(), true, without_on_timer(function)?);
            let method = |name: &&str| function.getattr(*name).map(Bound::unbind);
            let context = Py::new(py, context)?;
            let bound = BoundMethods {
                process: methods(self.inputs).iter().map(method).collect::<PyResult<_>>()?,
                on_timer: function.getattr(intern!(py, "on_timer"))?.unbind(),
                finish: function.getattr_opt(intern!(py, "finish"))?.map(Bound::unbind),
                context,
            };
            let opened = py.import(intern!(py, "flownet.state"))?.getattr(intern!(py, "OpenContext"))?;
            let opened = opened.call1((task, &bound.context))?;
            call1(&function.getattr(intern!(py, "open"))?, &opened)?;
            PyResult::Ok((bound, opened.getattr(intern!(py, "_kinds"))?.extract()?))
        };
        let (bound, kinds) = open().map_err(|error| self.base.info.failed(py, &error, None))?;
        (self.bound, self.kinds) = (Some(bound), kinds);
        Ok(())
    }

    /// Processes a record of the broadcast side, which has no key.
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py = collector.token;
        let context = self.bound()?.context.bind(py).clone();
        context.get().enter(
            None,
            None,
            CallTime { timestamp_ms: collector.timestamp_ms, watermark_ms: self.time.watermark_ms(), clock: None },
        );
        let function = self.method(py, collector.side())?.into_bound(py);
        let result = call2(&function, &record, context.as_any());
        self.emit(Some(&record), (&function, result), collector)?;
        context.get().leave().sides.emit(collector)
    }

    fn on_watermark(&mut self, timestamp_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let watermark_ms = self.time.advance(timestamp_ms);
        while let Some((due_ms, owner)) = self.timers[EVENT].pop_due(watermark_ms)? {
            self.fire((Clock::Event, due_ms), &owner, collector)?;
        }
        // At the end of the input no function reads state any more. A job that resumes from here finds all of
        // it.
        if watermark_ms == END_OF_TIME_MS { Ok(()) } else { self.expire((EVENT, watermark_ms), collector.token) }
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.timers[PROCESSING].next_ms().into_iter().chain(self.expiries[PROCESSING].next_ms()).min()
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        while let Some((timestamp_ms, owner)) = self.timers[PROCESSING].pop_due(now_ms)? {
            self.fire((Clock::Processing, timestamp_ms), &owner, collector)?;
        }
        self.expire((PROCESSING, now_ms), collector.token)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.state.end_batch(&Mappings { base: &self.base, py: collector.token, name: STATE })
    }

    /// Fires the pending timers, and none that these set: a timer that sets itself again would never end.
    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let mut pending = self.timers[PROCESSING].take();
        while let Some((timestamp_ms, owner)) = pending.pop_due(i64::MAX)? {
            self.fire((Clock::Processing, timestamp_ms), &owner, collector)?;
        }
        let py = collector.token;
        let Some(finish) = self.bound()?.finish.as_ref().map(|finish| finish.clone_ref(py).into_bound(py)) else {
            return Ok(());
        };
        let context = self.bound()?.context.bind(py).clone();
        context.get().enter(
            None,
            None,
            CallTime { timestamp_ms: NO_TIMESTAMP, watermark_ms: self.time.watermark_ms(), clock: None },
        );
        let result = call1(&finish, context.as_any());
        self.emit(None, (&finish, result), collector)?;
        context.get().leave().sides.emit(collector)
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_keys(self.state.len());
        tally.add_timers(self.timers.iter().chain(&self.expiries).map(KeptTimers::len).sum());
    }

    fn inspect<'py>(&self, py: Python<'py>, found: &mut InspectedState<Bound<'py, PyAny>>) -> Result<(), TaskError> {
        self.state.each(&Mappings { base: &self.base, py, name: STATE }, |key, held| {
            found.add(StateKind::State, Some(held.key_value(key)), None, held.value.bind(py).clone().into_any());
            Ok(())
        })?;
        for (clock, timers) in [(Clock::Processing, &self.timers[PROCESSING]), (Clock::Event, &self.timers[EVENT])] {
            timers.each(|timestamp_ms, owner| {
                found.add_timer(clock, timestamp_ms, Some(owner.key_value()), None);
                Ok::<_, TaskError>(())
            })?;
        }
        let shared = self.bound()?.context.get().shared(py);
        if !shared.is_empty() {
            found.add(StateKind::BroadcastState, None, None, shared.clone().into_any());
        }
        Ok(())
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let range = self.state.range();
        let mappings = Mappings { base: &self.base, py, name: STATE };
        to.begin_large(STATE, &[self.time.kept_ms()], &mut self.state, &mappings)?;
        self.time.snapshot(to)?;
        for (timers, name) in self.timers.iter_mut().chain(&mut self.expiries).zip(TIMERS) {
            to.add_timers(name, range, timers)?;
        }
        if !self.kinds.is_empty() {
            to.add_items(STATE_KINDS, self.kinds.iter().map(|(name, kind)| format!("{kind} {name}")));
        }
        let context = self.bound()?.context.bind(py).clone();
        context.get().keep_broadcast(self.inputs, &self.base.info, &mut self.base.kept.borrow_mut(), to)
    }

    fn abort(&mut self, _: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        self.state.abort(checkpoint_id);
        Ok(())
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        self.check_kinds(from)?;
        from.read_large(STATE, &mut self.state, &Mappings { base: &self.base, py, name: STATE })?;
        self.time.restore(from, STATE, self.state.range())?;
        for (timers, name) in self.timers.iter_mut().chain(&mut self.expiries).zip(TIMERS) {
            from.read_timers(name, timers)?;
        }
        let context = self.bound()?.context.bind(py).clone();
        context.get().restore_broadcast(py, &self.base.info, &self.base.classes, from)
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let closed = self.function.bind(py).call_method0(intern!(py, "close"));
        closed.map(drop).map_err(|error| self.base.info.failed(py, &error, None))
    }
}

impl KeyedOperator<PythonFormat> for Process {
    fn process_keyed(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let py = collector.token;
        let value = self.base.decode(py, record.value())?;
        let at = CallTime { timestamp_ms: record.timestamp_ms, watermark_ms: self.time.of(record.hash), clock: None };
        let context = self.enter_key(py, record.key, record.key_value(), at)?;
        let function = self.method(py, record.side)?.into_bound(py);
        let result = call2(&function, &value, context.as_any());
        let owner = || TimerKey::of(record);
        self.leave_key(owner, (record.key, record.hash), Some(&value), (&function, result), collector)
    }

    fn is_writing(&self) -> bool {
        self.state.is_writing()
    }

    fn write_on(&mut self, py: Python<'_>, to: &mut Snapshot<'_>, is_over: IsOver<'_>) -> Result<(), TaskError> {
        to.write_on(STATE, &mut self.state, &Mappings { base: &self.base, py, name: STATE }, is_over)
    }
}

/// Name of its states.
const STATE: &str = "state";
const TIMERS: [&str; 4] = ["timers.processing", "timers.event", "timers.expiry", "timers.event_expiry"];
