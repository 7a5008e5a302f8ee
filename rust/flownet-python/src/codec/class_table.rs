//! The table of a job's classes, and the classes that each sender and reader knows.
//!
//! # Invariants
//! - T1: a sender defines a class for its readers, in order, before the first instance of it.
//! - T2: instances are made only of classes in the table. It contains classes of values that were sent from
//!   here, and classes that peers defined. Peers prove beforehand that they belong to the job.
//! - T3: the table's lock is never held while Python runs: Python may wait for a thread that waits for the
//!   lock.
//! - T4: a class costs a lock, an allocation and an inspection by Python once in each sender and reader, not
//!   once a record.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flownet_runtime::work::ThreadWork;
use hashbrown::{HashMap, HashSet};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use super::changed_class::{ChangedClass, ClassReading, restored};
use super::class::{Class, KeyRule, Kind, Layout, MAX_DEFINITION_BYTES, definition_number};
use super::{CodecError, Pickle};

/// Most classes of a job. Creating a class for each record is a mistake.
const MAX_CLASSES: usize = 4096;

/// Bytes before each part of a definition: its number, the offset of the part, the length of the whole.
const PART_HEADER_BYTES: usize = 16;

/// The classes that the tasks of a job in this process share.
#[derive(Debug, Default)]
pub struct ClassTable(Mutex<Classes>);

#[derive(Debug, Default)]
struct Classes {
    by_type: HashMap<usize, Arc<Class>>,
    by_number: HashMap<u64, KnownClass>,
    by_name: HashMap<String, usize>,
    /// Definitions that have not arrived completely.
    arriving: HashMap<u64, Vec<u8>>,
    /// For each operator, by its name: numbers of the classes of values in its state.
    in_state: HashMap<String, HashSet<u64>>,
}

/// A class, as values name it.
#[derive(Clone, Debug)]
struct KnownClass {
    reading: ClassReading,
    /// The definition as it arrived; none for a class of this process, which defines itself. A process that
    /// unpickled a class may define it in another way. So one class may have several numbers.
    definition: Option<Arc<[u8]>>,
    /// Bytes of the definition that a checkpoint stores: without the pickled class, if the program finds it
    /// by name.
    kept_bytes: usize,
}

impl ClassTable {
    /// The description of a class, which Python inspects on the first request.
    fn class_of_type(&self, class: &Bound<'_, PyType>) -> Result<Arc<Class>, CodecError> {
        let place = class.as_ptr() as usize;
        if let Some(known) = self.lock().by_type.get(&place) {
            return Ok(Arc::clone(known));
        }
        let mut described = Class::describe(class)?;
        let name = described.type_name(class.py());
        let mut classes = self.lock();
        if classes.by_type.len() == MAX_CLASSES {
            return Err(CodecError::TooManyClasses { type_name: name, limit: MAX_CLASSES });
        }
        if *classes.by_name.entry(name).or_insert(place) != place && !matches!(described.kind, Kind::Opaque { .. }) {
            let refusal = "another class of this job has the same name, by which other processes know it";
            described.key = KeyRule::Refused(refusal.to_owned());
        }
        Ok(Arc::clone(classes.by_type.entry(place).or_insert_with(|| Arc::new(described))))
    }

    fn reading(&self, number: u64) -> Result<ClassReading, CodecError> {
        let known = self.lock().by_number.get(&number).map(|known| known.reading.clone());
        known.ok_or(CodecError::UnknownClass(number))
    }

    /// The number of a class that is about to be sent.
    fn number(&self, py: Python<'_>, class: &Arc<Class>) -> Result<u64, CodecError> {
        let number = class.number(py)?;
        let known =
            || KnownClass { reading: ClassReading::As(Arc::clone(class)), definition: None, kept_bytes: usize::MAX };
        self.lock().by_number.entry(number).or_insert_with(known);
        Ok(number)
    }

    /// Adds a class that a peer has defined.
    pub fn add(&self, py: Python<'_>, definition: &[u8]) -> Result<(), CodecError> {
        self.add_numbered(py, definition_number(definition), definition)
    }

    /// Adds a class with this number. The number does not follow from a definition that a checkpoint stored
    /// without the pickled class.
    fn add_numbered(&self, py: Python<'_>, number: u64, definition: &[u8]) -> Result<(), CodecError> {
        if self.lock().by_number.contains_key(&number) {
            return Ok(());
        }
        let layout = Layout::read(definition)?;
        let mut kept_bytes = definition.len();
        let reading = match restored(py, number)? {
            None => {
                let class = self.unpickled(py, layout.pickled)?;
                if !class.agrees_with(py, definition)? {
                    return Err(CodecError::ClassDiffers { type_name: class.type_name(py) });
                }
                ClassReading::As(class)
            }
            Some(found) => {
                kept_bytes -= layout.pickled.len();
                self.reading_of_restored(py, found, definition)?
            }
        };
        self.lock().by_number.insert(number, KnownClass { reading, definition: Some(definition.into()), kept_bytes });
        Ok(())
    }

    fn unpickled(&self, py: Python<'_>, pickled: &[u8]) -> Result<Arc<Class>, CodecError> {
        let class = py.import("pickle")?.call_method1("loads", (PyBytes::new(py, pickled),))?;
        self.class_of_type(&class.cast_into::<PyType>().map_err(PyErr::from)?)
    }

    /// How to read values of an earlier run, according to the program's replacement of their class.
    fn reading_of_restored(
        &self,
        py: Python<'_>,
        found: Bound<'_, PyAny>,
        definition: &[u8],
    ) -> Result<ClassReading, CodecError> {
        let class = found.getattr("cls")?;
        if class.is_none() {
            return Ok(ClassReading::Gone(found.getattr("reason")?.extract::<String>()?.into()));
        }
        let class = self.class_of_type(&class.cast_into::<PyType>().map_err(PyErr::from)?)?;
        let is_renamed = found.getattr("renames")?.is_truthy()?;
        if class.agrees_with(py, definition)? && !is_renamed {
            return Ok(ClassReading::As(class));
        }
        ChangedClass::reading(py, class, &found, &Layout::read(definition)?)
    }

    /// Adds a part of a definition, as [`parts`] makes them. The last one makes the class known.
    pub fn add_part(&self, py: Python<'_>, part: &[u8]) -> Result<(), CodecError> {
        match self.put_together(part)? {
            Some(definition) => self.add(py, &definition),
            None => Ok(()),
        }
    }

    /// Appends a part. Several senders may define one class at the same time. Each sends its parts in order,
    /// so a new part continues the stored ones.
    fn put_together(&self, part: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
        let (number, start, total, bytes) = read_part(part)?;
        let mut classes = self.lock();
        if classes.by_number.contains_key(&number) {
            return Ok(None);
        }
        if classes.arriving.len() >= MAX_CLASSES && !classes.arriving.contains_key(&number) {
            return Err(CodecError::Malformed("definitions of more classes than a job has"));
        }
        let here = classes.arriving.entry(number).or_default();
        if here.len() == start {
            here.extend_from_slice(bytes);
        }
        if here.len() < total {
            return Ok(None);
        }
        let whole = classes.arriving.remove(&number).unwrap_or_default();
        if whole.len() == total && definition_number(&whole) == number {
            Ok(Some(whole))
        } else {
            Err(CodecError::Malformed("a class whose definition is not what it was announced as"))
        }
    }

    fn definitions(&self, py: Python<'_>) -> Result<Vec<Vec<u8>>, CodecError> {
        let known: Vec<_> = self.lock().by_number.values().cloned().collect();
        known.iter().map(|known| known.definition(py)).collect()
    }

    /// Definitions that a checkpoint stores for an operator: whether values in its state are of the class,
    /// the number of the class, and the definition.
    fn kept_definitions(&self, py: Python<'_>, operator: &str) -> Result<Vec<Vec<u8>>, CodecError> {
        let (known, in_state) = {
            let classes = self.lock();
            let known: Vec<_> = classes.by_number.iter().map(|(number, known)| (*number, known.clone())).collect();
            (known, classes.in_state.get(operator).cloned().unwrap_or_default())
        };
        check_names(py, known.iter().filter(|(number, _)| in_state.contains(number)).map(|(_, known)| known))?;
        let kept = |(number, known): &(u64, KnownClass)| {
            let definition = known.definition(py)?;
            let definition = &definition[..definition.len().min(known.kept_bytes)];
            Ok([&[u8::from(in_state.contains(number))], &number.to_le_bytes()[..], definition].concat())
        };
        known.iter().map(kept).collect()
    }

    /// Adds a definition that a checkpoint stored for an operator, see
    /// [`kept_definitions`](Self::kept_definitions).
    fn add_kept(&self, py: Python<'_>, kept: &[u8], operator: Option<&str>) -> Result<(), CodecError> {
        let KeptDefinition { is_in_state, number, definition } = KeptDefinition::read(kept)?;
        if let Some(operator) = operator.filter(|_| is_in_state) {
            self.note_in_state(operator, number);
        }
        self.add_numbered(py, number, definition)
    }

    fn note_in_state(&self, operator: &str, number: u64) {
        self.lock().in_state.entry_ref(operator).or_default().insert(number);
    }

    fn lock(&self) -> MutexGuard<'_, Classes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownClass {
    fn definition(&self, py: Python<'_>) -> Result<Vec<u8>, CodecError> {
        match (&self.definition, &self.reading) {
            (Some(definition), _) => Ok(definition.to_vec()),
            (None, ClassReading::As(class)) => Ok(class.definition_bytes(py)?.1.to_vec()),
            (None, _) => Err(CodecError::Malformed("a class that changed and has no definition")),
        }
    }
}

/// Refuses state with values of two classes of one name: the next run could not tell them apart.
fn check_names<'a>(py: Python<'_>, known: impl Iterator<Item = &'a KnownClass>) -> Result<(), CodecError> {
    let mut by_name: HashMap<&str, &Arc<Class>> = HashMap::new();
    for class in known.filter_map(|known| known.reading.class()) {
        let first = by_name.entry(&class.identity).or_insert(class);
        if !first.class.is(&class.class) {
            return Err(CodecError::SameName { type_name: class.type_name(py) });
        }
    }
    Ok(())
}

/// A definition in the format of checkpoints.
pub(crate) struct KeptDefinition<'a> {
    /// True if values in the state of the operator are of the class.
    pub(crate) is_in_state: bool,
    pub(crate) number: u64,
    pub(crate) definition: &'a [u8],
}

impl<'a> KeptDefinition<'a> {
    pub(crate) fn read(kept: &'a [u8]) -> Result<Self, CodecError> {
        let broken = CodecError::Malformed("a kept class, which no flownet of this version wrote");
        let Some((is_in_state, rest)) = kept.split_first() else { return Err(broken) };
        let Some((number, definition)) = rest.split_first_chunk() else { return Err(broken) };
        match is_in_state {
            0 | 1 => Ok(Self { is_in_state: *is_in_state == 1, number: u64::from_le_bytes(*number), definition }),
            _ => Err(broken),
        }
    }
}

/// The classes that a sender has defined for its readers.
#[derive(Debug)]
pub struct SentClasses {
    table: Arc<ClassTable>,
    /// The operator whose state contains the values.
    keeper: Option<String>,
    pickle: Pickle,
    found: HashMap<usize, FoundClass>,
    news: Vec<Arc<Class>>,
}

#[derive(Debug)]
struct FoundClass {
    class: Arc<Class>,
    /// Set after the definition was sent.
    number: Option<u64>,
}

impl SentClasses {
    /// For a sender that has defined no class.
    pub fn new(table: Arc<ClassTable>, pickle: Pickle) -> Self {
        Self { table, keeper: None, pickle, found: HashMap::new(), news: Vec::new() }
    }

    /// For a sender that writes values to the state of this operator.
    pub fn kept_by(self, operator: &str) -> Self {
        Self { keeper: Some(operator.to_owned()), ..self }
    }

    /// Pickle policy for values outside the codec's types.
    pub(super) fn pickle(&self) -> Pickle {
        self.pickle
    }

    /// Returns true if readers need definitions before the record encoded last.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes the definitions that [`has_news`](Self::has_news) reports.
    pub fn take_news(&mut self) -> Vec<Arc<Class>> {
        std::mem::take(&mut self.news)
    }

    /// The class of a value, if a value of that class was found before.
    #[inline]
    pub(super) fn find(&self, value: &Bound<'_, PyAny>) -> Option<Arc<Class>> {
        self.found.get(&(value.get_type_ptr() as usize)).map(|found| Arc::clone(&found.class))
    }

    /// The description of a class, which is added if it was not found before.
    pub(super) fn learn(&mut self, class: &Bound<'_, PyType>) -> Result<Arc<Class>, CodecError> {
        let place = class.as_ptr() as usize;
        if let Some(found) = self.found.get(&place) {
            return Ok(Arc::clone(&found.class));
        }
        let class = self.table.class_of_type(class)?;
        self.found.insert(place, FoundClass { class: Arc::clone(&class), number: None });
        Ok(class)
    }

    /// The number of a found class. If the readers do not know the class, its definition is to be sent.
    #[inline]
    pub(super) fn tell(&mut self, class: &Arc<Class>, py: Python<'_>) -> Result<u64, CodecError> {
        match self.found.get(&(class.class.as_ptr() as usize)) {
            Some(FoundClass { number: Some(number), .. }) => Ok(*number),
            _ => self.tell_first(class, py),
        }
    }

    #[cold]
    fn tell_first(&mut self, class: &Arc<Class>, py: Python<'_>) -> Result<u64, CodecError> {
        let number = self.table.number(py, class)?;
        if let Some(operator) = &self.keeper {
            self.table.note_in_state(operator, number);
        }
        let found = FoundClass { class: Arc::clone(class), number: Some(number) };
        self.found.insert(class.class.as_ptr() as usize, found);
        self.news.push(Arc::clone(class));
        Ok(number)
    }

    pub(super) fn shared(&self) -> PyClassTable {
        PyClassTable(Arc::clone(&self.table))
    }
}

/// The classes that a reader knows.
#[derive(Debug)]
pub struct KnownClasses {
    table: Arc<ClassTable>,
    pickle: Pickle,
    found: RefCell<HashMap<u64, ClassReading>>,
    /// Sets the work mark of the thread that decodes.
    pub(super) work: ThreadWork,
}

impl KnownClasses {
    /// All classes that the table has, now and later.
    pub fn new(table: Arc<ClassTable>, pickle: Pickle) -> Self {
        Self { table, pickle, found: RefCell::default(), work: ThreadWork::default() }
    }

    pub(super) fn pickle(&self) -> Pickle {
        self.pickle
    }

    /// Adds a part of a definition from a peer, see [`ClassTable::add_part`].
    pub fn add_part(&self, py: Python<'_>, part: &[u8]) -> Result<(), CodecError> {
        self.table.add_part(py, part)
    }

    /// Definitions that a checkpoint stores for an operator, see [`ClassTable::kept_definitions`].
    pub fn kept_definitions(&self, py: Python<'_>, operator: &str) -> Result<Vec<Vec<u8>>, CodecError> {
        self.table.kept_definitions(py, operator)
    }

    /// Adds a class that a checkpoint has stored; for the state of an operator, if it is named.
    pub fn add_kept(&self, py: Python<'_>, kept: &[u8], operator: Option<&str>) -> Result<(), CodecError> {
        self.table.add_kept(py, kept, operator)
    }

    #[inline]
    pub(super) fn reading(&self, number: u64) -> Result<ClassReading, CodecError> {
        if let Some(reading) = self.found.borrow().get(&number) {
            return Ok(reading.clone());
        }
        let reading = self.table.reading(number)?;
        self.found.borrow_mut().insert(number, reading.clone());
        Ok(reading)
    }

    pub(super) fn shared(&self) -> PyClassTable {
        PyClassTable(Arc::clone(&self.table))
    }
}

/// Splits a definition into parts of at most `part_bytes`, each with its offset.
pub fn parts(number: u64, definition: &[u8], part_bytes: usize) -> impl Iterator<Item = Vec<u8>> {
    // Both are within `MAX_DEFINITION_BYTES`.
    let (room, total) = (part_bytes - PART_HEADER_BYTES, definition.len() as u32);
    definition.chunks(room).enumerate().map(move |(index, bytes)| {
        let start = (index * room) as u32;
        [&number.to_le_bytes()[..], &start.to_le_bytes(), &total.to_le_bytes(), bytes].concat()
    })
}

fn read_part(part: &[u8]) -> Result<(u64, usize, usize, &[u8]), CodecError> {
    let malformed = CodecError::Malformed("a part of a class that no flownet sender writes");
    let Some((number, rest)) = part.split_first_chunk::<8>() else { return Err(malformed) };
    let Some((start, rest)) = rest.split_first_chunk::<4>() else { return Err(malformed) };
    let Some((total, bytes)) = rest.split_first_chunk::<4>() else { return Err(malformed) };
    let (start, total) = (u32::from_le_bytes(*start) as usize, u32::from_le_bytes(*total) as usize);
    if bytes.is_empty() || total > MAX_DEFINITION_BYTES || start + bytes.len() > total {
        return Err(malformed);
    }
    Ok((u64::from_le_bytes(*number), start, total, bytes))
}

/// Classes by number, for records that are encoded by hand.
#[pyclass(frozen, name = "ClassTable", module = "flownet._flownet")]
#[derive(Debug)]
pub struct PyClassTable(pub(crate) Arc<ClassTable>);

#[pymethods]
impl PyClassTable {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Definitions of all classes that were encoded with this table, for the table of who decodes.
    fn definitions(&self, py: Python<'_>) -> PyResult<Vec<Py<PyBytes>>> {
        let definitions = self.0.definitions(py)?;
        Ok(definitions.iter().map(|definition| PyBytes::new(py, definition).unbind()).collect())
    }

    /// Know a class by its definition. It is code: take it only from those who may run code here.
    #[pyo3(signature = (definition, /))]
    fn add(&self, py: Python<'_>, definition: &[u8]) -> PyResult<()> {
        Ok(self.0.add(py, definition)?)
    }

    /// The number by which a pickled value names a class; None where the table is full.
    #[pyo3(signature = (cls, /))]
    fn number_of(&self, cls: &Bound<'_, PyType>) -> PyResult<Option<u64>> {
        let class = match self.0.class_of_type(cls) {
            Err(CodecError::TooManyClasses { .. }) => return Ok(None),
            class => class?,
        };
        Ok(Some(self.0.number(cls.py(), &class)?))
    }

    /// The class of a number.
    #[pyo3(signature = (number, /))]
    fn class_of(&self, py: Python<'_>, number: u64) -> PyResult<Py<PyType>> {
        match self.0.reading(number)? {
            ClassReading::As(class) => Ok(class.class.clone_ref(py)),
            ClassReading::Changed(changed) => Ok(changed.class.class.clone_ref(py)),
            ClassReading::Gone(reason) => Err(CodecError::NotRestored { reason: reason.to_string() }.into()),
        }
    }
}

impl From<CodecError> for PyErr {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Python(error) => error,
            error => pyo3::exceptions::PyValueError::new_err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_in_parts_is_put_together_by_whichever_sender_is_ahead() {
        let table = ClassTable::default();
        let definition: Vec<u8> = (0..100).collect();
        let number = definition_number(&definition);
        let all: Vec<_> = parts(number, &definition, PART_HEADER_BYTES + 40).collect();
        assert_eq!(all.len(), 3);
        for part in [&all[0], &all[0], &all[1], &all[1]] {
            assert!(table.put_together(part).unwrap().is_none());
        }
        assert_eq!(table.put_together(&all[2]).unwrap(), Some(definition));
    }

    #[test]
    fn parts_that_no_sender_writes_are_refused() {
        let table = ClassTable::default();
        let beyond = [[0; 8].as_slice(), &90u32.to_le_bytes(), &91u32.to_le_bytes(), &[1, 2]].concat();
        let large = [[0; 8].as_slice(), &0u32.to_le_bytes(), &u32::MAX.to_le_bytes(), &[1]].concat();
        let other = parts(7, b"is not number 7", 100).next().unwrap();
        for part in [&[][..], &[0; 15], &[0; 16], &beyond, &large, &other] {
            assert!(table.put_together(part).is_err(), "{part:?}");
        }
    }
}
