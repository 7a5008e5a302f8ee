//! Functions of strings that search for a pattern. Regular expressions are those of the crate `regex`.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, StringArray};
use arrow_schema::{ArrowError, DataType, Field};
use regex::Regex;

use super::arguments::{Kernel, check_bytes};
use super::call::Call;
use super::parameters::{Constant, Kind, Parameter};
use super::{Function, Namespace, Nulls, Returns};

const TEXT: Parameter = Parameter::new("self", Kind::Text);
const PATTERN: Parameter = Parameter::new("pattern", Kind::ConstantText);
const VALUE: Parameter = Parameter::new("value", Kind::ConstantText);
const LITERAL: Parameter = Parameter::new("literal", Kind::ConstantBool).keyword(Constant::False);
const GROUP: Parameter = Parameter::new("group", Kind::ConstantInteger).default(Constant::Integer(1)).bounds(
    0,
    i64::MAX,
    "a group is not below 0",
);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(Namespace::Text, "contains", &[TEXT, PATTERN, LITERAL], Returns::Bool, contains)
        .summary("Return true if a regular expression matches. With `literal` it is a string to find.")
        .example("fn.lit('a1').str.contains('[0-9]')", "True"),
    Function::new(Namespace::Text, "like", &[TEXT, PATTERN], Returns::Bool, |call| like(call, false))
        .summary(
            "Return true if the whole string matches a pattern of SQL. `%` matches any characters, `_` one, and a \
             backslash takes the next character literally.",
        )
        .example("fn.lit('report.csv').str.like('r%.csv')", "True"),
    Function::new(Namespace::Text, "ilike", &[TEXT, PATTERN], Returns::Bool, |call| like(call, true))
        .summary("Return true if the string matches a pattern of SQL. Case is ignored; `like` explains the pattern.")
        .example("fn.lit('Report').str.ilike('r%')", "True"),
    Function::new(Namespace::Text, "count_matches", &[TEXT, PATTERN], Returns::Int64, |call| {
        let pattern = call.pattern(1)?;
        Ok(Kernel::of_count(move |text| pattern.find_iter(text).count()))
    })
    .summary("Count the matches of a regular expression.")
    .example("fn.lit('a1b22').str.count_matches('[0-9]+')", "2"),
    Function::new(Namespace::Text, "replace", &[TEXT, PATTERN, VALUE, LITERAL], Returns::Text, |call| {
        replace(call, true)
    })
    .summary(
        "Replace the first match of a regular expression. `$1` in the value is its first group. With `literal` it is \
         a string to find.",
    )
    .example("fn.lit('a1b2').str.replace('[0-9]', '-')", "'a-b2'"),
    Function::new(Namespace::Text, "replace_all", &[TEXT, PATTERN, VALUE, LITERAL], Returns::Text, |call| {
        replace(call, false)
    })
    .summary(
        "Replace all matches of a regular expression. `$1` in the value is its first group. With `literal` it is a \
         string to find.",
    )
    .example("fn.lit('a1b2').str.replace_all('[0-9]', '-')", "'a-b-'"),
    Function::new(Namespace::Text, "extract", &[TEXT, PATTERN, GROUP], Returns::Text, extract)
        .summary("Return a group of the first match of a regular expression. It is null if nothing matches.")
        .example("fn.lit('id=42').str.extract('id=([0-9]+)')", "'42'")
        .nulls(Nulls::Own),
    Function::new(Namespace::Text, "extract_all", &[TEXT, PATTERN], Returns::Texts, |call| {
        let pattern = call.pattern(1)?;
        Ok(Kernel::of_array(move |array| extract_all(array.as_string::<i32>(), &pattern)))
    })
    .summary("Return all matches of a regular expression as a list.")
    .example("fn.lit('a1b22').str.extract_all('[0-9]+')", "['1', '22']"),
];

fn contains(call: &Call<'_>) -> Result<Kernel, String> {
    if !call.is_on(2) {
        let pattern = call.pattern(1)?;
        return Ok(Kernel::of_truth(move |text| pattern.is_match(text)));
    }
    let finder = memchr::memmem::Finder::new(&call.text(1)).into_owned();
    Ok(Kernel::of_truth(move |text| finder.find(text.as_bytes()).is_some()))
}

fn like(call: &Call<'_>, ignores_case: bool) -> Result<Kernel, String> {
    let mut pattern = format!("^(?s{}:", if ignores_case { "i" } else { "" });
    let text = call.text(1);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '%' => pattern.push_str(".*"),
            '_' => pattern.push('.'),
            '\\' => {
                let next = chars.next().ok_or("the pattern ends with a backslash: write two of them")?;
                pattern.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
            }
            char => pattern.push_str(&regex::escape(char.encode_utf8(&mut [0; 4]))),
        }
    }
    pattern.push_str(")$");
    let pattern = Regex::new(&pattern).map_err(|error| error.to_string())?;
    Ok(Kernel::of_truth(move |text| pattern.is_match(text)))
}

fn replace(call: &Call<'_>, is_first_only: bool) -> Result<Kernel, String> {
    let (text, value) = (call.text(1), call.text(2));
    let limit = usize::from(is_first_only);
    if !call.is_on(3) {
        let pattern = call.pattern(1)?;
        return Ok(Kernel::of_text(move |text, out| out.push_str(&pattern.replacen(text, limit, &*value))));
    }
    Ok(Kernel::of_text(move |of, out| {
        out.push_str(&if is_first_only { of.replacen(&*text, &value, 1) } else { of.replace(&*text, &value) });
    }))
}

fn extract(call: &Call<'_>) -> Result<Kernel, String> {
    let pattern = call.pattern(1)?;
    let group = call.integer(2).map_or(1, |group| usize::try_from(group).unwrap_or(usize::MAX));
    if group >= pattern.captures_len() {
        return Err(format!("the pattern has groups 0 to {}, and no group {group}", pattern.captures_len() - 1));
    }
    Ok(Kernel::of_array(move |array| {
        let texts = array.as_string::<i32>().iter();
        let found = texts.map(|text| pattern.captures(text?)?.get(group).map(|found| found.as_str()));
        Ok(Arc::new(found.collect::<StringArray>()))
    }))
}

fn extract_all(texts: &StringArray, pattern: &Regex) -> Result<ArrayRef, ArrowError> {
    let item = Field::new_list_field(DataType::Utf8, true);
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item);
    for text in texts {
        if let Some(text) = text {
            check_bytes(lists.values().values_slice().len() + text.len())?;
            pattern.find_iter(text).for_each(|found| lists.values().append_value(found.as_str()));
        }
        lists.append(text.is_some());
    }
    Ok(Arc::new(lists.finish()))
}
