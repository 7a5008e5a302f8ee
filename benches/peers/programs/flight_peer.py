"""pyarrow Flight (gRPC) over TCP loopback between two Python processes: DoPut of one int64 column.

    flight_peer.py BATCH_BYTES COUNT

The same batch is sent every time and the server only counts rows: columnar, nothing is encoded or decoded per value.
The clock runs on the client over the whole DoPut, until the server has read everything and answered, after a short
stream to warm up. CPU is user and system time of both processes over that span. Prints one line of JSON.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl


class Server(fl.FlightServerBase):
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        writer.write(str(sum(chunk.data.num_rows for chunk in reader)).encode())

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        yield fl.Result(str(time.process_time()).encode())


def put(client: Any, batch: Any, count: int) -> None:
    writer, answers = client.do_put(fl.FlightDescriptor.for_path("bench"), batch.schema)
    for _ in range(count):
        writer.write_batch(batch)
    writer.done_writing()
    rows = int(answers.read().to_pybytes())
    writer.close()
    if rows != count * batch.num_rows:
        raise SystemExit(f"{rows} rows arrived, not {count * batch.num_rows}")


def cpu_seconds(client: Any) -> float:
    """CPU time of both processes so far."""
    server = next(iter(client.do_action(fl.Action("cpu", b"")))).body.to_pybytes()
    return time.process_time() + float(server)


def main(batch_bytes: int, count: int) -> None:
    batch = pa.record_batch([pa.array(np.arange(batch_bytes // 8, dtype=np.int64))], names=["value"])
    with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        client = fl.connect(f"grpc://127.0.0.1:{int(server.stdout.readline())}")
        put(client, batch, max(1, count // 20))
        cpu, start = cpu_seconds(client), time.monotonic()
        put(client, batch, count)
        seconds = time.monotonic() - start
        cpu = cpu_seconds(client) - cpu
        server.kill()
    print(
        json.dumps(
            {
                "bytes_per_s": batch_bytes * count / seconds,
                "records_per_s": batch.num_rows * count / seconds,
                "cpu_ns_per_record": cpu / (batch.num_rows * count) * 1e9,
                "cpu_ns_per_batch": cpu / count * 1e9,
            }
        )
    )


def serve() -> None:
    server = Server("grpc://127.0.0.1:0")
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        main(*map(int, sys.argv[1:]))
