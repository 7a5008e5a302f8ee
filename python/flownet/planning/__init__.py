"""The dataflow while it is described, and what is checked before it runs."""
