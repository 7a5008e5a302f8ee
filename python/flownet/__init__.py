"""Streaming dataflows in Python on a Rust exchange.

A dataflow is described on an `Environment` and run by ``execute()``, in this process or over worker processes that
exchange records under credit-based flow control.

>>> import flownet as fn
>>> env = fn.Environment(parallelism=2)
>>> counts = (
...     env.from_collection(["to be", "or not to be"])
...     .flat_map(str.split)
...     .key_by(lambda word: word)
...     .window(fn.Tumbling("5s"))
...     .count()
...     .collect()
... )
>>> result = env.execute()
>>> sorted(counts)
[('be', 2), ('not', 1), ('or', 1), ('to', 2)]
"""

import lazy_loader

# A worker describes no dataflow and imports little: a name is loaded from its module, which __init__.pyi lists, when it
# is used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
