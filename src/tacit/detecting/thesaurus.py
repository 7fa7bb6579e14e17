"""Synonyms from files that systems bring along: MyThes thesauri and WordNet's data files."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tacit.detecting.paraphrase import rng_for
from tacit.errors import ConfigError
from tacit.given import read_bytes

MYTHES_PLACES = (Path("/usr/share/mythes"), Path("/usr/share/myspell/dicts"), Path("/usr/share/hunspell"))
WORDNET_PLACES = (Path("/usr/share/wordnet"), Path("/usr/share/wordnet-3.0/dict"), Path("/usr/local/WordNet-3.0/dict"))
_WORD = re.compile(r"[^\W\d_]+")
_Read = TypeVar("_Read")
_VARIANTS = 12
_MOST_REPLACED = 2
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an the my your his her its our their i you he she it we they me him us them is are was were be been being "
        "am do does did have has had will would can could shall should may might must and or but not of to in on at by "
        "for from with as that this these those who whom whose which what when where how there here if then than so",
    )
)


@dataclass(frozen=True, slots=True)
class Synonyms:
    """Replaces one or two words of a text by synonyms; words that only hold a sentence together stay."""

    source: str
    groups: Mapping[str, tuple[str, ...]] = field(repr=False)

    def say(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """Some variants of each text that has a word with a synonym."""
        return [self._variants(text, rng_for(seed, text)) for text in texts]

    def described(self) -> dict[str, Any]:
        """Which file, and how many words it knows."""
        return {"way": "synonyms", "source": self.source, "words": len(self.groups)}

    def _variants(self, text: str, rng: random.Random) -> list[str]:
        known = [found for found in _WORD.finditer(text) if self._others(found.group())]
        said = []
        for _ in range(_VARIANTS if known else 0):
            chosen = sorted(
                rng.sample(known, min(len(known), rng.randint(1, _MOST_REPLACED))), key=lambda one: one.start()
            )
            parts, end = [], 0
            for found in chosen:
                parts += [text[end : found.start()], rng.choice(self._others(found.group()))]
                end = found.end()
            said.append("".join([*parts, text[end:]]))
        return said

    def _others(self, word: str) -> tuple[str, ...]:
        lower = word.lower()
        return () if lower in _COMMON else self.groups.get(lower, ())


def mythes(path: Path | None = None) -> Synonyms:
    """A MyThes thesaurus by its .dat file (the .idx beside it is not needed); None looks where Debian puts English."""
    found = path or _first(MYTHES_PLACES, "th_en_*.dat", "a MyThes thesaurus")
    lines = _lines(found, _encoding(found))
    return Synonyms(found.name, _filled(_mythes_groups(lines)))


def wordnet(folder: Path | None = None) -> Synonyms:
    """WordNet by the folder of its files data.noun, data.verb, data.adj, data.adv; None looks where Debian puts it."""
    folder = folder or _first(WORDNET_PLACES, "data.noun", "WordNet").parent
    groups: dict[str, list[str]] = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in _lines(folder / f"data.{part}", "utf-8"):
            words = _synset(line)
            for word in words:
                groups.setdefault(word, []).extend(other for other in words if other != word)
    return Synonyms("wordnet", _filled(groups))


def _mythes_groups(lines: Sequence[str]) -> dict[str, list[str]]:
    """An entry is `word|number of meanings`, then a line a meaning: `(part)|synonym|synonym (generic term)|...`."""
    groups: dict[str, list[str]] = {}
    at = 1  # the first line names the encoding
    while at < len(lines):
        word, _, count = lines[at].rpartition("|")
        if not count.strip().isdigit():
            raise ConfigError("a MyThes file: word|number", "another line", "name a .dat file of MyThes, version 2")
        for line in lines[at + 1 : at + 1 + int(count)]:
            plain = [one.strip() for one in line.split("|")[1:] if "(" not in one]
            groups.setdefault(word.lower(), []).extend(one for one in plain if one and one.lower() != word.lower())
        at += 1 + int(count)
    return groups


def _synset(line: str) -> list[str]:
    """The words of a line of WordNet (wndb(5)): offset, file, type, number of words in hexadecimal, word, sense, ..."""
    if line.startswith(" "):
        return []  # the licence
    parts = line.split(" ", 4)
    try:
        words = parts[4].split(" ")[0 : 2 * int(parts[3], 16) : 2]
    except (IndexError, ValueError) as error:
        raise ConfigError("a data file of WordNet", "another line", "name the folder with data.noun") from error
    return [word.split("(")[0].replace("_", " ").lower() for word in words]


def _filled(groups: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {word: tuple(dict.fromkeys(others)) for word, others in groups.items() if others}


def _encoding(path: Path) -> str:
    name = _opened(path, lambda: read_bytes(path).split(b"\n", 1)[0]).decode("ascii", "replace").strip() or "utf-8"
    try:
        "".encode(name)
    except LookupError as error:
        raise ConfigError("a MyThes file, which begins with its encoding", "another", "name a .dat file") from error
    return name


def _lines(path: Path, encoding: str) -> list[str]:
    return _opened(path, lambda: read_bytes(path).decode(encoding)).splitlines()


def _opened(path: Path, reading: Callable[[], _Read]) -> _Read:
    try:
        return reading()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a file of synonyms at {path}", type(error).__name__, "check the path") from error


def _first(places: Sequence[Path], pattern: str, what: str) -> Path:
    for place in places:
        for found in sorted(place.glob(pattern)):
            return found
    raise ConfigError(
        expected=f"{what} in one of {', '.join(map(str, places))}",
        found="none",
        way_out="install it (Debian: mythes-en-us, wordnet-base), or name its path",
    )
