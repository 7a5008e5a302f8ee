//! The built-in aggregates: names, input types and result types.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{Decimal256Type, DecimalType};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch};
use arrow_buffer::i256;
use arrow_schema::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, Schema};
use flownet_runtime::time::ExactTime;
use serde::{Deserialize, Serialize};

use super::cell::{
    Accumulates, Cell, Count, Edge, Extreme, Finish, Mean, NoResult, Spread, SumDecimal, SumFloat, SumInt,
};
use super::collected::CollectedValues;
use super::distinct::Distinct;
use super::quantile::Buckets;
use crate::batch::RowBatch;
use crate::expr::{Bound, EvalError, Expr, ExprError};
use crate::key::NoKey;
use crate::layout::UnsupportedType;
use crate::physical_type::{PhysicalType, Scalar, Values};
use crate::type_names::type_name;

/// One aggregate column of a result, as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// Name of the column.
    pub name: String,
    /// Function that computes it.
    pub function: Function,
    /// Values to aggregate. None means rows, which only [`Function::Count`] takes.
    pub input: Option<Expr>,
}

/// Aggregate function. All functions ignore nulls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// Number of values.
    Count,
    /// Number of distinct values.
    ApproxCountDistinct,
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// First value by event time. Values of the same time, or without times, are in arrival order.
    First,
    /// Last value by event time.
    Last,
    /// Sample variance.
    Var,
    /// Sample standard deviation.
    Std,
    /// Approximate quantile: the value that this share of the values does not exceed.
    ApproxQuantile(f64),
    /// List of all values, ordered by time.
    Collect,
}

/// Reasons why an aggregate is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AggregationError {
    /// The expression of its values is invalid.
    #[error("agg: {0}")]
    Expression(#[from] ExprError),
    /// The key column does not exist.
    #[error(transparent)]
    Key(#[from] NoKey),
    /// The function does not take values of this type.
    #[error(
        "agg: {name} = {function}({input}) takes {takes}, and {input} is of type {}: cast it before",
        type_name(.data_type)
    )]
    Type {
        /// Column of the result.
        name: String,
        /// Function of the aggregate.
        function: &'static str,
        /// Expression of the values.
        input: String,
        /// Types that the function takes.
        takes: &'static str,
        /// Type of the values.
        data_type: DataType,
    },
    /// The function needs a column and has none.
    #[error("agg: {name} = {function}() needs a column: {function}(\"price\")")]
    NoInput {
        /// Column of the result.
        name: String,
        /// Function of the aggregate.
        function: &'static str,
    },
    /// A user aggregate takes two columns of the same name.
    #[error("agg: {aggregate} takes two columns that are called '{column}': give one another name, as in of(x=...)")]
    TwiceIn {
        /// The aggregate.
        aggregate: String,
        /// Name of both columns.
        column: String,
    },
    /// A user aggregate does not return exactly one column.
    #[error("agg: {aggregate} returns no column, or several")]
    NotOneResult {
        /// The aggregate.
        aggregate: String,
    },
    /// The state or result of a user aggregate has a type that rows cannot have.
    #[error("agg: {aggregate}: {error}")]
    OwnType {
        /// The aggregate.
        aggregate: String,
        /// Cause.
        error: UnsupportedType,
    },
    /// Two columns of the result have the same name.
    #[error("agg: two columns of the result are called '{column}': give the aggregate another name")]
    Twice {
        /// Name of both columns.
        column: String,
    },
}

impl Function {
    /// Name by which users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::ApproxCountDistinct => "approx_count_distinct",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::First => "first",
            Self::Last => "last",
            Self::Var => "var",
            Self::Std => "std",
            Self::ApproxQuantile(_) => "approx_quantile",
            Self::Collect => "collect",
        }
    }

    /// Returns the result type for values of this type, and whether it is nullable. The error lists the types it takes.
    fn output(self, data_type: &DataType) -> Result<(DataType, bool), &'static str> {
        let is_decimal = matches!(data_type, DataType::Decimal128(..));
        let is_number = data_type.is_numeric() && !is_decimal && *data_type != DataType::Float16;
        match self {
            Self::Count => Ok((DataType::Int64, false)),
            Self::ApproxCountDistinct if PhysicalType::of(data_type).is_some() => Ok((DataType::Int64, false)),
            Self::Sum if *data_type == DataType::UInt64 => Ok((DataType::UInt64, false)),
            Self::Sum if data_type.is_floating() => Ok((DataType::Float64, false)),
            Self::Sum if is_number || matches!(data_type, DataType::Boolean) => Ok((DataType::Int64, false)),
            Self::Sum if matches!(data_type, DataType::Duration(_)) => Ok((data_type.clone(), false)),
            Self::Sum if let DataType::Decimal128(_, scale) = data_type => {
                Ok((DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale), false))
            }
            Self::Sum => Err("numbers, bools and durations"),
            // As in polars. Some SQL databases return a decimal with more digits.
            Self::Mean if is_number || is_decimal || matches!(data_type, DataType::Boolean) => {
                Ok((DataType::Float64, true))
            }
            Self::Var | Self::Std | Self::ApproxQuantile(_) if is_number || is_decimal => Ok((DataType::Float64, true)),
            Self::Mean | Self::Var | Self::Std | Self::ApproxQuantile(_) => Err("numbers"),
            Self::Collect if PhysicalType::of(data_type).is_some() => {
                Ok((DataType::List(Arc::new(Field::new_list_field(data_type.clone(), true))), false))
            }
            Self::Min | Self::Max | Self::First | Self::Last if PhysicalType::of(data_type).is_some() => {
                Ok((data_type.clone(), true))
            }
            Self::ApproxCountDistinct | Self::Collect | Self::Min | Self::Max | Self::First | Self::Last => {
                Err("numbers, bools, texts, bytes and times")
            }
        }
    }
}

/// Aggregate that was checked against the schema of the rows.
#[derive(Debug)]
pub(super) struct Aggregation {
    field: Field,
    input: Option<Bound>,
    cells: Kind,
    /// The aggregate as a user would write it.
    text: String,
    kept: String,
}

impl Aggregation {
    /// Checks names and types against the schema of the rows.
    pub(super) fn new(aggregate: &Aggregate, schema: &Schema) -> Result<Self, AggregationError> {
        let Aggregate { name, function, input } = aggregate;
        let (name, shown) = (name.clone(), function.name());
        let Some(expression) = input else {
            if *function != Function::Count {
                return Err(AggregationError::NoInput { name, function: shown });
            }
            let (field, text) = (Field::new(&name, DataType::Int64, false), format!("{name} = count()"));
            let (cells, kept) = (Kind::of(Function::Count, PhysicalType::Int), Function::Count.name().to_owned());
            return Ok(Self { field, input: None, cells, text, kept });
        };
        let input = expression.bind(schema)?;
        let data_type = input.data_type();
        let text = match function {
            Function::ApproxQuantile(q) => format!("{name} = {shown}({expression}, {q})"),
            _ => format!("{name} = {shown}({expression})"),
        };
        let output = function.output(data_type).and_then(|output| {
            // Counting needs only the nulls, so it takes any type.
            let lane = PhysicalType::of(data_type).or((*function == Function::Count).then_some(PhysicalType::Int));
            lane.map(|lane| (output, lane)).ok_or("numbers, bools, texts, bytes and times")
        });
        let ((output, nullable), lane) = output.map_err(|takes| AggregationError::Type {
            name: name.clone(),
            function: shown,
            input: expression.to_string(),
            takes,
            data_type: data_type.clone(),
        })?;
        let cells = match (function, data_type) {
            (Function::Mean, DataType::Decimal128(_, scale)) => Kind::mean_of_decimals(*scale),
            _ => Kind::of(*function, lane),
        };
        let kept = match (function, data_type) {
            (Function::Count | Function::Var | Function::Std | Function::ApproxQuantile(_), _) => shown.to_owned(),
            (_, DataType::Decimal128(_, scale)) => format!("{shown} of decimals with {scale} digits"),
            _ => format!("{shown} of {}", lane.name()),
        };
        Ok(Self { field: Field::new(&name, output, nullable), input: Some(input), cells, text, kept })
    }

    /// Describes the state of a group. Checkpoints are interchangeable between aggregates with the same description.
    pub(super) fn kept(&self) -> String {
        self.kept.clone()
    }

    /// Returns the column of the result.
    pub(super) fn field(&self) -> &Field {
        &self.field
    }

    /// Creates the cells of a set of groups.
    pub(super) fn cells(&self) -> Box<dyn Cells> {
        (self.cells.make)()
    }

    /// Returns the operations on one encoded cell.
    pub(super) fn one(&self) -> &dyn OneCell {
        &*self.cells.one
    }

    /// Evaluates the input values for a batch.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<Option<Input>, EvalError> {
        let Some(input) = &self.input else { return Ok(None) };
        let array = input.evaluate(batch)?;
        if self.cells.only_counts {
            return Ok(Some(Input::Nulls(array.logical_nulls())));
        }
        let values = Values::of(&array).map_err(|error| EvalError::of_arrow(&self.text, &error))?;
        Ok(Some(Input::Values(values)))
    }

    /// Builds the message for a sum that does not fit.
    pub(super) fn overflow(&self, sum: i256, key: &str) -> String {
        let sum = match self.field.data_type() {
            DataType::Decimal128(_, scale) => Decimal256Type::format_decimal(sum, DECIMAL256_MAX_PRECISION, *scale),
            _ => sum.to_string(),
        };
        format!(
            "agg: {} of key {key} is {sum}, which {} cannot hold: cast its column to float64 before",
            self.text,
            self.field.data_type()
        )
    }
}

/// Input column of an aggregate: its values, or only its nulls.
#[derive(Debug)]
pub(super) enum Input {
    Values(Values),
    Nulls(Option<arrow_buffer::NullBuffer>),
}

/// Operations on the cells of a function and physical type.
struct Kind {
    make: fn() -> Box<dyn Cells>,
    one: Box<dyn OneCell>,
    only_counts: bool,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("only_counts", &self.only_counts).finish_non_exhaustive()
    }
}

impl Kind {
    fn of(function: Function, lane: PhysicalType) -> Self {
        use Function::{
            ApproxCountDistinct, ApproxQuantile, Collect, Count as Counted, First, Last, Max, Mean as Average, Min,
            Std, Sum, Var,
        };
        use PhysicalType::{Bytes, Decimal, Float, Int, Unsigned};
        match (function, lane) {
            (Counted, _) => Self {
                make: || Box::new(Counts::default()),
                one: Box::new(SingleInput::<Count>::NEW),
                only_counts: true,
            },
            (ApproxCountDistinct, Int) => Self::ints::<Distinct>(),
            (ApproxCountDistinct, Unsigned) => Self::unsigned::<Distinct>(),
            (ApproxCountDistinct, Decimal) => Self::decimals::<Distinct>(),
            (ApproxCountDistinct, Float) => Self::floats::<Distinct>(),
            (ApproxCountDistinct, Bytes) => Self::bytes::<Distinct>(),
            (Collect, Int) => Self::ints::<CollectedValues<i64>>(),
            (Collect, Unsigned) => Self::unsigned::<CollectedValues<u64>>(),
            (Collect, Decimal) => Self::decimals::<CollectedValues<i128>>(),
            (Collect, Float) => Self::floats::<CollectedValues<f64>>(),
            (Collect, Bytes) => Self::bytes::<CollectedValues<Box<[u8]>>>(),
            (ApproxQuantile(q), lane) => Self {
                make: || Box::new(CellsOf(Vec::<Buckets>::new(), AsFloats)),
                one: Box::new(QuantileOf { q, are_whole: matches!(lane, Int | Unsigned) }),
                only_counts: false,
            },
            (Sum, Unsigned) => Self::numbers::<SumInt<false>>(),
            (Sum, Decimal) => Self::decimals::<SumDecimal>(),
            (Sum, Float) => Self::floats::<SumFloat>(),
            (Sum, _) => Self::numbers::<SumInt<true>>(),
            (Average, Float) => Self::floats::<Mean<SumFloat>>(),
            (Average, _) => Self::numbers::<Mean<SumInt<true>>>(),
            (Var, _) => Self::as_floats::<Spread<false>>(),
            (Std, _) => Self::as_floats::<Spread<true>>(),
            (Min, Int) => Self::ints::<Extreme<i64, false>>(),
            (Max, Int) => Self::ints::<Extreme<i64, true>>(),
            (Min, Unsigned) => Self::unsigned::<Extreme<u64, false>>(),
            (Max, Unsigned) => Self::unsigned::<Extreme<u64, true>>(),
            (Min, Decimal) => Self::decimals::<Extreme<i128, false>>(),
            (Min, Float) => Self::floats::<Extreme<f64, false>>(),
            (Max, Decimal) => Self::decimals::<Extreme<i128, true>>(),
            (Max, Float) => Self::floats::<Extreme<f64, true>>(),
            (Min, Bytes) => Self::bytes::<Extreme<Box<[u8]>, false>>(),
            (Max, Bytes) => Self::bytes::<Extreme<Box<[u8]>, true>>(),
            (First, Int) => Self::ints::<Edge<i64, false>>(),
            (Last, Int) => Self::ints::<Edge<i64, true>>(),
            (First, Unsigned) => Self::unsigned::<Edge<u64, false>>(),
            (Last, Unsigned) => Self::unsigned::<Edge<u64, true>>(),
            (First, Decimal) => Self::decimals::<Edge<i128, false>>(),
            (First, Float) => Self::floats::<Edge<f64, false>>(),
            (Last, Decimal) => Self::decimals::<Edge<i128, true>>(),
            (Last, Float) => Self::floats::<Edge<f64, true>>(),
            (First, Bytes) => Self::bytes::<Edge<Box<[u8]>, false>>(),
            (Last, Bytes) => Self::bytes::<Edge<Box<[u8]>, true>>(),
        }
    }

    fn mean_of_decimals(scale: i8) -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<Mean<SumDecimal>>::new(), DecimalsOnly)) };
        Self { make, one: Box::new(MeanOfDecimals { unit: units_in_one(scale) }), only_counts: false }
    }

    fn ints<C: Finish + Accumulates<i64>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), IntsOnly)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn unsigned<C: Finish + Accumulates<u64>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), UnsignedOnly)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn floats<C: Finish + Accumulates<f64>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), FloatsOnly)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn decimals<C: Finish + Accumulates<i128>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), DecimalsOnly)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn numbers<C: Finish + Accumulates<i64> + Accumulates<u64>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), Numbers)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn as_floats<C: Finish + Accumulates<f64>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), AsFloats)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }

    fn bytes<C: Finish + for<'a> Accumulates<&'a [u8]>>() -> Self {
        let make = || -> Box<dyn Cells> { Box::new(CellsOf(Vec::<C>::new(), BytesOnly)) };
        Self { make, one: Box::new(SingleInput::<C>::NEW), only_counts: false }
    }
}

/// Cells of one aggregate, one per group.
pub(super) trait Cells: Send {
    /// Resizes to `groups` groups.
    fn grow(&mut self, groups: usize);

    /// Adds values from row `start` on, whose rows have these groups and times.
    fn update(&mut self, groups: &[u32], input: Option<&Input>, start: usize, times: Times<'_>);

    /// Returns an upper bound of the extra memory that `rows` rows from `start` take, beyond that of a group.
    fn bytes_of(&self, input: Option<&Input>, start: usize, rows: usize) -> usize {
        let _ = (input, start, rows);
        0
    }

    /// Appends the cell of a group.
    fn write(&self, group: usize, out: &mut Vec<u8>);

    /// Removes all groups.
    fn clear(&mut self);
}

/// Event times of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times<'a> {
    /// None if the rows have no times.
    pub(super) ms: Option<&'a [i64]>,
    /// None if all times are whole milliseconds.
    pub(super) nanos: Option<&'a [u32]>,
}

impl<'a> Times<'a> {
    /// Returns the times of the rows of a batch.
    pub(super) fn of_batch(batch: &'a RowBatch) -> Self {
        Self { ms: batch.times.as_deref(), nanos: batch.nanos.as_deref() }
    }

    /// Creates times in milliseconds.
    #[cfg(test)]
    pub(super) fn of_ms(ms: &'a [i64]) -> Self {
        Self { ms: Some(ms), nanos: None }
    }

    /// Returns the times of `rows` rows from `start`.
    pub(super) fn slice(self, start: usize, rows: usize) -> Self {
        let range = start..start + rows;
        Self { ms: self.ms.map(|times| &times[range.clone()]), nanos: self.nanos.map(|nanos| &nanos[range]) }
    }

    /// Returns the time of a row in milliseconds. Rows without times all have the same time.
    #[inline]
    pub(super) fn ms(self, row: usize) -> i64 {
        self.ms.map_or(0, |times| times[row])
    }

    /// Returns the time of a row, to the nanosecond.
    #[inline]
    pub(super) fn of(self, row: usize) -> ExactTime {
        ExactTime { ms: self.ms(row), nanos: self.nanos.map_or(0, |nanos| nanos[row]) }
    }
}

#[derive(Default)]
struct Counts(Vec<u64>);

impl Cells for Counts {
    fn grow(&mut self, groups: usize) {
        self.0.resize(groups, 0);
    }

    fn update(&mut self, groups: &[u32], input: Option<&Input>, start: usize, _: Times<'_>) {
        match input {
            Some(Input::Nulls(Some(nulls))) => {
                for (row, group) in groups.iter().enumerate() {
                    self.0[*group as usize] += u64::from(nulls.is_valid(start + row));
                }
            }
            _ => groups.iter().for_each(|group| self.0[*group as usize] += 1),
        }
    }

    fn write(&self, group: usize, out: &mut Vec<u8>) {
        flownet_runtime::varint::put_varint(out, self.0[group]);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Bytes per value in a growing cell, except for strings: a time of 10 bytes and a number of 17.
const VALUE_BYTES: usize = 27;

/// Cells, and the rule by which values are added to them.
struct CellsOf<C, W>(Vec<C>, W);

/// Adds values to cells.
trait AddTo<C>: Send {
    fn add(cells: &mut [C], groups: &[u32], values: &Values, start: usize, times: Times<'_>);
}

impl<C: Cell, W: AddTo<C>> Cells for CellsOf<C, W> {
    fn grow(&mut self, groups: usize) {
        self.0.resize_with(groups, C::default);
    }

    fn update(&mut self, groups: &[u32], input: Option<&Input>, start: usize, times: Times<'_>) {
        if let Some(Input::Values(values)) = input {
            W::add(&mut self.0, groups, values, start, times);
        }
    }

    fn bytes_of(&self, input: Option<&Input>, start: usize, rows: usize) -> usize {
        let texts = match input {
            _ if !C::GROWS => return 0,
            Some(Input::Values(Values::Bytes(array))) => {
                (array.value_offsets()[start + rows] - array.value_offsets()[start]) as usize
            }
            _ => 0,
        };
        rows * VALUE_BYTES + texts
    }

    fn write(&self, group: usize, out: &mut Vec<u8>) {
        self.0[group].write(out);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Calls `take` for each value that is not null, with the index of its row among the groups.
#[inline]
fn each<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    (start, rows): (usize, usize),
    mut take: impl FnMut(usize, T::Native),
) {
    let values = &array.values()[start..start + rows];
    match array.nulls() {
        None => values.iter().enumerate().for_each(|(row, value)| take(row, *value)),
        Some(nulls) => {
            nulls.slice(start, rows).valid_indices().for_each(|row| take(row, values[row]));
        }
    }
}

macro_rules! adds {
    ($name:ident: $($variant:ident as $value:ty => $convert:expr),+) => {
        #[derive(Clone, Copy)]
        struct $name;

        impl<C: Cell $(+ Accumulates<$value>)+> AddTo<C> for $name {
            fn add(cells: &mut [C], groups: &[u32], values: &Values, start: usize, times: Times<'_>) {
                match values {
                    $(Values::$variant(array) => each(array, (start, groups.len()), |row, value| {
                        let convert: fn(_) -> $value = $convert;
                        cells[groups[row] as usize].take(convert(value), times.of(row));
                    }),)+
                    // The values have the physical type that the cells were made for.
                    _ => {}
                }
            }
        }
    };
}

adds!(IntsOnly: Int as i64 => |value| value);
adds!(UnsignedOnly: Unsigned as u64 => |value| value);
adds!(FloatsOnly: Float as f64 => |value| value);
adds!(DecimalsOnly: Decimal as i128 => |value| value);
adds!(Numbers: Int as i64 => |value| value, Unsigned as u64 => |value| value);

/// Takes numbers of any type as floats.
struct AsFloats;

impl<C: Accumulates<f64>> AddTo<C> for AsFloats {
    fn add(cells: &mut [C], groups: &[u32], values: &Values, start: usize, times: Times<'_>) {
        let rows = (start, groups.len());
        let mut take = |row: usize, value: f64| cells[groups[row] as usize].take(value, times.of(row));
        match values {
            Values::Int(array) => each(array, rows, |row, value| take(row, value as f64)),
            Values::Unsigned(array) => each(array, rows, |row, value| take(row, value as f64)),
            Values::Float(array) => each(array, rows, take),
            Values::Decimal(array) => {
                let unit = units_in_one(array.scale());
                each(array, rows, |row, value| take(row, value as f64 / unit));
            }
            Values::Bytes(_) => {}
        }
    }
}

struct BytesOnly;

impl<C: for<'a> Accumulates<&'a [u8]>> AddTo<C> for BytesOnly {
    fn add(cells: &mut [C], groups: &[u32], values: &Values, start: usize, times: Times<'_>) {
        let Values::Bytes(array) = values else { return };
        for (row, group) in groups.iter().enumerate() {
            if array.is_valid(start + row) {
                cells[*group as usize].take(array.value(start + row), times.of(row));
            }
        }
    }
}

/// Operations on one encoded cell.
pub(super) trait OneCell: Send + Sync {
    /// Appends the merge of two cells. Returns none if the bytes are malformed.
    fn merge(&self, one: &mut &[u8], later: &mut &[u8], out: &mut Vec<u8>) -> Option<()>;

    /// Passes the result of a cell to `give`.
    fn finish(&self, bytes: &mut &[u8], give: &mut dyn FnMut(Scalar<'_>)) -> Result<(), NoResult>;
}

struct SingleInput<C>(PhantomData<fn() -> C>);

impl<C> SingleInput<C> {
    const NEW: Self = Self(PhantomData);
}

fn merge<C: Cell>(one: &mut &[u8], later: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut cell = C::read(one)?;
    cell.merge(C::read(later)?);
    cell.write(out);
    Some(())
}

impl<C: Finish> OneCell for SingleInput<C> {
    fn merge(&self, one: &mut &[u8], later: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
        merge::<C>(one, later, out)
    }

    fn finish(&self, bytes: &mut &[u8], give: &mut dyn FnMut(Scalar<'_>)) -> Result<(), NoResult> {
        C::read(bytes).ok_or(NoResult::Malformed)?.finish(give)
    }
}

/// Returns the number of units of the last digit per 1.
fn units_in_one(scale: i8) -> f64 {
    10f64.powi(scale.into())
}

/// Mean of decimals. The exact sum is divided only once.
struct MeanOfDecimals {
    unit: f64,
}

impl OneCell for MeanOfDecimals {
    fn merge(&self, one: &mut &[u8], later: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
        merge::<Mean<SumDecimal>>(one, later, out)
    }

    fn finish(&self, bytes: &mut &[u8], give: &mut dyn FnMut(Scalar<'_>)) -> Result<(), NoResult> {
        give(Mean::<SumDecimal>::read(bytes).ok_or(NoResult::Malformed)?.in_units(self.unit));
        Ok(())
    }
}

/// Quantile of numbers.
struct QuantileOf {
    q: f64,
    are_whole: bool,
}

impl OneCell for QuantileOf {
    fn merge(&self, one: &mut &[u8], later: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
        merge::<Buckets>(one, later, out)
    }

    fn finish(&self, bytes: &mut &[u8], give: &mut dyn FnMut(Scalar<'_>)) -> Result<(), NoResult> {
        let value = Buckets::read(bytes).ok_or(NoResult::Malformed)?.quantile(self.q);
        // The buckets of small integers begin with the only integer in them.
        let value = value.map(|value| if self.are_whole { value.trunc() } else { value });
        give(value.map_or(Scalar::None, Scalar::Float));
        Ok(())
    }
}
