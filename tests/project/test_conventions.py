"""Project files agree with each other: versions, dependencies, the navigation of the site, shell completion."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import tacit

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MACHINES_BUILD = {"torch"}
"""The floor that is tested is the oldest without CUDA, not the lowest (constraints-floors.txt)."""


def pinned(file: str) -> dict[str, Version]:
    lines = [line.split("==") for line in (ROOT / file).read_text().splitlines() if "==" in line]
    return {canonicalize_name(name): Version(version) for name, version in lines}


def requirements(*without: str) -> list[Requirement]:
    extras = [EXTRAS[name] for name in EXTRAS if name not in without]
    return [Requirement(one) for one in (*PROJECT["dependencies"], *(one for extra in extras for one in extra))]


def test_there_is_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == tacit.__version__
    assert citation["license"] == PROJECT["license"]


def test_every_lower_bound_is_a_floor_that_is_tested() -> None:
    floors = pinned("constraints-floors.txt")
    needed = requirements("dev", "docs")
    assert {canonicalize_name(one.name) for one in needed} == set(floors)
    for one in needed:
        floor = floors[canonicalize_name(one.name)]
        (lowest,) = (Version(bound.version) for bound in one.specifier if bound.operator == ">=")
        assert floor in one.specifier
        assert floor == lowest or one.name in MACHINES_BUILD, one.name


def test_what_is_locked_is_allowed() -> None:
    locked = pinned("requirements.lock")
    for one in requirements():
        assert locked[canonicalize_name(one.name)] in one.specifier, one.name


def test_every_page_is_in_the_navigation() -> None:
    def pages(entry: Any) -> list[str]:  # noqa: ANN401  (YAML)
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(listed) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))


def test_the_python_reference_has_every_public_name() -> None:
    shown = re.findall(r"^::: tacit\.(\w+)$", (ROOT / "docs/reference/python.md").read_text(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(set(tacit.__all__) - {"__version__"})


def test_a_shell_completes_verbs() -> None:
    program = "import sys; sys.argv[0] = 'tacit'; from tacit.cli.main import main; main()"
    asked = {"_TACIT_COMPLETE": "complete_bash", "COMP_WORDS": "tacit qui", "COMP_CWORD": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert answer.stdout.split() == ["quickstart"]
