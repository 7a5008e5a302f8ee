//! Registry of the functions of expressions: one entry per function, from which everything else follows.
//!
//! An entry ([`Function`]) has the name, the parameters, the type of the result, the documentation with an example, and
//! the kernel over Arrow arrays. The binder checks arguments by the parameters. Plans and errors show a call by them.
//! The Python methods and the table of functions in the documentation are generated from [`documents`].
//!
//! Operators and expressions with rules of their own, such as `+`, `cast` and `when`, are variants of
//! [`Expr`](super::Expr).
//!
//! # Invariants
//! - F1: names are unique within a namespace.
//! - F2: optional parameters follow required ones, and a repeated parameter is the last one.
//! - F3: the default of a keyword is false or null, so that a call can be shown without it.

mod arguments;
mod binding;
mod bits;
mod call;
mod choice;
mod digests;
mod document;
mod math;
mod parameters;
mod patterns;
mod rounding;
mod texts;
mod times;

use std::sync::Arc;

use arrow_schema::{DataType, Field};

pub(super) use self::arguments::{Arguments, Kernel};
use self::call::Call;
pub use self::document::{FunctionDocument, ParameterDocument, documents};
use self::parameters::Parameter;
use super::{Expr, Literal};

/// Functions by family, in the order of the documentation.
const FAMILIES: &[&[Function]] = &[
    rounding::FUNCTIONS,
    math::FUNCTIONS,
    bits::FUNCTIONS,
    choice::FUNCTIONS,
    texts::FUNCTIONS,
    patterns::FUNCTIONS,
    digests::FUNCTIONS,
    times::FUNCTIONS,
];

/// Creates the kernel of a call whose arguments have been checked. The error describes the fault of a constant.
type MakeKernel = fn(&Call<'_>) -> Result<Kernel, String>;

/// Function of expressions.
#[derive(Debug)]
pub(super) struct Function {
    namespace: Namespace,
    name: &'static str,
    parameters: &'static [Parameter],
    returns: Returns,
    nulls: Nulls,
    summary: &'static str,
    example: Example,
    is_by_hand: bool,
    make_kernel: MakeKernel,
}

/// Place of a function in the Python API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// Method of an expression, such as `col("x").sqrt()`.
    Value,
    /// Method of `.str`.
    Text,
    /// Method of `.dt`.
    Time,
    /// Function of the module, such as `greatest(a, b)`.
    Module,
}

impl Namespace {
    /// Prefix of names in plans. Empty for methods of an expression.
    fn prefix(self) -> &'static str {
        match self {
            Self::Value => "",
            Self::Text => "str",
            Self::Time => "dt",
            Self::Module => "fn",
        }
    }
}

/// Type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returns {
    Bool,
    Int32,
    Int64,
    Float64,
    Text,
    /// List of strings.
    Texts,
    Date,
    /// Type of the first argument.
    First,
}

/// Rule for null results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nulls {
    /// The result is null if and only if one of the arguments is.
    OfAny,
    /// The result is null only if all arguments are.
    OfAll,
    /// The result may be null although no argument is.
    Own,
}

/// Expression in Python, and its value.
#[derive(Clone, Copy, Debug)]
struct Example {
    expression: &'static str,
    value: &'static str,
}

impl Function {
    const fn new(
        namespace: Namespace,
        name: &'static str,
        parameters: &'static [Parameter],
        returns: Returns,
        make_kernel: MakeKernel,
    ) -> Self {
        let example = Example { expression: "", value: "" };
        let (nulls, summary, is_by_hand) = (Nulls::OfAny, "", false);
        Self { namespace, name, parameters, returns, nulls, summary, example, is_by_hand, make_kernel }
    }

    /// Adds the documentation: one or more sentences, the first of at most 12 words.
    const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// Adds an example, which a test runs.
    const fn example(mut self, expression: &'static str, value: &'static str) -> Self {
        self.example = Example { expression, value };
        self
    }

    /// Sets the rule for null results. Without it, the result is null if one of the arguments is.
    const fn nulls(mut self, nulls: Nulls) -> Self {
        self.nulls = nulls;
        self
    }

    /// Marks a function whose Python method converts its arguments, and is written by hand.
    const fn by_hand(mut self) -> Self {
        self.is_by_hand = true;
        self
    }

    /// Returns the name in plans, such as `str.left`.
    fn full_name(&self) -> String {
        match self.namespace.prefix() {
            "" => self.name.to_owned(),
            prefix => format!("{prefix}.{}", self.name),
        }
    }

    /// Returns the parameter of an argument.
    fn parameter(&self, index: usize) -> Option<&Parameter> {
        let last = self.parameters.last().filter(|last| last.is_repeated());
        self.parameters.get(index).or(last)
    }

    /// Returns how a user writes a call. Arguments that are left out are not shown.
    fn shown(&self, of: &[Expr]) -> String {
        let shown = of.iter().enumerate().filter_map(|(index, argument)| {
            let parameter = self.parameter(index)?;
            let is_off = matches!(argument, Expr::Literal(Literal::Null | Literal::Bool(false)));
            if parameter.is_optional() && is_off {
                return None;
            }
            let name = if parameter.is_keyword() { format!("{}=", parameter.name()) } else { String::new() };
            Some(format!("{name}{argument}"))
        });
        let mut shown = shown.collect::<Vec<_>>();
        if self.namespace == Namespace::Module || shown.is_empty() {
            return format!("{}({})", self.name, shown.join(", "));
        }
        let of = shown.remove(0);
        format!("{of}.{}({})", self.full_name(), shown.join(", "))
    }
}

impl Returns {
    fn data_type(self, first: Option<&DataType>) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Texts => DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            Self::Date => DataType::Date32,
            Self::First => first.cloned().unwrap_or(DataType::Null),
        }
    }
}

/// Returns the function of this name in plans.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    let (prefix, name) = name.split_once('.').unwrap_or(("", name));
    all().find(|function| function.name == name && function.namespace.prefix() == prefix)
}

/// Returns how a user writes a call.
pub(super) fn shown(name: &str, of: &[Expr]) -> String {
    let Some(function) = find(name) else {
        let of: Vec<_> = of.iter().map(ToString::to_string).collect();
        return format!("{name}({})", of.join(", "));
    };
    function.shown(of)
}

fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_within_a_namespace() {
        let mut names = HashSet::new();
        for function in all() {
            assert!(names.insert(function.full_name()), "{}", function.full_name());
            assert!(find(&function.full_name()).is_some(), "{}", function.full_name());
        }
    }

    #[test]
    fn parameters_are_in_order() {
        for function in all() {
            let (name, parameters) = (function.full_name(), function.parameters);
            assert!(parameters.iter().is_sorted_by_key(Parameter::is_optional), "{name}");
            assert!(parameters.iter().rev().skip(1).all(|parameter| !parameter.is_repeated()), "{name}");
            assert!(parameters.iter().filter(|parameter| parameter.is_keyword()).all(Parameter::is_off), "{name}");
            assert!(parameters.first().is_some_and(|first| !first.is_constant()), "{name}");
        }
    }

    #[test]
    fn every_function_is_documented() {
        for function in all() {
            let first = function.summary.split(". ").next().unwrap_or_default();
            assert!((1..=12).contains(&first.split(' ').count()), "{}: {first}", function.full_name());
            assert!(function.summary.ends_with('.'), "{}", function.full_name());
            assert!(!function.example.expression.is_empty(), "{}", function.full_name());
        }
    }
}
