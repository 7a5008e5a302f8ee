"""Settings of the property tests."""

from hypothesis import settings

# No deadline: a busy machine is no failure. No database: tests leave nothing in the working tree.
settings.register_profile("event time", deadline=None, database=None)
settings.load_profile("event time")
