"""One process of a bench: ``python -m flownet.bench_process``, started by ``flownet bench`` and not by hand.

The bench says over standard input which role to play; the process answers over standard output. All of it is in Rust,
off the interpreter lock. The process ends when its bench does.
"""

from __future__ import annotations

from . import _flownet


def main() -> None:
    """Play the role that the bench at the other end of standard input gives, then end the process."""
    _flownet.bench_party()


if __name__ == "__main__":
    main()
