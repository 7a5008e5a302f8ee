"""PyFlink's DataStream API in one JVM with one TaskManager.

    pyflink_peer.py objects COUNT PARALLELISM process|thread [key=value ...]
    pyflink_peer.py words FILE PARALLELISM process|thread [key=value ...]      FILE is the text

    objects   Java number source -> map -> key_by (100 keys) -> reduce, a result for every record -> discard
    words     Java text source -> flat_map(split) -> key_by(word) -> reduce, a result for every word -> discard

``key=value`` goes to Flink's configuration. The clock runs from the first ``open()`` of the first Python function to
the last ``close()`` of the last one: starting the JVM and the Python workers is not in it. Prints one line of JSON.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any

from pyflink.common import Configuration, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import FlatMapFunction, MapFunction, ReduceFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import SinkFunction
from pyflink.java_gateway import get_gateway


def stamp(folder: str, moment: str) -> None:
    """Leave a time where the client finds it; functions run in processes of their own."""
    with open(os.path.join(folder, f"{moment}-{os.getpid()}-{time.monotonic_ns()}"), "w") as file:
        file.write(repr(time.monotonic()))


def read_stamps(folder: str, moment: str) -> list[float]:
    names = [name for name in os.listdir(folder) if name.startswith(moment)]
    return [float(open(os.path.join(folder, name)).read()) for name in names]


def describe(env: Any, job: str, what: str, folder: str) -> None:
    class Increment(MapFunction):
        def open(self, runtime_context: Any) -> None:
            stamp(folder, "open")

        def map(self, value: int) -> int:
            return value + 1

    class Split(FlatMapFunction):
        def open(self, runtime_context: Any) -> None:
            stamp(folder, "open")

        def flat_map(self, value: str) -> Any:
            for word in value.split():
                yield word, 1

    class Add(ReduceFunction):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1 + value2

        def close(self) -> None:
            stamp(folder, "close")

    class AddCounts(Add):
        def reduce(self, value1: Any, value2: Any) -> Any:
            return value1[0], value1[1] + value2[1]

    here = WatermarkStrategy.no_watermarks()
    if job == "objects":
        source = env.from_source(NumberSequenceSource(0, int(what) - 1), here, "numbers", Types.LONG())
        results = source.map(Increment(), Types.LONG()).key_by(lambda value: value % 100, Types.LONG()).reduce(Add())
    else:
        files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), what).build()
        pairs = env.from_source(files, here, "text").flat_map(Split(), Types.TUPLE([Types.STRING(), Types.LONG()]))
        results = pairs.key_by(lambda pair: pair[0], Types.STRING()).reduce(AddCounts())
    java = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.legacy.DiscardingSink()
    results.add_sink(SinkFunction(java))


def main(job: str, what: str, parallelism: str, mode: str, *settings: str) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("pipeline.object-reuse", "true")
    for setting in settings:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(int(parallelism))
    with tempfile.TemporaryDirectory() as folder:
        describe(env, job, what, folder)
        env.execute()
        start, end = min(read_stamps(folder, "open")), max(read_stamps(folder, "close"))
    print(json.dumps({"start": start, "end": end, "seconds": end - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
