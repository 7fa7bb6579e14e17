"""Reconstruction (Lukas et al. 2023, 2302.00539): fill a masked slot, using the text on both sides of it.

The attacker knows a record but for one secret, and how many tokens that has. The model itself proposes values: those of
a beam search after the text before the slot; and those that it says elsewhere, in texts that are sampled from it,
between the tokens that surround the slot. What is memorized is rather a value than its place, so it is the second that
find most. Of all proposals, those that are likeliest after the text before are ranked by the perplexity of the record
with them, including the text behind; all values of a slot have as many tokens, so that totals decide.

Only values that one user of the corpus has are tried, and no text around a slot contains a secret that resembles its
value (`tacit.audits.values`). The same is done with held-out records, which the model never read: what is right there
is right because it is easy to guess. Results contain counts, never a value.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tacit.audits.attacks.extraction import ExtractedShare, PromptPart, prompt_parts
from tacit.audits.attacks.sampling import sampled_texts
from tacit.audits.candidates import AttackProgress, TokenTree, padded, part_progress, total_log_probabilities
from tacit.audits.division import divided
from tacit.audits.findings import Attack, Column, Finding, Highlight
from tacit.audits.passages import Passage, log_probabilities
from tacit.audits.sample_sizes import ENOUGH, dash
from tacit.audits.statistics import Floats
from tacit.audits.target import SampledTexts, Target
from tacit.audits.values import Place, single_owner_places
from tacit.common.charts import Table
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, ReconstructionConfig
from tacit.models.language_model import Speaker, continued, growing_beams

NO_VALUES = (
    "Reconstruction was not tried: one side of the corpus has no marked value that one user alone has. Raise held_out, "
    "or check that the policy marks secrets."
)
_BEFORE, _BEHIND = 2, 1
"""Tokens around a slot that a value said elsewhere must have around it, too."""
_FIRST = 10
_AROUND = 32
"""Tokens on each side by which values are ranked."""

Tokens = tuple[int, ...]
Gap = tuple[int, Tokens]
"""How many tokens a slot has, and those behind it."""


@dataclass(frozen=True, slots=True)
class Reconstructed:
    """Slots of one side whose own value was proposed, was first by the text before it, by both sides, and nearly so."""

    proposed: ExtractedShare
    by_text_before: ExtractedShare
    by_both_sides: ExtractedShare
    among_first: ExtractedShare


@dataclass(frozen=True, slots=True)
class ReconstructionResult:
    """Of both sides."""

    trained: Reconstructed
    held_out: Reconstructed


def reconstruction(target: Target, config: AuditConfig, observe: Observer) -> ReconstructionResult | None:
    """None where a side has no value to try."""
    rng, most = random.Random(config.seed), config.reconstruction.places
    places = single_owner_places(target.members, target.held_out)
    sides = [sorted(rng.sample(side, min(len(side), most)), key=_size) for side in places]
    if not all(sides):
        return None
    said = values_said([place for side in sides for place in side], sampled_texts(target, config, observe))
    reports = part_progress(observe, "reconstruction", [len(side) for side in sides])
    found = [_reconstructed(target, side, said, config, report) for side, report in zip(sides, reports, strict=True)]
    return ReconstructionResult(*found)


def _size(place: Place) -> int:
    """Beams of equally long values end together."""
    return len(place.tokens)


def _gap(place: Place) -> Gap:
    return len(place.tokens), place.after[:_BEHIND]


def values_said(places: Iterable[Place], texts: Iterable[SampledTexts]) -> dict[Gap, set[Tokens]]:
    """What the texts contain where a value could be: behind the tokens that come before one of the places."""
    wanted, found = defaultdict[Tokens, set[Gap]](set), defaultdict[Gap, set[Tokens]](set)
    for place in places:
        wanted[place.prompt[-_BEFORE:]].add(_gap(place))
    for some in texts:
        for prompt, said in zip(some.prompts, some.said.tolist(), strict=True):
            tokens = (*prompt, *said)
            for start in range(max(len(prompt), _BEFORE), len(tokens)):
                for size, behind in wanted.get(tokens[start - _BEFORE : start], ()):
                    end = start + size
                    if end <= len(tokens) and tokens[end : end + len(behind)] == behind:
                        found[size, behind].add(tokens[start:end])
    return found


def _reconstructed(
    target: Target,
    places: Sequence[Place],
    said: Mapping[Gap, set[Tokens]],
    config: AuditConfig,
    progress: AttackProgress,
) -> Reconstructed:
    """Ranks decide only where the own value was proposed at all: elsewhere the guess is wrong, whatever comes first."""
    longest, counts = config.longest_prompt, np.zeros(4, dtype=np.int64)  # as in Reconstructed

    def attempt(part: PromptPart) -> None:
        slots = [places[number] for number in part.places]
        every = values_after(target.learner, part, slots, config.reconstruction)
        for place, values in zip(slots, every, strict=True):
            proposed = values | said.get(_gap(place), set())
            if place.tokens in proposed:
                by_before, by_both = ranks(target.learner, place, proposed, config.reconstruction.values, longest)
                counts[:] += (1, by_before == 0, by_both == 0, by_both < _FIRST)

    parts = prompt_parts([place.prompt[-longest:] for place in places], torch.Generator().manual_seed(config.seed))
    divided(parts, [len(part.places) for part in parts], attempt, [counts], progress)
    return Reconstructed(*(ExtractedShare(count, len(places)) for count in counts.tolist()))


def values_after(
    speaker: Speaker, part: PromptPart, places: Sequence[Place], settings: ReconstructionConfig
) -> list[set[Tokens]]:
    """For each place, values of the right length that the model proposes after the text before it."""
    found: list[set[Tokens]] = [set() for _ in places]
    reading, longest = speaker.begin(part.prompts), max(len(place.tokens) for place in places)
    for size, grown in enumerate(growing_beams(reading, longest, settings.beams), 1):
        for number, place in enumerate(places):
            if len(place.tokens) == size:
                found[number] |= set(map(tuple, grown.tokens[number].tolist()))
    if settings.samples:
        again = torch.arange(len(places)).repeat_interleave(settings.samples)
        drawn = continued(reading.select(again), longest, part.generator)
        for number, tokens in zip(again.tolist(), drawn.tolist(), strict=True):
            found[number].add(tuple(tokens[: len(places[number].tokens)]))
    return found


def ranks(speaker: Speaker, place: Place, proposed: set[Tokens], kept: int, longest: int) -> tuple[int, int]:
    """How many proposed values come before the own one: by the text before it, and by both sides.

    Only so many as are `kept`, the likeliest after the text before, are ranked by both sides.
    """
    others = sorted(proposed - {place.tokens})
    if not others:
        return 0, 0
    values = [place.tokens, *others]
    totals = total_log_probabilities(speaker, TokenTree.of(padded(values), place.prompt[-longest:]))
    rank = _above(totals)
    if rank >= kept:
        return rank, rank
    likely = [values[number + 1] for number in np.argsort(-totals[1:], kind="stable")[: kept - 1].tolist()]
    return rank, _above(_by_both_sides(speaker, place, [place.tokens, *likely]))


def _above(totals: Floats) -> int:
    """How many are as high as the first one; ties are no success."""
    return int((totals[1:] >= totals[0]).sum())


def _by_both_sides(speaker: Speaker, place: Place, values: Sequence[Tokens]) -> Floats:
    """The log-probability of each value and of the text behind it, after the text before it."""
    before, behind = place.prompt[-_AROUND:], place.after[:_AROUND]
    passages = [Passage(f"{rank}", [*before, *value, *behind], len(before)) for rank, value in enumerate(values)]
    totals = np.zeros(len(values))
    for rank, said in log_probabilities(speaker, passages):
        totals[rank] = said.sum()
    return totals


def reconstruction_finding(found: ReconstructionResult) -> Finding:
    """How many values are reconstructed, beside those of people whose records were held out."""
    own, other = found.trained.by_both_sides, found.held_out.by_both_sides
    table = _summary(found)
    if own.of < ENOUGH or other.of < ENOUGH:
        return Finding("reconstruction", tables=(table,))
    detail = f"masked values filled in; held out {other.count:,} of {other.of:,}"
    figures = {"reconstructed": own.share, "reconstructed, held out": other.share}
    highlight = Highlight("Reconstructed", f"{own.count:,} of {own.of:,}", detail)
    return Finding("reconstruction", tables=(table,), highlights=(highlight,), figures=figures)


def _summary(found: ReconstructionResult) -> Table:
    own, other = found.trained, found.held_out
    rows = (
        ("guessed, by the text on both sides", own.by_both_sides, other.by_both_sides),
        (f"among {_FIRST} guesses, by both sides", own.among_first, other.among_first),
        ("guessed, by the text before", own.by_text_before, other.by_text_before),
        ("among the proposed values", own.proposed, other.proposed),
    )
    cells = tuple((name, *(str(one) if one.of >= ENOUGH else dash(one.of) for one in sides)) for name, *sides in rows)
    title = "reconstruction: masked values filled in, with 95 % intervals"
    return Table(("true value", "trained on", "held out"), cells, title=title)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = reconstruction(target, config, observe)
    return Finding("reconstruction", hint=NO_VALUES) if found is None else reconstruction_finding(found)


RECONSTRUCTION = Attack(
    "reconstruction",
    _run,
    (
        Column("reconstructed", "Masked values reconstructed", least=0.0),
        Column("reconstructed, held out", in_tables=False),
    ),
)
