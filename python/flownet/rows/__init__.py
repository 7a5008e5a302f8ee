"""Streams of rows with a schema. Operators process batches of columns, without a Python object for each row."""

import lazy_loader

# Workers import modules of this package and use few: __init__.pyi lists the public names, which are loaded when used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
