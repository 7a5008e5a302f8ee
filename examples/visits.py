"""Cuts the access log of a web server into visits, by the times in its lines: 30 minutes without a request end one.

python examples/visits.py access.log

Lines may be in any order within a minute. Later ones are still taken as long as their visit lasts; else they are shown.
"""

import argparse
from datetime import UTC, datetime

import flownet as fn

LATE = fn.OutputTag("late")


def parse(line):
    """Turn ``1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 512`` into (client, ms, path)."""
    try:
        client, rest = line.split(" ", 1)
        time = datetime.strptime(rest.split("[")[1].split("]")[0], "%d/%b/%Y:%H:%M:%S %z")
        return [(client, int(time.timestamp()) * 1000, line.split('"')[1].split()[1])]
    except (IndexError, ValueError):
        return []


def describe_visit(client, window, requests):
    """Make one line of a visit."""
    times = sorted(time_ms for _, time_ms, _ in requests)
    begin = datetime.fromtimestamp(times[0] / 1000, UTC)
    pages = len({path for _, _, path in requests})
    seconds = (times[-1] - times[0]) // 1000
    yield f"{client}: {begin:%Y-%m-%d %H:%M:%S}, {seconds} s, {len(times)} requests, {pages} pages"


def describe(path, pause="30min", parallelism=2):
    """Describe the dataflow from the lines of a log to one line a visit."""
    env = fn.Environment(parallelism=parallelism, name="visits")
    in_a_minute = fn.WatermarkStrategy.for_bounded_out_of_orderness("1min")
    requests = (
        env.read_text(path, errors="replace")
        .set_parallelism(1)  # a log is in order, more or less: one subtask reads it from its begin to its end
        .flat_map(parse)
        .set_parallelism(1)
        .assign_timestamps_and_watermarks(in_a_minute.with_timestamp_assigner(lambda request: request[1]))
        .set_parallelism(1)
    )
    by_client = requests.key_by(lambda request: request[0])
    visits = by_client.window(fn.Session(pause)).side_output_late_data(LATE).process(describe_visit)
    visits.print()
    visits.side_output(LATE).print("late")
    return env


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--pause", default="30min", help="how long without a request end a visit (%(default)s)")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    describe(options.log, options.pause).execute(workers=options.workers)
