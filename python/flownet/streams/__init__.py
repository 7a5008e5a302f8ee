"""Streams: what a dataflow is described with, a kind a module."""
