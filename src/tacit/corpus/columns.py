"""The columns of a table: whether those we need are there."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from tacit.corpus.shape import Fields
from tacit.errors import CorpusError

_LOOKS_LIKE_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


def check_columns(columns: Sequence[str], fields: Fields, path: Path) -> None:
    """Refuse a table without text and turns, without a column the person chose, or with one we need twice."""
    if fields.text not in columns and fields.turns not in columns:
        raise _no_column(fields.text, columns, path)
    for name in sorted(fields.renamed()):
        if name not in columns and name not in (fields.text, fields.turns):
            raise _no_column(name, columns, path)
    for name in fields.names():
        if columns.count(name) > 1:
            raise CorpusError(
                expected=f"one column {name!r} in {path}",
                found=f"{columns.count(name)} of them",
                way_out="rename or drop all but one",
            )


def _no_column(name: str, columns: Sequence[str], path: Path) -> CorpusError:
    expected = f"a column {name!r} in {path}"
    # In a file without a header the first row is protected text: quote the columns only if all look like names.
    if not all(_LOOKS_LIKE_A_NAME.fullmatch(column) for column in columns):
        return CorpusError(
            expected=expected,
            found=f"{len(columns)} columns, not all of them named like columns (not shown: they may be text)",
            way_out="put a header in the first line, and separate the columns by commas",
        )
    near = difflib.get_close_matches(name, columns, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return CorpusError(
        expected=expected,
        found=f"the columns {', '.join(columns)}",
        way_out=f"{hint}say which column is which (--text-field and the like, or Fields)",
    )
