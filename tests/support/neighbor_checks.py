"""The seven comparisons of the neighbor fuzzer (theory, section 13); `Broken` names the one that failed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neighbor_corpora import (
    NAMES,
    Draft,
    Other,
    Place,
    alias_lines,
    differing_in_records,
    has_entity,
    places,
    removed,
    renamed,
    some_drafts,
    text_of,
    text_replaced,
)
from neighbor_worlds import Name, Transcript, World, carry_out, distance, force_past, make_world, same_left, same_sums
from oracles import while_in_float64
from tacit.data.form_counts import public_spans
from tacit.data.forms import Cell, Secret, vector
from tacit.privacy.events import Free, Gaussian, NoisyEvent, Unbounded
from tacit.privacy.plan import Neighbors, Noisy, PoissonUsers, Pool, SplitBatch, Step, Unit, UsersAndEntities, cost
from tacit.training.checks import duplicates_of
from tacit.training.gradients.clipped import safe_factors
from tacit.training.pools import DrawnUnits
from tacit.training.sampling import sampler_for
from tacit.training.updates import _STYLES

ONE = 2**30  # a norm of 1, in the grid of counts of forms
ROUNDING = 1e-7  # of the clip norm, for each row of a draw


class Broken(AssertionError):
    """Two neighbors differ by more than is priced."""


def require(holds: bool, what: str) -> None:
    """Raise `Broken` unless it holds."""
    if not holds:
        raise Broken(what)


def fuzz(folder: Path, words: Mapping[str, Any], seed: int) -> int:
    """All comparisons for one setting and one random corpus; how many pairs of worlds were compared."""
    chance = Random(seed)
    folder.mkdir()
    drafts = some_drafts(chance)
    ours = make_world(folder / "D", drafts, _with_aliases(folder, words, None))
    pairs = 0
    for of in _one_a_unit(ours.mechanism.notions(), chance):
        for other in neighbors(ours, drafts, of, chance):
            chosen = _with_aliases(folder, words, other.entity)
            theirs = make_world(folder / f"D{pairs}", other.drafts, chosen, ours)
            compare(ours, theirs, of, other, chance)
            pairs += 1
    return pairs


def _with_aliases(folder: Path, words: Mapping[str, Any], entity: str | None) -> dict[str, Any]:
    if "aliases" not in words:
        return dict(words)
    path = folder / f"aliases-{entity}.txt"
    path.write_text(alias_lines(entity))
    return {**words, "aliases": str(path)}


def _one_a_unit(notions: Sequence[Neighbors], chance: Random) -> list[Neighbors]:
    units = dict.fromkeys(notion.unit for notion in notions)
    return [chance.choice([notion for notion in notions if notion.unit == unit]) for unit in units]


def neighbors(ours: World, drafts: Sequence[Draft], of: Neighbors, chance: Random) -> list[Other]:
    """Corpora that differ in one unit, in every way that the claim speaks of."""
    experiment = ours.experiment
    everywhere = places(drafts, experiment.data.segment_by != "record")
    if of.unit in (Unit.SECRETS, Unit.RECORD, Unit.FLAGGED_RECORD):
        flagged = [place for number, place in enumerate(everywhere) if ours.marks.flagged[number]]
        kinds = ("ID",) if experiment.policy == "digits" else ("ID", "NAME", "PLACE")
        candidates = flagged if of.unit == Unit.FLAGGED_RECORD else everywhere
        printed = experiment.plan.mechanism == "selective-published"  # its neighbors have the same lengths
        found = differing_in_records(drafts, of, candidates, kinds, chance, same_length=printed)
        keeps = duplicates_of(experiment) == "keep" or of.unit == Unit.SECRETS
        return [other for other in found if keeps or other.name == "removed"]
    found = []
    user = chance.choice(sorted({_owner(ours, drafts, place) for place in everywhere}))
    of_user = [place for place in everywhere if _owner(ours, drafts, place) == user]
    if of.unit == Unit.USER:
        found.append(text_replaced(drafts, of_user, chance, relabel=True))
        if experiment.plan.mechanism == "user" and experiment.data.user_source != "dealt":
            found.append(removed(drafts, of_user))
        return found
    aliases = experiment.marking.aliases is not None
    entity = chance.choice([name for name in NAMES if _is_listed(ours, drafts, name)])
    of_entity = [place for place in everywhere if has_entity(text_of(drafts, place), entity, aliases)]
    both = renamed(drafts, entity, of_entity, aliases)
    if of.unit == Unit.ENTITY:
        return [both]
    changed = text_replaced(both.drafts, of_user, chance, relabel=True)
    return [Other("user and entity", changed.drafts, both.owned | changed.owned, entity)]


def _owner(ours: World, drafts: Sequence[Draft], place: Place) -> str:
    """Who the store says owns a record; dealt users are known by nothing else."""
    if ours.experiment.data.user_source == "given":
        return drafts[place.draft].user
    users = {name[0]: int(ours.store.users[row]) for row, name in enumerate(ours.names)}
    return str(users.get(place.id))


def _is_listed(ours: World, drafts: Sequence[Draft], name: str) -> bool:
    kinds = ours.experiment.marking.entity_kinds or ("NAME", "PLACE", "ID")
    marked = {part.text for draft in drafts for turn in draft.turns for part in turn if part.kind in kinds}
    return name in marked


# Before any step: pools, routing, counts, and what is read.


def compare(ours: World, theirs: World, of: Neighbors, other: Other, chance: Random) -> None:
    """Every comparison of two worlds that differ in one unit."""
    require(ours.tokenizer.hash == theirs.tokenizer.hash, "another vocabulary")
    _match_twins(ours, theirs, other.owned)
    _compare_forms(ours, theirs, of, other.owned)
    for step in ours.plan.executions():
        _same_pools(ours, theirs, step, of, other.owned)
    if other.name != "removed" and duplicates_of(ours.experiment) == "keep":
        require(theirs.own_plan() == ours.plan, "another plan")
    if ours.nats is not None and theirs.nats is not None:
        for world in (ours, theirs):
            force_past(world, "random", 1)
        require(ours.nats() == theirs.nats(), "another model would be chosen")
    weights = chance.choice(("as they begin", "random", "random", "large", "beyond all bounds"))
    for step in ours.plan.executions():
        event = cost(step, of)
        if isinstance(event, Free):
            _compare_free(ours, theirs, step, weights, chance)
        elif not isinstance(event, Unbounded):
            _compare_priced(ours, theirs, step, event, other, weights, chance)
            _noise_covers_all(ours, step)


def _match_twins(ours: World, theirs: World, owned: frozenset[str]) -> None:
    """A record that takes part without the unit only may be its equal, and then takes its name."""
    here, there = ({record for record, _ in world.names} for world in (ours, theirs))
    require(here - there <= owned, "another record left")
    free = sorted(owned & here - there)
    for twin in sorted(there - here):
        equals = [record for record in free if _told(ours, record) == _told(theirs, twin)]
        require(bool(equals), "another record takes part")
        free.remove(equals[0])
        for row, (record, piece) in enumerate(theirs.names):
            if record == twin:
                theirs.names[row] = (equals[0], piece)
    theirs.__post_init__()


def _told(world: World, record: str) -> list[Any]:
    """All that training reads of a record, and where."""
    views = {step.view for step in world.plan.executions()}
    rows = [row for row, name in enumerate(world.names) if name[0] == record]
    steps = world.plan.executions()
    pools = [(step.pool, world.names[row] in world.pool_names(step)) for step in steps for row in rows]
    return [pools, [world.content(row, view) for row in rows for view in views]]


def _same_pools(ours: World, theirs: World, step: Step, of: Neighbors, owned: frozenset[str]) -> None:
    free = isinstance(cost(step, of), Free)
    pools = []
    for world in (ours, theirs):
        names = [name for name in world.pool_names(step) if free or name[0] not in owned]
        pools.append([(name, int(world.store.users[world.rows[name]])) for name in names])
    if free and len(pools[0]) != len(pools[1]):
        raise Broken(f"another pool of {step.name} steps, which are free")
    order = sorted if duplicates_of(ours.experiment) != "keep" else list
    require(order(pools[0]) == order(pools[1]), f"other records among {step.pool}")
    for name, _ in pools[0]:
        same = ours.content(ours.rows[name], step.view) == theirs.content(theirs.rows[name], step.view)
        require(same, f"another {step.view} text in a {step.name} step")
    if of.unit in (Unit.USER, Unit.ENTITY, Unit.USER_AND_ENTITY) and step.pool == Pool.CAPPED:
        most = len({name[0] for name in ours.pool_names(step) if name[0] in owned})
        require(most <= of.copies, f"{most} records of a unit whose price is that of {of.copies}")


def _compare_forms(ours: World, theirs: World, of: Neighbors, owned: frozenset[str]) -> None:
    """Counts of forms differ by the vectors of the unit's records, each computed alone and of norm 1 at most."""
    step = ours.plan.forms
    if step is None or ours.forms is None or theirs.forms is None:
        return
    require(isinstance(cost(step, of), Gaussian), "counts of forms in which a record may not take part")
    require(ours.forms.contexts == theirs.forms.contexts, "forms are counted over another domain")
    moved: Counter[Cell] = Counter()
    for world, sign in ((ours, 1), (theirs, -1)):
        assert world.forms is not None
        for record in sorted({record for record, _ in world.names}):  # anyone may be the unit
            alone = _counted_alone(world, record)
            length = sum(value**2 for value in alone.values()) ** 0.5 / ONE
            require(length <= 1, f"2, 3: a record moves counts of forms by {length:.7g} C")
            moved.update({cell: sign * value for cell, value in alone.items() if record in owned})
    found = Counter(ours.forms.sums)
    found.subtract(theirs.forms.sums)
    same = all(found[cell] == moved[cell] for cell in found.keys() | moved.keys())
    require(same, "4: the unit adds other counts of forms than its own")


def _counted_alone(world: World, record: str) -> dict[Cell, int]:
    """The vector of a record: of all its rows, one after the other."""
    assert world.forms is not None
    secrets = []
    for row, (name, _) in enumerate(world.names):
        if name == record:
            tokens, _, starts, ends = world.store.full(row)
            texts = [world.tokenizer.decode(tokens[a:b].tolist()) for a, b in zip(starts, ends, strict=True)]
            spans = public_spans(world.store, row, world.tokenizer)
            secrets += [Secret(kind, context, text) for (kind, context), text in zip(spans, texts, strict=True)]
    return vector(secrets, world.forms.contexts)


# Steps.


def _compare_free(ours: World, theirs: World, step: Step, weights: str, chance: Random) -> None:
    """A step that costs the unit nothing is the same in every bit."""
    seed = chance.randrange(2**31)
    drawn = [_drawn(world, step, seed) for world in (ours, theirs)]
    one, other = (carry_out(w, step, batch, weights, seed) for w, batch in zip((ours, theirs), drawn, strict=True))
    require(same_sums(one, other), f"other sums in a free {step.name} step")
    require(same_left(one, other), f"another model after a free {step.name} step")
    same = repr((one.public_loss, one.tokens)) == repr((other.public_loss, other.tokens))
    require(same, f"other numbers of a free {step.name} step")


def _compare_priced(
    ours: World, theirs: World, step: Step, event: NoisyEvent, other: Other, weights: str, chance: Random
) -> None:
    """What is priced moves the sums by no more than that, and nothing else at all."""
    seed = chance.randrange(2**31)
    if isinstance(step.draw, UsersAndEntities):
        drawn = [_drawn(world, step, seed) for world in (ours, theirs)]
        one, two = (carry_out(w, step, batch, weights, seed) for w, batch in zip((ours, theirs), drawn, strict=True))
        _within(one, two, 1, event, len(drawn[0].rows))
        return
    owned = {unit for unit, names in _units(ours, step).items() if any(record in other.owned for record, _ in names)}
    taken = _taken(ours, step, owned, chance)
    drawn = [_batch(world, step, taken, seed) for world in (ours, theirs)]
    rows, copies = len(drawn[0].rows), len(taken & owned)
    full = [carry_out(w, step, batch, weights, seed) for w, batch in zip((ours, theirs), drawn, strict=True)]
    if isinstance(step.update, SplitBatch) and step.update.by == "segments":
        if any(len(ours.store.full(row)[0]) != len(theirs.store.full(row)[0]) for row in range(len(ours.names))):
            return  # equal in characters, not in tokens: no neighbors of the algorithm as printed
        _within(full[0], full[1], 2 * copies, event, rows)  # the batch is seen: the unit takes part in both worlds
        return
    empty = ours.owned_rows(other.owned)
    if isinstance(step.update, SplitBatch):
        null = carry_out(ours, step, drawn[0], weights, seed, null=empty)
    else:
        without = [_batch(world, step, taken - owned, seed) for world in (ours, theirs)]
        null, there = (
            carry_out(w, step, batch, weights, seed) for w, batch in zip((ours, theirs), without, strict=True)
        )
        require(same_sums(null, there), "1: sums of a draw without the unit differ")
        require(same_left(null, there), "6: a draw without the unit leaves other things behind")
        tossed = carry_out(ours, step, drawn[0], weights, seed, null=empty, wide=True)
        untossed = carry_out(ours, step, without[0], weights, seed, wide=True)
        _within(tossed, untossed, 0, event, rows, "5: the coin of a unit without content moves a sum")
    for transcript in full:
        _within(transcript, null, copies, event, rows)
    if weights in ("as they begin", "random") and isinstance(step.update, Noisy):
        batches = [_batch(ours, step, {unit}, seed) for unit in taken & owned]
        alone = [_alone(ours, step, step.update, batch, weights, seed) for batch in batches]
        _is_the_clipped_sum(full[0], null, alone, step.update.clip_norm)


def _drawn(world: World, step: Step, seed: int) -> DrawnUnits:
    """The first draw of a fresh sampler."""
    return next(sampler_for(step.draw, step.pool, world.pools).draw(np.random.default_rng(seed)))


def _units(world: World, step: Step) -> dict[Any, list[Name]]:
    """Whom a draw takes as one, with their rows in the pool: records, or users."""
    units: dict[Any, list[Name]] = {}
    for name in world.pool_names(step):
        user = int(world.store.users[world.rows[name]])
        units.setdefault(user if isinstance(step.draw, PoissonUsers) else name[0], []).append(name)
    return units


def _taken(world: World, step: Step, owned: set[Any], chance: Random) -> set[Any]:
    """Some units: of the owned ones at least one, where there are any."""
    taken = {unit for unit in _units(world, step) if chance.random() < 0.6}
    return taken | ({chance.choice(sorted(owned))} if owned else set())


def _batch(world: World, step: Step, taken: set[Any], seed: int) -> DrawnUnits:
    """The draw of these units, in the order of the pool; of a record any row, as likely as the others."""
    units = [(unit, names) for unit, names in _units(world, step).items() if unit in taken]
    if not isinstance(step.draw, PoissonUsers):
        units = [(unit, [Random(f"{seed} {unit}").choice(names)]) for unit, names in units]
    rows = [world.rows[name] for _, names in units for name in names]
    offsets = np.cumsum([0, *(len(names) for _, names in units)])
    return DrawnUnits(np.array(rows, dtype=np.int64), offsets.astype(np.int64))


def _within(
    one: Transcript,
    other: Transcript,
    copies: int,
    event: NoisyEvent,
    rows: int,
    what: str = "2, 3: the unit moves a sum",
) -> None:
    """The sums are no further apart than priced, and nothing else differs."""
    require(same_left(one, other), "6: the unit is told by something else than a noisy sum")
    found, priced = distance(one, other) * event.noise_multiplier, copies + ROUNDING * rows
    require(found <= priced, f"{what} by {found:.7g} C where {copies} C is priced, in a draw of {rows} rows")


def _is_the_clipped_sum(full: Transcript, null: Transcript, alone: Sequence[Sequence[Tensor]], norm: float) -> None:
    """Comparison 4: what the unit adds is its own clipped vectors, each computed alone, in float64."""
    squares = 0.0
    for place, (ours, theirs) in enumerate(zip(full.queries[0][0], null.queries[0][0], strict=True)):
        total = sum((vectors[place] for vectors in alone), torch.zeros_like(ours, dtype=torch.float64))
        squares += float((ours.double() - theirs.double() - total).square().sum())
    require(squares**0.5 <= 1e-2 * norm, f"4: the unit adds other vectors than its own, by {squares**0.5 / norm:.3g} C")


def _alone(world: World, step: Step, update: Noisy, batch: DrawnUnits, weights: str, seed: int) -> list[Tensor]:
    """The clipped vector of one unit in float64: of a record by plain autograd, of a user by training alone."""
    module = world.learner.module
    with while_in_float64(module):
        if isinstance(step.draw, PoissonUsers):
            return carry_out(world, step, batch, weights, seed).queries[0][0]
        force_past(world, weights, seed)
        world.nulls.rows = frozenset()
        module.eval()
        moving = [p for name, p in module.named_parameters() if name in world.updates.moving[step.trainable]]
        examples = world.reader.batch(batch.rows, step.view, step.targets)
        total = world.learner.token_losses(examples).total  # type: ignore[arg-type]
        found = torch.autograd.grad(total, moving, materialize_grads=True)
    module.train()
    squares = torch.stack([value.square().sum() for value in found])[:, None]
    factors, _ = safe_factors(_STYLES[update.style](update.clip_norm), squares)
    return [value * factor for value, factor in zip(found, factors[:, 0], strict=True)]


def _noise_covers_all(world: World, step: Step) -> None:
    """Comparison 7: with nobody drawn, every number that a private step moves is noise, and nothing else moves."""
    if isinstance(step.update, SplitBatch):
        return
    nobody = DrawnUnits(np.empty(0, np.int64), np.zeros(1, np.int64))
    found = carry_out(world, step, nobody, "as they begin", 3, noise=True)
    gradients, deviation = found.applied[-1]
    require(all(bool((value != 0).all()) for value in gradients.values()), "7: a number is released without noise")
    numbers = torch.cat([value.flatten() for value in gradients.values()])
    require(0.5 < float(numbers.square().mean().sqrt()) / deviation < 2, "7: noise of another deviation")
    force_past(world, "as they begin", 3)
    before = {name: value.detach() for name, value in world.learner.module.named_parameters()}
    moved = {name for name, value in before.items() if not bool((found.left[f"model.{name}"] == value).all())}
    require(moved <= gradients.keys(), "7: a step moves what it added no noise to")
    require(set(gradients) == set(world.updates.moving[step.trainable]), "7: other parameters than the step moves")
