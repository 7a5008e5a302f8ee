"""The typed codec: values of the built-in types to bytes and back.

This is what moves records between tasks. It is not pickle: decoding accepts any bytes, giving a value or a
`CodecError`, and runs no code but what classes of yours define to compare and hash.

Instances of dataclasses, NamedTuples, Enums, attrs and pydantic classes are encoded as their class, by number, and what
they hold. Who decodes needs the classes: take ``definitions()`` of the `ClassTable` given to `encode`, and ``add`` them
to the one given to `decode`. A definition is code, unlike all else here. In a job the classes travel by themselves,
each once.
"""

from __future__ import annotations

from ._flownet import ClassTable, decode, encode, encode_key, key_group, subtask_of

__all__ = ["ClassTable", "decode", "encode", "encode_key", "key_group", "subtask_of"]
