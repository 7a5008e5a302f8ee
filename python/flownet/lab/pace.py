"""Pace: how fast a producer or a consumer works, as a function of time, and the clockwork that holds it.

A pace is a speed in bytes a second that changes in steps. Its integral is the work that could have been done by a time,
so a consumer that never lacked input has done exactly that much, however coarse the sleeps of the machine are.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence


class Pace:
    """A speed that changes in steps.

    Parameters
    ----------
    steps
        ``(seconds, bytes per second)``: from when on which speed; the first from 0, in order.
    until
        When the pace ends, in seconds. From then on nothing holds back: what is still under way can arrive.
    """

    def __init__(self, steps: Sequence[tuple[float, float]], until: float) -> None:
        self.starts = [start for start, _ in steps]
        self.speeds = [speed for _, speed in steps]
        self.until = until
        self._amounts = [0.0]
        for (start, speed), (end, _) in zip(steps, steps[1:], strict=False):
            self._amounts.append(self._amounts[-1] + (end - start) * speed)

    def speed(self, seconds: float) -> float:
        """Bytes a second at a time."""
        return self.speeds[bisect_right(self.starts, seconds) - 1]

    def amount(self, seconds: float) -> float:
        """Bytes that can be done from the beginning to a time, ``until`` at most."""
        seconds = min(seconds, self.until)
        step = bisect_right(self.starts, seconds) - 1
        return self._amounts[step] + (seconds - self.starts[step]) * self.speeds[step]

    def time_of(self, amount: float) -> float:
        """Second by which so many bytes can be done, ``until`` at most."""
        # Where the speed is 0 the amount stands still: the last step that begins with it is the one that goes on.
        step = bisect_right(self._amounts, amount) - 1
        left, speed = amount - self._amounts[step], self.speeds[step]
        if speed == 0:
            # More than can ever be done, or exactly what was done when it stopped for good.
            return self.until if left > 0 else min(self.starts[step], self.until)
        return min(self.starts[step] + left / speed, self.until)


class Pacer:
    """Holds one producer or consumer to a pace.

    Parameters
    ----------
    pace
        The pace.
    clock
        Seconds since time zero.
    """

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self._done = 0.0

    def work(self, size: int) -> None:
        """Take as long as ``size`` bytes take.

        A sleep that was too long is made up for by shorter ones; a pause of more than `_SLACK_SECONDS`, in which there
        was nothing to do or nobody to take it, is not.
        """
        pace = self._pace
        self._done = max(self._done, pace.amount(max(0.0, self._clock() - _SLACK_SECONDS))) + size
        while (left := pace.time_of(self._done) - self._clock()) > 0:
            time.sleep(left)


_SLACK_SECONDS = 0.02
"""The longest delay that counts as the machine's and not as the flow's."""
