"""Who may import whom, kept as a list; and that the README tells the truth about the files."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import settings

import tacit

PACKAGE = Path(tacit.__file__).parent
ROOT = PACKAGE.parent.parent

THEORY = {
    "events",
    "accounting",
    "ledger",
    "plan",
    "confidentiality",
    "guarantee",
    "certificate",
    "mechanisms",
    "planning",
    "terms",
    "agreement",
}
BASE = {"errors", "codec", "digests", "documents", "given", "intervals", "pretrained", "private_files"}
BASE |= {"rounding", "silence"}

ENGINE = {"gradients", "local", "models", "optimisers", "plan", "printed", "randomness", "reading", "sampling"}

DATA = {"corpus", "policy", "prepare", "tokenizer"}

ALLOWED: dict[str, set[str]] = {
    "": {"errors"},
    "errors": set(),
    "codec": {"errors"},
    "documents": {"errors", "given"},
    "given": set(),
    "pretrained": {"documents", "errors", "given", "silence"},
    "digests": {"given"},
    "intervals": {"errors"},
    "private_files": {"errors"},
    "rounding": set(),
    "silence": {"errors"},
    "utility": {"errors", "codec", "intervals", "rounding"},
    "noisy_utility": BASE | {"accounting", "events", "guarantee"},
    "outside": BASE | {"audit", "events", "guarantee", "noisy_utility", "policy", "run", "terms"},
    "vocabulary": {"plan"},
    # theory: never torch, never a data module
    "events": {"errors"},
    "accounting": {"errors", "events"},
    "ledger": {"documents", "errors", "events", "given"},
    "plan": {"errors", "events"},
    "confidentiality": {"errors"},
    "guarantee": BASE | {"accounting", "events", "plan"},
    "certificate": {"guarantee", "rounding"},
    "mechanisms": BASE | {"accounting", "confidentiality", "events", "guarantee", "plan", "vocabulary"},
    "terms": {"events", "guarantee", "mechanisms", "noisy_utility", "plan"},
    "agreement": {"accounting", "codec", "guarantee", "mechanisms", "rounding"},
    "planning": BASE | {"vocabulary", "accounting", "guarantee", "mechanisms", "plan"},
    # data: never torch, never theory
    "corpus": BASE,
    "policy": BASE | {"context", "corpus"},
    "tokenizer": BASE,
    "prepare": BASE | {"corpus", "policy", "tokenizer"},
    "scan": BASE | {"corpus", "policy"},
    "report": BASE
    | {"accounting", "audit", "certificate", "confidentiality", "corpus", "events", "guarantee", "ledger", "plan"}
    | {"noisy_utility", "policy", "run", "scan", "terms", "utility", "verifying"},
    "verifying": {"agreement", "errors", "events", "guarantee", "ledger", "run", "terms"},
    # torch begins here
    "models": BASE | {"native"},
    "gradients": BASE | {"models", "native"},
    "randomness": BASE,
    "sampling": BASE | {"plan", "prepare", "randomness"},
    "run": BASE | {"events", "guarantee", "ledger", "plan", "randomness", "sampling"},
    "optimisers": BASE,
    "inventions": BASE | {"policy", "prepare", "tokenizer"},
    "reading": BASE | {"inventions", "models", "plan", "prepare"},
    "evaluate": BASE | {"models", "noisy_utility", "plan", "prepare", "reading", "utility"},
    "labelling": BASE | {"corpus", "guarantee", "policy"},
    "annotating": BASE | {"corpus", "policy", "prepare", "sampling"},
    "counting": {"mechanisms", "plan", "sampling"},
    "native": BASE,
    "local": BASE | {"gradients", "models"},
    "printed": BASE | {"gradients", "models", "plan"},
    "classify": BASE | {"inventions", "models", "noisy_utility", "plan", "prepare", "reading", "utility"},
    "choosing": BASE | {"mechanisms", "plan", "run"},
    "updates": BASE | ENGINE,
    "train": BASE | ENGINE | {"choosing", "progress", "run", "updates"},
    "settings": BASE
    | {"corpus", "local", "models", "optimisers", "plan", "prepare", "randomness", "run", "vocabulary"},
    "covered": BASE | {"mechanisms", "models", "settings", "vocabulary"},
    "progress": set(),
    "apart": BASE | {"corpus", "settings"},
    "identity": BASE | {"corpus", "policy", "run", "settings", "tokenizer", "vocabulary"},
    "planting": BASE | {"corpus", "prepare", "run"},
    "loading": BASE | {"models", "run", "tokenizer", "verifying"},
    "stores": {"digests", "errors", "prepare", "run"},
    "tensorboard": BASE | {"progress", "run"},
    "parts": BASE
    | DATA
    | {"annotating", "classify", "inventions", "models", "planting", "printed", "progress", "randomness", "reading"}
    | {"run", "scan", "settings", "train", "updates"},
    "experiment": BASE
    | DATA
    | {"accounting", "annotating", "choosing", "classify", "counting", "evaluate", "guarantee", "labelling"}
    | {"mechanisms", "models", "parts", "plan", "planning", "progress", "randomness", "reading", "run", "sampling"}
    | {
        "apart",
        "covered",
        "identity",
        "noisy_utility",
        "outside",
        "settings",
        "stores",
        "tensorboard",
        "terms",
        "train",
    }
    | {"utility", "verifying"},
    # after training: never the trainer
    "attacks": BASE | {"audit", "corpus", "models", "policy", "prepare", "tokenizer"},
    "audit": BASE | {"accounting", "events", "guarantee", "plan"},
    "auditing": BASE
    | {"attacks", "audit", "evaluate", "guarantee", "loading", "models", "plan", "planting", "prepare", "progress"}
    | {"outside", "reading", "run", "settings", "stores", "tokenizer", "verifying"},
    # people
    "quickstart": BASE
    | {"audit", "auditing", "corpus", "experiment", "policy", "progress", "report", "scan", "settings"},
    "context": BASE | {"loading", "models", "run", "tokenizer"},
    "detecting": BASE | {"corpus", "models", "policy", "progress"},
    "sweeping": BASE
    | {"audit", "auditing", "corpus", "experiment", "guarantee", "ledger", "policy", "prepare", "progress", "report"}
    | {"run", "settings", "tokenizer", "utility"},
    "verbs": BASE
    | {"audit", "auditing", "corpus", "experiment", "labelling", "loading", "planning", "policy", "progress"}
    | {"context", "detecting", "quickstart", "report", "scan", "settings", "sweeping", "verifying"},
    "cli": BASE
    | {"vocabulary"}
    | THEORY
    | {"corpus", "policy", "prepare", "tokenizer", "scan", "report", "verbs", "experiment"}
    | {"attacks", "audit", "auditing", "classify", "evaluate", "labelling", "loading", "models", "planting"}
    | {
        "context",
        "detecting",
        "progress",
        "quickstart",
        "run",
        "settings",
        "sweeping",
        "train",
        "utility",
        "verifying",
    },
}
THEORY_LIBRARIES = {"numpy", "scipy", "dp_accounting", "pydantic", "yaml"}
HEAVY = {"torch", "transformers", "peft", "safetensors"}
TORCH_BEGINS = {"models", "gradients", "native", "run", "optimisers", "reading", "evaluate", "local", "printed"} | {
    *("annotating", "classify", "choosing", "updates", "settings", "train", "tensorboard", "parts", "experiment"),
    *("attacks", "auditing", "context", "detecting", "loading", "planting", "quickstart"),
}
LATE = {
    "pretrained.py",
    "silence.py",
    "policy/detector/encoder.py",
    "policy/entities/token_classifier.py",
}  # when first asked


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(module: Path) -> str:
    """The top-level name under `tacit` that a file belongs to."""
    first = module.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(module: Path) -> set[str]:
    """Full dotted names of everything the file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(PACKAGE)))
def test_imports_keep_to_the_list(module: Path) -> None:
    part = part_of(module)
    assert part in ALLOWED, f"give {part} a row in ALLOWED"
    ours = {name.split(".")[1] for name in imports_of(module) if name.startswith("tacit.")}
    assert ours - {part} <= ALLOWED[part]


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.relative_to(PACKAGE)))
def test_libraries_keep_to_the_list(module: Path) -> None:
    libraries = {name.split(".")[0] for name in imports_of(module)}
    if str(module.relative_to(PACKAGE)) in LATE:
        text = module.read_text(encoding="utf-8")
        assert not re.search(r"^(import|from) (torch|transformers)", text, flags=re.MULTILINE)
    elif part_of(module) not in TORCH_BEGINS | {"cli"}:
        assert not libraries & HEAVY
    if part_of(module) in THEORY:
        import sys

        assert libraries - set(sys.stdlib_module_names) - {"tacit"} <= THEORY_LIBRARIES


def test_every_error_is_in_the_tree() -> None:
    text = (PACKAGE / "errors.py").read_text(encoding="utf-8")
    drawn = set(re.findall(r"[├└]── (\w+)", text))
    assert drawn == set(re.findall(r"^class (\w+)\(TacitError\)", text, flags=re.MULTILINE))
    elsewhere = [module for module in modules() if module.name != "errors.py" and "(TacitError)" in module.read_text()]
    assert elsewhere == []


def test_modules_fit_in_a_sitting() -> None:
    long = {
        str(module.relative_to(PACKAGE)): n for module in modules() if (n := len(module.read_text().splitlines())) > 400
    }
    assert long == {}


def test_readme_tree_lists_every_module_with_a_line() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme.split("<!-- tree -->")[1]
    listed = set(re.findall(r"^\s*([\w./]+\.py)\s+\S", tree, flags=re.MULTILINE))
    real = {str(module.relative_to(PACKAGE)) for module in modules() if module.name != "__init__.py"}
    assert listed == real


def test_exports_are_what_init_says() -> None:
    assert sorted(tacit.__all__) == list(tacit.__all__)
    for name in tacit.__all__:
        assert hasattr(tacit, name), name
    public = {name for name in vars(tacit) if not name.startswith("_")}
    submodules = {part_of(module) for module in modules()}
    assert public - submodules <= set(tacit.__all__)


def test_nothing_names_this_machine_or_where_packages_come_from() -> None:
    for name in ("requirements.lock", "pyproject.toml", "Makefile"):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8"), name
    here = (str(ROOT), str(Path.home()))
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        text = file.read_text(encoding="utf-8")
        assert not any(place in text for place in here if len(place) > 4), file


def test_hypothesis_repeats_itself_unless_asked_to_explore() -> None:
    """Catches a `make test` that fails by luck, and a `make test-all` whose failures cannot be repeated."""
    assert settings.get_profile("fixed").derandomize
    assert not settings.get_profile("explore").derandomize
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest-all:")
    assert "explore" not in recipes[0]
    assert "SEED=$$seed" in recipes[2]
    assert "--hypothesis-profile=explore --hypothesis-seed=$$seed" in recipes[2]
