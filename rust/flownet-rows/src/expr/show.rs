//! Formats expressions as a user would write them.

use std::fmt::{Display, Formatter, Result};

use super::values::shown;
use super::{BinaryOp, Expr, Literal, UnaryOp, functions};

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
            Self::Call { function, of } => f.write_str(&functions::shown(function, of)),
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
