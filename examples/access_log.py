"""Watches the access log of a web server, sent line by line over TCP: requests and failures a minute, by path.

tail -f access.log | nc -lk 9000 &
python examples/access_log.py localhost 9000
"""

import argparse

import flownet as fn


def parse(line):
    """Turn ``1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 512`` into (path, failed), or nothing."""
    parts = line.split('"')
    if len(parts) < 3 or len(parts[1].split()) < 2 or not parts[2].split():
        return []
    path = parts[1].split()[1].partition("?")[0]
    return [(path, parts[2].split()[0] >= "500")]


def summarise(path, window, requests):
    """Make one line of a path's requests in a window."""
    failed = sum(failed for _, failed in requests)
    yield f"{path}: {len(requests)} requests, {failed} failed"


def describe(host, port, window="1min"):
    """Describe the dataflow from the lines of a server to one line a path and window."""
    env = fn.Environment(buffer_timeout="10ms", name="access log")
    requests = env.socket_text(host, port, errors="replace").flat_map(parse).name("parse")
    by_path = requests.key_by(lambda request: request[0])
    by_path.window(fn.Tumbling(window)).process(summarise).name("summarise").print()
    return env


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--window", default="1min")
    options = parser.parse_args()
    describe(options.host, options.port, options.window).execute(workers=1)
