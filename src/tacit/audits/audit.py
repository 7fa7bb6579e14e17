"""Audits: every attack on a finished run, and the exposure of named secrets in any local Hugging Face causal model.

Members are rows of the run's training side and others are rows of its held-out side: one corpus, divided by hashed
coins. Canaries are those that were planted with the run. Nothing here sees training. Some attacks are repeated on the
models that the run kept on its way: attack strength against perplexity (S-DP, figures 3 and 4).

Nothing is known about what another model was trained on, so there are no members, no twins and no claim: exposure
alone, beside the chance of so high a rank for a value that was drawn uniformly and never seen. A file of named secrets
has one JSON object per line, in one of two forms; `words` are the values of `{word}`:

    {"id": "id-1", "template": "My ID is {6 digits}", "value": "341752"}
    {"id": "pet", "before": "My cat is ", "after": ".", "candidates": ["Tom", "Felix", "Minka"], "value": "Felix"}

G1 (silent). Results contain ids and numbers; an error names a line by its number and never quotes it.
G2 (ranks). Several processes divide the passes through the models (`tacit.audits.division`). All have the result, and
   the first alone writes it.
G3 (resumed). What an attack found is kept until the audit is finished. An audit that was interrupted makes only the
   other attacks, if settings, models, code and its libraries are the same.
"""

import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.audits.attacks import load_attacks
from tacit.audits.attacks.exposure import best_chance, exposures_of
from tacit.audits.candidates import Spelling, listed, part_progress
from tacit.audits.division import ALONE, Ranks, together
from tacit.audits.findings import Attack, Audit, Checkpoint, Finding
from tacit.audits.ranks import Exposure
from tacit.audits.shadows import Shadow
from tacit.audits.target import Target, check_attackable, check_finite
from tacit.common.charts import Note, Result, Table
from tacit.common.files import open_file, remove, why
from tacit.common.progress import Observer, Progress
from tacit.common.serialize import to_json
from tacit.config.audit_schema import AuditConfig, ExposureConfig, Slot
from tacit.config.setting import Method
from tacit.data.batches import RowReader
from tacit.errors import AttackError, TacitError
from tacit.models.evaluation import mean_nats
from tacit.models.loading import load, load_foreign
from tacit.privacy.plan import Targets, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile, environment
from tacit.runs.weights import KeptModel, kept_models


def audit(
    folder: Path,
    config: AuditConfig,
    observe: Observer,
    reference: Path | None = None,
    names: Iterable[str] | None = None,
    shadows: Sequence[Path] = (),
    ranks: Ranks = ALONE,
) -> Audit:
    """Attack the run in `folder`; private/audit.json gets everything, release/tacit/audit.json what canaries showed.

    reference: a run that did not see its records. names: of the attacks to make, if not all. shadows: runs that were
    trained on other halves of the corpus. ranks: the processes that call this together.
    """
    attacks = load_attacks(names)
    other = None if reference is None else load(reference)[0]
    if other is not None:
        other.module.eval()
    check_attackable(RunFolder.view(folder))
    writes = ranks.rank == 0
    with together(ranks), RunFolder.open(folder) if writes else nullcontext(RunFolder.view(folder)) as run:
        target = Target.of(run, other, tuple(map(Shadow.of, shadows)))
        models = kept_models(run) if config.checkpoints else ()
        begun = _begun(run, made_by(config, reference, shadows), ranks)
        for attack in attacks:
            if attack.name not in begun.findings:
                begun.findings[attack.name] = attack.run(target, config, observe)
                if writes:
                    run.write_json(PrivateFile.FINDINGS, begun)
        findings = (begun.findings[attack.name] for attack in attacks)
        checkpoints = _checkpoints(target, models, attacks, config, observe, ranks)
        found = Audit.of((one for one in findings if one is not None), checkpoints)
        ranks.sum_([torch.zeros(1)])  # nobody reads the run any more
        if writes:
            run.write_json(PrivateFile.AUDIT, found)
            run.write_json(ReleaseFile.AUDIT, found.outside())
            run.seal()
            remove(run.path(PrivateFile.FINDINGS))
    return found


@dataclass(frozen=True, slots=True)
class Begun:
    """What the attacks of an unfinished audit found. made_by: a hash of all that this depends on, beside the run."""

    made_by: str
    findings: dict[str, Finding | None]


def made_by(config: AuditConfig, reference: Path | None, shadows: Sequence[Path]) -> str:
    """A hash of the settings, of the other models' places, and of the code and its libraries."""
    parts = [config, None if reference is None else str(reference), list(map(str, shadows)), environment()]
    return hashlib.sha256("\n".join(map(to_json, parts)).encode()).hexdigest()


def _begun(run: RunFolder, made: str, ranks: Ranks) -> Begun:
    """What an earlier process left, if it depended on the same; the same in every process."""
    found = run.read_optional(Begun, PrivateFile.FINDINGS)
    begun = found if found is not None and found.made_by == made else Begun(made, {})
    ranks.check_equal("attacks that were made before", " ".join(sorted(begun.findings)).encode())
    return begun


def _checkpoints(
    target: Target,
    models: Sequence[KeptModel],
    attacks: Sequence[Attack],
    config: AuditConfig,
    observe: Observer,
    ranks: Ranks,
) -> tuple[Checkpoint, ...]:
    """One per model, with the same candidates. The target's own weights are back in place afterwards."""
    module, store = target.learner.module, target.held_out.store
    weights = {name: value.clone() for name, value in module.state_dict().items()} if models else {}
    reader = RowReader(store, target.tokenizer.end, target.longest, begin=target.tokenizer.begin)
    found = []
    for number, model in enumerate(models, 1):
        module.load_state_dict(model.tensors(), strict=False)  # a tied weight has one name
        check_finite(target.learner)
        nats = mean_nats(target.learner, store, reader, View.FULL, Targets.ALL, ranks)
        figures: dict[str, float] = {}
        for attack in attacks:
            figures |= {} if attack.at_checkpoint is None else attack.at_checkpoint(target, config)
        found.append(Checkpoint(model.step, math.exp(min(nats, 700.0)), figures))
        observe(Progress("checkpoints", number, len(models)))
    if models:
        module.load_state_dict(weights)
    return tuple(found)


_FORMS = 'write {"id", "template", "value"} or {"id", "before", "after", "candidates", "value"}; words for {word}'


@dataclass(frozen=True, slots=True)
class Named:
    """A named secret: what it could be, with the text around it, and what it is."""

    id: str
    space: Slot
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
    """Of all secrets of a file, in its order. best_chance: of so high a best rank; None if one is extrapolated."""

    secrets: tuple[NamedExposure, ...]
    best_chance: float | None

    def tables(self) -> Iterator[Table | Note]:
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

    def space(self) -> Slot:
        if self.template is not None and (self.before, self.after, self.candidates) == (None, None, None):
            return Slot.of(self.template, tuple(self.words or ()))
        if self.template is None and self.words is None and self.candidates is not None:
            return listed(self.before or "", self.candidates, self.after or "")
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
    folder: Path,
    candidates: Path,
    seed: int,
    observe: Observer,
    settings: ExposureConfig | None = None,
    ranks: Ranks = ALONE,
) -> ForeignAudit:
    """The exposure of each secret of a candidates file in the model of a folder, with the folder's own tokenizer.

    ranks: as for `audit`.
    """
    settings, secrets = settings or ExposureConfig(), read_named(candidates)
    model, tokenizer, opening = load_foreign(folder)
    check_finite(model)
    by_space: dict[Slot, list[Named]] = {}
    for one in secrets:
        by_space.setdefault(one.space, []).append(one)
    sizes = [settings.scored(space.size, len(group)) for space, group in by_space.items()]
    reports = part_progress(observe, "exposure", sizes)
    found: dict[str, NamedExposure] = {}
    for (space, group), report in zip(by_space.items(), reports, strict=True):
        values, generator = [one.value for one in group], np.random.default_rng(seed)
        with together(ranks):
            measured = exposures_of(model, space, values, Spelling(tokenizer, (opening,)), settings, generator, report)
        for one, exposure in zip(group, measured, strict=True):
            found[one.id] = NamedExposure(one.id, space.size, settings.method_for(space.size), exposure)
    in_order = tuple(found[one.id] for one in secrets)
    return ForeignAudit(in_order, best_chance([one.exposure for one in in_order]))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise AttackError(f"a readable JSON-lines file {path}", why(error), "check the path") from error


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
    except (TacitError, ValueError):  # their messages quote the line
        raise _wrong(number, "a template or candidates that cannot be used", _FORMS) from None
    if space.size < 2:
        raise _wrong(number, f"{space.size} candidates", "name what else it could be: a rank among one means nothing")
    if not inside:
        raise _wrong(number, "a value that is not among the candidates", "add it, or correct the template")
    return Named(parsed.id, space, parsed.value)


def _wrong(number: int, found: str, way_out: str) -> AttackError:
    return AttackError(f"a secret and its candidates in line {number}", found, way_out)
