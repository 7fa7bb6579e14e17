"""A guarantee on paper: Markdown for people, a record in the shape of the DP Deployments Registry for catalogues.

What has to be stated follows section 5.3 of "How to DP-fy ML" (Ponomareva et al. 2023) and NIST SP 800-226: setting and
trust, data accesses, what is released, unit and adjacency, accountant, assumptions, profile, what is not protected.
"""

import yaml

from tacit.common.formatting import rounded_up
from tacit.privacy.guarantee import Figure, Guarantee, Status

SETTING = "central: one trusted curator trains, and releases the model and all its checkpoints"
ACCESSES = "every training step, by its ledger entry; evaluation and tuning only as stated"
_MARK = {status: str(status) for status in Status} | {Status.ASSUMED: "assumed by the reader"}


def to_markdown(guarantee: Guarantee) -> str:
    """The certificate for people."""
    evidence = guarantee.evidence
    parts = [
        f"# Privacy guarantee: {guarantee.mechanism}",
        guarantee.sentence(),
        *_section("Figures", _figure_table(guarantee.figures)),
        *_section("Holds if", "\n".join(f"- {c.text} ({_MARK[c.status]})" for c in guarantee.holds_if)),
        *_section("Not protected", "\n".join(f"- {text}" for text in guarantee.not_protected)),
        *_section("Published formula", _published_lines(guarantee)),
        *_section(
            "Setting",
            f"- Trust: {SETTING}\n- Data accesses covered: {ACCESSES}\n- Tuning: {evidence.tuning}\n"
            f"- Policy: {evidence.policy_id or 'not stated'} ({evidence.policy_hash or 'no hash'})\n"
            f"- Made by tacit {guarantee.code_version}",
        ),
    ]
    return "\n\n".join(parts) + "\n"


def to_registry_yaml(guarantee: Guarantee, name: str, description: str) -> str:
    """The record for a registry of DP deployments."""
    record = {
        "name": name,
        "description": description,
        "data_product_type": "machine learning model (language model)",
        "dp_flavor": {
            "name": "approximate differential privacy" if guarantee.figures else "none",
            "unprotected_quantities": list(guarantee.not_protected),
        },
        "privacy_unit": [
            {"unit": str(figure.neighbors.unit), "details": str(figure.neighbors)} for figure in guarantee.figures
        ],
        "privacy_parameters": [_parameters(figure) for figure in guarantee.figures],
        "deployment_model": SETTING,
        "composition": guarantee.figures[0].accountant if guarantee.figures else "none",
        "hyperparameter_tuning": guarantee.evidence.tuning,
        "mechanisms": [guarantee.mechanism],
        "justification": {
            "statement": guarantee.sentence(),
            "holds_if": [{"condition": c.text, "status": str(c.status)} for c in guarantee.holds_if],
        },
        "software": f"tacit {guarantee.code_version}",
    }
    return yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=110)


def _parameters(figure: Figure) -> dict[str, float | str]:
    return {
        "unit": str(figure.neighbors),
        "epsilon": float(rounded_up(figure.epsilon, 6)),
        "delta": figure.delta,
        "mu_gdp": float(rounded_up(figure.mu, 6)),
    }


def _section(title: str, body: str) -> list[str]:
    return [f"## {title}", body] if body else []


def _figure_table(figures: tuple[Figure, ...]) -> str:
    if not figures:
        return ""
    head = "| neighbors | epsilon | delta | mu-GDP | accountant |\n|---|---|---|---|---|\n"
    return head + "\n".join(_figure_row(figure) for figure in figures)


def _figure_row(figure: Figure) -> str:
    numbers = (rounded_up(figure.epsilon, 4), rounded_up(figure.delta, 3), rounded_up(figure.mu, 4))
    return f"| {figure.neighbors} | {' | '.join(numbers)} | {figure.accountant} |"


def _published_lines(guarantee: Guarantee) -> str:
    published = guarantee.published
    if published is None:
        return ""
    reasons = "\n".join(f"- {reason}" for reason in published.reasons)
    number = f"{published.formula}: epsilon = {published.epsilon:.4g} at delta {published.delta:.3g}."
    return f"{number} Why it does not hold:\n\n{reasons}"
