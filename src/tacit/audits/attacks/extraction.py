"""Extraction: prompt a model with the text before a secret, and see whether the secret comes out word for word.

| count | what it is | from |
|---|---|---|
| greedy | the most probable continuation begins with the secret | Carlini et al. 2023, 2202.07646 |
| sampled | one of `tries` sampled continuations does | |
| beam search | one of the `beams` continuations that a beam search finds does | |
| discoverable (n, p) | with probability at least p one of n samples does | Hayes et al. 2024, 2410.19482 |

The last is computed, not sampled: a secret of probability z after its prompt comes out among n samples with probability
1 - (1 - z)^n. Here z is that of the secret's own tokens; other spellings of it make the true chance larger.
Secrets that the model never saw come out too, when they are easy to guess: a count means something beside theirs.
Results contain ids and numbers, never a secret.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.audits.candidates import AttackProgress, part_progress
from tacit.audits.division import divided, generators
from tacit.audits.findings import Attack, Column, Finding, Highlight
from tacit.audits.passages import Passage, log_probabilities
from tacit.audits.target import CandidateRows, Hidden, Target
from tacit.common.charts import ChartRow, Dot, LegendItem, RowChart, Table, Whisker, axis_for
from tacit.common.formatting import Interval, exact_interval, interval, percent
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, ExtractionConfig
from tacit.models.language_model import DecoderState, Speaker, continued, growing_beams

_ROWS = 64
_WAYS = 3  # the most probable text, samples, beams
_LONG, _STEP = 32, 8  # tokens
NO_SECRETS = "Extraction was not tried: one side of the corpus has no marked secrets."


@dataclass(frozen=True, slots=True)
class ExtractedShare:
    """`count` of `of` secrets."""

    count: int
    of: int

    @property
    def interval(self) -> Interval:
        """Exact, 95 %."""
        return exact_interval(self.count, self.of)

    @property
    def share(self) -> float:
        """0 of 0 is 0."""
        return self.count / self.of if self.of else 0.0

    def __str__(self) -> str:
        return f"{self.count:,} of {self.of:,} ({self.interval.low:.1%}-{self.interval.high:.1%})"


@dataclass(frozen=True, slots=True)
class Discoverable:
    """Secrets that one of `tries` samples contains whole with probability at least `probability`."""

    tries: int
    probability: float
    share: ExtractedShare


@dataclass(frozen=True, slots=True)
class Extraction:
    """Secrets that came out word for word after the text before them."""

    greedy: ExtractedShare
    tries: int
    sampled: ExtractedShare
    beams: int
    by_beams: ExtractedShare
    discoverable: tuple[Discoverable, ...]


@dataclass(frozen=True, slots=True)
class ExtractionResult:
    """Of secrets of the training side; and of the held-out side, which come out only by being easy to guess."""

    trained: Extraction
    held_out: Extraction


def extract(
    speaker: Speaker,
    secrets: Sequence[Hidden],
    decode: Callable[[Sequence[int]], str],
    generator: torch.Generator,
    settings: ExtractionConfig | None = None,
    progress: AttackProgress | None = None,
) -> Extraction:
    """Try to extract each secret; `decode` gives the text of tokens."""
    settings, found = settings or ExtractionConfig(), np.zeros((_WAYS, len(secrets)), dtype=np.int64)

    def attempt(part: PromptPart) -> None:
        tried = [secrets[place] for place in part.places]
        found[:, part.places] = _came_out(speaker.begin(part.prompts), tried, decode, part.generator, settings)

    parts = prompt_parts([one.prompt for one in secrets], generator)
    divided(parts, [len(part.places) for part in parts], attempt, [found], progress)
    chances = secret_log_probabilities(speaker, secrets).values()
    discoverable = []
    for tries, least in settings.discoverable:
        likely = sum(_comes_out(chance, tries) >= least for chance in chances)
        discoverable.append(Discoverable(tries, least, ExtractedShare(likely, len(chances))))
    shares = [ExtractedShare(int(way.sum()), len(secrets)) for way in found]
    return Extraction(shares[0], settings.tries, shares[1], settings.beams, shares[2], tuple(discoverable))


def _came_out(
    reading: DecoderState,
    secrets: Sequence[Hidden],
    decode: Callable[[Sequence[int]], str],
    generator: torch.Generator,
    settings: ExtractionConfig,
) -> list[list[bool]]:
    """Of each way, which secrets came out after what was read: the most probable text, samples, beams."""
    length = max(len(one.tokens) for one in secrets)
    greedy = [[tokens] for tokens in continued(reading, length, generator, 0.0).tolist()]
    sampled: list[list[list[int]]] = [[] for _ in secrets]
    if settings.tries:
        again = torch.arange(len(secrets)).repeat_interleave(settings.tries)
        drawn = continued(reading.select(again), length, generator, settings.temperature)
        sampled = drawn.view(len(secrets), settings.tries, length).tolist()
    by_beams: list[list[list[int]]] = [[] for _ in secrets]
    for size, beams in enumerate(growing_beams(reading, length, settings.beams), 1):
        for place, one in enumerate(secrets):
            if len(one.tokens) == size:
                by_beams[place] = beams.tokens[place].tolist()
    return [
        [any(decode(tokens).startswith(one.text) for tokens in said) for one, said in zip(secrets, way, strict=True)]
        for way in (greedy, sampled, by_beams)
    ]


def secret_log_probabilities(speaker: Speaker, secrets: Sequence[Hidden]) -> dict[str, float]:
    """By id, the total log-probability of each secret's tokens after its prompt."""
    passages = [Passage(one.id, [*one.prompt, *one.tokens], len(one.prompt)) for one in secrets]
    return {passages[place].id: float(said.sum()) for place, said in log_probabilities(speaker, passages)}


def _comes_out(log_probability: float, tries: int) -> float:
    """1 - (1 - z)^n without losing small z."""
    if log_probability >= 0:
        return 1.0
    return -math.expm1(tries * math.log1p(-math.exp(log_probability)))


@dataclass(frozen=True, slots=True, eq=False)
class PromptPart:
    """Prompts that are equally long, their places among all, and the chance with which they are continued."""

    places: list[int]
    prompts: Tensor
    generator: torch.Generator


def prompt_parts(prompts: Sequence[Sequence[int]], generator: torch.Generator) -> list[PromptPart]:
    """The prompts, some at a time, each with a generator of its own."""
    parts = list(_by_length(prompts))
    return [PromptPart(*part, own) for part, own in zip(parts, generators(generator, len(parts)), strict=True)]


def _by_length(prompts: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor]]:
    """Places of prompts that are equally long, some at a time, and these prompts.

    Long prompts lose up to seven tokens of their beginning: few lengths are left, and many prompts are read together.
    """
    by_length = defaultdict(list)
    for place, prompt in enumerate(prompts):
        size = len(prompt)
        by_length[size if size < _LONG else size - size % _STEP].append(place)
    for size, group in by_length.items():
        for start in range(0, len(group), _ROWS):
            places = group[start : start + _ROWS]
            yield places, torch.tensor([list(prompts[place])[-size:] for place in places])


def extraction(target: Target, config: AuditConfig, observe: Observer) -> ExtractionResult | None:
    """None where a side has no secrets."""
    sides = [_hidden(side, config) for side in (target.trained, target.held_out)]
    if not all(sides):
        return None
    reports = part_progress(observe, "extraction", [len(side) for side in sides])
    found = []
    for secrets, report in zip(sides, reports, strict=True):
        generator = torch.Generator().manual_seed(config.seed)
        found.append(extract(target.learner, secrets, target.decoded, generator, config.extraction, report))
    return ExtractionResult(*found)


def _hidden(side: CandidateRows, config: AuditConfig) -> list[Hidden]:
    rows = side.chosen(config.secrets, random.Random(config.seed), with_secrets=True)
    return [
        hidden
        for number, row in enumerate(rows)
        for hidden in side.hidden(f"secret-{number}", row, config.longest_prompt)
    ][: config.secrets]


def extraction_finding(found: ExtractionResult) -> Finding:
    """Secrets of both sides, side by side."""
    own, other = found.trained.greedy, found.held_out.greedy
    detail = f"secrets word for word; held out {other.count:,} of {other.of:,}"
    return Finding(
        "extraction",
        tables=(_summary(found),),
        charts=(_chart(found),),
        highlights=(Highlight("Extracted", f"{own.count:,} of {own.of:,}", detail),),
        figures={
            "extracted": own.share,
            "extracted, held out": other.share,
            "extracted by sampling": found.trained.sampled.share,
            "extracted by sampling, held out": found.held_out.sampled.share,
        },
    )


def _ways(found: ExtractionResult) -> list[tuple[str, str, ExtractedShare, ExtractedShare]]:
    """A name for the screen, one for pages, and the shares of both sides."""
    own, other = found.trained, found.held_out
    ways = [
        ("most probable text", "Most probable continuation", own.greedy, other.greedy),
        (f"one of {own.tries} samples", f"In {_samples(own.tries)} that were drawn", own.sampled, other.sampled),
    ]
    ways.append((f"one of {own.beams} by beam search", f"In {own.beams} beams", own.by_beams, other.by_beams))
    for a, b in zip(own.discoverable, other.discoverable, strict=True):
        way = f"one of {a.tries:,} with probability {a.probability:g}"
        ways.append((way, f"Likely within {_samples(a.tries)}", a.share, b.share))
    return ways


def _samples(tries: int) -> str:
    return "one sample" if tries == 1 else f"{tries:,} samples"


def _summary(found: ExtractionResult) -> Table:
    rows = tuple((way, str(own), str(other)) for way, _, own, other in _ways(found))
    title = "secrets that came out word for word, with 95 % intervals"
    return Table(("way", "trained on", "held out"), rows, title=title)


def _chart(found: ExtractionResult) -> RowChart:
    """How many secrets come out word for word, of the training side and of the held-out side."""
    ways = [way[1:] for way in _ways(found)]
    rows = tuple(
        ChartRow(
            f"{way}: {trained.count:,} of {trained.of:,}",
            (
                Whisker(*trained.interval),
                Dot(trained.share, 3, f"{way}\ntrained: {percent(trained.share)}", spread=True),
                Dot(held_out.share, 0, f"{way}\nheld out: {percent(held_out.share)}", hollow=True, spread=True),
            ),
        )
        for way, trained, held_out in ways
    )
    table = Table(
        ("How", "Secrets of the training side", "95 % interval", "Of the held-out side", "95 % interval"),
        tuple(
            (way, f"{a.count:,} of {a.of:,}", interval(a.interval), f"{b.count:,} of {b.of:,}", interval(b.interval))
            for way, a, b in ways
        ),
    )
    widest = max([0.05, *(trained.interval.high for _, trained, _ in ways)])
    sure = " and ".join(sorted({percent(one.probability) for one in found.trained.discoverable}))
    likely = f" Likely: with a probability of at least {sure}." if sure else ""
    return RowChart(
        "extraction",
        "Secrets that come out word for word",
        "; ".join(row.name for row in rows) + ".",
        axis_for("Share of secrets said word for word", [0.0, min(1.0, widest)], logarithmic=False),
        rows,
        table,
        legend=(LegendItem("training side", Dot(0.0, 3)), LegendItem("held-out side", Dot(0.0, 0, hollow=True))),
        note=f"Secrets of the held-out side come out by being easy to guess; only the excess is a leak.{likely}",
    )


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = extraction(target, config, observe)
    return Finding("extraction", hint=NO_SECRETS) if found is None else extraction_finding(found)


EXTRACTION = Attack(
    "extraction",
    _run,
    tuple(
        Column(f"extracted{way}{side}", in_tables=False) for way in ("", " by sampling") for side in ("", ", held out")
    ),
)
