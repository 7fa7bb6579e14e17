"""The attacks of an audit, one file each; loaded when asked for, so that a name costs no import."""

from pkgutil import resolve_name

from tacit.audits.findings import Attack

ATTACKS = [
    "tacit.audits.attacks.exposure:EXPOSURE",
    "tacit.audits.attacks.membership:MEMBERSHIP",
    "tacit.audits.attacks.extraction:EXTRACTION",
    "tacit.audits.attacks.epsilon:EPSILON",
    "tacit.papers.two_stage:TWO_STAGE",
]


def load_attacks() -> tuple[Attack, ...]:
    """Every attack, in this order."""
    return tuple(resolve_name(place) for place in ATTACKS)
