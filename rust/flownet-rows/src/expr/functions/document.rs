//! Descriptions of functions, from which Python methods and the documentation are generated.

use serde::Serialize;

use super::parameters::{Constant, Kind, Parameter};
use super::{Function, Namespace, Nulls, Returns, all};

/// Description of a function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionDocument {
    /// `value`, `str`, `dt` or `fn`: methods of an expression, of `.str` or `.dt`, or a function of the module.
    pub namespace: &'static str,
    /// Name of the method.
    pub name: &'static str,
    /// Parameters. The first one of a method is the column itself.
    pub parameters: Vec<ParameterDocument>,
    /// Type of the result.
    pub returns: &'static str,
    /// `any`, `all` or `own`: null if an argument is, if all arguments are, or by a rule in the summary.
    pub nulls: &'static str,
    /// Documentation.
    pub summary: &'static str,
    /// Example in Python.
    pub example: &'static str,
    /// Value of the example, as Python shows it.
    pub value: &'static str,
    /// True if the Python method is written by hand.
    pub by_hand: bool,
}

/// Description of a parameter.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterDocument {
    /// Name of the parameter.
    pub name: &'static str,
    /// Kind of argument.
    pub kind: &'static str,
    /// True if there is one value for all rows.
    pub constant: bool,
    /// Default, as Python writes it.
    pub default: Option<String>,
    /// True if Python takes it by keyword only.
    pub keyword: bool,
    /// True if there may be several.
    pub repeated: bool,
    /// Smallest value of a constant integer.
    pub least: Option<i64>,
    /// Largest value of a constant integer.
    pub most: Option<i64>,
    /// Rule of these bounds, as errors state it.
    pub rule: Option<&'static str>,
}

/// Describes all functions, in the order of the documentation.
pub fn documents() -> Vec<FunctionDocument> {
    all().map(Function::document).collect()
}

impl Function {
    fn document(&self) -> FunctionDocument {
        FunctionDocument {
            namespace: if self.namespace == Namespace::Value { "value" } else { self.namespace.prefix() },
            name: self.name,
            parameters: self.parameters.iter().map(Parameter::document).collect(),
            returns: self.returns.name(),
            nulls: match self.nulls {
                Nulls::OfAny => "any",
                Nulls::OfAll => "all",
                Nulls::Own => "own",
            },
            summary: self.summary,
            example: self.example.expression,
            value: self.example.value,
            by_hand: self.is_by_hand,
        }
    }
}

impl Parameter {
    fn document(&self) -> ParameterDocument {
        let limits = self.limits();
        ParameterDocument {
            name: self.name(),
            kind: self.kind().name(),
            constant: self.is_constant(),
            default: self.default_value().map(Constant::shown),
            keyword: self.is_keyword(),
            repeated: self.is_repeated(),
            least: limits.map(|limits| limits.least),
            most: limits.map(|limits| limits.most).filter(|most| *most != i64::MAX),
            rule: limits.map(|limits| limits.rule),
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Text | Self::ConstantText => "string",
            Self::Number => "number",
            Self::Float => "float",
            Self::Integer | Self::Bits | Self::ConstantInteger => "integer",
            Self::Alike => "any",
            Self::Timestamp => "timestamp",
            Self::Day => "timestamp or date",
            Self::Clock => "timestamp or time",
            Self::ConstantBool => "bool",
        }
    }
}

impl Constant {
    fn shown(self) -> String {
        match self {
            Self::Null => "None".to_owned(),
            Self::False => "False".to_owned(),
            Self::Integer(value) => value.to_string(),
        }
    }
}

impl Returns {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Text => "utf8",
            Self::Texts => "list[utf8]",
            Self::Date => "date",
            Self::First => "same type",
        }
    }
}
