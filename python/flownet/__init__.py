"""Streaming dataflows in Python on a Rust exchange.

A dataflow is described on an `Environment` and run by ``execute()``, in this process or over worker processes that
exchange records under credit-based flow control.

>>> import flownet as fn
>>> env = fn.Environment(parallelism=2)
>>> counts = (
...     env.from_collection(["to be", "or not to be"])
...     .flat_map(str.split)
...     .key_by(lambda word: word)
...     .window(fn.Tumbling("5s"))
...     .count()
...     .collect()
... )
>>> result = env.execute()
>>> sorted(counts)
[('be', 2), ('not', 1), ('or', 1), ('to', 2)]
"""

from . import errors
from ._flownet import __version__
from .collected import Collected
from .environment import Environment
from .errors import FlownetError
from .functions import KeyedProcessFunction, ProcessContext, Sink, TaskContext, Window
from .job import Job, JobResult, JobSample, JobStatus, TaskReport, TaskSample, WorkerSample
from .stream import KeyedStream, Stream, StreamSink, WindowedStream
from .window import EndOfInput, Tumbling

__all__ = [
    "Collected",
    "EndOfInput",
    "Environment",
    "FlownetError",
    "Job",
    "JobResult",
    "JobSample",
    "JobStatus",
    "KeyedProcessFunction",
    "KeyedStream",
    "ProcessContext",
    "Sink",
    "Stream",
    "StreamSink",
    "TaskContext",
    "TaskReport",
    "TaskSample",
    "Tumbling",
    "Window",
    "WindowedStream",
    "WorkerSample",
    "__version__",
    "errors",
]
