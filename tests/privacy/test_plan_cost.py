"""`cost` against a table written by hand, and every mutation of its constants and operators against the same table."""

import ast
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import tacit.privacy.plan
from tacit.common.serialize import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError
from tacit.privacy.events import ExposedGaussian, Free, Gaussian, Relation, SampledGaussian, Unbounded
from tacit.privacy.plan import Phase, Plan

ZERO, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
REFUSED = "refused"
PRICING_FUNCTIONS = {"cost", "_why_free", "_hidden_sum", "_visible_sum", "_whole_pass", "_public_rate"}


def price_table(p: Any) -> list[tuple[Any, Any, Any]]:  # noqa: ANN401  (p is the plan module or a mutant of it)
    """(step, neighbors, expected event) rows, built with the classes of module `p`."""
    view, pool, unit = p.View, p.Pool, p.Unit
    plain, noisy = p.Plain(), p.Noisy(0.8, 1.0, 64.0)
    poisson, hidden_rate = p.PoissonRecords(0.02), p.PoissonRecords(0.02, rate_is_public=False)
    whole, batch = p.ShuffledPass(32), p.ShuffledBatch(32)
    users, pairs = p.PoissonUsers(0.1, 10), p.UsersAndEntities(0.05, 0.5, 1.0)
    by_segments = p.SplitBatch(0.9, 1.0, 7.0, "segments", 3)
    by_records = p.SplitBatch(0.9, 1.0, 7.0, "records")

    def step(v: Any, o: Any, d: Any, u: Any) -> Any:  # noqa: ANN401
        return p.Step("s", v, o, d, u, "private")

    def private_step(v: Any, o: Any, d: Any, u: Any) -> Any:  # noqa: ANN401
        return p.Step("s", v, o, d, u, "private", p.Targets.PRIVATE)

    def public_step(v: Any, o: Any, d: Any, u: Any) -> Any:  # noqa: ANN401
        return p.Step("s", v, o, d, u, "private", p.Targets.PUBLIC)

    def near(u: Any, relation: Relation = ZERO, copies: int = 1) -> Any:  # noqa: ANN401
        return p.Neighbors(u, relation, copies)

    full_every, full_secret = (view.FULL, pool.EVERY), (view.FULL, pool.WITH_SECRETS)
    joint_noise = 0.9 / 3**0.5
    return [
        # Plain steps: free exactly where nothing protected is read.
        (step(view.REDACTED, pool.EVERY, batch, plain), near(unit.SECRETS), Free),
        (step(view.REDACTED, pool.EVERY, batch, plain), near(unit.RECORD), Unbounded),
        (step(view.REDACTED, pool.EVERY, batch, plain), near(unit.USER), Unbounded),
        (step(view.REDACTED, pool.EVERY, batch, plain), near(unit.FLAGGED_RECORD), Unbounded),
        (step(view.REDACTED, pool.EVERY, batch, plain), near(unit.ENTITY), Unbounded),
        (step(view.INVENTED, pool.EVERY, batch, plain), near(unit.SECRETS), Free),
        (step(view.INVENTED, pool.EVERY, batch, plain), near(unit.RECORD), Unbounded),
        (step(view.INVENTED, pool.EVERY, batch, plain), near(unit.USER), Unbounded),
        (step(view.INVENTED, pool.EVERY, batch, plain), near(unit.FLAGGED_RECORD), Unbounded),
        (step(view.INVENTED, pool.EVERY, batch, plain), near(unit.ENTITY), Unbounded),
        (step(*full_every, batch, plain), near(unit.SECRETS), Unbounded),
        (step(*full_every, batch, plain), near(unit.RECORD), Unbounded),
        (step(view.FULL, pool.CLEARED, batch, plain), near(unit.FLAGGED_RECORD), Free),
        (step(view.FULL, pool.CLEARED, batch, plain), near(unit.RECORD), Unbounded),
        (step(view.FULL, pool.CLEARED, batch, plain), near(unit.SECRETS), Unbounded),
        (step(view.FULL, pool.FLAGGED, batch, plain), near(unit.FLAGGED_RECORD), Unbounded),
        (step(view.FULL, pool.NO_ENTITY, batch, plain), near(unit.ENTITY), Free),
        (step(view.FULL, pool.NO_ENTITY, batch, plain), near(unit.USER), Unbounded),
        (step(view.FULL, pool.NO_ENTITY, batch, plain), near(unit.USER_AND_ENTITY), Unbounded),
        (step(view.FULL, pool.CAPPED, batch, plain), near(unit.ENTITY), Unbounded),
        # Noisy steps on hidden Poisson draws of records.
        (step(*full_secret, poisson, noisy), near(unit.SECRETS), SampledGaussian(0.8, 0.02, 1, ZERO)),
        (step(*full_secret, poisson, noisy), near(unit.SECRETS, REPLACE), SampledGaussian(0.8, 0.02, 1, REPLACE)),
        (step(*full_secret, poisson, noisy), near(unit.SECRETS, copies=5), SampledGaussian(0.8, 0.02, 5, ZERO)),
        (step(view.REDACTED, pool.FLAGGED, poisson, noisy), near(unit.SECRETS), Free),
        (step(*full_every, poisson, noisy), near(unit.SECRETS), REFUSED),
        (public_step(*full_every, poisson, noisy), near(unit.SECRETS), REFUSED),
        (private_step(*full_every, poisson, noisy), near(unit.SECRETS), SampledGaussian(0.8, 0.02, 1, ZERO)),
        (step(*full_every, poisson, noisy), near(unit.RECORD), SampledGaussian(0.8, 0.02, 1, ZERO)),
        (step(*full_every, hidden_rate, noisy), near(unit.RECORD), REFUSED),
        # Owners of several records: only where the caps hold.
        (step(*full_every, poisson, noisy), near(unit.USER, copies=4), REFUSED),
        (step(*full_every, poisson, noisy), near(unit.ENTITY, copies=4), REFUSED),
        (step(*full_every, poisson, noisy), near(unit.USER_AND_ENTITY, copies=4), REFUSED),
        (step(view.FULL, pool.CAPPED, poisson, noisy), near(unit.USER, copies=4), SampledGaussian(0.8, 0.02, 4, ZERO)),
        (
            step(view.FULL, pool.CAPPED, poisson, noisy),
            near(unit.ENTITY, copies=3),
            SampledGaussian(0.8, 0.02, 3, ZERO),
        ),
        # Users drawn whole are one unit each, whatever they own.
        (step(*full_every, users, noisy), near(unit.USER, copies=9), SampledGaussian(0.8, 0.1, 1, ZERO)),
        (step(*full_every, users, noisy), near(unit.USER, REPLACE), SampledGaussian(0.8, 0.1, 1, REPLACE)),
        (step(*full_every, users, noisy), near(unit.RECORD), REFUSED),
        # UeDP as printed: the user or the entity, and twice the sensitivity.
        (step(*full_every, pairs, noisy), near(unit.USER_AND_ENTITY), Gaussian(0.4, 1, ZERO)),
        (step(*full_every, pairs, noisy), near(unit.USER_AND_ENTITY, REPLACE), REFUSED),
        (step(*full_every, pairs, noisy), near(unit.USER), REFUSED),
        # Shuffling amplifies nothing.
        (step(*full_every, whole, noisy), near(unit.RECORD), Gaussian(0.8, 1, ZERO)),
        (step(view.FULL, pool.CAPPED, whole, noisy), near(unit.USER, copies=6), Gaussian(0.8, 6, ZERO)),
        (step(*full_every, batch, noisy), near(unit.RECORD), REFUSED),
        # A batch of which a part is used exactly is in plain sight.
        (step(*full_every, poisson, by_segments), near(unit.SECRETS), ExposedGaussian(joint_noise, 0.02, ZERO)),
        (
            step(*full_every, poisson, by_segments),
            near(unit.SECRETS, REPLACE),
            ExposedGaussian(joint_noise, 0.02, REPLACE),
        ),
        (step(*full_every, hidden_rate, by_segments), near(unit.SECRETS), REFUSED),
        (step(*full_every, poisson, by_segments), near(unit.SECRETS, copies=2), REFUSED),
        (step(*full_every, poisson, by_segments), near(unit.RECORD), Unbounded),
        (step(*full_every, poisson, by_segments), near(unit.FLAGGED_RECORD), Unbounded),
        (step(*full_every, whole, by_records), near(unit.FLAGGED_RECORD), Gaussian(0.9, 1, ZERO)),
        (step(*full_every, whole, by_records), near(unit.SECRETS), Unbounded),
        (step(*full_every, users, by_records), near(unit.FLAGGED_RECORD), REFUSED),
    ]


def wrong_rows(module: Any) -> list[int]:  # noqa: ANN401
    """The rows of the table that `module` prices differently."""
    return [number for number, row in enumerate(price_table(module)) if not _agrees(module, *row)]


def _agrees(module: Any, step: Any, neighbors: Any, expected: Any) -> bool:  # noqa: ANN401
    try:
        event = module.cost(step, neighbors)
    except ClaimRefused:
        return bool(expected == REFUSED)
    if isinstance(expected, type):
        return isinstance(event, expected) and bool(getattr(event, "reason", ""))
    return type(event) is type(expected) and all(
        getattr(event, name) == pytest.approx(getattr(expected, name))
        if name in _NUMBERS
        else getattr(event, name) == getattr(expected, name)
        for name in type(expected).__slots__
    )


_NUMBERS = {"noise_multiplier", "sampling_rate"}


def test_every_price() -> None:
    assert wrong_rows(tacit.privacy.plan) == []


class _Mutate(ast.NodeTransformer):
    """Changes the `target`-th mutable spot of the pricing functions; counts the spots in `seen`."""

    def __init__(self, target: int) -> None:
        self.target, self.seen, self.inside = target, 0, False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name not in PRICING_FUNCTIONS:
            return node
        node.body = [self.visit(child) for child in node.body[1:]]  # without the docstring
        node.body = node.body or [ast.Pass()]
        return node

    def _hit(self) -> bool:
        self.seen += 1
        return self.seen - 1 == self.target

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, int | float) and self._hit():
            return ast.Constant(node.value + 1)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        swap = {ast.Sub: ast.Add, ast.Add: ast.Sub, ast.Mult: ast.Add, ast.Div: ast.Mult}
        if type(node.op) in swap and self._hit():
            node.op = swap[type(node.op)]()
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        swap = {
            ast.Eq: ast.NotEq,
            ast.NotEq: ast.Eq,
            ast.In: ast.NotIn,
            ast.Is: ast.IsNot,
            ast.IsNot: ast.Is,
            ast.Gt: ast.LtE,
        }
        if type(node.ops[0]) in swap and self._hit():
            node.ops = [swap[type(node.ops[0])]()]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._hit():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.Not) and self._hit() else node


def _mutant(number: int) -> tuple[types.ModuleType | None, int]:
    source = Path(tacit.privacy.plan.__file__).read_text(encoding="utf-8")
    mutation = _Mutate(number)
    tree = ast.fix_missing_locations(mutation.visit(ast.parse(source)))
    if mutation.seen <= number:
        return None, mutation.seen
    module = types.ModuleType(f"mutant_of_plan_{number}")
    sys.modules[module.__name__] = module
    exec(compile(tree, "mutant", "exec"), module.__dict__)
    return module, mutation.seen


def test_every_mutation_of_cost_is_caught() -> None:
    survivors = []
    number = 0
    while True:
        module, spots = _mutant(number)
        if module is None:
            break
        try:
            if not wrong_rows(module):
                survivors.append(number)
        except Exception:  # noqa: S110, BLE001, SIM105, RUF100  (a mutant that crashes is caught)
            pass
        del sys.modules[module.__name__]
        number += 1
    assert spots >= 25
    assert survivors == []


STEP = tacit.privacy.plan.Step(
    "private",
    tacit.privacy.plan.View.FULL,
    tacit.privacy.plan.Pool.EVERY,
    tacit.privacy.plan.PoissonRecords(0.1),
    tacit.privacy.plan.Plain(),
    "private",
)


def test_steps_run_in_the_order_of_phases_and_are_all_priced() -> None:
    other = tacit.privacy.plan.Step(
        "public",
        tacit.privacy.plan.View.REDACTED,
        tacit.privacy.plan.Pool.EVERY,
        tacit.privacy.plan.ShuffledBatch(8),
        tacit.privacy.plan.Plain(),
        "public",
    )
    plan = Plan((Phase(((other, 2), (STEP, 1)), rounds=3), Phase(((other, 1), (STEP, 0)))))
    assert [step.name for step in plan.steps()] == ["public", "public", "private"] * 3 + ["public"]
    assert plan.executions() == {other: 7, STEP: 3}
    spent = plan.spend(tacit.privacy.plan.Neighbors(tacit.privacy.plan.Unit.SECRETS))
    assert [(type(event), times) for event, times in spent] == [(Free, 7), (Unbounded, 3)]


def test_plans_are_json_both_ways() -> None:
    steps = [row[0] for row in price_table(tacit.privacy.plan)]
    plan = Plan(tuple(Phase(((step, number),), 2) for number, step in enumerate(steps)))
    assert from_json(Plan, to_json(plan)) == plan


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"phases": [{"turns": [], "rounds": "3"}]}', '{"phases": [], "extra": 1}', "\x00"]
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        from_json(Plan, text)
