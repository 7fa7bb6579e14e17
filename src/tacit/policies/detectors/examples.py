"""What a detector learns from: prompts from files, public sentences, and which of them are held out.

A file of templates has one per line, or is YAML with a list under `templates`; slots such as `{3 digits}` mark
the secret. A file of labeled prompts is any corpus with the labels `sensitive` and `harmless` (or 1 and 0, true and
false).
"""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.common.files import read_text, why
from tacit.common.serialize import read_yaml
from tacit.data.corpus import read
from tacit.data.records import Record, sentences
from tacit.errors import ConfigError
from tacit.policies.detectors.detector import TextDigest
from tacit.policies.detectors.linear import masked
from tacit.policies.labels import reservoir

_SLOT = re.compile(r"\{[^{}]*\}")
_SENSITIVE = {"sensitive": True, "1": True, "true": True, "harmless": False, "0": False, "false": False}
_SHARES = (0.6, 0.2, 0.2)  # train, threshold, test
_FEWEST = 20

_THINGS = (
    *("favourite song", "favorite color", "dog", "cat", "car", "garden", "kitchen", "lunch", "breakfast", "dinner"),
    *("flight", "train", "bus", "seat", "ticket", "table", "meeting", "lesson", "class", "team", "coach", "opinion"),
    *("idea", "plan", "question", "answer", "problem", "reason", "book", "film", "game", "score", "goal", "hobby"),
    *("weekend", "holiday", "trip", "hotel", "restaurant", "coffee", "tea", "pizza", "order", "delivery", "package"),
    *("phone battery", "computer", "screen", "keyboard", "printer", "bicycle", "shirt", "shoes", "jacket", "umbrella"),
    *("brother", "sister", "mother", "father", "friend", "neighbour", "teacher", "boss", "colleague", "cousin"),
    *("turn in the queue", "place in line", "waiting number", "bus number", "gate number", "page number", "room"),
)

_SENTENCES = (
    *("my {thing} is", "our {thing} was", "the {thing} I like is", "I think my {thing} is"),
    *("by the way, my {thing} will be", "I went to town to get my {thing}, it is"),
    *("they gave me a new {thing} which is", "please tell me when the {thing} is", "for the record, the {thing} was"),
    "this is my {thing}",
)


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """A file, by its name, its content and how many texts it gave."""

    what: str
    name: str
    sha256: str
    count: int
    sketch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompts:
    """Texts that announce a secret, and texts of the same kind that do not."""

    sensitive: tuple[str, ...]
    harmless: tuple[str, ...]
    sources: tuple[TrainingSource, ...]


def read_prompts(templates: Path | None, labelled: Path | None) -> Prompts:
    """Templates are all sensitive; labelled prompts are what their labels say."""
    sensitive: list[str] = []
    harmless: list[str] = []
    sources: list[TrainingSource] = []
    if templates is not None:
        texts, digest = _read_templates(templates), TextDigest()
        for text in texts:
            digest.add(Record("", text))
        sensitive += texts
        sha256 = hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
        sources.append(TrainingSource("templates", templates.name, sha256, len(texts), digest.sketch()))
    if labelled is not None:
        reader, digest, count = read(labelled), TextDigest(), 0
        for record in reader:
            digest.add(record)
            count += 1
            (sensitive if _label(record.label) else harmless).append(_prompt(record.text))
        sources.append(TrainingSource("labelled prompts", labelled.name, digest.hexdigest(), count, digest.sketch()))
    if not sensitive:
        raise ConfigError(
            expected="templates, or labelled prompts of which some are sensitive",
            found="none",
            way_out='give a file with a line such as "My bank security code is {3 digits}"',
        )
    return Prompts(tuple(dict.fromkeys(sensitive)), tuple(dict.fromkeys(harmless)), tuple(sources))


def public_sentences(corpus: Path, most: int, seed: int) -> tuple[list[str], TrainingSource]:
    """At most so many sentences of a public corpus, each as likely as any other, and which corpus it was."""
    digest = TextDigest()

    def all_sentences() -> Iterator[str]:
        for record in read(corpus):
            digest.add(record)
            yield from filter(None, (record.text[start:end].strip() for start, end in sentences(record.text)))

    chosen = reservoir(all_sentences(), most, random.Random(seed))
    if len(chosen) < _FEWEST:
        raise ConfigError(
            expected=f"at least {_FEWEST} public sentences", found=str(len(chosen)), way_out="give a larger corpus"
        )
    return chosen, TrainingSource("public sentences of", corpus.name, digest.hexdigest(), len(chosen), digest.sketch())


@dataclass(frozen=True, slots=True)
class Parts:
    """Texts to learn from, to choose the threshold with, and to measure with; `by` is what they do not share."""

    train: list[str]
    threshold: list[str]
    test: list[str]
    by: str


def split_openings(texts: Sequence[str], seed: int) -> Parts:
    """Texts that begin with the same two words are on the same side, so that what is held out is said differently.

    Where that leaves too few held out, texts are dealt one by one; the first text is always learned from.
    """
    groups: dict[str, list[str]] = {}
    for text, line in zip(texts, masked(texts), strict=True):
        groups.setdefault(" ".join(line.split()[:2]), []).append(text)
    parts = _dealt(list(groups.values()), len(texts), seed, "opening words")
    if min(len(parts.threshold), len(parts.test)) < min(_FEWEST, len(texts) // 10):
        return split_texts(texts, seed)
    return parts


def split_texts(texts: Sequence[str], seed: int) -> Parts:
    """Texts dealt one by one."""
    return _dealt([[text] for text in texts], len(texts), seed, "text")


def _dealt(groups: list[list[str]], total: int, seed: int, by: str) -> Parts:
    """The group with the first text is learned from; the others go where the most is lacking, in random order."""
    dealt: tuple[list[str], list[str], list[str]] = (list(groups[0]) if groups else [], [], [])
    others = groups[1:]
    random.Random(seed).shuffle(others)
    for group in others:
        lacking = [share * total - len(part) for share, part in zip(_SHARES, dealt, strict=True)]
        dealt[lacking.index(max(lacking))].extend(group)
    return Parts(*dealt, by=by)


def _read_templates(path: Path) -> list[str]:
    try:
        found = read_yaml(path) if path.suffix in (".yaml", ".yml") else read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a readable file of templates at {path}", why(error), "check the path") from error
    if isinstance(found, dict):
        found = found.get("templates")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigError(
            expected="a list of templates", found=type(found).__name__, way_out="write `templates:` and a list under it"
        )
    texts = [_prompt(one) for one in found if one.strip()]
    if not texts:
        raise ConfigError(f"at least one template in {path}", "none", "write one per line")
    return texts


def _prompt(text: str) -> str:
    """A template without its slot where that stands at the end; a number stands for a slot elsewhere."""
    text = " ".join(text.split())
    slot = _SLOT.search(text)
    if slot is None:
        return text
    ends = not text[slot.end() :].strip(" .!?\"'")
    filled = text[: slot.start()].strip() if ends else _SLOT.sub("123", text)
    if not filled:
        raise ConfigError("a template with words before its slot", "none", "write what announces the secret")
    return filled


def _label(label: str | None) -> bool:
    known = _SENSITIVE.get((label or "").strip().lower())
    if known is None:
        raise ConfigError(
            expected="the label sensitive or harmless (1 or 0, true or false) for every prompt",
            found="none" if label is None else "another",
            way_out='write {"text": ..., "label": "sensitive"}',
        )
    return known


def built_in_harmless() -> list[str]:
    """Prompts that announce nothing secret, in the shape of those that do: "my ... is" alone is no secret."""
    return [sentence.format(thing=thing) for thing in _THINGS for sentence in _SENTENCES]
