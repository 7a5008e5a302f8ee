//! Reads values of an earlier run of the program as instances of the running program's classes.
//!
//! `flownet.internal.class_changes` finds the class by its name before the job starts, and makes the new
//! instances.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use super::CodecError;
use super::class::{Class, Layout};

static RESTORED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// How to read values that name a class by a number.
#[derive(Clone, Debug)]
pub(super) enum ClassReading {
    /// As instances of a class that has the fields they were written with.
    As(Arc<Class>),
    /// As instances of a class whose fields have changed.
    Changed(Arc<ChangedClass>),
    /// Unreadable, for this reason.
    Gone(Arc<str>),
}

impl ClassReading {
    pub(super) fn class(&self) -> Option<&Arc<Class>> {
        match self {
            Self::As(class) => Some(class),
            Self::Changed(changed) => Some(&changed.class),
            Self::Gone(_) => None,
        }
    }
}

/// A class whose fields, members or name have changed since values were written.
#[derive(Debug)]
pub(super) struct ChangedClass {
    pub(super) class: Arc<Class>,
    /// Its earlier kind, in Python's terms.
    pub(super) kind: &'static str,
    pub(super) in_dict: Vec<Py<PyString>>,
    pub(super) in_slots: Vec<Py<PyString>>,
    /// `flownet.internal.class_changes.Change`.
    change: Py<PyAny>,
}

impl ChangedClass {
    /// How to read values of this layout as instances of `class`, if that is possible.
    pub(super) fn reading(
        py: Python<'_>,
        class: Arc<Class>,
        found: &Bound<'_, PyAny>,
        layout: &Layout<'_>,
    ) -> Result<ClassReading, CodecError> {
        let kind = layout.kind()?;
        let written = (layout.identity, kind, layout.in_dict.clone(), layout.in_slots.clone());
        let change = found.call_method1("change_from", written)?;
        let reason = change.getattr("reason")?;
        if reason.is_truthy()? {
            return Ok(ClassReading::Gone(reason.extract::<String>()?.into()));
        }
        let names = |names: &[&str]| names.iter().map(|name| PyString::intern(py, name).unbind()).collect();
        let (in_dict, in_slots) = (names(&layout.in_dict), names(&layout.in_slots));
        Ok(ClassReading::Changed(Arc::new(Self { class, kind, in_dict, in_slots, change: change.unbind() })))
    }

    /// The current member of the Enum for the member at this place.
    pub(super) fn member<'py>(&self, py: Python<'py>, place: usize) -> Result<Bound<'py, PyAny>, CodecError> {
        let name = self.in_dict.get(place).ok_or(CodecError::Malformed("a member that an Enum does not have"))?;
        self.made(py, self.change.bind(py).call_method1("member", (name,)))
    }

    /// An instance with these attributes or items, by their earlier names.
    pub(super) fn instance<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyAny>, CodecError> {
        self.made(py, self.change.bind(py).call_method1("instance", (values,)))
    }

    fn made<'py>(&self, py: Python<'py>, made: PyResult<Bound<'py, PyAny>>) -> Result<Bound<'py, PyAny>, CodecError> {
        made.map_err(|error| {
            let reason = format!("{} cannot be made of what was kept: {error}", self.class.type_name(py));
            CodecError::NotRestored { reason }
        })
    }
}

/// The program's replacement of a class that an earlier run's checkpoint names by this number: a
/// `flownet.internal.class_changes.Restored`. `None` for a class that this run has written.
pub(super) fn restored(py: Python<'_>, number: u64) -> Result<Option<Bound<'_, PyAny>>, CodecError> {
    let found = RESTORED.import(py, "flownet.internal.class_changes", "restored")?.call1((number,))?;
    Ok((!found.is_none()).then_some(found))
}
