"""Bytewax in two worker processes that exchange over TCP loopback.

    bytewax_peer.py objects COUNT
    bytewax_peer.py words FILE        FILE names the files to read

The clock runs from the first source batch of any worker to the last close of a sink; starting is not in it. CPU is user
and system time of both processes over that span. Prints one line of JSON.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def main(job: str, what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "figures")
        env = os.environ | {"PEER_JOB": job, "PEER_OUT": out, "PEER_RECORDS": what, "PEER_FILES": what}
        addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(2))
        commands = [
            [sys.executable, "-m", "bytewax.run", "bytewax_flow:flow", "-i", str(index), "-a", addresses]
            for index in range(2)
        ]
        workers = [subprocess.Popen(command, cwd=HERE, env=env) for command in commands]
        if any([worker.wait() for worker in workers]):
            raise SystemExit("a worker failed")
        with open(out) as file:
            figures = [json.loads(line) for line in file]

    def column(name: str) -> list[float]:
        return [row[name] for row in figures if name in row]

    print(
        json.dumps(
            {
                "seconds": max(column("last")) - min(column("first")),
                "cpu_seconds": sum(column("cpu_after")) - sum(column("cpu_before")),
                "records": sum(column("records")),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
