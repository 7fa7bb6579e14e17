"""The audit of a finished run: every attack, and some of them again on the models that it kept on its way.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training.

Attack strength against perplexity, over kept models: S-DP, figures 3 and 4.

Models from elsewhere: how exposed are secrets that somebody names, in any local Hugging Face causal model?

A file has one JSON object per line, in one of two forms; `words` are the values of `{word}`:

    {"id": "id-1", "template": "My ID is {6 digits}", "value": "341752"}
    {"id": "pet", "before": "My cat is ", "after": ".", "candidates": ["Tom", "Felix", "Minka"], "value": "Felix"}

Nothing is known of what the model was trained on, so there are no members, no twins and no claim: exposure alone,
beside the chance of so high a rank for a value that was drawn uniformly and never seen.

G1 (silent). Results hold ids and numbers; an error names a line by its number and never quotes it.
"""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.audits.attacks import load_attacks
from tacit.audits.candidates import Listed, Space, Spelling
from tacit.audits.findings import Attack, Audit, Checkpoint
from tacit.audits.ranks import Exposure, value_exposures
from tacit.audits.target import Target, check_attackable, check_finite
from tacit.common.charts import Note, Result, Table
from tacit.common.files import open_file, why
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig, ExposureConfig, Slot
from tacit.config.setting import Method
from tacit.data.batches import RowReader
from tacit.errors import AttackError, TacitError
from tacit.models.causal_lm import CausalLM
from tacit.models.evaluation import mean_nats
from tacit.models.language_model import Learner
from tacit.models.loading import load, load_foreign
from tacit.privacy.plan import Targets, View
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.weights import KeptModel, kept_models


def audit(
    folder: Path,
    config: AuditConfig,
    observe: Observer,
    reference: Path | None = None,
    names: Iterable[str] | None = None,
) -> Audit:
    """Attack the run in `folder`; private/audit.json has all that was found, release/audit.json the canaries.

    `reference`: a run that did not see its records. `names`: of the attacks to make, if not all.
    """
    attacks = load_attacks(names)
    other = None if reference is None else _reference(reference)
    check_attackable(RunFolder.view(folder))
    with RunFolder.open(folder) as run:
        target = Target.of(run, other)
        models = kept_models(run) if config.checkpoints else ()
        findings = [attack.run(target, config, observe) for attack in attacks]
        checkpoints = _checkpoints(target, models, attacks, config, observe)
        found = Audit.of((one for one in findings if one is not None), checkpoints)
        run.write_json(PrivateFile.AUDIT, found)
        run.write_json(ReleaseFile.AUDIT, found.outside())
        run.seal()
    return found


def _checkpoints(
    target: Target, models: Sequence[KeptModel], attacks: Sequence[Attack], config: AuditConfig, observe: Observer
) -> tuple[Checkpoint, ...]:
    """One per model, with the same candidates. The target's own weights are back in place afterwards."""
    weights = {name: value.clone() for name, value in target.learner.module.state_dict().items()} if models else {}
    found = []
    for number, model in enumerate(models, 1):
        target.learner.module.load_state_dict(model.tensors(), strict=False)  # a tied weight has one name
        found.append(_checkpoint(target, model.step, attacks, config))
        observe(Progress("checkpoints", number, len(models)))
    if models:
        target.learner.module.load_state_dict(weights)
    return tuple(found)


def _checkpoint(target: Target, step: int, attacks: Sequence[Attack], config: AuditConfig) -> Checkpoint:
    check_finite(target.learner)
    store = target.held_out.store
    reader = RowReader(store, target.tokenizer.end, target.longest)
    nats = mean_nats(target.learner, store, reader, View.FULL, Targets.ALL)
    figures: dict[str, float] = {}
    for attack in attacks:
        figures |= {} if attack.at_checkpoint is None else attack.at_checkpoint(target, config)
    return Checkpoint(step, math.exp(min(nats, 700.0)), figures)


def _reference(folder: Path) -> Learner:
    learner, _ = load(folder)
    learner.module.eval()
    return learner


_FORMS = 'write {"id", "template", "value"} or {"id", "before", "after", "candidates", "value"}; words for {word}'


@dataclass(frozen=True, slots=True)
class Named:
    """A secret that somebody names: the text around it, what else it could be, and what it is."""

    id: str
    space: Space
    value: str


@dataclass(frozen=True, slots=True)
class NamedExposure:
    """Of one secret among `space` candidates."""

    id: str
    space: int
    method: Method
    exposure: Exposure


@dataclass(frozen=True, slots=True)
class ForeignAudit(Result):
    """Of all secrets of a file, in its order. best_chance: of the best, times their number; none if extrapolated."""

    secrets: tuple[NamedExposure, ...]
    best_chance: float | None

    def tables(self) -> Iterator[Table | Note]:
        """Exposure by id."""
        rows = []
        for one in self.secrets:
            exposure = one.exposure
            error = f" ± {exposure.standard_error:.2f}" if exposure.standard_error else ""
            rank = "" if exposure.rank is None else f"{exposure.rank:,.10g}"
            chance = "" if exposure.chance is None else f"{exposure.chance:.2g}"
            rows.append((one.id, f"{exposure.bits:.2f}{error}", rank, f"{one.space:,}", chance))
        yield Table(("id", "exposure", "rank", "of", "p"), tuple(rows), title="exposure, in bits")
        if self.best_chance is not None:
            yield Note(f"so high a best rank has probability {self.best_chance:.2g} at most for values never seen")


Text = Annotated[str, Field(min_length=1)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: Text
    value: Text
    template: str | None = None
    words: list[str] | None = None
    before: str | None = None
    after: str | None = None
    candidates: list[str] | None = None

    def space(self) -> Space:
        listed = (self.before, self.after, self.candidates)
        if self.template is not None and listed == (None, None, None):
            return Slot.of(self.template, tuple(self.words or ()))
        if self.template is None and self.words is None and self.candidates is not None:
            return Listed(self.before or "", tuple(self.candidates), self.after or "")
        raise ValueError("neither of the two forms")


def read_named(path: Path) -> tuple[Named, ...]:
    """The secrets of a candidates file."""
    named: dict[str, Named] = {}
    for number, line in _lines(path):
        one = _parsed(number, line)
        if one.id in named:
            raise _wrong(number, "an id that came before", "give every line an id of its own")
        named[one.id] = one
    if not named:
        raise AttackError("at least one secret in the candidates file", "none", _FORMS)
    return tuple(named.values())


def audit_model(
    folder: Path, secrets: tuple[Named, ...], settings: ExposureConfig, seed: int, observe: Observer
) -> ForeignAudit:
    """The exposure of each secret in the model of a folder, with the folder's own tokenizer."""
    speaker, spelling = _speaker(folder)
    by_space: dict[Space, list[Named]] = {}
    for one in secrets:
        by_space.setdefault(one.space, []).append(one)
    total = sum(settings.scored(space.size, len(group)) for space, group in by_space.items())
    found: dict[str, NamedExposure] = {}
    before = 0
    for space, group in by_space.items():

        def told(done: int, _: int, before: int = before) -> None:
            observe(Progress("exposure", before + done, total))

        values, generator = [one.value for one in group], np.random.default_rng(seed)
        measured = value_exposures(speaker, space, values, spelling, settings, generator, told)
        before += settings.scored(space.size, len(group))
        for one, exposure in zip(group, measured.exposures, strict=True):
            found[one.id] = NamedExposure(one.id, space.size, measured.method, exposure)
    return ForeignAudit(tuple(found[one.id] for one in secrets), _best_chance(found))


def audit_named(folder: Path, candidates: Path, seed: int, observe: Observer) -> ForeignAudit:
    """The same for the secrets of a candidates file, as hard as usual."""
    return audit_model(folder, read_named(candidates), ExposureConfig(), seed, observe)


def _best_chance(found: Mapping[str, NamedExposure]) -> float | None:
    chances = [one.exposure.chance for one in found.values()]
    known = [chance for chance in chances if chance is not None]
    return min(1.0, len(known) * min(known)) if len(known) == len(chances) else None


def _speaker(folder: Path) -> tuple[CausalLM, Spelling]:
    model, tokenizer, opening = load_foreign(folder)
    check_finite(model)
    return model, Spelling(tokenizer, (opening,))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise AttackError(
            expected=f"a readable JSON-lines file {path}", found=why(error), way_out="check the path"
        ) from error


def _parsed(number: int, line: str) -> Named:
    try:
        parsed = _Line.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = next((part for part in fault["loc"] if part in _Line.model_fields), None)
        found = "no such object" if where is None else f"a wrong or missing {where!r}"
        raise _wrong(number, found, _FORMS) from None
    try:
        space = parsed.space()
        inside = space.number(parsed.value) is not None
    except (TacitError, ValueError):  # their words quote the line
        raise _wrong(number, "a template or candidates that cannot be used", _FORMS) from None
    if space.size < 2:
        raise _wrong(number, f"{space.size} candidates", "a rank among one says nothing: name what else it could be")
    if not inside:
        raise _wrong(number, "a value that is not among the candidates", "add it, or mend the template")
    return Named(parsed.id, space, parsed.value)


def _wrong(number: int, found: str, way_out: str) -> AttackError:
    return AttackError(f"a secret and its candidates in line {number}", found, way_out)
