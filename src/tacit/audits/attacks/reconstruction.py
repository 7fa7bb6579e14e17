"""Reconstruction (Lukas et al. 2023, 2302.00539): fill a masked slot, using the text on both sides of it.

The attacker knows a record but for one secret, and how many tokens that has. The model itself proposes values: those of
a beam search after the text before the slot, and sampled ones. The value is guessed with which the record, including
the text behind the slot, has the lowest perplexity; all values of a slot have as many tokens, so that totals decide.

Only values that one user of the corpus has are tried, and no text around a slot contains a secret that resembles its
value (`tacit.audits.values`). The same is done with held-out records, which the model never read: what is right there
is right because it is easy to guess. Results contain counts, never a value.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.audits.attacks.extraction import ExtractedShare, PromptPart, prompt_parts
from tacit.audits.candidates import AttackProgress, part_progress
from tacit.audits.division import divided
from tacit.audits.findings import Attack, Column, Finding, Highlight
from tacit.audits.passages import Passage, log_probabilities
from tacit.audits.sample_sizes import ENOUGH, dash
from tacit.audits.statistics import Booleans, Floats
from tacit.audits.target import Target
from tacit.audits.values import Place, single_owner_places
from tacit.common.charts import Table
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig
from tacit.models.language_model import Speaker, continued, growing_beams

NO_VALUES = (
    "Reconstruction was not tried: one side of the corpus has no marked value that one user alone has. Raise held_out, "
    "or check that the policy marks secrets."
)


@dataclass(frozen=True, slots=True)
class Reconstructed:
    """Slots of one side whose own value was proposed, was first by the text before it, and first by both sides."""

    proposed: ExtractedShare
    by_text_before: ExtractedShare
    by_both_sides: ExtractedShare


@dataclass(frozen=True, slots=True)
class ReconstructionResult:
    """Of both sides."""

    trained: Reconstructed
    held_out: Reconstructed


def reconstruction(target: Target, config: AuditConfig, observe: Observer) -> ReconstructionResult | None:
    """None where a side has no value to try."""
    rng = random.Random(config.seed)
    places = single_owner_places(target.members, target.held_out)
    sides = [rng.sample(side, min(len(side), config.secrets)) for side in places]
    if not all(sides):
        return None
    reports = part_progress(observe, "reconstruction", [len(side) for side in sides])
    found = [_reconstructed(target, side, config, report) for side, report in zip(sides, reports, strict=True)]
    return ReconstructionResult(*found)


def _reconstructed(
    target: Target, places: Sequence[Place], config: AuditConfig, progress: AttackProgress
) -> Reconstructed:
    """Ranks decide only where the own value was proposed at all: elsewhere the guess is wrong, whatever comes first."""
    generator, longest = torch.Generator().manual_seed(config.seed), config.longest_prompt
    counts = np.zeros(3, dtype=np.int64)  # as in Reconstructed

    def attempt(part: PromptPart) -> None:
        slots = [places[number] for number in part.places]
        every = proposed_values(target.learner, part.prompts, slots, config, part.generator)
        for place, values in zip(slots, every, strict=True):
            right = np.array([target.decoded(value) == place.text for value in values])
            if right.any():
                by_before, by_both = _totals(target.learner, place, values, longest)
                counts[:] += (1, _first(by_before, right), _first(by_both, right))

    parts = prompt_parts([place.prompt[-longest:] for place in places], generator)
    divided(parts, [len(part.places) for part in parts], attempt, [counts], progress)
    return Reconstructed(*(ExtractedShare(count, len(places)) for count in counts.tolist()))


def proposed_values(
    speaker: Speaker, prompts: Tensor, places: Sequence[Place], config: AuditConfig, generator: torch.Generator
) -> list[list[tuple[int, ...]]]:
    """For each place, different values of the right length that the model proposes after the text before it."""
    samples, reading = config.reconstruction.samples, speaker.begin(prompts)
    length = max(len(place.tokens) for place in places)
    found: list[list[tuple[int, ...]]] = [[] for _ in places]
    for size, beams in enumerate(growing_beams(reading, length, config.reconstruction.beams), 1):
        for number, place in enumerate(places):
            if len(place.tokens) == size:
                found[number] += map(tuple, beams.tokens[number].tolist())
    if samples:
        again = torch.arange(len(places)).repeat_interleave(samples)
        drawn = continued(reading.select(again), length, generator)
        for number, tokens in zip(again.tolist(), drawn.tolist(), strict=True):
            found[number].append(tuple(tokens[: len(places[number].tokens)]))
    return [list(dict.fromkeys(values)) for values in found]


def _totals(speaker: Speaker, place: Place, values: Sequence[tuple[int, ...]], longest: int) -> tuple[Floats, Floats]:
    """The log-probability of each value after the text before it, and with the text behind it."""
    prompt, after = place.prompt[-longest:], place.after[:longest]
    passages = [Passage(str(rank), [*prompt, *value, *after], len(prompt)) for rank, value in enumerate(values)]
    before, both = np.zeros(len(passages)), np.zeros(len(passages))
    for rank, said in log_probabilities(speaker, passages):
        before[rank], both[rank] = said[: len(place.tokens)].sum(), said.sum()
    return before, both


def _first(totals: Floats, right: Booleans) -> bool:
    """Whether a right value is above all others; ties are no success."""
    return bool(totals[right].max() > totals[~right].max(initial=-np.inf))


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
