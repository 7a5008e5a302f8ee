"""The typed codec: values of the built-in types to bytes and back.

This is what moves records between tasks. It is not pickle: decoding runs no code and accepts any bytes, giving a value
or a `CodecError`.
"""

from __future__ import annotations

from ._flownet import decode, encode, encode_key, key_group, subtask_of

__all__ = ["decode", "encode", "encode_key", "key_group", "subtask_of"]
