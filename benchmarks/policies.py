"""What policies find of the labeled set, in tables: recall by group, language and case, precision, stability of masks.

Only counts are printed, so that the held-out half stays unread. Presidio runs with the same spaCy pipeline as `names`.

    python benchmarks/policies.py [dev|held_out] [policy ...]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from labeled_pii import CASES, GROUPS, LANGUAGES, Half, examples
from measured_policies import ALL, Findings, measure, stability
from tacit.common.formatting import exact_interval
from tacit.policies.policy import Policy
from tacit.policies.registry import build_policy, parse_policy

DEFAULT = ("pii", "names,pii", "conservative", "presidio")


def main(half: Half, names: tuple[str, ...]) -> None:
    chosen = examples(half)
    policies = {name: _policy(name) for name in names}
    results = {name: measure(policy, chosen) for name, policy in policies.items()}
    print(f"{len(chosen)} texts of {half}; % found of secrets, with the exact 95 % interval\n")
    _table(("", "secrets", *names), [_row(name, results) for name in (ALL, *GROUPS, *LANGUAGES, "plain", *CASES)])
    print("\n% of marks that overlap a secret")
    _table(names, [[_share(one.right, one.marks) for one in results.values()]])
    print("\n% of marks whose replacement leaves the rest of the mask as it was, and is found again")
    counts = [stability(policy, chosen[::3]) for name, policy in policies.items() if name != "presidio"]
    rows = [
        [_share(one.spans - one.rest_changed, one.spans) for one in counts],
        [_share(one.found_again, one.spans) for one in counts],
    ]
    _table([name for name in names if name != "presidio"], rows)


def _policy(name: str) -> Policy:
    if name == "presidio":
        from tacit.policies.tagging import default_pipeline

        return build_policy({"presidio": {"pipeline": default_pipeline()}})
    return parse_policy(name)


def _row(name: str, results: dict[str, Findings]) -> list[str]:
    secrets = next(iter(results.values())).secrets[name]
    return [name, str(secrets), *(_share(one.found[name], secrets) for one in results.values())]


def _share(part: int, whole: int) -> str:
    low, high = exact_interval(part, whole)
    return f"{100 * part / max(1, whole):5.1f} ({100 * low:.0f}-{100 * high:.0f})"


def _table(head: list[str] | tuple[str, ...], rows: list[list[str]]) -> None:
    print(" | ".join(f"{cell:>14}" for cell in head))
    for row in rows:
        print(" | ".join(f"{cell:>14}" for cell in row))


if __name__ == "__main__":
    half = sys.argv[1] if len(sys.argv) > 1 else "dev"
    main("held_out" if half == "held_out" else "dev", tuple(sys.argv[2:]) or DEFAULT)
