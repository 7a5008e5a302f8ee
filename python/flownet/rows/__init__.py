"""Streams of rows with a schema: columns in, columns out, and no Python object per row in between."""

import lazy_loader

# Workers import modules of this package and use few: __init__.pyi lists the public names, which are loaded when used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
