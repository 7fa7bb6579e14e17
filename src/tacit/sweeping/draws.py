"""What a recipe draws: pictures over its runs, by the names of columns and settings.

    draws:
      - title: Privacy against utility
        x: epsilon                          # a column, or a setting such as plan.epsilon
        y: perplexity                       # a column or several
      - title: Exposure on the way
        points: checkpoints                 # a point a kept model, not a run: keep_every, audit: {checkpoints: true}
        x: perplexity
        y: [exposure, "exposure, not planted"]
        runs: [plain, selective-epsilon-2]  # names under `runs`, or with their values of a grid; by default all
        series: [run, plan.clip_norm]       # what has a line of its own; by default the run; [] is each column
        log: {x: true}                      # by default chosen by how far the values spread
        note: Chance is about 1 bit.

Seeds are averaged. What the recipe's paper prints of both axes is drawn beside it; its epsilon is the one it prints.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tacit.codec import from_words
from tacit.errors import ConfigError
from tacit.sweeping.columns import CHECKPOINT, DRAWN

RUN = "run"
PRICES = {"epsilon", "printed epsilon"}
_MOST = 30


class Draw(BaseModel):
    """One picture."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, description="What stands above the picture.")
    x: str = Field(description="A column or a setting.")
    y: list[str] = Field(min_length=1, description="A column or several.")
    points: Literal["runs", "checkpoints"] = Field("runs", description="What a point is: runs or checkpoints.")
    series: list[str] = Field([RUN], description="What has a line of its own: run, and settings; [] is each column.")
    runs: list[str] = Field([], description="Only these: names under `runs`, or with their values of a grid.")
    log: dict[Literal["x", "y"], bool] = Field({}, description="Which axes are logarithmic: {x: true, y: false}.")
    note: str = Field("", description="A sentence below the picture.")

    @property
    def columns(self) -> Mapping[str, Any]:
        """What may stand on its axes."""
        return CHECKPOINT if self.points == "checkpoints" else DRAWN


def draws_of(given: object) -> list[Draw]:
    """`draws:` of a recipe; y, series and runs may be one word each."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ConfigError(
            "draws: a list of pictures", type(given).__name__, "- {title: ..., x: epsilon, y: perplexity}"
        )
    if len(given) > _MOST:
        raise ConfigError(f"at most {_MOST} pictures under `draws`", str(len(given)), "draw fewer")
    return [from_words(Draw, {word: _several(word, value) for word, value in one.items()}) for one in given]


def _several(word: str, value: object) -> object:
    return [value] if word in ("y", "series", "runs") and isinstance(value, str) else value


def is_number(value: object) -> bool:
    """Whether it can stand on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_draws(
    draws: list[Draw],
    settings: Mapping[str, Collection[object]],
    names: Collection[str],
    kept: bool,
    attacked: bool,
) -> None:
    """Refuse what no run has. settings: dotted words of the runs but the seed, which is averaged, and their values;
    names: of runs; kept: whether some run keeps models; attacked: whether audits attack them.
    """
    for draw in draws:
        where = f"in the picture {draw.title!r}"
        for noun, word, known in _words(draw, settings, names):
            if word not in known:
                raise ConfigError.unknown_name(f"{noun}, {where}", word, known)
        if draw.points == "checkpoints" and not (kept and attacked):
            raise ConfigError(
                expected=f"models on the way, {where}",
                found="no keep_every in the settings" if not kept else "audits that leave them alone",
                way_out="settings: {keep_every: 100}, and audit: {checkpoints: true}",
            )
        if "x" in draw.log and _has_its_own_axis(draw, settings):
            raise ConfigError(
                f"no log.x, {where}", str(draw.log["x"]), f"leave it out: {draw.x} has an axis of its own"
            )


def _has_its_own_axis(draw: Draw, settings: Mapping[str, Collection[object]]) -> bool:
    """Claims have one, and so have words."""
    if draw.x in draw.columns:
        return draw.x in PRICES
    return not all(is_number(value) for value in settings[draw.x])


def _words(draw: Draw, settings: Collection[str], names: Collection[str]) -> Iterator[tuple[str, str, Collection[str]]]:
    yield "column or setting", draw.x, {*draw.columns, *settings}
    for word in draw.y:
        yield "column", word, draw.columns
    for word in draw.series:
        yield "setting", word, {RUN, *settings}
    for word in draw.runs:
        yield RUN, word, names
