//! Binds expressions to a schema: resolves names to column indices and operands to common types.
//!
//! Two number types become one that holds both:
//! - Two integers become an integer type that holds both, signed if one of them is.
//! - An integer and a float, or `uint64` and a signed integer, become `float64`. A `float32` and a literal stay
//!   `float32`.
//! - A decimal and an integer, or two decimals, become a decimal that holds both.
//! - A decimal and a float become `float64`.
//!
//! A literal takes the type of its other operand if its value fits.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, Schema, TimeUnit};

use super::compare::{self, Comparison, unit_of};
use super::eval::Node;
use super::number::NumberOp;
use super::values::Values;
use super::{BinaryOp, Bound, Expr, ExprError, Literal, UnaryOp, decimal};
use crate::type_levels::check_name_levels;
use crate::type_names::{named_type, type_name};

/// Checks an expression against a schema.
pub(super) fn bind(expression: &Expr, schema: &Schema) -> Result<Bound, ExprError> {
    Binder { schema }.bind(expression)
}

pub(super) struct Binder<'a> {
    schema: &'a Schema,
}

/// Operands of an operator, of one type.
struct Pair {
    left: Bound,
    right: Bound,
}

impl Pair {
    fn of_floats(self, text: &str) -> Result<Self, ExprError> {
        let Self { left, right } = self;
        Ok(Self { left: left.cast(&DataType::Float64, text)?, right: right.cast(&DataType::Float64, text)? })
    }
}

impl Bound {
    pub(super) fn new(node: Node, data_type: DataType, nullable: bool) -> Self {
        Self { node, data_type, nullable }
    }

    pub(super) fn into_node(self) -> Node {
        self.node
    }

    /// Returns the value of a literal, or none for other expressions.
    fn written(&self) -> Option<&Values> {
        if let Node::One(value) = &self.node { Some(value) } else { None }
    }

    /// Casts to another type. Literals are cast now, other values during evaluation.
    pub(super) fn cast(self, to: &DataType, text: &str) -> Result<Self, ExprError> {
        if self.data_type == *to {
            return Ok(self);
        }
        let nullable = self.nullable;
        if let Some(value) = self.written() {
            let array = value.array();
            if *array.data_type() == DataType::Null {
                return Ok(Self::new(Node::One(Values::one(new_null_array(to, 1))), to.clone(), true));
            }
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let made = cast_with_options(&array, to, &options).map_err(|error| type_error(text, error))?;
            return Ok(Self::new(Node::One(Values::one(made)), to.clone(), nullable));
        }
        let node = Node::Cast { of: Box::new(self.node), to: to.clone(), strict: true, text: text.into() };
        Ok(Self::new(node, to.clone(), nullable))
    }
}

pub(super) fn type_error(expression: impl ToString, why: impl ToString) -> ExprError {
    ExprError::Type { expression: expression.to_string(), why: why.to_string() }
}

impl Binder<'_> {
    pub(super) fn bind(&self, expression: &Expr) -> Result<Bound, ExprError> {
        match expression {
            Expr::Column(name) => self.column(name),
            Expr::Literal(literal) => Ok(written(literal)),
            Expr::Binary { op, left, right } => self.binary(*op, left, right, expression),
            Expr::Unary { op, of } => self.unary(*op, of, expression),
            Expr::Cast { of, to, strict } => self.cast(of, to, *strict, expression),
            Expr::When { branches, otherwise } => self.when(branches, otherwise.as_deref(), expression),
            Expr::IsIn { of, values } => self.is_in(of, values, expression),
            Expr::Coalesce(of) => self.coalesce(of, expression),
            Expr::Call { function, of } => self.call(function, of, expression),
            Expr::Alias { of, .. } => self.bind(of),
        }
    }

    fn column(&self, name: &str) -> Result<Bound, ExprError> {
        let Ok(at) = self.schema.index_of(name) else {
            let columns = self.schema.fields().iter().map(|field| format!("'{}'", field.name()));
            let columns = columns.collect::<Vec<_>>().join(", ");
            return Err(ExprError::Missing { column: name.to_owned(), columns });
        };
        let field = self.schema.field(at);
        Ok(Bound::new(Node::Column(at), field.data_type().clone(), field.is_nullable()))
    }

    fn binary(&self, op: BinaryOp, left: &Expr, right: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                let (left, right) = (self.truth(left, whole)?, self.truth(right, whole)?);
                let nullable = left.nullable || right.nullable;
                let (left, right) = (Box::new(left.node), Box::new(right.node));
                let node = if op == BinaryOp::And { Node::And(left, right) } else { Node::Or(left, right) };
                Ok(Bound::new(node, DataType::Boolean, nullable))
            }
            BinaryOp::Xor => {
                let (left, right) = (self.truth(left, whole)?, self.truth(right, whole)?);
                Ok(compared(Comparison::Ne, Pair { left, right }, whole))
            }
            BinaryOp::Eq => self.compare(Comparison::Eq, left, right, whole),
            BinaryOp::Ne => self.compare(Comparison::Ne, left, right, whole),
            BinaryOp::Lt => self.compare(Comparison::Lt, left, right, whole),
            BinaryOp::Le => self.compare(Comparison::Le, left, right, whole),
            BinaryOp::Gt => self.compare(Comparison::Gt, left, right, whole),
            BinaryOp::Ge => self.compare(Comparison::Ge, left, right, whole),
            BinaryOp::Add => self.calculate(NumberOp::Add, left, right, whole),
            BinaryOp::Sub => self.calculate(NumberOp::Sub, left, right, whole),
            BinaryOp::Mul => self.calculate(NumberOp::Mul, left, right, whole),
            BinaryOp::Div => self.calculate(NumberOp::Div, left, right, whole),
            BinaryOp::FloorDiv => self.calculate(NumberOp::FloorDiv, left, right, whole),
            BinaryOp::Mod => self.calculate(NumberOp::Mod, left, right, whole),
            BinaryOp::Pow => self.calculate(NumberOp::Pow, left, right, whole),
        }
    }

    fn truth(&self, of: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        let bound = self.bind(of)?;
        match bound.data_type {
            DataType::Boolean => Ok(bound),
            DataType::Null => bound.cast(&DataType::Boolean, &whole.to_string()),
            _ => Err(type_error(
                whole,
                format!("{of} is of type {}, and not bool: compare it", type_name(&bound.data_type)),
            )),
        }
    }

    fn compare(&self, op: Comparison, left: &Expr, right: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        let pair = comparable(self.bind(left)?, self.bind(right)?, whole)?;
        if matches!(pair.left.data_type, DataType::List(_) | DataType::Struct(_)) {
            return Err(type_error(whole, "lists and structs are not compared: compare what is in them"));
        }
        Ok(compared(op, pair, whole))
    }

    fn calculate(&self, op: NumberOp, left: &Expr, right: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        let (one, other) = (self.bind(left)?, self.bind(right)?);
        let text = whole.to_string();
        let wrong = |one: &Bound, other: &Bound| {
            let types = (type_name(&one.data_type), type_name(&other.data_type));
            type_error(&text, format!("there is no such thing of {} and {}: cast one of them", types.0, types.1))
        };
        if is_temporal(&one.data_type) || is_temporal(&other.data_type) {
            let is_sum = matches!(op, NumberOp::Add | NumberOp::Sub);
            let pair = if is_sum { times(one, other, &text)? } else { return Err(wrong(&one, &other)) };
            let data_type = match (&pair.left.data_type, &pair.right.data_type, op) {
                (DataType::Timestamp(..), DataType::Duration(_), _) => pair.left.data_type.clone(),
                (DataType::Duration(_), DataType::Timestamp(..), NumberOp::Add) => pair.right.data_type.clone(),
                (DataType::Timestamp(unit, _), DataType::Timestamp(..), NumberOp::Sub) => DataType::Duration(*unit),
                (DataType::Duration(_), DataType::Duration(_), _) => pair.left.data_type.clone(),
                _ => return Err(wrong(&pair.left, &pair.right)),
            };
            return Ok(calculated(op, pair, data_type, &text));
        }
        if !is_number(&one.data_type) || !is_number(&other.data_type) {
            return Err(wrong(&one, &other));
        }
        if is_decimal(&one.data_type) || is_decimal(&other.data_type) {
            return calculate_decimals(op, one, other, whole, &text);
        }
        let mut pair = alike(one, other, whole)?;
        if matches!(op, NumberOp::Div | NumberOp::Pow) && !pair.left.data_type.is_floating() {
            pair = pair.of_floats(&text)?;
        }
        let data_type = pair.left.data_type.clone();
        Ok(calculated(op, pair, data_type, &text))
    }

    fn unary(&self, op: UnaryOp, of: &Expr, whole: &Expr) -> Result<Bound, ExprError> {
        if op == UnaryOp::Not {
            let of = self.truth(of, whole)?;
            return Ok(Bound::new(Node::Not(Box::new(of.node)), DataType::Boolean, of.nullable));
        }
        let bound = self.bind(of)?;
        if matches!(op, UnaryOp::IsNull | UnaryOp::IsNotNull) {
            let node = Node::IsNull(Box::new(bound.node), op == UnaryOp::IsNull);
            return Ok(Bound::new(node, DataType::Boolean, false));
        }
        let data_type = &bound.data_type;
        let is_signed = !matches!(data_type, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64);
        if !is_number(data_type) || !is_signed {
            let why = format!("{of} is of type {}, which has no such thing: cast it before", type_name(data_type));
            return Err(type_error(whole, why));
        }
        let node = Node::Negative { of: Box::new(bound.node), text: whole.to_string().into() };
        Ok(Bound::new(node, bound.data_type, bound.nullable))
    }

    fn cast(&self, of: &Expr, to: &str, strict: bool, whole: &Expr) -> Result<Bound, ExprError> {
        let bound = self.bind(of)?;
        check_name_levels(&whole.to_string(), to).map_err(|error| type_error(whole, error.to_string()))?;
        let wanted = named_type(to).ok_or_else(|| type_error(whole, format!("{to:?} is no type of rows")))?;
        let is_naive = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
        let is_zoned = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(_)));
        if (is_naive(&bound.data_type) && is_zoned(&wanted)) || (is_zoned(&bound.data_type) && is_naive(&wanted)) {
            let why = "a time with a zone and one without are not made of each other by a cast: go by dt.epoch()";
            return Err(type_error(whole, why));
        }
        if !can_cast_types(&bound.data_type, &wanted) {
            let types = (type_name(&bound.data_type), type_name(&wanted));
            return Err(type_error(whole, format!("{} cannot be made of {}", types.1, types.0)));
        }
        let nullable = bound.nullable || !strict;
        let node = Node::Cast { of: Box::new(bound.node), to: wanted.clone(), strict, text: whole.to_string().into() };
        Ok(Bound::new(node, wanted, nullable))
    }

    fn when(&self, branches: &[(Expr, Expr)], otherwise: Option<&Expr>, whole: &Expr) -> Result<Bound, ExprError> {
        let text = whole.to_string();
        let mut conditions = Vec::with_capacity(branches.len());
        let mut values = Vec::with_capacity(branches.len() + 1);
        for (condition, value) in branches {
            conditions.push(self.truth(condition, whole)?);
            values.push(self.bind(value)?);
        }
        values.extend(otherwise.map(|otherwise| self.bind(otherwise)).transpose()?);
        let values = all_alike(values, whole)?;
        let Some(data_type) = values.first().map(|value| value.data_type.clone()) else {
            return Err(type_error(whole, "when() needs a then()"));
        };
        let nullable = otherwise.is_none() || values.iter().any(|value| value.nullable);
        let mut values = values.into_iter().map(|value| value.node);
        let branches = conditions.into_iter().map(|condition| condition.node).zip(values.by_ref()).collect();
        let node = Node::When {
            branches,
            otherwise: values.next().map(Box::new),
            data_type: data_type.clone(),
            text: text.into(),
        };
        Ok(Bound::new(node, data_type, nullable))
    }

    fn is_in(&self, of: &Expr, values: &[Literal], whole: &Expr) -> Result<Bound, ExprError> {
        let bound = self.bind(of)?;
        let mut among = Vec::with_capacity(values.len());
        for value in values.iter().filter(|value| **value != Literal::Null) {
            let value = written(value);
            if !goes_with(&bound.data_type, &value.data_type) {
                let types = (type_name(&value.data_type), type_name(&bound.data_type));
                return Err(type_error(whole, format!("a value of type {} is never one of {}", types.0, types.1)));
            }
            // A value that the type cannot hold equals none of its values.
            among.extend(exactly(&value, &bound.data_type).map(Values::one));
        }
        let nullable = bound.nullable;
        let node = Node::IsIn { of: Box::new(bound.node), values: among, text: whole.to_string().into() };
        Ok(Bound::new(node, DataType::Boolean, nullable))
    }

    fn coalesce(&self, of: &[Expr], whole: &Expr) -> Result<Bound, ExprError> {
        let of = all_alike(of.iter().map(|of| self.bind(of)).collect::<Result<_, _>>()?, whole)?;
        let Some(first) = of.first() else { return Err(type_error(whole, "it needs at least one column")) };
        let (data_type, nullable) = (first.data_type.clone(), of.iter().all(|of| of.nullable));
        let of = of.into_iter().map(|of| of.node).collect();
        Ok(Bound::new(Node::Coalesce { of, text: whole.to_string().into() }, data_type, nullable))
    }
}

fn written(literal: &Literal) -> Bound {
    let array = literal.to_array();
    let data_type = array.data_type().clone();
    Bound::new(Node::One(Values::one(array)), data_type, *literal == Literal::Null)
}

fn compared(op: Comparison, Pair { left, right }: Pair, whole: &Expr) -> Bound {
    let nullable = left.nullable || right.nullable;
    let (left, right) = (Box::new(left.node), Box::new(right.node));
    let node = Node::Compare { op, left, right, text: whole.to_string().into() };
    Bound::new(node, DataType::Boolean, nullable)
}

fn calculated(op: NumberOp, Pair { left, right }: Pair, data_type: DataType, text: &str) -> Bound {
    let nullable = left.nullable || right.nullable;
    let (left, right) = (Box::new(left.node), Box::new(right.node));
    Bound::new(Node::Number { op, left, right, text: text.into() }, data_type, nullable)
}

/// Builds arithmetic with at least one decimal operand.
fn calculate_decimals(op: NumberOp, left: Bound, right: Bound, whole: &Expr, text: &str) -> Result<Bound, ExprError> {
    if matches!(op, NumberOp::Div | NumberOp::Pow) {
        return Ok(calculated(op, Pair { left, right }.of_floats(text)?, DataType::Float64, text));
    }
    // Sums and products take decimals of two types. A remainder takes one type.
    let (one, other) = (own_decimal(&left), own_decimal(&right));
    let pair = match (one, other) {
        (Some(one), Some(other)) if !matches!(op, NumberOp::FloorDiv | NumberOp::Mod) => {
            Pair { left: left.cast(&one, text)?, right: right.cast(&other, text)? }
        }
        _ => alike(left, right, whole)?,
    };
    let digits = |bound: &Bound| decimal::holding(&bound.data_type).filter(|_| is_decimal(&bound.data_type));
    let (Some(one), Some(other)) = (digits(&pair.left), digits(&pair.right)) else {
        // One operand is a float.
        let data_type = pair.left.data_type.clone();
        return Ok(calculated(op, pair, data_type, text));
    };
    let data_type = decimal::result(op, one, other).map_err(|why| type_error(text, why))?;
    Ok(calculated(op, pair, data_type, text))
}

/// Returns the decimal type of an operand: that of its value for a literal, or one that holds all integers of a column.
fn own_decimal(bound: &Bound) -> Option<DataType> {
    let (precision, scale) = decimal::holding(&bound.data_type)?;
    let is_integer = |value: &&Values| *value.array().data_type() == DataType::Int64;
    let precision = bound
        .written()
        .filter(is_integer)
        .map_or(precision, |value| decimal::digits_of(value.array().as_primitive::<Int64Type>().value(0).into()));
    Some(DataType::Decimal128(precision, scale))
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

pub(super) fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer()
        || is_decimal(data_type)
        || matches!(data_type, DataType::Float32 | DataType::Float64 | DataType::Null)
}

fn is_temporal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Duration(_) | DataType::Date32)
}

/// Returns true if values of these types can be equal.
fn goes_with(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) => one.is_some() == other.is_some(),
        (DataType::Duration(_), DataType::Duration(_)) => true,
        (one, other) => one == other || *other == DataType::Null || (is_number(one) && is_number(other)),
    }
}

/// Casts both operands for a comparison: to one type, or to times of two units if a cast could overflow.
fn comparable(left: Bound, right: Bound, whole: &Expr) -> Result<Pair, ExprError> {
    let (one, other) = (&left.data_type, &right.data_type);
    let is_written_in = |value: &Bound, to: &DataType| value.written().is_some() && fits_into(value, to);
    if is_written_in(&left, other) || is_written_in(&right, one) || one == other {
        return alike(left, right, whole);
    }
    let are_of_two_units = unit_of(one).zip(unit_of(other)).is_some_and(|(one, other)| one != other);
    if are_of_two_units && goes_with(one, other) {
        return Ok(Pair { left, right });
    }
    let Some(wide) = compare::decimal_type(one, other) else { return alike(left, right, whole) };
    let text = whole.to_string();
    Ok(Pair { left: left.cast(&wide, &text)?, right: right.cast(&wide, &text)? })
}

/// Casts both operands to one type.
fn alike(left: Bound, right: Bound, whole: &Expr) -> Result<Pair, ExprError> {
    let mut both = all_alike(vec![left, right], whole)?;
    let (Some(right), Some(left)) = (both.pop(), both.pop()) else {
        return Err(type_error(whole, "it needs two sides"));
    };
    Ok(Pair { left, right })
}

/// Casts all values to one type.
pub(super) fn all_alike(values: Vec<Bound>, whole: &Expr) -> Result<Vec<Bound>, ExprError> {
    let text = whole.to_string();
    // Literals adapt to the columns if they fit, so the columns are first.
    let of_columns = values.iter().filter(|value| value.written().is_none()).map(|value| &value.data_type);
    let mut common: Option<DataType> = None;
    for data_type in of_columns {
        common = Some(match common {
            None => data_type.clone(),
            Some(so_far) => both_fit(&so_far, data_type).ok_or_else(|| no_common(&so_far, data_type, &text))?,
        });
    }
    for value in values.iter().filter(|value| value.written().is_some()) {
        common = Some(match common {
            None => value.data_type.clone(),
            Some(so_far) if fits_into(value, &so_far) => so_far,
            Some(so_far) => {
                both_fit(&so_far, &value.data_type).ok_or_else(|| no_common(&so_far, &value.data_type, &text))?
            }
        });
    }
    let Some(common) = common else { return Ok(values) };
    values.into_iter().map(|value| value.cast(&common, &text)).collect()
}

fn no_common(one: &DataType, other: &DataType, text: &str) -> ExprError {
    let advice = match (one, other) {
        (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) if one.is_some() != other.is_some() => {
            "a time with a zone and one without never mix: give the other one a zone, or take it away, where it is made"
        }
        _ => "cast one of them",
    };
    type_error(text, format!("{} and {} have no type in common: {advice}", type_name(one), type_name(other)))
}

/// Returns true if the literal is also a value of this type.
fn fits_into(value: &Bound, data_type: &DataType) -> bool {
    if value.data_type == DataType::Null || value.data_type == *data_type {
        return true;
    }
    // 0.9 turns a column of integers into floats, but becomes a float32 beside one.
    let is_of_kind = match (&value.data_type, data_type) {
        (DataType::Int64, to) => is_number(to),
        (DataType::Float64, to) => to.is_floating(),
        (DataType::Decimal128(..), to) => is_decimal(to) || to.is_floating(),
        (DataType::Timestamp(..), DataType::Timestamp(..)) | (DataType::Duration(_), DataType::Duration(_)) => {
            goes_with(&value.data_type, data_type)
        }
        _ => false,
    };
    is_of_kind && exactly(value, data_type).is_some()
}

/// Returns the literal as a value of another type, if that is exact: 1 us does not fit a column of seconds. A float of
/// fewer bits is the nearest one.
fn exactly(value: &Bound, data_type: &DataType) -> Option<ArrayRef> {
    let written = value.written()?.array();
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let made = cast_with_options(&written, data_type, &options).ok().filter(|made| made.null_count() == 0)?;
    let back = cast_with_options(&made, &value.data_type, &options);
    // A value that changes in a round trip has lost something.
    let is_same =
        |back: ArrayRef| Comparison::Eq.run(&back, &written).is_ok_and(|same| same.true_count() == same.len());
    (data_type.is_floating() || back.is_ok_and(is_same)).then_some(made)
}

/// Returns the type that holds the values of both.
fn both_fit(one: &DataType, other: &DataType) -> Option<DataType> {
    if one == other {
        return Some(one.clone());
    }
    match (one, other) {
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (DataType::Timestamp(unit, zone), DataType::Timestamp(other_unit, other_zone))
            if zone.is_some() == other_zone.is_some() =>
        {
            Some(DataType::Timestamp(finer(*unit, *other_unit), zone.clone()))
        }
        (DataType::Duration(unit), DataType::Duration(other)) => Some(DataType::Duration(finer(*unit, *other))),
        (one, other) if is_number(one) && is_number(other) => number_type(one, other),
        _ => None,
    }
}

fn finer(one: TimeUnit, other: TimeUnit) -> TimeUnit {
    one.max(other)
}

fn number_type(one: &DataType, other: &DataType) -> Option<DataType> {
    if is_decimal(one) || is_decimal(other) {
        let (Some(one), Some(other)) = (decimal::holding(one), decimal::holding(other)) else {
            return Some(DataType::Float64);
        };
        return decimal::common(one, other);
    }
    Some(plain_number_type(one, other))
}

fn plain_number_type(one: &DataType, other: &DataType) -> DataType {
    let width = |data_type: &DataType| data_type.primitive_width().unwrap_or(8);
    let is_unsigned = |data_type: &DataType| {
        matches!(data_type, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64)
    };
    if one.is_floating() && other.is_floating() || !one.is_integer() || !other.is_integer() {
        return DataType::Float64;
    }
    if is_unsigned(one) == is_unsigned(other) {
        return if width(one) > width(other) { one.clone() } else { other.clone() };
    }
    let (signed, unsigned) = if is_unsigned(one) { (other, one) } else { (one, other) };
    match width(signed).max(2 * width(unsigned)) {
        2 => DataType::Int16,
        4 => DataType::Int32,
        8 => DataType::Int64,
        _ => DataType::Float64,
    }
}

/// Casts times and durations to one unit.
fn times(left: Bound, right: Bound, text: &str) -> Result<Pair, ExprError> {
    let (Some(one), Some(other)) = (unit_of(&left.data_type), unit_of(&right.data_type)) else {
        let types = (type_name(&left.data_type), type_name(&right.data_type));
        return Err(type_error(
            text,
            format!("there is no such thing of {} and {}: cast one of them", types.0, types.1),
        ));
    };
    if let (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) = (&left.data_type, &right.data_type)
        && one.is_some() != other.is_some()
    {
        return Err(no_common(&left.data_type, &right.data_type, text));
    }
    // A literal takes the unit of the column if it is a whole number of units.
    let unit = match (left.written().is_some(), right.written().is_some()) {
        (true, false) if fits_into(&left, &with_unit(&left.data_type, other)) => other,
        (false, true) if fits_into(&right, &with_unit(&right.data_type, one)) => one,
        _ => finer(one, other),
    };
    let of_unit = |bound: Bound| {
        let to = with_unit(&bound.data_type, unit);
        bound.cast(&to, text)
    };
    let (left, right) = (of_unit(left)?, of_unit(right)?);
    Ok(Pair { left, right })
}

fn with_unit(data_type: &DataType, unit: TimeUnit) -> DataType {
    match data_type {
        DataType::Timestamp(_, zone) => DataType::Timestamp(unit, zone.clone()),
        _ => DataType::Duration(unit),
    }
}
