"""A job in a notebook: a table that is kept new until the job has ended."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Protocol

from .report import JobStatus


class DisplayedJob(Protocol):
    """A job, as far as it is shown."""

    def status(self) -> JobStatus:
        """Say where it is."""

    def _repr_html_(self) -> str:
        """Give its table."""


def show(job: DisplayedJob) -> None:
    """Show a job where IPython shows what a cell gives: a table that lives in a notebook, a line in a terminal."""
    # It called us, so it is there.
    from IPython import get_ipython
    from IPython.display import HTML, display

    if getattr(get_ipython(), "kernel", None) is None:
        print(repr(job))
        return
    shown = display(HTML(job._repr_html_()), display_id=True)
    # It keeps nothing of the job alive.
    follow = threading.Thread(
        target=_follow, args=(weakref.ref(job), shown, HTML), name="flownet-notebook", daemon=True
    )
    follow.start()


def _follow(job: weakref.ref[DisplayedJob], shown: Any, html: type) -> None:
    while _is_shown_again(job, shown, html):
        time.sleep(_SECONDS_BETWEEN)


def _is_shown_again(reference: weakref.ref[DisplayedJob], shown: Any, html: type) -> bool:
    """Show what a job does now; whether there will be more."""
    job = reference()
    if job is None:
        return False
    has_ended = job.status().state == "ended"
    shown.update(html(job._repr_html_()))
    return not has_ended


_SECONDS_BETWEEN = 0.5
