//! Parameters of functions: kinds of arguments, and their checks.

use arrow_schema::DataType;

use crate::expr::Expr;
use crate::expr::bind::is_number;
use crate::type_names::type_name;

/// Parameter of a function.
#[derive(Debug)]
pub(super) struct Parameter {
    name: &'static str,
    kind: Kind,
    default: Option<Constant>,
    is_keyword: bool,
    is_repeated: bool,
    bounds: Option<Bounds>,
}

/// Kind of argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// String of each row.
    Text,
    /// Number of each row, of any type.
    Number,
    /// Number of each row, as a 64-bit float.
    Float,
    /// Integer of each row, as a 64-bit integer.
    Integer,
    /// Integer of each row. All arguments of this kind are cast to one type.
    Bits,
    /// Value of each row. All arguments of this kind are cast to one type.
    Alike,
    /// Timestamp of each row.
    Timestamp,
    /// Timestamp or date of each row.
    Day,
    /// Timestamp or time of day of each row.
    Clock,
    /// String that is the same for all rows.
    ConstantText,
    /// Integer that is the same for all rows.
    ConstantInteger,
    /// Boolean that is the same for all rows.
    ConstantBool,
}

/// Default of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constant {
    Null,
    False,
    Integer(i64),
}

/// Bounds of a constant integer, both included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) least: i64,
    pub(super) most: i64,
    /// Rule, as errors state it.
    pub(super) rule: &'static str,
}

impl Parameter {
    pub(super) const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, default: None, is_keyword: false, is_repeated: false, bounds: None }
    }

    /// Makes the parameter optional.
    pub(super) const fn default(mut self, default: Constant) -> Self {
        self.default = Some(default);
        self
    }

    /// Makes the parameter an optional keyword in Python.
    pub(super) const fn keyword(mut self, default: Constant) -> Self {
        self.is_keyword = true;
        self.default(default)
    }

    /// Allows any number of further arguments.
    pub(super) const fn repeated(mut self) -> Self {
        self.is_repeated = true;
        self
    }

    /// Limits a constant integer.
    pub(super) const fn bounds(mut self, least: i64, most: i64, rule: &'static str) -> Self {
        self.bounds = Some(Bounds { least, most, rule });
        self
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn default_value(&self) -> Option<Constant> {
        self.default
    }

    pub(super) fn limits(&self) -> Option<Bounds> {
        self.bounds
    }

    pub(super) fn is_keyword(&self) -> bool {
        self.is_keyword
    }

    pub(super) fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    pub(super) fn is_optional(&self) -> bool {
        self.default.is_some()
    }

    /// Returns true if the argument is the same for all rows and known to the plan.
    pub(super) fn is_constant(&self) -> bool {
        matches!(self.kind, Kind::ConstantText | Kind::ConstantInteger | Kind::ConstantBool)
    }

    /// Returns true if the default is false or null.
    #[cfg(test)]
    pub(super) fn is_off(&self) -> bool {
        matches!(self.default, Some(Constant::Null | Constant::False))
    }
}

impl Kind {
    /// Checks the type of a column. The error names the column, its type, and the way out.
    pub(super) fn check(self, of: &Expr, data_type: &DataType) -> Result<(), String> {
        let named = type_name(data_type);
        let is_timestamp = matches!(data_type, DataType::Timestamp(..));
        let of_times = |is_right: bool, takes: &str| {
            if is_right { Ok(()) } else { Err(format!("it takes {takes}, not {named}: cast it before")) }
        };
        match self {
            Self::Text if *data_type != DataType::Utf8 => {
                Err(format!("{of} is of type {named}, and not utf8: {of}.cast(\"utf8\")"))
            }
            Self::Number | Self::Float if !is_number(data_type) => {
                Err(format!("{of} is of type {named}, which has no such thing: cast it before"))
            }
            Self::Integer | Self::Bits if !data_type.is_integer() && *data_type != DataType::Null => {
                Err(format!("{of} is of type {named}, and not an integer: {of}.cast(\"int64\")"))
            }
            Self::Timestamp => of_times(is_timestamp, "timestamps"),
            Self::Day => of_times(is_timestamp || *data_type == DataType::Date32, "timestamps and dates"),
            Self::Clock => {
                let is_clock = matches!(data_type, DataType::Time32(_) | DataType::Time64(_));
                of_times(is_timestamp || is_clock, "timestamps and times")
            }
            _ => Ok(()),
        }
    }

    /// Returns the type to which arguments of this kind are cast, if it is always the same.
    pub(super) fn target(self) -> Option<DataType> {
        match self {
            Self::Text => Some(DataType::Utf8),
            Self::Float => Some(DataType::Float64),
            Self::Integer => Some(DataType::Int64),
            _ => None,
        }
    }

    /// Returns true if all arguments of this kind are cast to one type.
    pub(super) fn is_alike(self) -> bool {
        matches!(self, Self::Alike | Self::Bits)
    }
}
