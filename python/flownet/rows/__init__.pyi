"""The classes of streams of rows, each with the module that defines it. `flownet.streams` says what they are for."""

from .aggregates import Aggregate as Aggregate
from .collected import CollectedRows as CollectedRows
from .expressions import TextExpr as TextExpr, TimeExpr as TimeExpr
from .keyed import GroupedRows as GroupedRows, KeyedRows as KeyedRows, WindowedRows as WindowedRows
from .results import RowResults as RowResults
from .stream import Rows as Rows

__all__: list[str]
