"""Streams of rows with a schema: columns in, columns out, and no Python object per row in between."""
