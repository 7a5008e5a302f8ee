"""pyzmq over TCP loopback between two Python processes, PUSH to PULL.

    zmq_peer.py push BYTES COUNT     as many messages as go through
    zmq_peer.py oneway RATE COUNT    RATE messages a second that hold the time of sending; the first tenth is dropped

``push``: the clock runs from the first message received to the last, so connecting is not in it. CPU is user and system
time of both processes, with the IO threads of the library, over that span. Prints one line of JSON.
"""

import json
import struct
import subprocess
import sys
import time

import zmq

STAMP = struct.Struct("<q")


def main(what: str, size: int, count: int) -> None:
    socket = zmq.Context().socket(zmq.PULL)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    command = [sys.executable, __file__, f"send-{what}", str(size), str(count), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        report = receive_push(socket, count) if what == "push" else receive_oneway(socket, count)
        assert sender.stdout is not None
        cpu_seconds = report.pop("cpu_seconds") + float(sender.stdout.read())
    print(json.dumps(report | {"cpu_ns_per_record": cpu_seconds / count * 1e9}))


def receive_push(socket: "zmq.Socket[bytes]", count: int) -> dict[str, float]:
    receive = socket.recv
    receive()
    cpu, start = time.process_time(), time.monotonic()
    for _ in range(count - 1):
        receive()
    seconds = time.monotonic() - start
    return {"records_per_s": (count - 1) / seconds, "cpu_seconds": time.process_time() - cpu}


def receive_oneway(socket: "zmq.Socket[bytes]", count: int) -> dict[str, float]:
    latencies = []
    now, receive, unpack = time.monotonic_ns, socket.recv, STAMP.unpack
    cpu = 0.0
    for _ in range(count):
        message = receive()
        latencies.append(now() - unpack(message)[0])
        cpu = cpu or time.process_time()
    cpu = time.process_time() - cpu
    kept = sorted(latencies[count // 10 :])
    shares = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}
    return {name: kept[int(len(kept) * share)] / 1e3 for name, share in shares.items()} | {"cpu_seconds": cpu}


def send_push(socket: "zmq.Socket[bytes]", size: int, count: int) -> None:
    message = b"x" * size
    send = socket.send
    for _ in range(count):
        send(message)


def send_oneway(socket: "zmq.Socket[bytes]", rate: int, count: int) -> None:
    now, pack, send = time.monotonic_ns, STAMP.pack, socket.send
    start = now()
    for index in range(count):
        while (left := start + index * 1_000_000_000 // rate - now()) > 0:
            time.sleep(left / 1e9)
        send(pack(now()))


def send(what: str, size: int, count: int, port: int) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.connect(f"tcp://127.0.0.1:{port}")
    cpu = time.process_time()
    (send_push if what == "push" else send_oneway)(socket, size, count)
    socket.close()
    context.term()  # returns when all is sent
    print(time.process_time() - cpu)


if __name__ == "__main__":
    if sys.argv[1].startswith("send-"):
        send(sys.argv[1].removeprefix("send-"), *map(int, sys.argv[2:]))
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
