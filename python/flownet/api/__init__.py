"""The API to describe and run a dataflow: environment, functions, windows, triggers, jobs."""
