"""Mechanisms: one file each, one row each in the registry; and the names that papers give to some of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.codec import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.base import Mechanism, PrivateSteps
from tacit.mechanisms.cadp import CADP
from tacit.mechanisms.cadp_published import CADPPublished
from tacit.mechanisms.crt import CRT
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.own import Own
from tacit.mechanisms.plain import PlainTraining
from tacit.mechanisms.redaction import Redaction
from tacit.mechanisms.selective import Selective
from tacit.mechanisms.selective_published import SelectivePublished
from tacit.mechanisms.uedp import UeDP
from tacit.mechanisms.uedp_published import UeDPPublished
from tacit.mechanisms.user import UserLevel
from tacit.mechanisms.words import Measured, Words
from tacit.plan import Plan, Targets, Unit
from tacit.vocabulary import BASELINES, Vocabulary


@dataclass(frozen=True, slots=True)
class Row:
    """A mechanism in one line, how it is made from words, and of which class it is."""

    summary: str
    build: Callable[[Words], Mechanism]
    kind: type[Mechanism]


def _selective(words: Words, public_first: bool) -> Mechanism:
    records = words.need("records")
    with_secrets = words.take("secret_records", records)
    if with_secrets > records:
        raise ConfigError("at most as many secret_records as records", f"{with_secrets} of {records}", "correct one")
    private = words.private(with_secrets)
    return Selective(words.without_secrets(records), private, words.take("targets", Targets.PRIVATE), public_first)


def _routed(words: Words) -> tuple[int, int]:
    records, flagged = words.need("records"), words.need("flagged")
    if flagged >= records:
        raise ConfigError("fewer flagged records than records", f"{flagged} of {records}", "use dpsgd: all is flagged")
    return flagged, records - flagged


def _cadp(words: Words) -> Mechanism:
    flagged, cleared = _routed(words)
    return CADP(words.public(cleared), words.private(flagged))


def _crt(words: Words) -> Mechanism:
    flagged, cleared = _routed(words)
    private = words.private(flagged)
    epochs = max(1, round(private.steps * private.sampling_rate))
    return CRT(words.public(cleared), private, epochs)


def _user(words: Words) -> Mechanism:
    cap = words.take("user_cap")
    if cap is not None:
        return UserLevel(words.private(words.need("records")), records_per_user=cap)
    private = words.private(words.need("users"))
    return UserLevel(private, words.take("weight_cap", 1), words.take("local_epochs", 1))


def _uedp(words: Words) -> Mechanism:
    """Plain steps on sentences without entities only where they are asked for: they leave users without a claim."""
    private = words.private(words.need("records"))
    rest = words.public(words.need("other_records")) if words.given("public_epochs") else None
    return UeDP(private, words.need("user_cap"), words.need("entity_cap"), rest)


def _cadp_published(words: Words) -> Mechanism:
    """Its steps are whole passes: T of the paper is the number of epochs."""
    return CADPPublished(words.passes(words.need("flagged")), words.need("recall"))


def _uedp_published(words: Words) -> Mechanism:
    private = words.private(words.need("users"))
    return UeDPPublished(
        private, words.need("entity_rate"), words.need("sensitive_share"), words.take("other_rate", 1.0)
    )


def _selective_published(words: Words) -> Mechanism:
    segments, states = words.take("segments_per_record", 1), words.take("noised_states", 2)
    private = words.private(words.need("records"), as_printed=True)
    events = words.need("events_per_batch")
    return SelectivePublished(private, events, segments, states)


REGISTRY: dict[str, Row] = {
    "plain": Row(
        "ordinary training: no guarantee (noiseless)",
        lambda w: PlainTraining(w.public(w.need("records"))),
        PlainTraining,
    ),
    "redaction": Row(
        "marked spans removed, then ordinary training (de-identification, anonymisation)",
        lambda w: Redaction(w.without_secrets(w.need("records"))),
        Redaction,
    ),
    "dpsgd": Row(
        "noise on everything: hides whether a record was used", lambda w: DPSGD(w.private(w.need("records"))), DPSGD
    ),
    "selective": Row(
        "public text exactly, secrets with noise: hides what they say", lambda w: _selective(w, False), Selective
    ),
    "twice": Row("as selective, all public steps first", lambda w: _selective(w, True), Selective),
    "cadp": Row("records a detector flagged with noise, the others plainly", _cadp, CADP),
    "crt": Row("redacted and de-duplicated; noise on all that may hold a missed secret", _crt, CRT),
    "user": Row("hides whether a user took part: DP-FedAvg, or records capped a user (user-level)", _user, UserLevel),
    "uedp": Row("hides a user and a listed entity: sentences capped for both", _uedp, UeDP),
    "selective-published": Row(
        "Selective-DPSGD as printed, with the number that holds", _selective_published, SelectivePublished
    ),
    "cadp-published": Row("CADP-LM as printed, with the number that holds", _cadp_published, CADPPublished),
    "uedp-published": Row("UeDP-Alg as printed, with the number that holds", _uedp_published, UeDPPublished),
}

_OWN: dict[str, Row] = {}


def register_mechanism(name: str, summary: str, build: Callable[[Words], Own]) -> None:
    """From now on, in this process, `mechanism: name` asks for a mechanism of one's own (`tacit.mechanisms.own`)."""
    if name in {*REGISTRY, *BASELINES}:
        raise ConfigError("a name for an own mechanism that is not taken", name, "choose another name")
    _OWN[name] = Row(summary, build, Own)


def build_mechanism(vocabulary: Vocabulary, measured: Measured | None = None) -> Mechanism:
    """The mechanism that the words ask for, before any calibration; counts that nobody gave are `measured`."""
    name = BASELINES.get(vocabulary.mechanism, vocabulary.mechanism)
    row = REGISTRY.get(name) or _OWN.get(name)
    if row is None:
        raise ConfigError.unknown_name("mechanism", vocabulary.mechanism, {*REGISTRY, *_OWN, *BASELINES})
    words = Words(vocabulary, measured or {})
    mechanism = row.build(words)
    if name in _OWN:
        _check_own(mechanism, name, words)
    words.finish()
    return mechanism


def _check_own(mechanism: Mechanism, name: str, words: Words) -> None:
    """Refuse what could claim more than its ledger: other classes, borrowed names, a number of units of its own."""
    if type(mechanism) is not Own or mechanism.name != name:
        found = f"a {type(mechanism).__name__} called {mechanism.name!r}"
        raise ClaimRefused(f"an Own called {name!r}", found, "return tacit.mechanisms.own.Own from the builder")
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
