"""The prepared store: a folder of memory-mapped columns, public and private ones apart.

    header.json              counts, hashes, columns: a function of the public part
    public/                  one row per piece
        tokens, offsets      redacted tokens; row i is tokens[offsets[i]:offsets[i + 1]]
        learned, learned_offsets     ends of the ranges of its tokens that are targets, where not all of them are
        positions, kinds     where its placeholders are in the row, and which kind each is
        span_offsets         row i has the spans [span_offsets[i], span_offsets[i + 1])
        records, pieces      which record of the stream it is from, and which piece of that
        users                64 bits of the hash of the user; 0: no user
        ids, id_offsets, labels, label_offsets      the record's id and label (JSON), in UTF-8
    private/
        header.json, quarantine.jsonl
        secrets, secret_offsets      the tokens of each span

A column is a file of raw little-endian numbers; its type, length and SHA-256 are in the header.

G1 (invariant). Corpora that differ only inside their spans give byte-identical `header.json` and `public/`.
G2 (apart). Only `full` reads a file of `private/`.
G3 (all or nothing). The folder appears whole, by one rename; an interrupted writer leaves no folder of that name.
G4 (open). Opening reads headers and file sizes only; a missing, foreign, cut or extended file is a `PrepareError`.
"""

import hashlib
import json
import mmap
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from tacit.common.files import digest, read_bytes, sync_file
from tacit.config.setting import TrainOn
from tacit.data.columns import ColumnHeader, ColumnWriter, Header, damaged, open_column
from tacit.data.records import Record
from tacit.data.views import FullTokens, Mask, PublicTokens, Tokens, fill_in
from tacit.errors import PrepareError

HEADER = "header.json"
PUBLIC = "public"
PRIVATE = "private"
AnyHeader = TypeVar("AnyHeader", bound=BaseModel)


class StoreCounts(Header):
    """What became of the records that were read."""

    records: int  # read
    empty: int  # without a character
    quarantined: int  # with spans that make no sense; see private/quarantine.jsonl
    duplicates: int  # records left out because their redacted text was there before
    rows: int  # pieces in the store
    spans: int  # secrets in them


class Facts(Header):
    """What was prepared, and how: known before the first record."""

    tokenizer_hash: str
    tokenizer_depends_on: dict[str, str | None]
    vocabulary_size: int
    lossless: bool
    policy_id: str
    policy_hash: str
    max_tokens: int
    duplicates: str
    chats: bool = False
    chat_template: dict[str, str] | None = None  # its source, and the special tokens it may name
    train_on: TrainOn = "all"
    versions: dict[str, str]


class StoreHeader(Header):
    """The public header of a store."""

    format: Literal["tacit-prepared"] = "tacit-prepared"
    version: Literal[1] = 1
    facts: Facts
    counts: StoreCounts
    kinds: list[str]
    columns: dict[str, ColumnHeader]


class PrivateHeader(Header):
    """The private header, tied to the public one by its hash."""

    public_header_sha256: str
    columns: dict[str, ColumnHeader]


def public_types(token_type: str) -> dict[str, str]:
    wide = ("offsets", "span_offsets", "records", "users", "id_offsets", "label_offsets", "learned_offsets")
    narrow = {"tokens": token_type, "positions": "<u4", "pieces": "<u4", "kinds": "<u2", "ids": "|u1", "labels": "|u1"}
    narrow["learned"] = "<u4"
    return narrow | dict.fromkeys(wide, "<u8")


def _read_header(model: type[AnyHeader], path: Path) -> tuple[AnyHeader, str]:
    """A header, and the SHA-256 of its file."""
    try:
        raw = read_bytes(path)
        return model.model_validate_json(raw), hashlib.sha256(raw).hexdigest()
    except OSError as error:
        raise PrepareError(
            expected=f"a prepared store in {path.parent.name}",
            found=f"no readable {path.name} ({type(error).__name__})",
            way_out="give the folder that `prepare` wrote",
        ) from error
    except ValidationError as error:
        where = ", ".join(sorted({".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors()})[:3])
        raise damaged(path, f"another format, or damage at {where}") from error


_MOST_KINDS = 1 << 16
_ROWS_MAPPED = 128  # read before their pages are given back: each row may map 64 kB of every column


class StoreWriter:
    """Appends rows to the columns of a new store in `folder`, which exists and is empty."""

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._folder = folder
        token_type = "<u2" if vocabulary_size <= 1 << 16 else "<u4"
        self._public = _writers(folder / PUBLIC, public_types(token_type))
        self._private = _writers(folder / PRIVATE, {"secrets": token_type, "secret_offsets": "<u8"})
        for column in (name for name in self._public if name.endswith("offsets")):
            self._public[column].append(0)
        self._private["secret_offsets"].append(0)
        self._kinds: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return self._public["records"].length

    @property
    def spans(self) -> int:
        return self._public["positions"].length

    def add(self, number: int, piece: int, record: Record, tokens: PublicTokens, secrets: Iterable[list[int]]) -> None:
        """A row: one piece, in tokens, of the record with this number in the stream."""
        public, private = self._public, self._private
        public["tokens"].extend(tokens.tokens)
        public["offsets"].append(public["tokens"].length)
        public["learned"].extend(chain.from_iterable(tokens.learned))
        public["learned_offsets"].append(public["learned"].length)
        public["positions"].extend(tokens.positions)
        public["kinds"].extend(self._kind(kind) for kind in tokens.kinds)
        public["span_offsets"].append(public["positions"].length)
        public["records"].append(number)
        public["pieces"].append(piece)
        public["users"].append(user_key(record.user))
        public["ids"].extend(record.id.encode("utf-8", "replace"))
        public["id_offsets"].append(public["ids"].length)
        public["labels"].extend(json.dumps(record.label).encode())
        public["label_offsets"].append(public["labels"].length)
        for secret in secrets:
            private["secrets"].extend(secret)
            private["secret_offsets"].append(private["secrets"].length)

    def finish(self, facts: Facts, counts: StoreCounts) -> None:
        """Close the columns and write the headers."""
        columns = {name: writer.close() for name, writer in self._public.items()}
        public = StoreHeader(facts=facts, counts=counts, kinds=list(self._kinds), columns=columns)
        header = public.model_dump_json(indent=1)
        private = PrivateHeader(
            public_header_sha256=hashlib.sha256(header.encode()).hexdigest(),
            columns={name: writer.close() for name, writer in self._private.items()},
        )
        for part, content in (("", header), (PRIVATE, private.model_dump_json(indent=1))):
            path = self._folder / part / HEADER
            path.write_text(content, encoding="utf-8", newline="\n")
            sync_file(path)

    def abandon(self) -> None:
        """Close the files of a store that will not be."""
        for writer in chain(self._public.values(), self._private.values()):
            writer.file.close()

    def _kind(self, kind: str) -> int:
        number = self._kinds.setdefault(kind, len(self._kinds))
        if number >= _MOST_KINDS:
            raise PrepareError(f"at most {_MOST_KINDS} kinds of secrets", "more", "give the policy fewer kinds")
        return number


class PreparedCorpus:
    """A prepared corpus on disk. Rows are pieces of records, numbered from 0.

    For each row, `users` has a number for its user (0: none), `records` which record of the corpus it is from, and
    `pieces` which piece of that.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header, sha256 = _read_header(StoreHeader, folder / HEADER)
        private, _ = _read_header(PrivateHeader, folder / PRIVATE / HEADER)
        if private.public_header_sha256 != sha256:
            raise damaged(folder / PRIVATE / HEADER, "the private part of another store")
        self._private_header = private
        self._public = _columns(folder / PUBLIC, self.header.columns, public_types(""))
        self._private = _columns(folder / PRIVATE, private.columns, {"secrets": "", "secret_offsets": "<u8"})
        self._check_lengths()
        self.users: npt.NDArray[np.uint64] = self._public["users"]
        self.records: npt.NDArray[np.uint64] = self._public["records"]
        self.pieces: npt.NDArray[np.uint32] = self._public["pieces"]
        self._rows_read = 0

    def __len__(self) -> int:
        return self.header.counts.rows

    @property
    def framed(self) -> bool:
        """Whether rows are put between special tokens; chats have those of their template."""
        return self.header.facts.chat_template is None

    def span_counts(self) -> npt.NDArray[np.int64]:
        """For each row, how many secrets it has."""
        return np.diff(self._public["span_offsets"]).astype(np.int64)

    def lengths(self, rows: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.int64]:
        """How many redacted tokens each of these rows has."""
        offsets = self._public["offsets"]
        lengths: npt.NDArray[np.int64] = (offsets[rows + 1] - offsets[rows]).astype(np.int64)
        return lengths

    def record_id(self, row: int) -> str:
        return self._slice("ids", "id_offsets", row).tobytes().decode()

    def label(self, row: int) -> str | None:
        label: str | None = json.loads(self._slice("labels", "label_offsets", row).tobytes())
        return label

    def kinds(self, row: int) -> tuple[str, ...]:
        """The kind of each secret of the row."""
        return tuple(self.header.kinds[number] for number in self._slice("kinds", "span_offsets", row))

    def kind_counts(self) -> tuple[tuple[str, int], ...]:
        """How many secrets of each kind there are, the most frequent first."""
        counts = np.bincount(self._public["kinds"], minlength=len(self.header.kinds)).tolist()
        return tuple(sorted(zip(self.header.kinds, counts, strict=True), key=lambda entry: (-entry[1], entry[0])))

    def positions(self, row: int) -> npt.NDArray[np.uint32]:
        """Where the placeholders are in the redacted row."""
        positions = self._slice("positions", "span_offsets", row)
        if len(positions) and (positions[-1] >= len(self.redacted(row)) or np.any(positions[1:] <= positions[:-1])):
            raise damaged(self.folder / PUBLIC / "positions.bin", "positions that do not rise inside their row")
        return positions

    def redacted(self, row: int) -> Tokens:
        """The redacted tokens of a row, mapped: reads no secret."""
        self._rows_read += 1
        if self._rows_read % _ROWS_MAPPED == 0:
            self.release_pages()
        return self._slice("tokens", "offsets", row)

    def learned(self, row: int) -> Mask | None:
        """Which of the redacted tokens of a row are targets; None where all of them are."""
        if self.header.facts.train_on == "all":
            return None
        borders = self._slice("learned", "learned_offsets", row).astype(np.int64)
        length = len(self.redacted(row))
        if len(borders) % 2 or (len(borders) and (borders[-1] > length or np.any(np.diff(borders) < 0))):
            raise damaged(self.folder / PUBLIC / "learned.bin", "ranges that do not rise inside their row")
        mask = np.zeros(length, dtype=np.bool_)
        for start, end in borders.reshape(-1, 2):
            mask[start:end] = True
        return mask

    def full(self, row: int) -> FullTokens:
        """The tokens of a row as written. For private steps only: the one place where secrets are read.

        It can be longer than `max_tokens`. Whoever reads it may drop what is beyond a public constant: that changes
        the private content of this row alone, and never the redacted view or another row.
        """
        first, last = _range(self._public["span_offsets"], row, self.header.counts.spans)
        bounds = self._private["secret_offsets"][first : last + 1].astype(np.int64)
        if bounds[0] < 0 or bounds[-1] > len(self._private["secrets"]) or np.any(np.diff(bounds) < 0):
            raise damaged(self.folder / PRIVATE / "secret_offsets.bin", "offsets that make no sense")
        contents = self._private["secrets"][bounds[0] : bounds[-1]]
        return fill_in(self.redacted(row), self.positions(row), contents, np.diff(bounds))

    def release_pages(self) -> None:
        """Give back the memory of all that was read so far; it stays on disk."""
        for column in chain(self._public.values(), self._private.values()):
            pages = None if column.base is None else column.base.base
            if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Read every file and compare it with what was written."""
        for part, columns in ((PUBLIC, self.header.columns), (PRIVATE, self._private_header.columns)):
            for name, column in columns.items():
                path = self.folder / part / f"{name}.bin"
                if digest(path) != column.sha256:
                    raise damaged(path, "content that is not what was written")

    def _slice(self, values: str, offsets: str, row: int) -> npt.NDArray[Any]:
        start, end = _range(self._public[offsets], row, len(self._public[values]))
        return self._public[values][start:end]

    def _check_lengths(self) -> None:
        counts, public, private = self.header.counts, self._public, self._private
        fits = (
            all(len(public[name]) == counts.rows for name in ("records", "pieces", "users"))
            and all(len(public[name]) == counts.rows + 1 for name in public if name.endswith("offsets"))
            and len(public["positions"]) == len(public["kinds"]) == counts.spans == len(private["secret_offsets"]) - 1
        )
        if not fits:
            raise damaged(self.folder / HEADER, "counts that do not match the columns")


def user_key(user: str | None) -> int:
    """64 bits of the hash of a user's name, above 0; 0 for no user.

    Two users with one key would be treated as one: a cap or a clip then covers both, so no claim is broken.
    """
    if user is None:
        return 0
    return max(1, int.from_bytes(hashlib.sha256(user.encode("utf-8", "surrogatepass")).digest()[:8], "little"))


def _writers(folder: Path, types: dict[str, str]) -> dict[str, ColumnWriter]:
    folder.mkdir()
    return {name: ColumnWriter(folder / f"{name}.bin", number_type) for name, number_type in types.items()}


def _columns(folder: Path, headers: dict[str, ColumnHeader], types: dict[str, str]) -> dict[str, npt.NDArray[Any]]:
    if headers.keys() != types.keys() or any(types[name] not in ("", headers[name].type) for name in types):
        raise damaged(folder.parent / HEADER, "other columns than a store has")
    return {name: open_column(folder / f"{name}.bin", header) for name, header in headers.items()}


def _range(offsets: npt.NDArray[Any], row: int, limit: int) -> tuple[int, int]:
    if not 0 <= row < len(offsets) - 1:
        raise PrepareError(f"a row in [0, {len(offsets) - 1})", f"row {row}", "count the rows with len()")
    start, end = int(offsets[row]), int(offsets[row + 1])
    if not start <= end <= limit:
        raise PrepareError("offsets that rise and stay inside their column", f"[{start}, {end})", "prepare anew")
    return start, end
