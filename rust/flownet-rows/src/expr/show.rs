//! Formats expressions as a user would write them.

use std::fmt::{Display, Formatter, Result};

use flownet_runtime::window::CalendarUnit;

use super::values::shown;
use super::{BinaryOp, Expr, Literal, TextOp, TimeOp, UnaryOp};

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Column(name) => write!(f, "col({name:?})"),
            Self::Literal(literal) => write!(f, "{literal}"),
            Self::Binary { op, left, right } => write!(f, "({left} {} {right})", op.sign()),
            Self::Unary { op, of } => match op {
                UnaryOp::Not => write!(f, "~{of}"),
                UnaryOp::Neg => write!(f, "-{of}"),
                UnaryOp::IsNull => write!(f, "{of}.is_null()"),
                UnaryOp::IsNotNull => write!(f, "{of}.is_not_null()"),
                UnaryOp::Abs => write!(f, "{of}.abs()"),
                UnaryOp::Floor => write!(f, "{of}.floor()"),
                UnaryOp::Ceil => write!(f, "{of}.ceil()"),
                UnaryOp::Sqrt => write!(f, "{of}.sqrt()"),
                UnaryOp::Round(decimals) => write!(f, "{of}.round({decimals})"),
            },
            Self::Cast { of, to, strict: true } => write!(f, "{of}.cast({to:?})"),
            Self::Cast { of, to, strict: false } => write!(f, "{of}.cast({to:?}, strict=False)"),
            Self::When { branches, otherwise } => {
                for (number, (condition, value)) in branches.iter().enumerate() {
                    write!(f, "{}when({condition}).then({value})", if number == 0 { "" } else { "." })?;
                }
                otherwise.iter().try_for_each(|otherwise| write!(f, ".otherwise({otherwise})"))
            }
            Self::IsIn { of, values } => {
                let values: Vec<_> = values.iter().take(5).map(ToString::to_string).collect();
                write!(f, "{of}.is_in([{}])", values.join(", "))
            }
            Self::Coalesce(of) => {
                let of: Vec<_> = of.iter().map(ToString::to_string).collect();
                write!(f, "coalesce({})", of.join(", "))
            }
            Self::Text { op, of } => write!(f, "{of}.str.{op}"),
            Self::Time { op, of } => write!(f, "{of}.dt.{op}"),
            Self::Alias { of, name } => write!(f, "{of}.alias({name:?})"),
        }
    }
}

impl BinaryOp {
    /// Operator as Python writes it.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::FloorDiv => "//",
            Self::Mod => "%",
            Self::Pow => "**",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Null => write!(f, "None"),
            Self::Bool(true) => write!(f, "True"),
            Self::Bool(false) => write!(f, "False"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Self::Decimal { .. } => write!(f, "Decimal('{}')", shown(&self.to_array(), 0)),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => write!(f, "b{:?}", String::from_utf8_lossy(bytes)),
            Self::Date(days) => write!(f, "date(1970, 1, 1) + {days} days"),
            Self::Timestamp { us, zoned } => write!(f, "{us} us since 1970{}", if *zoned { " UTC" } else { "" }),
            Self::Duration(us) => write!(f, "timedelta(microseconds={us})"),
        }
    }
}

impl Display for TextOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::LenChars => write!(f, "len_chars()"),
            Self::LenBytes => write!(f, "len_bytes()"),
            Self::ToLowercase => write!(f, "to_lowercase()"),
            Self::ToUppercase => write!(f, "to_uppercase()"),
            Self::StripChars => write!(f, "strip_chars()"),
            Self::Contains { pattern, literal: false } => write!(f, "contains({pattern:?})"),
            Self::Contains { pattern, literal: true } => write!(f, "contains({pattern:?}, literal=True)"),
            Self::StartsWith(text) => write!(f, "starts_with({text:?})"),
            Self::EndsWith(text) => write!(f, "ends_with({text:?})"),
            Self::Slice { offset, length: None } => write!(f, "slice({offset})"),
            Self::Slice { offset, length: Some(length) } => write!(f, "slice({offset}, {length})"),
            Self::ReplaceAll { pattern, value, .. } => write!(f, "replace_all({pattern:?}, {value:?})"),
            Self::Extract { pattern, group } => write!(f, "extract({pattern:?}, {group})"),
            Self::Split(by) => write!(f, "split({by:?})"),
        }
    }
}

impl Display for TimeOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let name = match self {
            Self::Year => "year",
            Self::Month => "month",
            Self::Day => "day",
            Self::Hour => "hour",
            Self::Minute => "minute",
            Self::Second => "second",
            Self::Millisecond => "millisecond",
            Self::Weekday => "weekday",
            Self::OrdinalDay => "ordinal_day",
            Self::Date => "date",
            Self::EpochMs => "epoch",
            Self::TruncateTo(unit, count) => {
                let unit = match unit {
                    CalendarUnit::Day => "d",
                    CalendarUnit::Week => "w",
                    CalendarUnit::Month => "mo",
                };
                return write!(f, "truncate(\"{count}{unit}\")");
            }
            Self::TruncateMs(every_ms) => return write!(f, "truncate(\"{every_ms}ms\")"),
        };
        write!(f, "{name}()")
    }
}
