"""Paraphrases: is a canary still retrieved when its prompt is said in other words (the motivating attack of CADP)?

Each template with a text before its slot is asked for by that text, and by twenty rewordings of it
(`tacit.policies.detectors.rewording`; nothing needs to be installed). Behind each prompt a beam search reads off the
most probable continuations, as many as canaries were planted. A canary is retrieved if one of them begins with its
value.

Twins, drawn alike and never planted, are the control: what is retrieved of them is guessed. If the model knows nothing
about a pair, either of its values is retrieved alone with the same probability; `p` is the exact test of that
(McNemar 1947), over pairs whose canary was planted.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from tacit.audits.attacks.extraction import ExtractedShare, PromptPart, prompt_parts
from tacit.audits.candidates import AttackProgress, Spelling, part_progress
from tacit.audits.division import divided
from tacit.audits.findings import About, Attack, Column, Finding
from tacit.audits.sample_sizes import ENOUGH
from tacit.audits.statistics import Booleans
from tacit.audits.target import Target
from tacit.common.charts import Table
from tacit.common.formatting import chance, name
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, Slot
from tacit.data.marked import CanaryRecord
from tacit.models.language_model import growing_beams
from tacit.policies.detectors.rewording import Rewording
from tacit.runs.verify import Planted

NO_PROMPTS = "Paraphrases were not tried: no canary has words before its value. Plant some such as My ID is {4 digits}."
_LABEL = re.compile(r"^\s*(?:\w{1,12}:\s*)?")  # of a speaker


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Of the planted canaries of one template, and of their twins: by the prompt itself, and by any of its rewordings.

    p: of so many more canaries than twins by any rewording. each: retrieved by one rewording, on average.
    """

    template: str
    prompts: int
    by_itself: tuple[ExtractedShare, ExtractedShare]
    by_any: tuple[ExtractedShare, ExtractedShare]
    each: tuple[float, float]
    p: float


def paraphrases(target: Target, config: AuditConfig, observe: Observer) -> tuple[Retrieved, ...]:
    """Of every template that has words before its slot and a canary inside."""
    planted = [one for one in target.planted if one.plan.slot.before.strip() and _inside(one)]
    reports = part_progress(observe, "paraphrases", [1 + config.paraphrases.paraphrases] * len(planted))
    return tuple(_retrieved(target, one, config, report) for one, report in zip(planted, reports, strict=True))


def _inside(planted: Planted) -> list[CanaryRecord]:
    return [canary for canary in planted.canaries if canary.inside]


def _retrieved(target: Target, planted: Planted, config: AuditConfig, progress: AttackProgress) -> Retrieved:
    slot, inside, spelling = planted.plan.slot, _inside(planted), target.spelling(planted)
    words = slot.before.strip()
    prompts = [words, *rewordings(words, config.paraphrases.paraphrases, config.seed)]
    spelled = [_prompt(spelling, slot, prompt) for prompt in prompts]
    blank = "" if spelling.apart else _gap(slot)
    values = [value for canary in inside for value in (canary.value, canary.twin_value)]
    length = max(len(tokens) for tokens in spelling.tokenizer.encode_batch([f"{blank}{value}" for value in values]))
    found = np.zeros((len(prompts), len(inside), 2), dtype=np.int64)

    def ask(part: PromptPart) -> None:
        begun = target.learner.begin(part.prompts)
        *_, beams = growing_beams(begun, length, min(config.paraphrases.values, len(inside)))
        for place, rows in zip(part.places, beams.tokens.tolist(), strict=True):
            found[place] = hits_of(inside, [target.decoded(tokens).lstrip() for tokens in rows])

    parts = prompt_parts(spelled, torch.Generator())  # nothing is drawn
    divided(parts, [len(part.places) for part in parts], ask, [found], progress)
    return retrieved(planted.plan.template, found != 0)


def hits_of(inside: Sequence[CanaryRecord], texts: Sequence[str]) -> list[list[bool]]:
    """Of each canary, whether one of the texts begins with its value, and with its twin's."""
    return [[_begins(texts, value) for value in (canary.value, canary.twin_value)] for canary in inside]


def retrieved(template: str, hits: Booleans) -> Retrieved:
    """What each prompt, of which the first is the canaries' own, retrieved: (prompts, canaries, 2) as in `hits_of`."""
    itself, any_way = hits[0], np.asarray(hits[1:].any(axis=0), dtype=np.bool_)
    own, twin = (int((any_way[:, side] & ~any_way[:, 1 - side]).sum()) for side in (0, 1))
    p = float(stats.binomtest(own, own + twin, alternative="greater").pvalue) if own + twin else 1.0
    means = hits[1:].sum(axis=1).mean(axis=0) if len(hits) > 1 else np.zeros(2)
    each = (float(means[0]), float(means[1]))
    return Retrieved(template, len(hits) - 1, _shares(itself), _shares(any_way), each, p)


def _shares(hits: Booleans) -> tuple[ExtractedShare, ExtractedShare]:
    """Of canaries and of twins."""
    own, twin = (ExtractedShare(int(hits[:, side].sum()), len(hits)) for side in (0, 1))
    return own, twin


def _begins(texts: Sequence[str], value: str) -> bool:
    return any(text.startswith(value) for text in texts)


def rewordings(prompt: str, count: int, seed: int) -> list[str]:
    """Other words for a prompt; the label of a speaker before it, and its capital, stay."""
    found = _LABEL.match(prompt)
    label = found[0] if found else ""
    said = Rewording().say([prompt[len(label) :]], seed)[0]
    capital = prompt[len(label) : len(label) + 1].isupper()
    others = (f"{label}{one[:1].upper()}{one[1:]}" if capital else f"{label}{one}" for one in said)
    return [one for one in dict.fromkeys(others) if one != prompt][:count]


def _gap(slot: Slot) -> str:
    """The white space between the words of a prompt and the value."""
    return slot.before[len(slot.before.rstrip()) :]


def _prompt(spelling: Spelling, slot: Slot, words: str) -> list[int]:
    """The tokens of a prompt as training has them: a blank belongs to the value unless that is encoded apart."""
    start = slot.before[: len(slot.before) - len(slot.before.lstrip())]
    return [*spelling.opening, *spelling.tokenizer.encode(f"{start}{words}{_gap(slot) if spelling.apart else ''}")]


def paraphrases_finding(found: Sequence[Retrieved], about: About = About.CANARIES) -> Finding:
    """How many canaries other words retrieve, beside their twins."""
    if not found:
        return Finding("paraphrases", about, hint=NO_PROMPTS)
    rows = tuple(
        (
            one.template,
            f"{one.prompts}",
            *map(_beside, (one.by_itself, one.by_any)),
            f"{one.each[0]:.1f} ({one.each[1]:.1f})",
            f"{one.p:.2g}",
        )
        for one in found
    )
    heads = ("template", "rewordings", "by its own words", "by any rewording", "by each, on average", "p")
    title = "canaries retrieved by rewordings of their prompt, in brackets values that were never planted"
    most = max(found, key=lambda one: one.by_any[0].of)
    own, twin = most.by_any
    sentence = (
        f"Asked for in {most.prompts} other wordings, this model gives away {own.count:,} of {own.of:,} planted "
        f"secrets of “{name(most.template)}”, and {twin.count:,} of as many never planted ones (p {chance(most.p)})."
    )
    figures = {"retrieved by paraphrases, p": min(1.0, len(found) * min(one.p for one in found))}
    if own.of >= ENOUGH:
        figures |= {"retrieved by paraphrases": own.share, "retrieved by paraphrases, not planted": twin.share}
    return Finding("paraphrases", about, sentence, tables=(Table(heads, rows, title=title),), figures=figures)


def _beside(shares: tuple[ExtractedShare, ExtractedShare]) -> str:
    """Counts; with their intervals where there are enough."""
    own, twin = shares
    return f"{own} ({twin})" if own.of >= ENOUGH else f"{own.count:,} of {own.of:,} ({twin.count:,} of {twin.of:,})"


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    """Where duplicates are left out, which canaries were read depends on the corpus: then it stays inside."""
    if not target.planted:
        return None
    about = About.CANARIES if target.keeps_duplicates else About.TRAINING_RECORDS
    return paraphrases_finding(paraphrases(target, config, observe), about)


PARAPHRASES = Attack(
    "paraphrases",
    _run,
    (
        Column("retrieved by paraphrases", "Canaries retrieved by paraphrases", least=0.0, in_tables=False),
        Column("retrieved by paraphrases, not planted", in_tables=False),
        Column("retrieved by paraphrases, p", in_tables=False),
    ),
)
