//! Binds calls of functions: checks arguments by the parameters, and casts them.

use std::collections::VecDeque;

use arrow_schema::DataType;

use super::call::Call;
use super::parameters::{Kind, Parameter};
use super::{Function, Nulls, find};
use crate::expr::bind::{Binder, all_alike, type_error};
use crate::expr::eval::Node;
use crate::expr::{Bound, Expr, ExprError, Literal};
use crate::type_names::type_name;

impl Binder<'_> {
    /// Binds a call.
    pub(in crate::expr) fn call(&self, name: &str, of: &[Expr], whole: &Expr) -> Result<Bound, ExprError> {
        let function = find(name).ok_or_else(|| type_error(whole, format!("there is no function {name:?}")))?;
        check_number(function, of).map_err(|why| type_error(whole, why))?;
        let mut columns = Vec::with_capacity(of.len());
        let mut constants = Vec::with_capacity(of.len());
        for (index, argument) in of.iter().enumerate() {
            let Some(parameter) = function.parameter(index) else { continue };
            if parameter.is_constant() {
                constants.push(Some(constant(function, parameter, argument).map_err(|why| type_error(whole, why))?));
            } else {
                columns.push((parameter.kind(), self.column_of(parameter.kind(), argument, whole)?));
                constants.push(None);
            }
        }
        let columns = alike(columns, whole)?;
        let call = Call { types: columns.iter().map(|column| column.data_type().clone()).collect(), constants };
        let kernel = (function.make_kernel)(&call).map_err(|why| type_error(whole, why))?;
        let nullable = match function.nulls {
            Nulls::OfAny => columns.iter().any(Bound::nullable),
            Nulls::OfAll => columns.iter().all(Bound::nullable),
            Nulls::Own => true,
        };
        let data_type = function.returns.data_type(call.types.first());
        let of = columns.into_iter().map(Bound::into_node).collect();
        let node = Node::Call { kernel, of, text: whole.to_string().into() };
        Ok(Bound::new(node, data_type, nullable))
    }

    /// Binds an argument that has a value per row, and casts it if its kind has one type.
    fn column_of(&self, kind: Kind, of: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        let bound = self.bind(of)?;
        let text = whole.to_string();
        // Null without a type fits every kind that has one type.
        if let (Expr::Literal(Literal::Null), Some(target)) = (of, kind.target()) {
            return bound.cast(&target, &text);
        }
        kind.check(of, bound.data_type()).map_err(|why| type_error(whole, why))?;
        match kind.target() {
            Some(target) => bound.cast(&target, &text),
            None => Ok(bound),
        }
    }
}

fn check_number(function: &Function, of: &[Expr]) -> Result<(), String> {
    let least = function.parameters.iter().filter(|parameter| !parameter.is_optional()).count();
    let is_open = function.parameters.last().is_some_and(Parameter::is_repeated);
    let most = if is_open { usize::MAX } else { function.parameters.len() };
    if (least..=most).contains(&of.len()) {
        return Ok(());
    }
    let most = if is_open { "or more".to_owned() } else { format!("to {most}") };
    Err(format!("it takes {least} {most} arguments, not {}", of.len()))
}

/// Returns the value of an argument that is the same for all rows.
fn constant<'a>(function: &Function, parameter: &Parameter, argument: &'a Expr) -> Result<&'a Literal, String> {
    let name = parameter.name();
    let Expr::Literal(literal) = argument else {
        return Err(format!("{name} is one value for all rows, not {argument}: write the value itself"));
    };
    let wanted = match (parameter.kind(), literal) {
        (Kind::ConstantText, Literal::Text(_))
        | (Kind::ConstantInteger, Literal::Int(_))
        | (Kind::ConstantBool, Literal::Bool(_)) => None,
        (_, Literal::Null) if parameter.is_optional() => None,
        (Kind::ConstantText, _) => Some("a string"),
        (Kind::ConstantInteger, _) => Some("an integer"),
        _ => Some("True or False"),
    };
    if let Some(wanted) = wanted {
        return Err(format!("{name} is {wanted}, not {literal}"));
    }
    if let (Literal::Int(value), Some(bounds)) = (literal, parameter.limits())
        && !(bounds.least..=bounds.most).contains(value)
    {
        return Err(format!("{}({value}): {}", function.full_name(), bounds.rule));
    }
    Ok(literal)
}

/// Casts the arguments of kinds that go together to one type.
fn alike(columns: Vec<(Kind, Bound)>, whole: &Expr) -> Result<Vec<Bound>, ExprError> {
    let places: Vec<bool> = columns.iter().map(|(kind, _)| kind.is_alike()).collect();
    let (together, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(|(kind, _)| kind.is_alike());
    let are_integers = together.iter().any(|(kind, _)| *kind == Kind::Bits);
    let mut together: VecDeque<Bound> =
        all_alike(together.into_iter().map(|(_, bound)| bound).collect(), whole)?.into();
    if let Some(first) = together.front() {
        let data_type = first.data_type();
        let is_incomparable = matches!(data_type, DataType::List(_) | DataType::Struct(_) | DataType::Null);
        if is_incomparable || (are_integers && !data_type.is_integer()) {
            let why = format!("it does not take {}: cast the columns before", type_name(data_type));
            return Err(type_error(whole, why));
        }
    }
    let mut others: VecDeque<Bound> = others.into_iter().map(|(_, bound)| bound).collect();
    let mut next = |is_alike| if is_alike { together.pop_front() } else { others.pop_front() };
    Ok(places.into_iter().filter_map(&mut next).collect())
}
