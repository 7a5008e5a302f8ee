//! Expressions: compute a column from other columns, with the names and semantics of polars.
//!
//! An [`Expr`] is the expression that a user wrote. [`bind`](Expr::bind) checks it against a schema before anything
//! runs. The result is a [`Bound`], which evaluates one batch at a time. Where polars wraps around, expressions fail:
//! integer overflow and division by zero are errors that name expression, row and values.

mod bind;
mod compare;
mod decimal;
mod eval;
mod functions;
mod number;
mod show;
mod truncation;
mod values;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use serde::{Deserialize, Serialize};

pub use self::eval::EvalError;
use self::eval::Node;
pub use self::functions::{FunctionDocument, ParameterDocument, documents};
pub(crate) use self::values::try_shown;

/// Expression, as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expr {
    /// Column of the rows.
    Column(String),
    /// The same value for each row.
    Literal(Literal),
    /// Operator on two columns.
    Binary {
        /// Operator.
        op: BinaryOp,
        /// First operand.
        left: Box<Self>,
        /// Second operand.
        right: Box<Self>,
    },
    /// Operator on one column.
    Unary {
        /// Operator.
        op: UnaryOp,
        /// Operand.
        of: Box<Self>,
    },
    /// Conversion to another type.
    Cast {
        /// Operand.
        of: Box<Self>,
        /// Name of the type.
        to: String,
        /// Whether a value that does not fit is an error. Otherwise it becomes null.
        strict: bool,
    },
    /// Value of the first branch whose condition is true.
    When {
        /// Conditions and values.
        branches: Vec<(Self, Self)>,
        /// Value if no condition is true. None means null.
        otherwise: Option<Box<Self>>,
    },
    /// True if a value is among `values`.
    IsIn {
        /// Operand.
        of: Box<Self>,
        /// Values to look for.
        values: Vec<Literal>,
    },
    /// First value that is not null.
    Coalesce(Vec<Self>),
    /// Call of a function of the registry.
    Call {
        /// Name of the function, such as `sqrt` or `str.left`.
        function: String,
        /// Arguments, in the order of the parameters. The first one of a method is the column itself.
        of: Vec<Self>,
    },
    /// The same column under another name.
    Alias {
        /// Operand.
        of: Box<Self>,
        /// New name.
        name: String,
    },
}

/// Literal value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Literal {
    /// Null, of any type.
    Null,
    /// Boolean.
    Bool(bool),
    /// Integer.
    Int(i64),
    /// Float, as its bits, because not all floats have a textual form.
    Float(u64),
    /// Decimal: the number without its point, as two halves of 128 bits, and its number of fraction digits.
    Decimal {
        /// Upper half.
        high: i64,
        /// Lower half.
        low: u64,
        /// Number of fraction digits, at most 38.
        scale: u8,
    },
    /// String.
    Text(String),
    /// Byte string.
    Bytes(Vec<u8>),
    /// Date, in days since 1970-01-01.
    Date(i32),
    /// Timestamp in microseconds since 1970, in UTC if it has a zone.
    Timestamp {
        /// Microseconds since 1970.
        us: i64,
        /// Whether it has a zone.
        zoned: bool,
    },
    /// Duration in microseconds.
    Duration(i64),
}

/// Operators on two columns.
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

/// Operators on one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names say all")]
pub enum UnaryOp {
    Not,
    Neg,
    IsNull,
    IsNotNull,
}

/// Reasons why an expression does not fit the rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// The column does not exist.
    #[error("there is no column '{column}'; there are {columns}")]
    Missing {
        /// Name that was requested.
        column: String,
        /// Names that exist.
        columns: String,
    },
    /// The types do not fit together.
    #[error("{expression}: {why}")]
    Type {
        /// The expression.
        expression: String,
        /// Cause, and the way out.
        why: String,
    },
}

/// Expression that was checked against the schema of the rows.
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
    /// Returns the type of its values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns true if its values may be null.
    pub fn nullable(&self) -> bool {
        self.nullable
    }

    /// Evaluates the expression for each row of a batch.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, EvalError> {
        self.node.evaluate(batch)?.into_array(batch.num_rows())
    }
}
