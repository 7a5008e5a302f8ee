"""Helpers that users do not import."""
