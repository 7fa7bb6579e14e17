"""A model card in the form that Hugging Face shows: front matter for machines, then the claim for people."""

import math
import re

import yaml

from tacit.certificate import to_markdown
from tacit.report.facts import Tile, tiles
from tacit.report.runs import Finished
from tacit.report.words import name, text
from tacit.scan.excerpt import printable

MARK = "<!-- written by tacit report; without this line it is left alone -->"


def model_card(run: Finished) -> str:
    """The README.md of a released model."""
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(run), sort_keys=False, allow_unicode=True)}---",
        MARK,
        f"# {escaped(run.name)}",
        f"A language model trained with **{escaped(run.guarantee.mechanism)}** by tacit. "
        "[report.html](report.html) has the whole account; it opens from disk.",
        "## At a glance\n\n" + _table(tiles(run)),
        f"## Audit\n\n**{run.verdict_kind.capitalize()}.** {escaped(run.verdict_reason)}",
        _lowered(to_markdown(run.guarantee)),
        "## Out of scope\n\nThe claim is about what was trained on. It says nothing about what people type into the "
        "model, and nothing that stands under “Not protected” is hidden.",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(words: str) -> str:
    """Text that Markdown and HTML leave alone, on one line."""
    line = " ".join(text(words).split())
    return re.sub(r"([\\`*_{}\[\]()#+!|<>&~])", r"\\\1", line).replace("\\<", "&lt;").replace("\\&", "&amp;")


def _front_matter(run: Finished) -> dict[str, object]:
    classifies = run.released.classifies
    return {
        "library_name": "tacit",
        "pipeline_tag": "text-classification" if classifies else "text-generation",
        "tags": ["tacit", "privacy", *(["differential-privacy"] if run.guarantee.figures else [])],
        "model-index": [
            {
                "name": re.sub(r"[^\w .-]", "_", name(run.name)),
                "results": [
                    {
                        "task": {"type": "text-classification" if classifies else "text-generation"},
                        "dataset": {"type": "private", "name": "held-out part of the training corpus"},
                        "metrics": _metrics(run),
                    }
                ],
            }
        ],
    }


def _metrics(run: Finished) -> list[dict[str, object]]:
    """As released, with their noise."""
    released = run.released
    if released.classifies:
        return [{"type": "error_rate", "value": round(released.error_rate.value, 6)}]
    found = {"perplexity": released.perplexity.value, "accuracy": released.accuracy.value}
    return [{"type": word, "value": float(f"{value:.6g}")} for word, value in found.items() if math.isfinite(value)]


def _table(entries: list[Tile]) -> str:
    rows = [f"| {escaped(one.name)} | {escaped(one.value)} | {escaped(one.detail)} |" for one in entries]
    return "\n".join(["| | | |", "|---|---|---|", *rows])


def _lowered(markdown: str) -> str:
    """Headings one level down, and no HTML in what a file said."""
    safe = printable(markdown).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"^(#+) ", r"#\1 ", safe.strip(), flags=re.MULTILINE)
