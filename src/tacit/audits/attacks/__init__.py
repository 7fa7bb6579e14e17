"""The attacks of an audit, one file each; loaded when asked for, so that a name costs no import."""

from collections.abc import Iterable
from pkgutil import resolve_name

from tacit.audits.findings import Attack
from tacit.errors import ConfigError

ATTACKS = [
    "tacit.audits.attacks.exposure:EXPOSURE",
    "tacit.audits.attacks.paraphrases:PARAPHRASES",
    "tacit.audits.attacks.membership:MEMBERSHIP",
    "tacit.audits.attacks.secrets:SECRETS",
    "tacit.audits.attacks.inference:INFERENCE",
    "tacit.audits.attacks.extraction:EXTRACTION",
    "tacit.audits.attacks.sampling:SAMPLING",
    "tacit.audits.attacks.reconstruction:RECONSTRUCTION",
    "tacit.audits.attacks.epsilon:EPSILON",
    "tacit.audits.attacks.power:POWER",
    "tacit.papers.two_stage:TWO_STAGE",
]


def load_attacks(names: Iterable[str] | None = None) -> tuple[Attack, ...]:
    """Every attack, or those of these names, in this order."""
    known: dict[str, Attack] = {attack.name: attack for attack in map(resolve_name, ATTACKS)}
    chosen = set(known if names is None else names)
    for name in chosen - known.keys():
        raise ConfigError.unknown_name("attack", name, known)
    return tuple(attack for name, attack in known.items() if name in chosen)
