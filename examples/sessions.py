"""Cuts each user's clicks into sessions, with state and timers: a session ends after half a second without a click.

python examples/sessions.py
"""

import time

import flownet as fn

GAP_MS = 500


class Sessions(fn.KeyedProcessFunction):
    """Emits (user, number of clicks) at the end of each session."""

    def process(self, click, ctx):
        """Count the click, and put off the end of the session."""
        if "ends_at" in ctx.state:
            ctx.delete_timer(ctx.state["ends_at"])
        ctx.state["clicks"] = ctx.state.get("clicks", 0) + 1
        ctx.state["ends_at"] = ctx.now_ms() + GAP_MS
        ctx.set_timer(ctx.state["ends_at"])

    def on_timer(self, timestamp_ms, ctx):
        """End the session."""
        yield ctx.key, ctx.state["clicks"]
        ctx.state.clear()


def clicks():
    """Pretend to be a site with two users, one of whom takes a break."""
    yield from [("ann", "/"), ("bob", "/"), ("ann", "/shop")]
    time.sleep(2 * GAP_MS / 1000)
    yield from [("ann", "/cart"), ("ann", "/pay")]


env = fn.Environment(parallelism=2, buffer_timeout=0)
env.from_iterable(clicks()).key_by(lambda click: click[0]).process(Sessions()).print("session")

if __name__ == "__main__":
    env.execute(workers=2)
