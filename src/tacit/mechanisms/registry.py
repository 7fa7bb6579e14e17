"""Mechanisms: one file each, one row each in the registry; and the names that papers give to some of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.common.serialize import from_json, to_json
from tacit.config.schema import BASELINES, Vocabulary
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.cadp import CADP
from tacit.mechanisms.crt import CRT
from tacit.mechanisms.custom import Own
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.mechanism import Mechanism, PrivateSteps
from tacit.mechanisms.plain import PlainTraining
from tacit.mechanisms.redaction import Redaction
from tacit.mechanisms.selective import Selective
from tacit.mechanisms.settings import CorpusCounts, PlanSettings
from tacit.mechanisms.uedp import UeDP
from tacit.mechanisms.user import UserLevel
from tacit.papers.mechanisms import CADPPublished, SelectivePublished, UeDPPublished
from tacit.privacy.plan import Plan, Targets, Unit


@dataclass(frozen=True, slots=True)
class MechanismEntry:
    """A mechanism in one line, how it is made from words, and of which class it is."""

    summary: str
    build: Callable[[PlanSettings], Mechanism]
    kind: type[Mechanism]


def _selective(words: PlanSettings, public_first: bool) -> Mechanism:
    records = words.need("records")
    with_secrets = words.take("secret_records", records)
    if with_secrets > records:
        raise ConfigError("at most as many secret_records as records", f"{with_secrets} of {records}", "correct one")
    private = words.private(with_secrets)
    return Selective(words.without_secrets(records), private, words.take("targets", Targets.PRIVATE), public_first)


def _routed(words: PlanSettings) -> tuple[int, int]:
    records, flagged = words.need("records"), words.need("flagged")
    if flagged >= records:
        raise ConfigError("fewer flagged records than records", f"{flagged} of {records}", "use dpsgd: all is flagged")
    return flagged, records - flagged


def _cadp(words: PlanSettings) -> Mechanism:
    flagged, cleared = _routed(words)
    return CADP(words.public(cleared), words.private(flagged))


def _crt(words: PlanSettings) -> Mechanism:
    flagged, cleared = _routed(words)
    private = words.private(flagged)
    epochs = max(1, round(private.steps * private.sampling_rate))
    return CRT(words.public(cleared), private, epochs)


def _user(words: PlanSettings) -> Mechanism:
    cap = words.take("user_cap")
    if cap is not None:
        return UserLevel(words.private(words.need("records")), records_per_user=cap)
    private = words.private(words.need("users"))
    return UserLevel(private, words.take("weight_cap", 1), words.take("local_epochs", 1))


def _uedp(words: PlanSettings) -> Mechanism:
    """Plain steps on sentences without entities only where they are asked for: they leave users without a claim."""
    private = words.private(words.need("records"))
    rest = words.public(words.need("other_records")) if words.given("public_epochs") else None
    return UeDP(private, words.need("user_cap"), words.need("entity_cap"), rest)


def _cadp_published(words: PlanSettings) -> Mechanism:
    """Its steps are whole passes: T of the paper is the number of epochs."""
    return CADPPublished(words.passes(words.need("flagged")), words.need("recall"))


def _uedp_published(words: PlanSettings) -> Mechanism:
    private = words.private(words.need("users"))
    return UeDPPublished(
        private, words.need("entity_rate"), words.need("sensitive_share"), words.take("other_rate", 1.0)
    )


def _selective_published(words: PlanSettings) -> Mechanism:
    segments, states = words.take("segments_per_record", 1), words.take("noised_states", 2)
    private = words.private(words.need("records"), as_printed=True)
    events = words.need("events_per_batch")
    return SelectivePublished(private, events, segments, states)


REGISTRY: dict[str, MechanismEntry] = {
    "plain": MechanismEntry(
        "ordinary training: no guarantee (noiseless)",
        lambda w: PlainTraining(w.public(w.need("records"))),
        PlainTraining,
    ),
    "redaction": MechanismEntry(
        "marked spans removed, then ordinary training (de-identification, anonymisation)",
        lambda w: Redaction(w.without_secrets(w.need("records"))),
        Redaction,
    ),
    "dpsgd": MechanismEntry(
        "noise on everything: hides whether a record was used", lambda w: DPSGD(w.private(w.need("records"))), DPSGD
    ),
    "selective": MechanismEntry(
        "public text exactly, secrets with noise: hides what they say", lambda w: _selective(w, False), Selective
    ),
    "twice": MechanismEntry("as selective, all public steps first", lambda w: _selective(w, True), Selective),
    "cadp": MechanismEntry("records a detector flagged with noise, the others plainly", _cadp, CADP),
    "crt": MechanismEntry("redacted and de-duplicated; noise on all that may hold a missed secret", _crt, CRT),
    "user": MechanismEntry(
        "hides whether a user took part: DP-FedAvg, or records capped a user (user-level)", _user, UserLevel
    ),
    "uedp": MechanismEntry("hides a user and a listed entity: sentences capped for both", _uedp, UeDP),
    "selective-published": MechanismEntry(
        "Selective-DPSGD as printed, with the number that holds", _selective_published, SelectivePublished
    ),
    "cadp-published": MechanismEntry("CADP-LM as printed, with the number that holds", _cadp_published, CADPPublished),
    "uedp-published": MechanismEntry("UeDP-Alg as printed, with the number that holds", _uedp_published, UeDPPublished),
}

_OWN: dict[str, MechanismEntry] = {}


def register_mechanism(name: str, summary: str, build: Callable[[PlanSettings], Own]) -> None:
    """From now on, in this process, `mechanism: name` asks for a mechanism of one's own (`tacit.mechanisms.custom`)."""
    if name in {*REGISTRY, *BASELINES}:
        raise ConfigError("a name for an own mechanism that is not taken", name, "choose another name")
    _OWN[name] = MechanismEntry(summary, build, Own)


def build_mechanism(vocabulary: Vocabulary, measured: CorpusCounts | None = None) -> Mechanism:
    """The mechanism that the words ask for, before any calibration; counts that nobody gave are `measured`."""
    name = BASELINES.get(vocabulary.mechanism, vocabulary.mechanism)
    row = REGISTRY.get(name) or _OWN.get(name)
    if row is None:
        raise ConfigError.unknown_name("mechanism", vocabulary.mechanism, {*REGISTRY, *_OWN, *BASELINES})
    words = PlanSettings(vocabulary, measured or {})
    mechanism = row.build(words)
    if name in _OWN:
        _check_own(mechanism, name, words)
    words.finish()
    return mechanism


def _check_own(mechanism: Mechanism, name: str, words: PlanSettings) -> None:
    """Refuse what could claim more than its ledger: other classes, borrowed names, a number of units of its own."""
    if type(mechanism) is not Own or mechanism.name != name:
        found = f"a {type(mechanism).__name__} called {mechanism.name!r}"
        raise ClaimRefused(f"an Own called {name!r}", found, "return tacit.mechanisms.custom.Own from the builder")
    count = words.count({Unit.SECRETS: "secret_records", Unit.FLAGGED_RECORD: "flagged"}.get(mechanism.unit, "records"))
    if mechanism.private.population != count:
        raise ClaimRefused(
            expected=f"private steps over the {count} units of the corpus",
            found=f"{mechanism.private.population}",
            way_out="words.private(words.take('secret_records', records)), or the count of the unit that is protected",
        )


@dataclass(frozen=True, slots=True)
class Described:
    """A mechanism with all its numbers, as a file has it."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _OwnSettings:
    private: PrivateSteps
    unit: Unit


def describe(mechanism: Mechanism) -> Described:
    """What `rebuild` needs. Of one's own mechanism, its list of steps is the plan itself."""
    settings = _OwnSettings(mechanism.private, mechanism.unit) if isinstance(mechanism, Own) else mechanism
    return Described(mechanism.name, json.loads(to_json(settings)))


def rebuild(described: Described, plan: Plan) -> Mechanism:
    """The mechanism that was described; refused when it would not execute `plan`, or goes by another's name."""
    row, settings = REGISTRY.get(described.name), json.dumps(described.settings)
    if row is None:
        own = from_json(_OwnSettings, settings)
        mechanism: Mechanism = Own(described.name, own.private, lambda _: plan, own.unit)
    else:
        mechanism = from_json(row.kind, settings)
    if mechanism.name != described.name or mechanism.plan() != plan:
        found = f"the plan or the name of another than {described.name} with these settings"
        raise ClaimRefused("a mechanism and the plan that follows from it", found, "use a file that tacit wrote")
    return mechanism
