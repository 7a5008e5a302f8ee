//! Expressions: a column from other columns, by polars' names and meaning.
//!
//! An [`Expr`] is what a user wrote. [`bind`](Expr::bind) checks it against a schema before anything runs, and gives a
//! [`Bound`], which evaluates a batch at a time. Where polars wraps around, expressions fail: overflow of integers and
//! division by zero are errors that name expression, row and values.

mod bind;
mod compare;
mod decimal;
mod eval;
mod number;
mod show;
mod text;
mod time;
mod values;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use flownet_runtime::window::CalendarUnit;
use serde::{Deserialize, Serialize};

pub use self::eval::EvalError;
use self::eval::Node;
pub(crate) use self::values::try_shown;

/// A column, as users say it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expr {
    /// A column of the rows.
    Column(String),
    /// The same value for each row.
    Literal(Literal),
    /// Of two columns.
    Binary {
        /// What becomes of them.
        op: BinaryOp,
        /// The first.
        left: Box<Self>,
        /// The second.
        right: Box<Self>,
    },
    /// Of one column.
    Unary {
        /// What becomes of it.
        op: UnaryOp,
        /// The column.
        of: Box<Self>,
    },
    /// The same values as another type.
    Cast {
        /// The column.
        of: Box<Self>,
        /// What users call the type.
        to: String,
        /// Whether a value that does not fit is an error, or else none.
        strict: bool,
    },
    /// The value of the first branch whose condition is true.
    When {
        /// Conditions and values.
        branches: Vec<(Self, Self)>,
        /// Where none is true; none: no value.
        otherwise: Option<Box<Self>>,
    },
    /// Whether a value is one of these.
    IsIn {
        /// The column.
        of: Box<Self>,
        /// These.
        values: Vec<Literal>,
    },
    /// The first of these that is there.
    Coalesce(Vec<Self>),
    /// Of a text.
    Text {
        /// What becomes of it.
        op: TextOp,
        /// The column.
        of: Box<Self>,
    },
    /// Of a time.
    Time {
        /// What becomes of it.
        op: TimeOp,
        /// The column.
        of: Box<Self>,
    },
    /// The same column by another name.
    Alias {
        /// The column.
        of: Box<Self>,
        /// Its name.
        name: String,
    },
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Literal {
    /// None, of any type.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number, as its bits: not all of them have a text.
    Float(u64),
    /// A decimal: the number without its point, as the upper and the lower half of 128 bits, and how many digits are behind it.
    Decimal {
        /// Upper half.
        high: i64,
        /// Lower half.
        low: u64,
        /// Digits behind the point, 38 at most.
        scale: u8,
    },
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A day, counted from 1970-01-01.
    Date(i32),
    /// A point in time in microseconds since 1970, in UTC if it has a zone.
    Timestamp {
        /// The microseconds.
        us: i64,
        /// Whether it has.
        zoned: bool,
    },
    /// A span of time in microseconds.
    Duration(i64),
}

/// What becomes of two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names say all")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Xor,
}

/// What becomes of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names say all")]
pub enum UnaryOp {
    Not,
    Neg,
    IsNull,
    IsNotNull,
    Abs,
    Floor,
    Ceil,
    Sqrt,
    Round(u8),
}

/// What becomes of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "their names are polars'")]
pub enum TextOp {
    LenChars,
    LenBytes,
    ToLowercase,
    ToUppercase,
    StripChars,
    Contains { pattern: String, literal: bool },
    StartsWith(String),
    EndsWith(String),
    Slice { offset: i64, length: Option<u64> },
    ReplaceAll { pattern: String, value: String, literal: bool },
    Extract { pattern: String, group: usize },
    Split(String),
}

/// What becomes of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names are polars'")]
pub enum TimeOp {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Weekday,
    OrdinalDay,
    Date,
    EpochMs,
    /// To the beginning of so many milliseconds, counted from 1970-01-01 in the column's zone.
    TruncateMs(i64),
    /// To the beginning of so many days, weeks or months in the column's zone.
    TruncateTo(CalendarUnit, u32),
}

/// An expression that does not fit the rows it is of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// There is no such column.
    #[error("there is no column '{column}'; there are {columns}")]
    Missing {
        /// What was asked for.
        column: String,
        /// What there is.
        columns: String,
    },
    /// Types that do not go together.
    #[error("{expression}: {why}")]
    Type {
        /// Where.
        expression: String,
        /// What does not go, and the way out.
        why: String,
    },
}

/// An expression that fits the rows of one schema.
#[derive(Debug)]
pub struct Bound {
    node: Node,
    data_type: DataType,
    nullable: bool,
}

impl Expr {
    /// Checks names and types against the schema of the rows.
    pub fn bind(&self, schema: &Schema) -> Result<Bound, ExprError> {
        bind::bind(self, schema)
    }
}

impl Bound {
    /// Of its values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Whether values may be missing.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// Its values for the rows of a batch, as many as these.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, EvalError> {
        self.node.evaluate(batch)?.into_array(batch.num_rows())
    }
}
