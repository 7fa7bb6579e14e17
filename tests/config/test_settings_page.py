"""docs/reference/settings.md is what the schema declares; `python tests/config/test_settings_page.py` writes it."""

from dataclasses import MISSING
from pathlib import Path

from tacit.config.plan_schema import CorpusCounts
from tacit.config.schema import Config
from tacit.config.setting import Setting, every_setting

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
HEAD = """# Settings

Every setting by its full name. Give it in a YAML file, with `--set NAME=VALUE`, or in `settings=` of `tacit.train`.
A name may be shortened to any end that only one setting has: `held_out` is `data.held_out`. `tacit config` prints the
values of a run. *auto* is what is taken if you give nothing, or the word `auto`. The last column shows what of it is
released with a model: its value, the last part of a path, or nothing.

| setting | default | meaning | released |
|---|---|---|---|
"""
COUNTS = """
Public numbers of a corpus, which `tacit plan` takes as flags or under `counts:`. `tacit train` counts them itself.

| count | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = "".join(
        f"| `{one.name}`{_flag(one)} | {_default(one)} | {_text(one.help)} | {one.release} |\n"
        for one in every_setting(Config)
    )
    counts = "".join(f"| `{one.name}` | {_default(one)} | {_text(one.help)} |\n" for one in every_setting(CorpusCounts))
    return HEAD + rows + COUNTS + counts


def _flag(one: Setting) -> str:
    return f", `--{one.flag.replace('_', '-')}`" if one.flag else ""


def _default(one: Setting) -> str:
    if one.default is MISSING:
        return "required"
    if one.default is None:
        return "" if one.auto is None else f"*auto*: {one.auto}"
    return f"`{one.default}`"


def _text(words: str) -> str:
    return words.replace("|", "\\|")


def test_the_page_is_what_the_schema_declares() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
