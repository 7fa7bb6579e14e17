"""Token classifiers against slow twins: thresholds, windows, neighbors, labels and what a folder needs."""

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import save_tiny_classifier
from tacit.common.charts import Note
from tacit.data.records import Record, spans_fault
from tacit.errors import PolicyError, TacitError
from tacit.policies import token_classifier
from tacit.policies.label_kinds import kinds_of_labels
from tacit.policies.registry import build_policy
from tacit.policies.scan import scan
from tacit.policies.token_classifier import TokenClassifier

WORDS = st.sampled_from(
    ["Ann Lee", "Paris", "שלום", "😀", "\n", "USR:", "5 May 1980", "e\u0301", "\x00", "\ud800", "戦場"]
)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40)


def record(text: str) -> Record:
    return Record("r", text)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    return str(save_tiny_classifier(tmp_path_factory.mktemp("tiny")))


def test_classifier_kinds_are_in_the_one_vocabulary(tiny: str) -> None:
    assert TokenClassifier(tiny).kinds == ("DRUG", "LOC", "PERSON")
    assert TokenClassifier(tiny, ("PER",)).kinds == ("PERSON",)
    with pytest.raises(PolicyError, match="ORG"):
        TokenClassifier(tiny, ("ORG",))


def test_classifier_thresholds_equal_the_slow_rule(tiny: str) -> None:
    """The twin: probabilities of the model itself for a text of one window, token by token, marked on characters."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    text = "Ann xyz bob c"
    encoded = AutoTokenizer.from_pretrained(tiny)(text, return_tensors="pt", return_offsets_mapping=True)
    offsets, words = encoded.pop("offset_mapping")[0].tolist(), encoded.word_ids(0)
    rows = torch.softmax(AutoModelForTokenClassification.from_pretrained(tiny)(**encoded).logits[0].double(), -1)
    for threshold in (0.0, 0.3, 0.6, 0.9):
        for plain_below in (0.0, 0.5, 0.9):
            marked: set[int] = set()
            for word, row in zip(words, rows.tolist(), strict=True):
                chances = {"PERSON": row[1] + row[2], "LOC": row[3], "DRUG": row[4]}
                best = max(chances.values())
                if word is not None and ((best > row[0] and best >= threshold) or row[0] < plain_below):
                    mine = [place for other, place in zip(words, offsets, strict=True) if other == word]
                    marked |= set(range(mine[0][0], mine[-1][1]))
            spans = TokenClassifier(tiny, None, threshold, plain_below).find(record(text))
            found = {at for span in spans for at in range(span.start, span.end)}
            assert {at for at in found if text[at] != " "} == marked


@given(TEXTS)
@settings(max_examples=25, deadline=None)
def test_classifier_g1_conservative_loses_no_character(tiny: str, text: str) -> None:
    balanced = TokenClassifier(tiny).find(record(text))
    wide = TokenClassifier(tiny, None, 0.0, 0.9).find(record(text))
    assert spans_fault(balanced, len(text)) is None
    assert spans_fault(wide, len(text)) is None
    covered = {at for span in wide for at in range(span.start, span.end)}
    assert {at for span in balanced for at in range(span.start, span.end)} <= covered


def test_classifier_g2_reads_a_text_the_same_after_others_and_in_another_thread_count(tiny: str) -> None:
    import torch

    policy, text = TokenClassifier(tiny, None, 0.0, 0.5), "Ann Lee went to Paris with a dog and two cats.\n" * 3
    first = policy.find(record(text))
    policy.find(record("something else"))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert policy.find(record(text)) == first
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert again.hash == policy.hash


def test_classifier_reads_texts_longer_than_its_window(tiny: str) -> None:
    everything = TokenClassifier(tiny, None, 0.0, 1.0)
    text = "One two three four five six seven.\n" * 40 + "y" * 300
    found = everything.find(record(text))
    covered = sum(span.end - span.start for span in found)
    assert covered >= len("".join(text.split()))
    assert found[-1].end == len(text)


def test_a_text_is_read_as_normalized_and_marked_as_it_is(tiny: str) -> None:
    policy = TokenClassifier(tiny, None, 0.0, 1.0)
    plain, dressed = "Ann Lee, Paris", "<b>A\u200bnn</b>\u00a0Lee, Pa\u00adris"
    ends = [dressed.index("n</b>") + 1, dressed.index(","), dressed.index(",") + 1, len(dressed)]
    assert [span.kind for span in policy.find(record(dressed))] == [span.kind for span in policy.find(record(plain))]
    assert {span.end for span in policy.find(record(dressed))} <= set(ends)


@pytest.mark.parametrize(("labels", "hint"), [(("LABEL_0", "LABEL_1"), "without O"), (("O",), "without O")])
def test_classifier_needs_named_labels(tmp_path: Path, labels: tuple[str, ...], hint: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(at): name for at, name in enumerate(labels)}}))
    with pytest.raises(PolicyError, match=hint):
        TokenClassifier(str(tmp_path))


def test_classifier_errors_say_what_a_folder_needs(tmp_path: Path, tiny: str) -> None:
    with pytest.raises(PolicyError, match="save_pretrained"):
        TokenClassifier(str(tmp_path))
    (tmp_path / "config.json").write_text((Path(tiny) / "config.json").read_text())
    with pytest.raises(TacitError, match="save_pretrained"):
        TokenClassifier(str(tmp_path)).find(record("Ann"))
    for wrong in ({"threshold": 2}, {"plain_below": -1}):
        with pytest.raises(PolicyError, match="between 0 and 1"):
            build_policy({"token-classifier": {"folder": tiny, **wrong}})


def test_a_pickle_is_never_read(tmp_path: Path, tiny: str) -> None:
    import torch
    from safetensors.torch import load_file

    folder = tmp_path / "pickled"
    shutil.copytree(tiny, folder)
    policy = TokenClassifier(str(folder))
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(PolicyError, match="no weights in safetensors"):
        TokenClassifier(str(folder))
    with pytest.raises(PolicyError, match="no weights in safetensors"):  # one that was made before
        policy.find(record("Ann"))


def test_a_folder_runs_no_code_and_says_nothing(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import transformers

    asked: list[dict[str, object]] = []
    for name in ("AutoTokenizer", "AutoModelForTokenClassification"):
        kind = getattr(transformers, name)

        def load(*names: object, _load: Callable[..., object] = kind.from_pretrained, **words: object) -> object:
            asked.append(words)
            return _load(*names, **words)

        monkeypatch.setattr(kind, "from_pretrained", load)
    token_classifier._Model(tiny)
    assert len(asked) == 2
    assert all(words["local_files_only"] is True and words["trust_remote_code"] is False for words in asked)
    assert asked[1]["use_safetensors"] is True
    assert capfd.readouterr() == ("", "")


def test_definitions_build_what_they_say(tiny: str) -> None:
    folder = Path(tiny)
    definition = {"token-classifier": {"folder": folder.name, "kinds": ["PER"], "threshold": 0.5, "plain_below": 0.9}}
    assert build_policy(definition, folder.parent) == TokenClassifier(tiny, ("PERSON",), 0.5, 0.9)
    assert build_policy({"token-classifier": folder.name}, folder.parent) == TokenClassifier(tiny)


# windows


def _in_windows(folder: str, text: str, share: int) -> list[tuple[int, list[float]]]:
    """The slow twin: in float64, each word by the window that has it whole with most context around it.

    Each row has the character at which its token's word begins. Words are runs of letters: of single-letter tokens.
    """
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForTokenClassification.from_pretrained(folder).double().eval()
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets, owners = encoded["input_ids"], encoded["offset_mapping"], encoded.word_ids(0)
    inner = 16 - 2
    starts = list(range(0, max(1, len(ids) - share), inner - share))
    rows = []
    for start in starts:
        piece = [tokenizer.cls_token_id, *ids[start : start + inner], tokenizer.sep_token_id]
        with torch.inference_mode():
            rows.append(torch.softmax(model(torch.tensor([piece])).logits[0], -1).tolist()[1:-1])
    found = []
    for word in range(owners[-1] + 1):
        tokens = [place for place, owner in enumerate(owners) if owner == word]
        best = max(starts, key=lambda start: (_context(tokens, start, start + inner, len(ids)), start))
        found += [(offsets[tokens[0]][0], rows[starts.index(best)][place - best]) for place in tokens]
    return found


def _context(tokens: list[int], start: int, end: int, length: int) -> float:
    if tokens[0] < start or tokens[-1] >= end:
        return -1
    before = tokens[0] - start if start else length
    return min(before, end - 1 - tokens[-1] if end < length else length)


def _words(seed: int, number: int) -> str:
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdeXYZ.", k=rng.randint(1, 5))) for _ in range(number))


@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 6, 30])
def test_a_word_is_decided_by_the_window_in_which_it_has_most_context(tiny: str, number: int) -> None:
    text = _words(number, number)
    found = list(token_classifier._model(tiny).read(text))
    slow = _in_windows(tiny, text, share=4) if number else []
    assert [token.start for token in found] == [start for start, _ in slow]
    for token, (_, row) in zip(found, slow, strict=True):
        assert token.probabilities == pytest.approx(row, abs=1e-5)


def test_windows_at_other_places_would_decide_otherwise(tiny: str) -> None:
    """The control of the test above: its tolerance tells windows apart."""
    text = _words(30, 30)
    apart = dict(_in_windows(tiny, text, share=6))
    found = {token.start: token.probabilities for token in token_classifier._model(tiny).read(text)}
    assert max(abs(found[start] - apart[start]).max() for start in apart.keys() & found.keys()) > 0.01


def test_a_word_longer_than_a_window_is_one_word(tiny: str) -> None:
    text = "ab " + "c" * 90 + " de"
    tokens = list(token_classifier._model(tiny).read(text))
    assert {(token.start, token.end) for token in tokens} == {(0, 2), (3, 93), (94, 96)}
    assert len(tokens) == 94


def test_a_word_ends_at_white_space_whatever_the_tokenizer_calls_a_word() -> None:
    pieces = [token_classifier._Piece(0, 0, *ends) for ends in ((0, 2), (2, 5), (5, 6), (7, 9))]
    assert token_classifier._words("An nna b c", pieces) == [(0, 2), (2, 6), (2, 6), (7, 9)]


# neighbors

HOSTILE = ("", " ", "\ud800" * 5, "[CLS] [SEP] [PAD]", "x" * 5_000, "Ann Lee. " * 200, "\x00\u202e", "戦場" * 40, "A")


def test_what_is_found_does_not_depend_on_the_neighbors(tiny: str) -> None:
    """Bitwise, before and after hostile texts and in every place of a corpus."""

    def rows(text: str) -> list[tuple[int, int, bytes]]:
        read = token_classifier._model(tiny).read(text)
        return [(token.start, token.end, token.probabilities.tobytes()) for token in read]

    text = "Ann Lee went to Paris with a dog and two cats."
    alone, policy = rows(text), TokenClassifier(tiny, None, 0.0, 0.5)
    found = policy.find(record(text))
    assert found
    for neighbor in HOSTILE:
        policy.find(record(neighbor))
        assert rows(text) == alone
    for place in (0, 4, len(HOSTILE)):
        texts = [*HOSTILE[:place], text, *HOSTILE[place:]]
        counted = scan([record(one) for one in texts], policy, processes=1, stability=0)
        without = scan([record(one) for one in HOSTILE], policy, processes=1, stability=0)
        assert counted.secrets - without.secrets == len(found)


# labels

LABEL_SETS = {
    "piiranha, which is ai4privacy's 400k": {
        "PERSON": "GIVENNAME SURNAME",
        "ADDRESS": "BUILDINGNUM STREET ZIPCODE",
        "GPE": "CITY",
        "CARD": "CREDITCARDNUMBER",
        "DATE": "DATEOFBIRTH",
        "EMAIL": "EMAIL",
        "ID": "ACCOUNTNUM DRIVERLICENSENUM IDCARDNUM TAXNUM",
        "PASSWORD": "PASSWORD",
        "PHONE": "TELEPHONENUM",
        "SSN": "SOCIALNUM",
        "USERNAME": "USERNAME",
    },
    "ai4privacy's 200k": {
        "PERSON": "FIRSTNAME MIDDLENAME LASTNAME",
        "ADDRESS": "BUILDINGNUMBER SECONDARYADDRESS STREET ZIPCODE",
        "AGE": "AGE",
        "CARD": "CREDITCARDNUMBER",
        "DATE": "DATE DOB",
        "GPE": "CITY COUNTY STATE",
        "IBAN": "IBAN",
        "ID": "ACCOUNTNUMBER BIC BITCOINADDRESS ETHEREUMADDRESS LITECOINADDRESS MAC MASKEDNUMBER NEARBYGPSCOORDINATE "
        "PHONEIMEI VEHICLEVIN VEHICLEVRM",
        "IP": "IP IPV4 IPV6",
        "MONEY": "AMOUNT",
        "ORG": "COMPANYNAME",
        "PASSWORD": "CREDITCARDCVV PASSWORD PIN",
        "PHONE": "PHONENUMBER",
        "SSN": "SSN",
        "TIME": "TIME",
        "URL": "URL",
        "USERNAME": "USERNAME",
        "PREFIX": "PREFIX",
        "JOBTITLE": "JOBTITLE",
        "EYECOLOR": "EYECOLOR",
    },
    "ai4privacy's 300k": {
        "PERSON": "GIVENNAME1 GIVENNAME2 LASTNAME1 LASTNAME2 LASTNAME3",
        "ADDRESS": "BUILDING POSTCODE SECADDRESS STREET",
        "DATE": "BOD DATE",
        "GPE": "CITY COUNTRY STATE",
        "ID": "DRIVERLICENSE GEOCOORD IDCARD PASSPORT",
        "IP": "IP",
        "PASSWORD": "PASS",
        "PHONE": "TEL",
        "SSN": "SOCIALNUMBER",
        "TITLE": "TITLE",
        "SEX": "SEX",
        "CARDISSUER": "CARDISSUER",
    },
    "ai4privacy's 43k and 500k": {"USERNAME": "DISPLAYNAME", "PERSON": "FULLNAME", "ID": "PASSPORTNUM", "AGE": "AGE"},
    "OpenAI's privacy filter": {
        "ADDRESS": "private_address",
        "DATE": "private_date",
        "EMAIL": "private_email",
        "ID": "account_number",
        "PASSWORD": "secret",
        "PERSON": "private_person",
        "PHONE": "private_phone",
        "URL": "private_url",
    },
    "CoNLL-2003, OntoNotes and i2b2": {
        "PERSON": "PER PERSON PATIENT DOCTOR",
        "ORG": "ORG HOSPITAL",
        "LOC": "LOC LOCATION-OTHER",
        "MISC": "MISC",
        "WORK_OF_ART": "WORK_OF_ART",
        "ID": "MRN MEDICALRECORD HEALTHPLAN ACCOUNT LICENSE VEHICLE DEVICE BIOID IDNUM PASSPORT",
        "PROFESSION": "PROFESSION",
    },
}


@pytest.mark.parametrize("name", LABEL_SETS)
@pytest.mark.parametrize("prefix", ["", "B-", "I-", "E-", "S-"])
def test_labels_of_known_models_become_our_kinds(name: str, prefix: str) -> None:
    expected = {f"{prefix}{label}": kind for kind, labels in LABEL_SETS[name].items() for label in labels.split()}
    assert kinds_of_labels(list(expected), {}) == expected


def test_an_unknown_label_keeps_its_name_as_one_word() -> None:
    labels = {"B-medical condition": "MEDICAL_CONDITION", "I-Blood-Type/": "BLOOD_TYPE", "O": "O"}
    assert kinds_of_labels(list(labels), {}) == labels
    with pytest.raises(PolicyError, match="a letter or a digit"):
        kinds_of_labels(["B-?!"], {})


def test_given_labels_come_first(tiny: str) -> None:
    labels = {"DRUG": "O", "PER": "customer name", "B-LOC": "address"}
    policy = build_policy({"token-classifier": {"folder": tiny, "labels": labels}})
    assert isinstance(policy, TokenClassifier)
    assert policy.kinds == ("ADDRESS", "CUSTOMER_NAME")
    assert policy.hash != TokenClassifier(tiny).hash
    assert hash(policy) == hash(pickle.loads(pickle.dumps(policy)))
    with pytest.raises(PolicyError, match="labels of the model: DRUG, LOC, O, PER; found ORG"):
        TokenClassifier(tiny, labels={"ORG": "PERSON"})
    with pytest.raises(PolicyError, match="a mapping of texts"):
        build_policy({"token-classifier": {"folder": tiny, "labels": {"PER": 1}}})


def test_a_label_that_is_plain_is_not_found(tiny: str) -> None:
    text = "Ann Lee went to Paris with a dog and two cats."
    assert any(span.kind == "DRUG" for span in TokenClassifier(tiny, None, 0.0, 0.9).find(record(text)))
    rest = TokenClassifier(tiny, None, 0.0, 0.9, labels={"DRUG": "O"})
    assert rest.find(record(text)) == TokenClassifier(tiny, ("LOC", "PERSON"), 0.0, 0.9).find(record(text))


def test_numbered_labels_can_be_named(tmp_path: Path) -> None:
    folder = str(save_tiny_classifier(tmp_path, ("LABEL_0", "LABEL_1", "LABEL_2")))
    with pytest.raises(PolicyError, match="LABEL_0: O, LABEL_1: PERSON"):
        TokenClassifier(folder)
    assert TokenClassifier(folder, labels={"LABEL_0": "O", "LABEL_1": "PER"}).kinds == ("LABEL_2", "PERSON")


def test_a_scan_says_which_label_became_which_kind(tiny: str) -> None:
    policy = build_policy({"any": ["digits", {"widened": {"policy": {"token-classifier": tiny}, "to": "sentence"}}]})
    shown = scan([record("Ann Lee")], policy, processes=1)
    assert shown.label_kinds == {"PER": "PERSON", "LOC": "LOC", "DRUG": "DRUG"}
    assert Note("Kinds from the model's labels: PERSON from PER.") in shown.tables()
    assert shown.to_json()["label_kinds"] == shown.label_kinds
    plain = scan([record("Ann Lee")], build_policy("digits"), processes=1)
    assert not any(isinstance(part, Note) for part in plain.tables())
