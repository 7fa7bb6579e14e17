"""The lines of a ledger: how they are written, chained and read back. No file is touched here.

An event is one JSON object with its kind and every number that its price depends on.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.common.serialize import from_json, parse_json
from tacit.errors import ClaimRefused, ConfigError, LedgerError
from tacit.privacy.events import Composition, Event, ExposedGaussian, Free, Gaussian, SampledGaussian, Unbounded

_VERSION = 1
_KINDS: dict[str, type[Event]] = {
    "free": Free,
    "unbounded": Unbounded,
    "gaussian": Gaussian,
    "sampled-gaussian": SampledGaussian,
    "exposed-gaussian": ExposedGaussian,
}
_RESTORE = "restore the file from a copy: it was not written by this version of tacit, or was edited"


def event_to_json(event: Event) -> dict[str, str | float | int]:
    for kind, found in _KINDS.items():
        if type(event) is found:
            return {"kind": kind, **asdict(event)}
    raise ClaimRefused(
        f"an event ({', '.join(sorted(_KINDS))})", type(event).__name__, "describe the step by one of these events"
    )


def event_from_json(value: object) -> Event:
    """The event of a JSON object; unknown kinds, missing and additional fields are refused."""
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise LedgerError(expected="an event: a JSON object with a kind", found=type(value).__name__, way_out=_RESTORE)
    kind = _KINDS.get(str(value["kind"]))
    if kind is None:
        error = ConfigError.unknown_name("kind of event", str(value["kind"]), _KINDS)
        raise LedgerError(error.expected, error.found, error.way_out)
    try:
        return from_json(kind, json.dumps({name: part for name, part in value.items() if name != "kind"}))
    except ConfigError as error:
        raise LedgerError(error.expected, error.found, _RESTORE) from None


@dataclass
class Entries:
    """The content of a ledger: the price of each step under each notion, and how often each step was charged."""

    prices: dict[str, dict[str, Event]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    torn: int = 0

    def charges(self) -> dict[str, int]:
        """How often each declared step was charged."""
        return dict(self.counts)

    def compositions(self) -> dict[str, Composition]:
        """What was spent under each notion; equal events are added up."""
        notions = next(iter(self.prices.values()), {})
        return {notion: self.composition(notion, self.counts) for notion in notions}

    def composition(self, notion: str, counts: Mapping[str, int]) -> Composition:
        """What so many executions of each step cost under one notion."""
        spent: dict[Event, int] = {}
        for name, count in counts.items():
            if count:
                event = self.prices[name][notion]
                spent[event] = spent.get(event, 0) + count
        return tuple(spent.items())


@dataclass(frozen=True)
class Parsed:
    """A ledger's lines, read: `chain` is the last digest, `torn` whether a broken last line was left out."""

    entries: Entries
    chain: str
    lines: int
    torn: bool

    def settled(self) -> Entries:
        """The entries with the torn line counted: once for every declared step."""
        if not self.torn:
            return self.entries
        counts = {name: count + 1 for name, count in self.entries.counts.items()}
        return Entries(self.entries.prices, counts, self.entries.torn + 1)


def parse(content: bytes, path: Path) -> Parsed:
    """Read all lines; refuse a broken chain, and anything malformed but a last line without its end."""
    *whole, rest = content.split(b"\n")
    entries, chain, torn = Entries(), "", False
    if rest:
        try:
            _opened(rest, _last_chain(whole), path, len(whole) + 1)
        except LedgerError:
            torn = True
        else:
            whole.append(rest)  # only its end is missing: the content is valid
    if not whole:
        raise _edited(path, 1, "no header")
    for number, line in enumerate(whole, start=1):
        fields, chain = _opened(line, chain, path, number)
        if (number == 1) != ("ledger" in fields):
            raise _edited(path, number, "a header in the wrong place")
        try:
            _enter(entries, fields)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise _edited(path, number, "a line of an unknown form") from error
    return Parsed(entries, chain, len(whole), torn)


def _last_chain(lines: list[bytes]) -> str:
    try:
        return str(parse_json(lines[-1])["chain"]) if lines else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _enter(entries: Entries, fields: dict[str, Any]) -> None:
    match fields:
        case {"ledger": version, "after": _}:
            if version != _VERSION:
                raise ValueError(version)
        case {"declare": str(name), "prices": dict(prices)} if name not in entries.prices:
            entries.prices[name] = {notion: event_from_json(event) for notion, event in prices.items()}
            entries.counts[name] = 0
        case {"charge": int(index), "times": int(times)} if index >= 0 and times > 0:
            entries.counts[list(entries.counts)[index]] += times
        case {"torn": int(torn)}:
            entries.torn += torn
        case _:
            raise ValueError(sorted(fields))


def written(entries: Entries, after: str) -> tuple[list[bytes], str]:
    """The shortest equivalent lines, and the last digest; `after` is the digest they take over from."""
    contents = [header(after)]
    if entries.torn:
        contents.append({"torn": entries.torn})
    for name, prices in entries.prices.items():
        priced = {notion: event_to_json(event) for notion, event in prices.items()}
        contents.append({"declare": name, "prices": priced})
    counts = enumerate(entries.counts.values())
    contents += [{"charge": index, "times": count} for index, count in counts if count]
    lines, chain = [], ""
    for content in contents:
        line, chain = sealed(content, chain)
        lines.append(line)
    return lines, chain


def header(after: str = "") -> dict[str, Any]:
    return {"ledger": _VERSION, "after": after}


def sealed(content: dict[str, Any], before: str) -> tuple[bytes, str]:
    """One line with its digest, and the digest."""
    chain = _digest(content, before)
    return json.dumps({**content, "chain": chain}, separators=(",", ":")).encode() + b"\n", chain


def _opened(line: bytes, before: str, path: Path, number: int) -> tuple[dict[str, Any], str]:
    try:
        fields = parse_json(line)
        chain = fields.pop("chain")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _edited(path, number, "something that is no line of a ledger") from error
    if chain != _digest(fields, before):
        raise _edited(path, number, "a digest that does not fit")
    return fields, chain


def _digest(content: dict[str, Any], before: str) -> str:
    text = before + json.dumps(content, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _edited(path: Path, number: int, found: str) -> LedgerError:
    return LedgerError(
        expected=f"line {number} of {path.name} as it was written",
        found=found,
        way_out="restore the file from a copy: an edited ledger proves nothing",
    )
