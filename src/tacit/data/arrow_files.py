"""Rows of Parquet files and of Hugging Face datasets saved to disk, a batch at a time."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.common.serialize import read_json
from tacit.data.fields import Fault, FaultReason, Fields, FilePosition, RawRow, bounded, check_columns
from tacit.data.text_files import Placed, unreadable
from tacit.errors import CorpusError

_ROWS_AT_ONCE = 64
_BROKEN = (pa.ArrowException, UnicodeDecodeError)  # a name of a column may be damaged too
_BUFFER_BYTES = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class ArrowTable(ABC):
    """What Parquet and Hugging Face share: named columns that come in Arrow record batches."""

    def __init__(self, path: Path, fields: Fields, max_record_bytes: int, columns: list[str]) -> None:
        check_columns(columns, fields, path)
        self.path = path
        self.needed = [name for name in fields.columns() if name in columns]
        self.brings_ids = fields.id in columns
        self._limit = max_record_bytes

    @abstractmethod
    def files(self) -> Iterator[Iterator[Any]]:
        """For each file its record batches, with the columns in `needed`."""

    def rows(self) -> Iterator[Placed]:
        number = 0
        for file in self.files():
            for row in self._file_rows(file):
                number += 1
                yield FilePosition("row", number), row

    def _file_rows(self, batches: Iterator[Any]) -> Iterator[RawRow | Fault]:
        """The rows of one file; where it is damaged, one `Fault` in place of those that follow."""
        given = 0
        try:
            for batch in batches:
                batch.validate()  # buffers that are shorter than the rows need
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    for row in _python_rows(batch.slice(start, _ROWS_AT_ONCE)):
                        given += 1
                        yield bounded(row, self._limit)
        except (*_BROKEN, KeyError):  # KeyError: a shard without the columns of the first
            yield _damaged(given)
        except OSError as error:
            if error.errno is not None:
                raise unreadable(self.path, error) from error
            yield _damaged(given)


class Parquet(ArrowTable):
    """A Parquet file. Only the needed columns are read, page by page."""

    def __init__(self, path: Path, fields: Fields, max_record_bytes: int) -> None:
        try:
            with pq.ParquetFile(path) as file:
                columns = list(file.schema_arrow.names)
        except _BROKEN as error:
            raise CorpusError(
                expected=f"a Parquet file at {path}",
                found="a file without Parquet's beginning or end",
                way_out="write the file again: it is cut off, or not Parquet",
            ) from error
        except OSError as error:
            raise unreadable(path, error) from error
        super().__init__(path, fields, max_record_bytes, columns)

    def files(self) -> Iterator[Iterator[Any]]:
        yield self._batches()

    def _batches(self) -> Iterator[Any]:
        with pq.ParquetFile(self.path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            yield from file.iter_batches(_ROWS_AT_ONCE, columns=self.needed, use_threads=False)


class Frame(ArrowTable):
    """A table in memory: pandas, polars, pyarrow, or whatever else gives a stream of Arrow batches."""

    def __init__(self, data: Any, name: Path, fields: Fields, max_record_bytes: int) -> None:  # noqa: ANN401
        try:
            table = pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise CorpusError(
                expected="a table whose columns have one type each",
                found=f"{type(error).__name__} while reading a {type(data).__name__}",
                way_out="give each column one type, or give a list of dictionaries",
            ) from None  # the error may quote a cell
        super().__init__(name, fields, max_record_bytes, list(table.column_names))
        self._table = table.select(self.needed)

    def files(self) -> Iterator[Iterator[Any]]:
        yield iter(self._table.to_batches())


class SavedDataset(ArrowTable):
    """A Hugging Face dataset as `save_to_disk` leaves it: a `state.json` that lists files of Arrow's stream format."""

    def __init__(self, folder: Path, fields: Fields, max_record_bytes: int) -> None:
        state = _json_object(folder / "state.json")
        if state.get("_indices_data_files"):
            raise _not_a_dataset(
                folder, "a shuffled or selected dataset with its indices beside it", "flatten_indices()"
            )
        entries = state.get("_data_files")
        entries = entries if isinstance(entries, list) else []
        names = [entry.get("filename") for entry in entries if isinstance(entry, dict)]
        self._files = [folder / name for name in names if isinstance(name, str) and Path(name).name == name]
        if not self._files or len(self._files) < len(entries):
            raise _not_a_dataset(folder, "a state.json that lists no data files: an empty dataset, or none")
        super().__init__(folder, fields, max_record_bytes, self._columns())

    def files(self) -> Iterator[Iterator[Any]]:
        return map(self._batches, self._files)

    def _batches(self, file: Path) -> Iterator[Any]:
        with pa.OSFile(str(file)) as stream, pa.ipc.open_stream(stream) as reader:
            for batch in reader:
                yield batch.select(self.needed)
            stream.seek(max(0, stream.size() - len(_END_OF_STREAM)))
            if stream.read() != _END_OF_STREAM:  # Arrow takes a file cut off between two batches for a whole one
                raise pa.ArrowInvalid

    def _columns(self) -> list[str]:
        for file in self._files:
            if not file.is_file():
                raise _not_a_dataset(self._files[0].parent, f"no file {file.name}, which state.json lists")
        try:
            with pa.OSFile(str(self._files[0])) as stream, pa.ipc.open_stream(stream) as reader:
                return list(reader.schema.names)
        except _BROKEN as error:
            raise _not_a_dataset(self._files[0].parent, f"a file {self._files[0].name} that is not Arrow") from error
        except OSError as error:
            raise unreadable(self._files[0], error) from error


def dataset_folder(folder: Path, split: str | None) -> Path:
    """The folder of the one dataset to read: `folder` itself, or the split's of a dictionary of datasets."""
    if not (folder / "dataset_dict.json").is_file():
        if not (folder / "state.json").is_file():
            raise _not_a_dataset(folder, "a folder without state.json or dataset_dict.json")
        if split is not None:
            raise CorpusError(
                expected=f"a dictionary of datasets in {folder}, since a split was named",
                found="a single dataset",
                way_out="leave the split out",
            )
        return folder
    splits = _json_object(folder / "dataset_dict.json").get("splits")
    names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
    if split is None and len(names) == 1:
        split = names[0]
    if split not in names:
        near = difflib.get_close_matches(split or "", names, n=1)
        raise CorpusError(
            expected=f"one of the splits {', '.join(names)} of {folder}",
            found="none named" if split is None else repr(split),
            way_out=f"did you mean {near[0]}?" if near else "name one with split",
        )
    return folder / split


def _damaged(given: int) -> Fault:
    return Fault(FaultReason.DAMAGED_FILE, f"a file that is cut off or damaged after {given} rows")


def _python_rows(batch: Any) -> list[RawRow | Fault]:  # noqa: ANN401
    """The rows of a batch; its offsets are checked first, as Arrow follows them out of its memory."""
    try:
        batch.validate(full=True)
        rows: list[RawRow | Fault] = batch.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:
        if batch.num_rows > 1:
            rows = [row for start in range(batch.num_rows) for row in _python_rows(batch.slice(start, 1))]
        elif isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
            rows = [Fault(FaultReason.INVALID_UTF8, "a string that is not UTF-8")]
        elif isinstance(error, pa.ArrowException):
            rows = [Fault(FaultReason.DAMAGED_FILE, "a row whose bytes are damaged")]
        else:
            rows = [Fault(FaultReason.WRONG_TYPE, "a value outside of what Python can hold")]
    return rows


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _not_a_dataset(path.parent, f"a {path.name} that is not a JSON object")
    return value


def _not_a_dataset(folder: Path, found: str, before: str = "") -> CorpusError:
    return CorpusError(
        expected=f"a Hugging Face dataset saved to disk in {folder}",
        found=found,
        way_out=f"save it with {before + '.' if before else ''}save_to_disk(), or name a file instead",
    )
