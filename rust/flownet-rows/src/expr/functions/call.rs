//! Calls of functions in a plan, with the types of their columns and the values of their constants.

use arrow_schema::DataType;
use regex::Regex;

use crate::expr::Literal;

/// Call whose arguments have been checked. Constants are numbered by parameter.
pub(super) struct Call<'a> {
    /// Type of each column, in the order of the parameters.
    pub(super) types: Vec<DataType>,
    /// Constant of each parameter. None for columns, and for omitted arguments.
    pub(super) constants: Vec<Option<&'a Literal>>,
}

impl Call<'_> {
    /// Returns the type of the first column.
    pub(super) fn first_type(&self) -> DataType {
        self.types.first().cloned().unwrap_or(DataType::Null)
    }

    /// Returns a constant string. Empty if it was omitted.
    pub(super) fn text(&self, parameter: usize) -> String {
        match self.constant(parameter) {
            Some(Literal::Text(text)) => text.clone(),
            _ => String::new(),
        }
    }

    /// Returns a constant integer, or none if it is null or was omitted.
    pub(super) fn integer(&self, parameter: usize) -> Option<i64> {
        match self.constant(parameter) {
            Some(Literal::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// Returns a constant boolean. False if it was omitted.
    pub(super) fn is_on(&self, parameter: usize) -> bool {
        matches!(self.constant(parameter), Some(Literal::Bool(true)))
    }

    /// Compiles a constant string as a regular expression.
    pub(super) fn pattern(&self, parameter: usize) -> Result<Regex, String> {
        Regex::new(&self.text(parameter)).map_err(|error| error.to_string())
    }

    fn constant(&self, parameter: usize) -> Option<&Literal> {
        self.constants.get(parameter).copied().flatten()
    }
}
