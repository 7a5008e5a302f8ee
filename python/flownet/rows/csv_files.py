"""Files of comma-separated values as rows, by pyarrow."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .. import _flownet
from ..errors import PlanError
from ..streams.checks import delimiter_of
from .line_blocks import BLOCK_BYTES, Block, Fault, LineError, blocks, first_bad, lines_in
from .lost_digits import advice, first_in_texts, large_floats
from .text_values import Texts
from .unify import type_name, widened

if TYPE_CHECKING:
    import pyarrow

_TEXTS = Texts(dates=False)


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values."""

    delimiter: str
    header: bool

    @property
    def endings(self) -> tuple[str, ...]:
        """Those that pyarrow unpacks by their names are among them."""
        return ("csv", "csv.gz", "csv.bz2", "csv.zst", "csv.lz4")

    def read(
        self, path: str, schema: pyarrow.Schema, columns: list[str], *, is_inferred: bool
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read columns of a file; those that it has not are null.

        Raises
        ------
        LineError
            A value does not fit its column, or a line has more or fewer values than the header; or an inferred column
            of floats has an integer that would lose digits.
        """
        # Where no column of the lines is wanted, one of them says how many rows there are.
        columns = columns or schema.names[:1]
        for block, names in self._blocks(path, schema.names, BLOCK_BYTES):
            batch = self._parsed(block, names, schema, columns)
            if is_inferred:
                self._refuse_lost_digits(block, names, batch)
            yield batch

    def infer(self, path: str, most_bytes: int) -> pyarrow.Schema:
        """Infer names and types from the beginning of a file. A column of numbers and texts is one of texts.

        Raises
        ------
        LineError
            A line has more or fewer values than the header, or is not UTF-8.
        """
        import pyarrow

        names, read = self.names(path), 0
        types: dict[str, pyarrow.DataType] = {}
        for block, _ in self._blocks(path, names, min(most_bytes, BLOCK_BYTES)):
            for name, found in self._types(block, names).items():
                known = widened(types.get(name, pyarrow.null()), found, lambda kind: True)
                types[name] = pyarrow.string() if known is None else known
            read += len(block.data)
            if read >= most_bytes:
                break
        return pyarrow.schema([(name, types.get(name, pyarrow.null())) for name in names])

    def names(self, path: str) -> list[str]:
        """Read the header of a file.

        Raises
        ------
        LineError
            There is none, or it names a column twice.
        """
        for block in blocks(path, self._cut, _HEADER_BYTES):
            return self._header(block)[0]
        raise LineError(1, "there is no header: the file is empty")

    def refuse(self, schema: object) -> None:
        """Nothing else says what columns are called."""
        if schema is None and not self.header:
            raise PlanError("read_csv(header=False) needs schema=, such as {'user': 'utf8', 'spent': 'float64'}")

    def may_be_empty(self) -> bool:
        """Where there has to be a header, there is something."""
        return not self.header

    def _cut(self, data: bytes, is_last: bool) -> tuple[int, bool, Fault | None]:
        return _flownet.csv_records(data, ord(self.delimiter), is_last)

    def _blocks(self, path: str, names: list[str], block_bytes: int) -> Iterator[tuple[Block, list[str]]]:
        """Read blocks of rows, and what their columns are called."""
        there = None if self.header else names
        for block in blocks(path, self._cut, block_bytes):
            if there is None:
                there, block = self._header(block)
            if block.data:
                yield block, there
        if there is None:
            raise LineError(1, "there is no header: the file is empty")

    def _header(self, block: Block) -> tuple[list[str], Block]:
        starts = [*_flownet.csv_starts(block.data, ord(self.delimiter)), len(block.data)]
        # Empty lines in front of it are none.
        place = next((at for at in range(len(starts) - 1) if block.data[starts[at] : starts[at + 1]].strip()), None)
        if place is None:
            raise LineError(block.line, "there is no header: the file is empty")
        line = block.line + lines_in(block.data[: starts[place]])
        try:
            text = block.data[starts[place] : starts[place + 1]].decode()
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter))
        except (csv.Error, UnicodeDecodeError) as error:
            raise LineError(line, f"the header cannot be read: {error}") from error
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise LineError(line, f"two columns are called {twice!r}; there are {', '.join(map(repr, names))}")
        end = starts[place + 1]
        rest = Block(block.data[end:], block.line + lines_in(block.data[:end]), block.has_empty_quotes)
        return names, rest

    def _types(self, block: Block, names: list[str]) -> dict[str, pyarrow.DataType]:
        import pyarrow
        from pyarrow import types

        parse = partial(self._table, names=names, columns=names, schema=None)
        try:
            table = parse(block.data, quoted_are_null=True)
        except ValueError as error:
            raise self._fault(block, parse, names, pyarrow.schema([]), []) from error
        self._refuse_lost_digits(block, names, table)
        found = dict(zip(names, table.schema.types, strict=True))
        if block.has_empty_quotes and any(map(types.is_null, found.values())):
            texts = dict(zip(names, parse(block.data).schema.types, strict=True))
            # Empty quotes alone are texts; beside numbers they are null.
            found = {name: texts[name] if types.is_null(kind) else kind for name, kind in found.items()}
        for name, kind in found.items():
            if types.is_binary(kind):
                # It holds something that is not UTF-8.
                schema = pyarrow.schema([(name, pyarrow.string())])
                self._parsed(block, names, schema, [name])
        return found

    def _parsed(
        self, block: Block, names: list[str], schema: pyarrow.Schema, columns: list[str]
    ) -> pyarrow.RecordBatch:
        import pyarrow

        there = [name for name in columns if name in names]
        parse = partial(
            self._values, names=names, columns=there, schema=schema, has_empty_quotes=block.has_empty_quotes
        )
        try:
            rows, values = parse(block.data)
        except ValueError as error:
            raise self._fault(block, parse, names, schema, there) from error
        given = {
            name: values[name] if name in there else pyarrow.nulls(rows, schema.field(name).type) for name in columns
        }
        return pyarrow.RecordBatch.from_arrays(list(given.values()), names=columns)

    def _values(
        self, data: bytes, *, names: list[str], columns: list[str], schema: pyarrow.Schema, has_empty_quotes: bool
    ) -> tuple[int, dict[str, pyarrow.Array]]:
        """Parse columns of some records: how many there are, and their values."""
        if not columns:
            # The file has none of them.
            return self._table(data, names=names, columns=names[:1], schema=None).num_rows, {}
        parse = partial(self._table, data, names=names, schema=_TEXTS.schema(schema))
        texts = [name for name in columns if _has_empty(schema.field(name).type)]
        if not has_empty_quotes or len(texts) == len(columns):
            table = parse(columns=columns)
        else:
            # Empty quotes are a text among texts, and null among numbers and times.
            table = parse(columns=[name for name in columns if name not in texts], quoted_are_null=True)
            # Of no columns pyarrow gives all.
            for name, column in zip(texts, parse(columns=texts).columns if texts else [], strict=True):
                table = table.append_column(name, column)
        table = table.select(columns).combine_chunks()
        batches = table.to_batches()
        if not batches:
            return 0, {name: table[name].combine_chunks() for name in columns}
        made = next(_TEXTS.values(batches, schema, columns))
        return made.num_rows, {name: made.column(name) for name in columns}

    def _table(
        self,
        data: bytes,
        *,
        names: list[str],
        columns: list[str],
        schema: pyarrow.Schema | None,
        quoted_are_null: bool = False,
    ) -> pyarrow.Table:
        import pyarrow.csv

        return pyarrow.csv.read_csv(
            pyarrow.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(1, len(data))),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                # An empty line of one column is a row whose value is null; of several it is none.
                ignore_empty_lines=len(names) > 1,
            ),
            # An empty value is missing, also among texts; but nothing else is, such as a text NA.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=schema,
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=quoted_are_null,
            ),
        )

    def _refuse_lost_digits(self, block: Block, names: list[str], parsed: pyarrow.RecordBatch | pyarrow.Table) -> None:
        """Refuse integers that a column of floats, whose type was inferred, does not hold."""
        import pyarrow

        for name in parsed.schema.names:
            if name not in names or not large_floats(parsed.column(name)):
                continue
            as_text = pyarrow.schema([(name, pyarrow.string())])
            texts = self._table(block.data, names=names, columns=[name], schema=as_text)[name].combine_chunks()
            found = first_in_texts(texts)
            if found is not None:
                starts = [*_flownet.csv_starts(block.data, ord(self.delimiter)), len(block.data)]
                # Empty lines are rows if there is one column.
                records = zip(starts, starts[1:], strict=False)
                rows = [start for start, end in records if len(names) == 1 or block.data[start:end].strip()]
                line = block.line + lines_in(block.data[: rows[found[0]]])
                raise LineError(line, f"column {name!r}, inferred as float64: {advice(found[1], has_texts=True)}")

    def _fault(
        self,
        block: Block,
        parse: Callable[[bytes], object],
        names: list[str],
        schema: pyarrow.Schema,
        columns: list[str],
    ) -> LineError:
        """Find the line and the column of an error."""
        starts = _flownet.csv_starts(block.data, ord(self.delimiter))
        bad = first_bad(parse, block.data, starts)
        if bad is None:
            return LineError(block.line, "it cannot be read")
        record = block.data[starts[bad] : [*starts[1:], len(block.data)][bad]]
        line = block.line + lines_in(block.data[: starts[bad]])
        for name in columns:
            try:
                self._values(record, names=names, columns=[name], schema=schema, has_empty_quotes=True)
            except ValueError as error:
                if "CSV conversion error" in str(error):
                    kind = type_name(schema.field(name).type)
                    return LineError(line, f"column {name!r}, which is {kind}: {_reason(error)}")
        try:
            parse(record)
        except ValueError as error:
            return LineError(line, _reason(error))
        return LineError(line, "it cannot be read")


def csv_format(delimiter: str, header: bool) -> CsvFormat:
    """Check how values are written.

    Raises
    ------
    ConfigError
        The delimiter is not one character of ASCII.
    """
    return CsvFormat(delimiter_of("read_csv", delimiter, is_ascii=True), header)


def _has_empty(data_type: pyarrow.DataType) -> bool:
    """Say whether a type has a value that is written as nothing."""
    from pyarrow import types

    return bool(types.is_string(data_type) or types.is_binary(data_type))


def _reason(error: ValueError) -> str:
    """Leave out what pyarrow says of places, which are those within a block."""
    return re.sub(
        r"^(In CSV column #\d+: )?(CSV parse error: )?(Row #\d+: )?(CSV conversion error to [^:]*: )?", "", str(error)
    )


_HEADER_BYTES = 64 << 10
"""Read at once to find the header."""
