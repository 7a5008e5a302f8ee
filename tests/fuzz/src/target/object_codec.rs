//! The object codec: any bytes are a value or an error, and a value's encoding decodes to the like of it.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use pyo3::ffi::c_str;
use pyo3::prelude::*;

use crate::codec::{ClassTable, KnownClasses, Pickle, SentClasses, decode, encode, encode_key, item_bytes, number};

pub(super) fn run(data: &[u8]) {
    Python::initialize();
    // Looks without the interpreter.
    let _ = number(data);
    let third = item_bytes(data, 2);
    Python::attach(|py| {
        let (known, mut sent) = classes(py);
        // A part of a class's definition is code and may do anything, but one that nobody announced.
        assert!(ClassTable::default().add_part(py, &[data, &[0; 16]].concat()[..16]).is_err());
        let Ok(value) = decode(py, data, &known) else { return };
        let mut bytes = Vec::new();
        encode(&value, &mut sent, &mut bytes).expect("what was decoded can be encoded");
        let again = decode(py, &bytes, &known).expect("own bytes are good");
        assert!(again.get_type().is(value.get_type()), "the type changed");
        let mut once_more = Vec::new();
        encode(&again, &mut sent, &mut once_more).expect("what was decoded can be encoded");
        // The items of a set have no order, so only this.
        assert_eq!(bytes.len(), once_more.len(), "the value changed");
        if let Some(third) = third {
            decode(py, third, &known).expect("an item of a value is a value");
        }
        // Most values are no keys; none breaks it.
        let _ = encode_key(&value, &mut sent, &mut Vec::new());
    });
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    Python::initialize();
    Python::attach(|py| EXPRESSIONS.iter().map(|&(name, expression)| (name, encoded(py, expression))).collect())
}

/// Both ends of a table with the classes below in it, and no other.
fn classes(py: Python<'_>) -> (KnownClasses, SentClasses) {
    static TABLE: OnceLock<Arc<ClassTable>> = OnceLock::new();
    let filled = || {
        let table = Arc::new(ClassTable::default());
        install(py, c"", "flownet");
        install(py, c"", "flownet.internal");
        install(py, CLASS_NAMES, "flownet.internal.class_names");
        install(py, LOADED_MODULES, "flownet.internal.loaded_modules");
        install(py, PICKLING, "flownet.internal.pickling");
        install(py, SLOTS, "flownet.internal.classes");
        install(py, RECORD_CLASSES, "flownet.internal.record_classes");
        let module = install(py, CLASSES, "fuzz_classes");
        let mut sent = SentClasses::new(Arc::clone(&table), Pickle::Refused);
        encode(&module.getattr("INSTANCES").expect("it is there"), &mut sent, &mut Vec::new()).expect("they travel");
        table
    };
    let table = TABLE.get_or_init(filled);
    (KnownClasses::new(Arc::clone(table), Pickle::Refused), SentClasses::new(Arc::clone(table), Pickle::Refused))
}

/// Makes a module that can be imported. The codec alone is here, without the package that it belongs to.
fn install<'py>(py: Python<'py>, code: &CStr, name: &str) -> Bound<'py, PyModule> {
    let modules = py.import("sys").and_then(|sys| sys.getattr("modules")).expect("a list of modules");
    let types = py.import("types").expect("a module of the standard library");
    let module = types.call_method1("ModuleType", (name,)).expect("a module");
    // Before it runs: dataclasses look their module up.
    modules.set_item(name, &module).expect("a new module");
    py.run(code, Some(&module.getattr("__dict__").expect("a dict").cast_into().expect("a dict")), None)
        .expect("good code");
    module.cast_into().expect("a module")
}

fn encoded(py: Python<'_>, expression: &CStr) -> Vec<u8> {
    let (_, mut sent) = classes(py);
    let value = py.eval(expression, None, None).expect("a good expression");
    let mut bytes = Vec::new();
    encode(&value, &mut sent, &mut bytes).expect("a value of the codec's types");
    bytes
}

const CLASS_NAMES: &CStr = c_str!(include_str!("../../../../python/flownet/internal/class_names.py"));
const LOADED_MODULES: &CStr = c_str!(include_str!("../../../../python/flownet/internal/loaded_modules.py"));
const PICKLING: &CStr = c_str!(include_str!("../../../../python/flownet/internal/pickling.py"));
const SLOTS: &CStr = c_str!(include_str!("../../../../python/flownet/internal/classes.py"));
const RECORD_CLASSES: &CStr = c_str!(include_str!("../../../../python/flownet/internal/record_classes.py"));

const CLASSES: &CStr = c"
import dataclasses, enum, typing

@dataclasses.dataclass(frozen=True)
class Reading:
    name: str
    value: float = 0.0

@dataclasses.dataclass(slots=True)
class Slotted:
    left: object
    right: object

class Point(typing.NamedTuple):
    x: int
    y: int

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Level(enum.IntEnum):
    LOW = 1

class Right(enum.Flag):
    READ = 1
    WRITE = 2

odd = Reading('odd')
vars(odd)['more'] = 1
INSTANCES = [Reading('a', 1.5), Slotted(None, [Point(1, 2)]), Colour.BLUE, Level.LOW, Right.READ | Right.WRITE, odd]
";

const EXPRESSIONS: &[(&str, &CStr)] = &[
    ("none", c"None"),
    ("row", c"(1, 'word', 2.5, True, None, -70000)"),
    ("nested", c"[{'a': (1, [2, {3}])}, frozenset({4}), b'bytes', bytearray(b'more')]"),
    ("integers", c"[0, 63, 64, -1, 2**63 - 1, 2**63, -2**200]"),
    ("strings", c"['', 'x' * 63, 'x' * 64, 'ä€😀', '\\ud800']"),
    ("complex", c"(1j, float('nan'), float('inf'), -0.0)"),
    ("date", c"__import__('datetime').date(2026, 11, 20)"),
    ("time", c"__import__('datetime').time(23, 59, 59, 999999, fold=1)"),
    ("datetime-utc", c"__import__('datetime').datetime(1, 1, 1, tzinfo=__import__('datetime').timezone.utc)"),
    (
        "datetime-named",
        c"(lambda d: d.datetime(2026, 1, 1, tzinfo=d.timezone(d.timedelta(hours=-3), 'name')))(__import__('datetime'))",
    ),
    ("datetime-zone", c"__import__('datetime').datetime(2026, 1, 1, tzinfo=__import__('zoneinfo').ZoneInfo('UTC'))"),
    ("timedelta", c"__import__('datetime').timedelta(days=-1, microseconds=1)"),
    ("decimal", c"__import__('decimal').Decimal('-1.50E+7')"),
    ("uuid", c"__import__('uuid').UUID(int=1)"),
    ("numpy-scalar", c"__import__('numpy').float32(1.5)"),
    ("numpy-array", c"__import__('numpy').arange(6, dtype='<i2').reshape(2, 3)"),
    ("numpy-structure", c"__import__('numpy').zeros(2, dtype=[('a', '<i4'), ('b', '<f8', (2,)), ('c', 'U3')])"),
    ("ordered-dict", c"__import__('collections').OrderedDict(b=1, a=2)"),
    ("instances", c"__import__('fuzz_classes').INSTANCES"),
    ("instance", c"__import__('fuzz_classes').Reading('name', 2.5)"),
    ("named-tuple", c"__import__('fuzz_classes').Point(1, -1)"),
    ("enum", c"__import__('fuzz_classes').Colour.RED"),
    ("numpy-datetime", c"__import__('numpy').array(['2026-11-20'], dtype='datetime64[s]')"),
];
