"""Extraction by sampling (the PII extraction game of Lukas et al. 2023, 2302.00539): which secrets come out unasked?

Texts are sampled freely, and from the beginnings of records of both sides, which end before the first secret. What is
looked for: values that one user of the corpus alone has, as many of training people as of held-out people of each kind
and form. So the model knows the one half and can only guess the other:

| figure | what it is | without a leak |
|---|---|---|
| recall | share of the values of training people that came out | the share of held-out people's that did |
| precision | of all values that came out, how many are of training people | 50 % |

A value counts where it is whole, with no letter or digit right before or behind it. Results contain counts alone.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tacit.audits.attacks.extraction import ExtractedShare, PromptPart, prompt_parts
from tacit.audits.candidates import AttackProgress, Integers, part_progress
from tacit.audits.division import divided
from tacit.audits.findings import Attack, Column, Finding, Highlight
from tacit.audits.sample_sizes import ENOUGH, dash
from tacit.audits.target import CandidateRows, SampledTexts, Target
from tacit.audits.values import value_pairs
from tacit.common.charts import Table
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, SamplingConfig
from tacit.models.language_model import continued

NO_VALUES = (
    "Sampling was not tried: there are no marked values of both sides, of one kind and form, that one user alone has. "
    "Raise held_out."
)
_WORD = re.compile(r"[^\W_]+")
_ALL_PAIRS = 1 << 30


@dataclass(frozen=True, slots=True)
class SampledValues:
    """Values of each side that came out in one way, and how many texts were sampled."""

    texts: int
    trained: ExtractedShare
    held_out: ExtractedShare

    @property
    def precision(self) -> ExtractedShare:
        """Of the values that came out, those of the training side."""
        return ExtractedShare(self.trained.count, self.trained.count + self.held_out.count)


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """Of texts that were sampled freely, of those that began like a record, and of all of them."""

    freely: SampledValues
    from_beginnings: SampledValues
    together: SampledValues


class KnownValues:
    """Values to look for in texts, by their first word."""

    def __init__(self, values: Sequence[str]) -> None:
        self._by_word = defaultdict[str, list[tuple[int, int, str]]](list)
        for number, value in enumerate(values):
            first = _WORD.search(value)
            if first is not None:
                self._by_word[first[0]].append((number, first.start(), value))

    def inside(self, text: str) -> Iterator[int]:
        """The numbers of values that the text contains whole."""
        for word in _WORD.finditer(text):
            for number, offset, value in self._by_word.get(word[0], ()):
                start = word.start() - offset
                end = start + len(value)
                if start >= 0 and text.startswith(value, start) and not text[end : end + 1].isalnum():
                    yield number


def sampling(target: Target, config: AuditConfig, observe: Observer) -> SamplingResult | None:
    """None where there are no values to look for."""
    pairs = value_pairs(target.members, target.held_out, _ALL_PAIRS, config.seed)
    if not pairs:
        return None
    sides = [KnownValues([pair.place.text for pair in pairs]), KnownValues([pair.other.text for pair in pairs])]
    ways = sampled_texts(target, config, observe)
    found = [_times(target, way, sides, len(pairs)) for way in ways]
    texts = [len(way.prompts) for way in ways]
    return SamplingResult(*map(_came_out, (*texts, sum(texts)), (*found, found[0] + found[1])))


def sampled_texts(target: Target, config: AuditConfig, observe: Observer) -> tuple[SampledTexts, ...]:
    """Texts sampled freely, and from beginnings of records; the same for every attack on the target."""
    if config not in target.texts:
        free: list[tuple[int, ...]] = [(target.tokenizer.begin,)] * config.sampling.texts
        ways = [free, _beginnings(target, config)]
        generator = torch.Generator().manual_seed(config.seed)
        reports = part_progress(observe, "sampling", [len(way) for way in ways])
        target.texts[config] = tuple(
            _sampled(target, prompts, config.sampling, generator, report)
            for prompts, report in zip(ways, reports, strict=True)
        )
    return target.texts[config]


def _times(target: Target, texts: SampledTexts, sides: Sequence[KnownValues], values: int) -> Integers:
    """How often each value of each side is in what was said, without what it began with."""
    times = np.zeros((len(sides), values), dtype=np.int64)
    for text in map(target.decoded, texts.said.tolist()):
        for side, known in enumerate(sides):
            times[side, list(known.inside(text))] += 1
    return times


def _came_out(texts: int, times: Integers) -> SampledValues:
    """times: how often each value of each side came out."""
    return SampledValues(texts, *(ExtractedShare(int((side > 0).sum()), len(side)) for side in times))


def _beginnings(target: Target, config: AuditConfig) -> list[tuple[int, ...]]:
    """The first tokens of records, as many of each side, up to the first secret."""
    rng, half = random.Random(config.seed), config.sampling.texts // 2
    rows = [side.chosen(half, rng) for side in (target.members, target.held_out)]
    size = min(map(len, rows))
    sides = zip((target.members, target.held_out), rows, strict=True)
    return [_beginning(side, row, config.sampling.beginning) for side, some in sides for row in some[:size]]


def _beginning(side: CandidateRows, row: int, most: int) -> tuple[int, ...]:
    tokens, _, starts, _ = side.store.full(row)
    return (side.tokenizer.begin, *tokens[: min([most, *starts[:1].tolist()])].tolist())


def _sampled(
    target: Target,
    prompts: Sequence[tuple[int, ...]],
    settings: SamplingConfig,
    generator: torch.Generator,
    progress: AttackProgress,
) -> SampledTexts:
    said = np.zeros((len(prompts), settings.tokens), dtype=np.int64)

    def speak(part: PromptPart) -> None:
        begun = target.learner.begin(part.prompts)
        said[part.places] = continued(begun, settings.tokens, part.generator, settings.temperature).numpy()

    parts = prompt_parts(prompts, generator)
    divided(parts, [len(part.places) for part in parts], speak, [said], progress)
    return SampledTexts(tuple(prompts), said)


def sampling_finding(found: SamplingResult) -> Finding:
    """Recall beside that of held-out people, and precision beside a half; figures are of all texts together."""
    ways = (
        ("freely", found.freely),
        ("from beginnings of records", found.from_beginnings),
        ("both together", found.together),
    )
    rows = tuple((way, f"{one.texts:,}", *map(_cell, (one.trained, one.held_out, one.precision))) for way, one in ways)
    title = "sampling: values that came out in sampled texts, with 95 % intervals"
    heads = ("sampled", "texts", "recall, trained on", "held out", "precision (chance 50 %)")
    table, own, other = Table(heads, rows, title=title), found.together.trained, found.together.held_out
    if own.of < ENOUGH:
        return Finding("sampling", tables=(table,))
    figures = {"sampled": own.share, "sampled, held out": other.share}
    detail = f"values in sampled texts; of held-out people {other.count:,} of {other.of:,}"
    highlight = Highlight("Sampled", f"{own.count:,} of {own.of:,}", detail)
    return Finding("sampling", tables=(table,), highlights=(highlight,), figures=figures)


def _cell(share: ExtractedShare) -> str:
    return str(share) if share.of >= ENOUGH else dash(share.of)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = sampling(target, config, observe)
    return Finding("sampling", hint=NO_VALUES) if found is None else sampling_finding(found)


SAMPLING = Attack(
    "sampling",
    _run,
    (Column("sampled", "Values in sampled texts", least=0.0), Column("sampled, held out", in_tables=False)),
)
