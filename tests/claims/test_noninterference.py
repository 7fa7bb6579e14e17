"""T12 (theory, sections 9 and 13): nothing in `release/` depends on what is protected, but through noise.

The whole pipeline (train, audit, report) runs on a corpus and on a neighbor. Three things are forced to be equal, as
each has a reason to leave although it depends on protected content: the trained weights (a function of noisy sums,
which the ledger prices), the noisy sums of utility (a ledger line of their own), and keyed hashes (random without the
key). Every byte of `release/` must then be equal.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tacit.runs.folder
import tacit.runs.utility
import tacit.training.overlap
import tacit.training.stages
from runs import PLANS, quiet
from saved import release_files
from tacit.audits.audit import audit
from tacit.audits.findings import Audit
from tacit.config.audit_schema import AuditConfig
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.data.corpus import write_jsonl
from tacit.data.marked import Split
from tacit.data.records import Record
from tacit.errors import RunError
from tacit.mechanisms.registry import REGISTRY
from tacit.privacy.noisy_utility import Contributions, ReleasedUtility
from tacit.reports.write import report
from tacit.runs.release import ReleaseReason, reason
from tacit.training.marking import side_of
from tacit.training.parts import make_policies
from tacit.training.trainer import Trainer
from worlds import Change, changed, corpus, other_secrets, other_text, other_words, renamed

World = dict[str, bytes]
SETTINGS: dict[str, dict[str, Any]] = {
    "cadp": {"policy": "flags.yaml"},
    "crt": {"policy": "flags.yaml", "conservative_policy": "flags.yaml"},
    "cadp-published": {"policy": "flags.yaml"},
    "uedp": {"entity_kinds": ["NAME"]},
    "uedp-published": {"entity_kinds": ["NAME"]},
}
UNITS: dict[str, Change] = {
    "redaction": other_secrets,
    "invented": other_secrets,
    "selective": other_secrets,
    "twice": other_secrets,
    "selective-published": other_secrets,
    "dpsgd": other_text,
    "cadp": other_text,
    "crt": other_text,
    "cadp-published": other_text,
    "user": other_text,
    "uedp": other_words,
    "uedp-published": other_words,
}
"""What the neighbor has in the place of one record, or of all records of one user. `plain` claims nothing."""
OF_USERS = ("user", "uedp", "uedp-published")
QUICK = ("dpsgd", "selective", "crt", "uedp")
ATTACKS = AuditConfig(candidates=50, secrets=5, surrogates=1)


def mechanisms() -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANS]


def _settings(folder: Path, mechanism: str, **more: Any) -> Config:  # noqa: ANN401
    words: dict[str, Any] = {
        "corpus": str(folder / "corpus.jsonl"),
        "mode": "research",
        "policy": "gold",
        "held_out": 0.4,
        "max_tokens": 64,
        "max_full_tokens": 64,
        "model_config": {"embedding_size": 8, "hidden_size": 8},
        "canaries": [
            {"template": "My PIN is {4 digits}.", "count": 6, "inside_probability": 1.0},
            {"template": "My pass is {4 digits}.", "count": 6, "known": False},
        ],
        "plan": {"mechanism": mechanism, **PLANS[mechanism]},
        **SETTINGS.get(mechanism, {}),
        **more,
    }
    for word in ("policy", "conservative_policy"):
        if str(words.get(word)).endswith(".yaml"):
            words[word] = str(folder / words[word])
    return load_config(words)


def _files(release: Path) -> World:
    return {path.relative_to(release).as_posix(): path.read_bytes() for path in release_files(release)}


def released(folder: Path, records: list[Record], mechanism: str, **more: Any) -> World:  # noqa: ANN401
    """Every file that the whole pipeline puts into `release/`."""
    folder.mkdir()
    write_jsonl(iter(records), folder / "corpus.jsonl")
    (folder / "flags.yaml").write_text("policy: {forgetful: {policy: gold, miss_rate: 0.4, seed: 1}}")
    tacit.training.stages.train(_settings(folder, mechanism, **more), folder / "run", quiet)
    if "classes" not in more:  # classifiers are not attacked
        audit(folder / "run", ATTACKS, quiet)
    report([folder / "run"])
    return _files(folder / "run" / "release")


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal weights, equal noisy sums, equal keyed hashes."""
    _force_weights(monkeypatch)

    def same_sums(given: Contributions, noise_multiplier: float, _: object) -> ReleasedUtility:
        sums = (3.0, 9.0, 2.0)[: given.vectors.shape[1]]
        return ReleasedUtility(len(given.vectors), noise_multiplier, given.longest, given.most_nats, sums)

    monkeypatch.setattr(tacit.runs.utility, "noisy", same_sums)
    monkeypatch.setattr(tacit.runs.utility, "keyed", lambda *_: "0" * 64)


def _force_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Trainer.train

    def equal(self: Trainer, *words: Any) -> None:  # noqa: ANN401
        real(self, *words)
        chance = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for value in self._learner.module.parameters():
                value.copy_(torch.randn(value.shape, generator=chance) / 3)

    monkeypatch.setattr(Trainer, "train", equal)


def differing(one: World, other: World) -> list[str]:
    """The files that differ; for JSON, with the paths of the fields that do."""
    assert one.keys() == other.keys()
    found = []
    for name in one:
        if one[name] == other[name]:
            continue
        both = [json.loads(world[name]) for world in (one, other)] if name.endswith(".json") else []
        found += [f"{name}: {path}" for path in _apart(*both)] if both else [name]
    return found


def _apart(one: Any, other: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401
    if type(one) is not type(other):
        yield path
    elif isinstance(one, dict):
        for key in one.keys() | other.keys():
            yield from _apart(one.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(one, list):
        if len(one) != len(other):
            yield f"{path}[]"
        for ours, theirs in zip(one, other, strict=False):
            yield from _apart(ours, theirs, f"{path}[]")
    elif one != other:
        yield path


def _unit(records: list[Record], mechanism: str, folder: Path, side: Split) -> set[str]:
    """The ids of one unit with secrets: a record, or for claims about users all records of one."""
    folder.mkdir(exist_ok=True)
    (folder / "flags.yaml").write_text("policy: {forgetful: {policy: gold, miss_rate: 0.4, seed: 1}}")
    settings = _settings(folder, mechanism)
    policy = make_policies(settings).marking
    users = mechanism in OF_USERS and side == Split.TRAIN
    for record in records:
        mine = [one for one in records if one.user == record.user] if users else [record]
        if side_of(settings, record.user or record.id) == side and all(policy.find(one) for one in mine):
            return {one.id for one in mine}
    raise AssertionError("no unit")


def test_every_mechanism_has_neighbors() -> None:
    assert {*UNITS, "plain"} == set(REGISTRY)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("mechanism", mechanisms())
def test_what_leaves_is_equal_for_neighbors(mechanism: str, tmp_path: Path) -> None:
    """A training unit of the claim, and a held-out record whatever is claimed."""
    records = corpus()
    worlds = {
        "held-out record": changed(records, other_text, _unit(records, mechanism, tmp_path / "u", Split.VALIDATION))
    }
    if mechanism in UNITS:
        trained = _unit(records, mechanism, tmp_path / "u", Split.TRAIN)
        worlds["training unit"] = changed(records, UNITS[mechanism], trained)
    if mechanism in ("uedp", "uedp-published"):
        worlds["entity"] = changed(records, renamed, {record.id for record in records})
    before = released(tmp_path / "before", records, mechanism)
    own = {"tacit/report.html", "tacit/certificate.md", "tacit/audit.json"}
    assert own | {"model.safetensors", "README.md"} <= before.keys()
    for name, neighbor in worlds.items():
        assert neighbor != records
        after = released(tmp_path / name.replace(" ", "-"), neighbor, mechanism)
        assert differing(before, after) == [], name


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("mechanism", "more"),
    [
        ("selective", {"tokenizer": "bpe", "vocabulary_size": 400}),  # learned from the redacted view
        ("dpsgd", {"task": "classification", "classes": ["calm", "loud"], "canaries": []}),
    ],
)
def test_other_settings_leave_as_little(mechanism: str, more: dict[str, Any], tmp_path: Path) -> None:
    records = [replace(one, label="loud" if number % 3 else "calm") for number, one in enumerate(corpus())]
    unit = _unit(records, mechanism, tmp_path / "u", Split.TRAIN)
    held_out = _unit(records, mechanism, tmp_path / "u", Split.VALIDATION)
    before = released(tmp_path / "before", records, mechanism, **more)
    for name, change, ids in (("unit", UNITS[mechanism], unit), ("held-out", other_text, held_out)):
        after = released(tmp_path / name, changed(records, change, ids), mechanism, **more)
        assert differing(before, after) == [], name


def test_without_force_only_priced_fields_of_utility_depend_on_held_out_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise in both worlds: what differs is what the noise hides. The page and the card print it."""
    _force_weights(monkeypatch)
    records = corpus()
    neighbor = changed(records, other_text, _unit(records, "plain", tmp_path / "u", Split.VALIDATION))
    worlds = [released(tmp_path / name, one, "plain") for name, one in (("a", records), ("b", neighbor))]
    found = differing(*worlds)
    fields = [tuple(one.split(": ")) for one in found if ": " in one and not one.startswith("tacit/manifest.json")]
    assert ("tacit/utility.json", "sums[]") in fields
    assert all(reason(file, path) is ReleaseReason.PRICED for file, path in fields)
    assert {one for one in found if ": " not in one} <= {"tacit/report.html", "README.md"}


# hashes of what people wrote

HASHES = ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s")


def _strings(records: list[Record]) -> set[str]:
    """Words, secrets, records, and lists of them in the usual forms."""
    secrets = {record.text[one.start : one.end] for record in records for one in record.spans or ()}
    words = {word for record in records for word in re.findall(r"\w+", record.text)}
    texts = [record.text for record in records]
    names = {one for one in secrets if one.isalpha()}
    lists = [sorted(names), sorted(secrets - names), sorted(secrets), sorted(words), texts, sorted(texts)]
    lists += [[one.casefold() for one in listed] for listed in lists]
    joined = {
        with_.join(listed) + end for listed in lists for with_ in ("\n", "\0", ",", " ", "") for end in ("", "\n")
    }
    quoted = {json.dumps(listed, separators=form) for listed in lists for form in ((",", ":"), (", ", ": "))}
    return {*secrets, *words, *texts, *(one.casefold() for one in (*secrets, *words)), *joined, *quoted}


def _digests(strings: Iterable[str]) -> set[str]:
    content = [one.encode() for one in strings]
    return {hashlib.new(kind, one).hexdigest() for kind in HASHES for one in content} | {
        f"{zlib.crc32(one):08x}" for one in content
    }


def given_away(world: World, records: list[Record]) -> list[str]:
    """Secrets that occur in a file, and digests of strings of the corpus, whole or cut to 8 digits or more."""
    digests = _digests(_strings(records))
    starts = {digest[:8]: digest for digest in digests}
    found = []
    for name, content in world.items():
        for token in re.findall(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8,128}(?![0-9a-fA-F])", content.decode("latin-1")):
            known = starts.get(token[:8].lower())
            if known is not None and known.startswith(token.lower()) and not token.isdecimal():
                found.append(f"{name}: a digest")
        secrets = {r.text[s.start : s.end] for r in records for s in r.spans or ()}
        found += [f"{name}: a secret" for one in secrets if len(one) >= 5 and one.encode() in content]
    return found


def test_no_secret_and_no_digest_of_the_corpus_leaves(tmp_path: Path) -> None:
    """Row 8: an unkeyed hash of the entity list, or of a dictionary. 2,000 strings, seven digests."""
    records = corpus()
    names = sorted({record.text[: record.spans[0].end] for record in records if record.spans})
    (tmp_path / "names.txt").write_text("\n".join(names))
    words = f"policy: {{any: [gold, {{dictionary: {tmp_path / 'names.txt'}, kind: NAME}}]}}"
    (tmp_path / "words.yaml").write_text(words)
    policy = {"policy": str(tmp_path / "words.yaml")}
    world = released(tmp_path / "a", records, "uedp", **policy)
    again = released(tmp_path / "b", records, "uedp", **policy)
    assert given_away(world, records) == []
    hashes = [json.loads(one["tacit/guarantee.json"])["evidence"] for one in (world, again)]
    for name in ("policy_hash", "entity_list_hash"):
        assert hashes[0][name] != hashes[1][name], "two keys, one hash: it is not keyed"
    exact = [json.loads((tmp_path / one / "run/private/guarantee.json").read_text())["evidence"] for one in ("a", "b")]
    assert exact[0]["policy_hash"] == exact[1]["policy_hash"]
    assert hashes[0]["policy_hash"] not in (exact[0]["policy_hash"], exact[0]["entity_list_hash"])


# negative controls: mistakes that were made, put back


@pytest.mark.usefixtures("forced")
def test_control_membership_in_the_released_audit_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 9. The table refuses the fields; where it would not, the comparison finds them."""
    monkeypatch.setattr(Audit, "outside", lambda self: self)
    records = corpus()
    neighbor = changed(records, other_text, _unit(records, "user", tmp_path / "u", Split.TRAIN))
    with pytest.raises(RunError, match=r"training_records\[\]\.attack"):
        released(tmp_path / "refused", records, "dpsgd")
    monkeypatch.setattr(tacit.runs.folder, "check_fields", lambda *_: None)
    found = differing(*(released(tmp_path / name, one, "dpsgd") for name, one in (("a", records), ("b", neighbor))))
    assert any(one.startswith("tacit/audit.json: training_records") for one in found)


@pytest.mark.usefixtures("forced")
def test_control_the_corpus_as_its_own_public_vocabulary_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 12."""
    monkeypatch.setattr(tacit.training.overlap, "_check_other_file", lambda *_: None)
    monkeypatch.setattr(tacit.training.overlap.Overlap, "check", lambda _: 0)
    records = corpus()
    worlds = []
    for name, change in (("a", lambda record: record), ("b", other_secrets)):
        here = changed(records, change, _unit(records, "selective", tmp_path / "u", Split.TRAIN))
        more = {"tokenizer": "bpe", "vocabulary_size": 400, "vocabulary_corpus": str(tmp_path / name / "corpus.jsonl")}
        worlds.append(released(tmp_path / name, here, "selective", **more))
    assert any(one.startswith("tacit/tokenizer.json") for one in differing(*worlds))


def test_control_a_plain_hash_of_the_entities_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 8."""
    monkeypatch.setattr(tacit.runs.utility, "keyed", lambda _, plain: plain)
    records = corpus()
    found = given_away(released(tmp_path / "a", records, "uedp"), records)
    assert "tacit/guarantee.json: a digest" in found
    assert "tacit/report.html: a digest" in found
