"""`jqd push --csv`: makes a job of each row of a table. The argument of the job is an object: column name → cell.

A cell is text: `00123` stays a postcode. Cells in columns of `--json-columns` are JSON; an empty cell there is null.
Only the rows of one request are in memory, however long the file is. So ids are not printed: they follow from the line
number (`--batch-key`), or are in a column (`--id-column`).
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
from cyclopts import Parameter

from jqd.cli.argument import LINE_CHARACTERS_MAX, Line, reading, value
from jqd.cli.exits import Usage

CELL_CHARACTERS_MAX = 1 << 20  # the most that a job has; a longer cell is an unclosed quote
BYTE_ORDER_MARK = "\ufeff"  # spreadsheets begin a file with it
OTHER_DELIMITERS = (";", "\t", "|")


@Parameter(name="*")
@dataclass(frozen=True)
class Table:
    """Options for pushing the rows of a CSV file."""

    csv: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """Push a job for every row of this CSV file (- for stdin); its first line names the fields of the arguments."""
    json_columns: str | None = None
    """With --csv: these columns (with commas between) are JSON: 12, true, [1, 2]; an empty cell is null. All others are
    text."""
    id_column: str | None = None
    """With --csv: the column that has your own id for each job."""
    batch_key: str | None = None
    """With --csv: a job's id is this text, a dash and its line number, so the same command again pushes only what is
    missing, and what ended and was forgotten since (store.ended_keep_jobs)."""
    delimiter: str | None = None
    """With --csv: character between cells. Default: a comma."""

    def check(self) -> None:
        """Check that the other options are given only with --csv, that --id-column and --batch-key are not both given,
        and that --delimiter is one character. Raises Usage."""
        given = [name for name in self.__dataclass_fields__ if name != "csv" and getattr(self, name) is not None]
        if given and self.csv is None:
            raise Usage(f"--{given[0].replace('_', '-')} goes with --csv")
        if self.id_column is not None and self.batch_key is not None:
            raise Usage("--id-column and --batch-key both name the jobs: give one of them")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise Usage(f"--delimiter {self.delimiter!r}: give one character")


def rows(path: Path, table: Table) -> Iterator[Line]:
    """Yield a job for each row of a CSV file that is not blank, except the header. Raises Usage, with the line number,
    for text that is no CSV, and for a row with more or fewer cells than the header."""
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    with reading(path) as file:
        text = _Counted(file, path)
        reader = csv.reader(text, delimiter=table.delimiter or ",", strict=True)
        records = _records(reader, text, path)
        _, names = next(records, (0, []))
        if not names:
            raise Usage(f"{path} is empty: its first line names the columns")
        make = _Maker(names, table, path)
        for number, cells in records:
            yield make.line(number, cells, text.read_bytes)


class _Counted:
    """Iterates over the lines of a file, and counts the bytes read so far."""

    def __init__(self, file: TextIO, path: Path) -> None:
        self._file, self._path = file, path
        self.read_bytes = 0

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(iter(lambda: self._file.readline(LINE_CHARACTERS_MAX), ""), 1):
            if len(line) >= LINE_CHARACTERS_MAX:
                raise Usage(f"{self._path} line {number} is longer than {LINE_CHARACTERS_MAX} characters; is it CSV?")
            self.read_bytes += len(line.encode(errors="replace"))
            yield line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


def _records(reader: Any, text: _Counted, path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each row that is not blank, with the number of the line in which it begins."""
    begins = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            hint = "; is a quote not closed?" if "limit" in str(error) or "end of data" in str(error) else ""
            raise Usage(f"{path} line {begins} is no CSV: {error}{hint}") from error
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield begins, cells
        begins = reader.line_num + 1


class _Maker:
    """Makes jobs of rows. The constructor raises Usage if the header has an empty or repeated name, or lacks a column
    that an option names."""

    def __init__(self, names: Sequence[str], table: Table, path: Path) -> None:
        self._names, self._path, self._batch_key = [name.strip() for name in names], path, table.batch_key
        wrong = [name for name in self._names if not name or self._names.count(name) > 1]
        if wrong:
            raise Usage(f"{path} line 1 names {'a column twice: ' + wrong[0] if wrong[0] else 'a column nothing'}")
        if len(names) == 1 and table.delimiter is None:
            for other in OTHER_DELIMITERS:
                if other in names[0]:
                    raise Usage(f"{path} line 1 has no comma, but {other!r}; say so with --delimiter")
        self._json = self._places(*[name.strip() for name in (table.json_columns or "").split(",") if name.strip()])
        self._id = next(iter(self._places(table.id_column)), None) if table.id_column is not None else None

    def _places(self, *names: str) -> frozenset[int]:
        for name in names:
            if name not in self._names:
                raise Usage(f"{self._path} has no column {name!r}, it has: {', '.join(self._names)}")
        return frozenset(map(self._names.index, names))

    def line(self, number: int, cells: Sequence[str], read_bytes: int) -> Line:
        where = f"{self._path} line {number}"
        if len(cells) != len(self._names):
            raise Usage(f"{where} has {len(cells)} cells, the first line names {len(self._names)}")
        argument = {
            name: self._read_cell(cell, f"{where}, column {name}") if place in self._json else cell
            for place, (name, cell) in enumerate(zip(self._names, cells, strict=True))
        }
        return Line(number, argument, read_bytes, self._named(number, cells, where))

    def _read_cell(self, cell: str, where: str) -> Any:
        if not cell.strip():
            return None
        try:
            msgspec.json.decode(cell)
        except msgspec.DecodeError as error:
            raise Usage(f"{where}: {cell[:40]!r} is no JSON ({error})") from error
        return value(cell, where)

    def _named(self, number: int, cells: Sequence[str], where: str) -> Mapping[str, Any]:
        if self._batch_key is not None:
            return {"job_id": f"{self._batch_key}-{number}"}
        if self._id is None:
            return {}
        if not cells[self._id].strip():
            raise Usage(f"{where}, column {self._names[self._id]}: the id of the job is empty")
        return {"job_id": cells[self._id]}
