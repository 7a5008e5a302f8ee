"""Body of a worker process: ``python -m flownet.worker``, started by ``execute()`` and not by hand.

The process that starts it sends a greeting over standard input: where the coordinator listens, the secret of the job,
and where modules are found. Everything else is decided in Rust, off the interpreter lock. A worker ends when its
coordinator does.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Serve the coordinator named on standard input until it is gone."""
    # Ctrl-C reaches every process of the terminal. Only the coordinator answers it, by ending its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Who ends a service sends SIGTERM to all of its processes: the coordinator stops the job, and needs its workers.
    # A handler, and not SIG_IGN: what the user's functions start must not inherit it.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    from . import _flownet

    _flownet.run_worker()


if __name__ == "__main__":
    main()
