"""The headers of a prepared store, and the columns it has."""

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tacit.errors import PrepareError
from tacit.given import read_bytes
from tacit.prepare.columns import ColumnHeader, damaged, sync

HEADER = "header.json"
PUBLIC = "public"
PRIVATE = "private"
AnyHeader = TypeVar("AnyHeader", bound=BaseModel)


class Counts(BaseModel):
    """What became of the records that were read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    records: int  # read
    empty: int  # without a character
    quarantined: int  # with spans that make no sense; see private/quarantine.jsonl
    duplicates: int  # records left out because their redacted text was there before
    rows: int  # pieces in the store
    spans: int  # secrets in them


class Facts(BaseModel):
    """What was prepared, and how: known before the first record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tokenizer_hash: str
    tokenizer_depends_on: dict[str, str | None]
    vocabulary_size: int
    lossless: bool
    policy_id: str
    policy_hash: str
    max_tokens: int
    duplicates: str
    versions: dict[str, str]


class Header(BaseModel):
    """The public header of a store."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal["tacit-prepared"] = "tacit-prepared"
    version: Literal[1] = 1
    facts: Facts
    counts: Counts
    kinds: list[str]
    columns: dict[str, ColumnHeader]


class PrivateHeader(BaseModel):
    """The private header, tied to the public one by its hash."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    public_header_sha256: str
    columns: dict[str, ColumnHeader]


def public_types(token_type: str) -> dict[str, str]:
    wide = ("offsets", "span_offsets", "records", "users", "id_offsets", "label_offsets")
    narrow = {"tokens": token_type, "positions": "<u4", "pieces": "<u4", "kinds": "<u2", "ids": "|u1", "labels": "|u1"}
    return narrow | dict.fromkeys(wide, "<u8")


def private_types(token_type: str) -> dict[str, str]:
    return {"secrets": token_type, "secret_offsets": "<u8"}


def write_header(path: Path, content: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(content)
        sync(file)


def read_header(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise PrepareError(
            expected=f"a prepared store in {path.parent.name}",
            found=f"no readable {path.name} ({type(error).__name__})",
            way_out="give the folder that `prepare` wrote",
        ) from error


def parsed_header(model: type[AnyHeader], path: Path, raw: bytes) -> AnyHeader:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        where = ", ".join(sorted({".".join(map(str, fault["loc"])) or "JSON" for fault in error.errors()})[:3])
        raise damaged(path, f"another format, or damage at {where}") from error
