"""Two attacks that nothing in the product has heard of: one on canaries, one that does not say what it is about."""

from tacit.audits.findings import About, Attack, Column, Compared, Finding, Highlight
from tacit.audits.target import Target
from tacit.common.charts import Axis, ChartRow, Dot, Point, RowChart, ScatterChart, Series, Table
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig

RATE = 0.625
_TABLE = Table(("toy", "rate"), (("wooden", "62.5"),), title="what the toy saw")


def _of_canaries(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    observe(Progress("toy", 1, 1))
    axis = Axis("Toy rate", 0.0, 1.0)
    series = (Series("toy", (Point(0.0, 0.0), Point(1.0, RATE, "a toy point")), 0, "toy"),)
    compared = Compared(
        "Toy", "62.5 toys", "how many toys", "toy", "Toys against utility", "Toy rate", RATE, chance=0.5
    )
    return Finding(
        "toy",
        About.CANARIES,
        sentence="The toy attack plays with canaries.",
        inside="The toy box stays inside.",
        tables=(_TABLE,),
        charts=(
            RowChart("toy-rows", "Toys in a row", "One toy.", axis, (ChartRow("toy", (Dot(RATE, 1),)),), _TABLE),
            ScatterChart("toy-points", "Toys on a floor", "Two toys.", axis, axis, series, _TABLE),
        ),
        highlights=(Highlight("Toys", "62.5 toys", "per box", compared),),
        figures={"toy rate": RATE},
    )


def _of_records(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    return Finding("quiet toy", tables=(Table(("quiet", "toys"), (("few", "3"),), title="what nobody may know"),))


def _at_checkpoint(target: Target, config: AuditConfig) -> dict[str, float]:
    return {"toy rate": RATE / 2}


TOY = Attack(
    "toy",
    _of_canaries,
    (Column("toy rate", "Toy rate, in toys", "how many toys", chance=0.5, at_checkpoints=True),),
    _at_checkpoint,
)
QUIET_TOY = Attack("quiet toy", _of_records)
