//! The `assign_timestamps` operator: assigns event times to rows and generates watermarks.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Schema};
use flownet_runtime::operator::{Collector, Operator, TimestampAssigner};
use flownet_runtime::snapshot::{RestoredState, Snapshot, WATERMARK, put_signed};
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use flownet_runtime::watermark::{GeneratedSignals, OutOfOrder, SplitSignal, SplitWatermarks, TimeRange};
use flownet_runtime::work::Work;
use flownet_runtime::{TaskContext, TaskError, TaskMetrics};

use crate::event_time::{Nanos, times_of};
use crate::mistaken_unit::{MistakenUnit, mistaken_unit};
use crate::record_format::{CarriesRows, OperatorInfo};
use crate::type_names::type_name;

/// Assigns event times to rows and emits watermarks.
pub(crate) struct Timestamps {
    column: usize,
    name: String,
    /// Whether the unit of integer times has not been checked yet.
    has_unknown_unit: bool,
    watermarks: SplitWatermarks,
    order: OutOfOrder,
    metrics: Option<Arc<TaskMetrics>>,
    info: OperatorInfo,
}

/// A column holds no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTimes {
    /// The schema has no column of this name.
    #[error("event time: there is no column '{column}'; there are {columns}")]
    Missing {
        /// Name that was requested.
        column: String,
        /// Names that exist.
        columns: String,
    },
    /// The type of the column does not represent times.
    #[error(
        "event time: column '{column}' is of type {}; event time is a timestamp, a date, or an int64 of \
         milliseconds since 1970-01-01 UTC: cast it before",
        type_name(.data_type)
    )]
    Type {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
}

/// Returns the index of the column of times.
pub fn time_column(schema: &Schema, column: &str) -> Result<usize, NoTimes> {
    let Ok(place) = schema.index_of(column) else {
        let columns = schema.fields().iter().map(|field| format!("'{}'", field.name())).collect::<Vec<_>>().join(", ");
        return Err(NoTimes::Missing { column: column.to_owned(), columns });
    };
    match schema.field(place).data_type() {
        DataType::Int64 | DataType::Timestamp(..) | DataType::Date32 => Ok(place),
        data_type => Err(NoTimes::Type { column: column.to_owned(), data_type: data_type.clone() }),
    }
}

impl Timestamps {
    /// Creates the operator for rows of `schema` with times in `column`.
    pub(crate) fn new(
        schema: &Schema,
        column: &str,
        watermarks: SplitWatermarks,
        info: OperatorInfo,
    ) -> Result<Self, TaskError> {
        let order = OutOfOrder::new(watermarks.watermarks());
        let place = time_column(schema, column).map_err(|error| TaskError::Config(error.to_string()))?;
        let has_unknown_unit = *schema.field(place).data_type() == DataType::Int64;
        let name = column.to_owned();
        Ok(Self { column: place, name, has_unknown_unit, watermarks, order, metrics: None, info })
    }

    fn times(&self, array: &ArrayRef) -> Result<(ScalarBuffer<i64>, Option<Nanos>), TaskError> {
        let times = times_of(array).map_err(|error| self.info.failed("ValueError", error.to_string(), None))?;
        let (milliseconds, nanos) = times;
        if milliseconds.null_count() > 0 {
            let row = (0..milliseconds.len()).find(|row| milliseconds.is_null(*row)).unwrap_or(0);
            let message = format!(
                "row {row} of a batch of {} has no time in column '{}': filter such rows out before, or fill_null() them",
                array.len(),
                self.name
            );
            return Err(self.info.failed("ValueError", message, None));
        }
        Ok((milliseconds.values().clone(), nanos))
    }

    #[cold]
    fn not_milliseconds(&self, unit: MistakenUnit) -> String {
        let (name, short) = (&self.name, unit.short());
        format!(
            "event time: int64 column '{name}' is plainly not in milliseconds: {unit}. Say its unit before: \
             cast({{'{name}': 'timestamp[{short}]'}}), or 'timestamp[ms]' if it is right as it is"
        )
    }

    /// Returns an error for rows before the lower bound that the source gave for their split. They may be late already.
    fn check_bound(&self, least_ms: i64) -> Result<(), TaskError> {
        let bound_ms = self.watermarks.lower_bound_ms();
        if least_ms >= bound_ms {
            return Ok(());
        }
        let message = format!(
            "column '{}' has the time {least_ms} in a part of the input whose statistics say that none is before {bound_ms} \
             (milliseconds since 1970-01-01 UTC): the file's footer is wrong. Write the file again, or read it with \
             order=\"as listed\", which uses no statistics",
            self.name
        );
        Err(self.info.failed("ValueError", message, None))
    }
}

/// Rows between two watermarks. Joins visit every key with rows before a watermark, so they take half as long with
/// 262,144 rows as with 8,192.
const ROWS_PER_WATERMARK: u32 = 262_144;

fn tell<M: CarriesRows>(generated: &GeneratedSignals, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
    generated.signals().try_for_each(|signal| collector.begin_time(signal))
}

impl<M: CarriesRows> Operator<M> for Timestamps {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, _: M::Token<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        self.watermarks.set_pace(ROWS_PER_WATERMARK, cx.channels);
        Ok(())
    }

    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        let mut batch = M::into_batch(record)?;
        let (times, nanos) = self.times(batch.columns.column(self.column))?;
        let Some(range) = TimeRange::of(&times) else { return Ok(()) };
        let TimeRange { least_ms, latest_ms, .. } = range;
        if least_ms == NO_TIMESTAMP || latest_ms == END_OF_TIME_MS {
            let message = format!(
                "column '{}' has times that are none: milliseconds since 1970 lie between -2**63 and 2**63 - 1, both excluded",
                self.name
            );
            return Err(self.info.failed("OverflowError", message, None));
        }
        self.check_bound(least_ms)?;
        if std::mem::take(&mut self.has_unknown_unit)
            && let Some(unit) = mistaken_unit(least_ms, latest_ms)
        {
            return Err(self.info.failed("ValueError", self.not_milliseconds(unit), None));
        }
        // An idle subtask reports that it is active again before it emits the records that end its idleness.
        if self.watermarks.on_records(&times, latest_ms) {
            collector.emit_time(TimeSignal::Idle(false))?;
        }
        self.order.add_all(&times, range);
        (batch.times, batch.nanos) = (Some(times), nanos);
        collector.emit(M::from_batch(collector.token, batch)?)?;
        tell(&self.watermarks.after_records(), collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.metrics.iter().for_each(|metrics| self.order.tell(metrics));
        collector.count_ahead(self.watermarks.take_ahead());
        Ok(())
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.watermarks.finish();
        collector.count_ahead(self.watermarks.take_ahead());
        Ok(())
    }

    fn on_split(&mut self, signal: SplitSignal, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        self.order.follow(signal);
        let generated = self.watermarks.follow(signal);
        tell(&generated, collector)
    }

    /// Saves the last watermark. The rows it is made of, or later ones, are read again after a restore.
    fn snapshot(&mut self, _: M::Token<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut told = Vec::new();
        put_signed(&mut told, self.watermarks.told_ms());
        to.add_items(WATERMARK, [told]);
        Ok(())
    }

    /// Loads the last watermark of this subtask. After a change of parallelism, loads the least of all subtasks.
    fn restore(&mut self, _: M::Token<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        if let Some(told_ms) = from.own_or_least(WATERMARK, self.info.parallelism)? {
            self.watermarks.set_told_ms(told_ms);
        }
        Ok(())
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.watermarks.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_, M>) -> Result<(), TaskError> {
        if !self.watermarks.is_due(now_ms) {
            return Ok(());
        }
        let generated = self.watermarks.on_period(now_ms, collector.is_available());
        tell(&generated, collector)
    }
}

impl<M: CarriesRows> TimestampAssigner<M> for Timestamps {
    fn watermarks(&self) -> &SplitWatermarks {
        &self.watermarks
    }

    fn watermarks_mut(&mut self) -> &mut SplitWatermarks {
        &mut self.watermarks
    }
}
