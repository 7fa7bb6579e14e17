"""Text classification through `train`: it learns, is charged and resumed like any run, and says what labels are."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from marking import prepare, records_of
from saved import save_tokenizer
from tacit.cli.main import app
from tacit.common.progress import Progress
from tacit.common.serialize import from_json
from tacit.config.load import check_used, load_config
from tacit.config.model_schema import ClassifierConfig, LSTMConfig
from tacit.config.schema import Config
from tacit.data.corpus import write_jsonl
from tacit.data.labels import LabelReader
from tacit.data.marked import Split
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused, ConfigError, ModelError, RunError
from tacit.mechanisms.build import EXPOSED_LABELS, OWN_LABELS, PUBLIC_CLASSES, PUBLIC_LABELS, Terms
from tacit.models.classifier import LSTMClassifier
from tacit.models.evaluation import label_quality
from tacit.models.loading import load, load_classifier
from tacit.policies.patterns import Gold
from tacit.privacy.events import Event
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.noisy_utility import HELD_OUT_ALONE
from tacit.privacy.noisy_utility import STEP as MEASURING
from tacit.privacy.plan import View, cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import Utility
from tacit.runs.weights import read_model
from tacit.training.parts import make_reader
from tacit.training.stages import Trained, resume, train

WORDS = {
    "business": ("stock", "profit", "merger", "bank"),
    "sports": ("goal", "match", "team", "ball"),
    "world": ("vote", "treaty", "border", "envoy"),
}
FILLING = ("the", "a", "of", "on", "today", "and", "was", "with")
CLASSES = list(WORDS)
ROOM: dict[str, Any] = {"policy": "gold", "held_out": 0.3, "max_tokens": 64, "max_full_tokens": 40}
SMALL: dict[str, Any] = {
    **ROOM,
    "model_config": {"embedding_size": 16, "hidden_size": 24, "dropout": 0.0},
    "public": {"learning_rate": 0.03},
    "private": {"learning_rate": 0.03},
}
NOISY: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8}
BOTH: dict[str, Any] = {**NOISY, "public_epochs": 1, "public_batch_size": 16}


def corpus_of(records: int, seed: int = 0, name: Callable[[int], str] = "x{}".format) -> Iterator[Record]:
    """Four of nine words tell the class; half of the records end with a marked name."""
    chance = random.Random(seed)
    for number in range(records):
        label = chance.choice(CLASSES)
        words = chance.choices(FILLING, k=5) + chance.choices(WORDS[label], k=4)
        chance.shuffle(words)
        text = " ".join(words)
        spans: tuple[Span, ...] = ()
        if number % 2:
            start, text = len(text) + 1, f"{text} {name(number)}"
            spans = (Span(start, len(text), "NAME"),)
        yield Record(f"r{number}", text, user=f"u{number % 40}", label=label, spans=spans)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_jsonl(corpus_of(240), folder / "corpus.jsonl")
    write_jsonl(corpus_of(30, seed=1), folder / "public.jsonl")
    for policy, missed in (("forgetful", 0.9), ("cautious", 0.8)):
        content = f"policy: {{forgetful: {{policy: gold, miss_rate: {missed}, seed: 1}}}}"
        (folder / f"{policy}.yaml").write_text(content)
    return folder / "corpus.jsonl"


def experiment(corpus: Path, plan: dict[str, Any], **more: Any) -> Config:  # noqa: ANN401
    public = {"tokenizer": "bpe", "vocabulary_size": 320, "vocabulary_corpus": str(corpus.parent / "public.jsonl")}
    words = {
        "corpus": str(corpus),
        "mode": "research",
        "task": "classification",
        "classes": CLASSES,
        "plan": plan,
        **SMALL,
        **public,
    }
    return load_config({**words, **more})


def quiet(_: object) -> None:
    """Watches nothing."""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_model(RunFolder.view(folder))


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def labels_of(result: Trained) -> Any:  # noqa: ANN401
    assert result.utility.labels is not None
    return result.utility.labels


# learning


@pytest.mark.parametrize(
    ("plan", "most"),
    [
        ({"mechanism": "plain", "public_epochs": 8}, 0.15),
        ({"mechanism": "redaction", "public_epochs": 8}, 0.15),
        ({"mechanism": "dpsgd", "epsilon": 8.0, "steps": 60, "expected_batch_size": 60}, 0.5),
    ],
    ids=lambda value: str(value["mechanism"]) if isinstance(value, dict) else "",
)
def test_a_classifier_learns(plan: dict[str, Any], most: float, corpus: Path, tmp_path: Path) -> None:
    """Seeded; whoever guesses the commonest class errs on about two of three."""
    result = train(experiment(corpus, plan), tmp_path / "run", quiet)
    labels = labels_of(result)
    assert labels.commonest.share > 0.55
    assert labels.overall.interval().high < most
    assert labels.overall.records == labels.commonest.records > 50
    assert labels.with_secrets.records > 20 < labels.without_secrets.records
    if "epsilon" in plan:
        assert result.guarantee.figures[0].epsilon <= plan["epsilon"]
    written = from_json(Utility, RunFolder.view(tmp_path / "run").path(PrivateFile.UTILITY).read_bytes())
    assert written == result.utility
    assert written.overall.tokens == 0


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder as others publish it: weights, configuration, tokenizer.json."""
    from transformers import DistilBertConfig, DistilBertModel

    folder = tmp_path_factory.mktemp("encoder")
    save_tokenizer((record.text for record in corpus_of(50, seed=9)), 320, folder)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
    config = DistilBertConfig(vocab_size=320, max_position_embeddings=48, **sizes)
    DistilBertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("plan", "more", "most"),
    [
        ({"mechanism": "plain", "public_epochs": 20}, {}, 0.4),
        ({"mechanism": "dpsgd", "noise_multiplier": 0.6, "steps": 50, "expected_batch_size": 60}, {}, 0.6),
        ({"mechanism": "dpsgd", **NOISY}, {"lora": {"rank": 2}}, 1.0),
    ],
    ids=["plain", "dpsgd", "adapters"],
)
def test_an_encoder_of_a_folder_is_fine_tuned(
    plan: dict[str, Any], more: dict[str, Any], most: float, encoder_folder: Path, corpus: Path, tmp_path: Path
) -> None:
    public, private = {"learning_rate": 0.005}, {"learning_rate": 0.02}
    words = {
        "corpus": str(corpus),
        "mode": "research",
        "task": "classification",
        "classes": CLASSES,
        "plan": plan,
        **ROOM,
    }
    settings = load_config({**words, "model": str(encoder_folder), "public": public, "private": private, **more})
    result = train(settings, tmp_path / "run", quiet)
    assert labels_of(result).overall.share <= most
    classifier, tokenizer = load_classifier(tmp_path / "run")
    assert tokenizer.codec.size == 320
    assert quality_again(settings, tmp_path / "run") == result.utility.labels
    changed = [name for name, value in classifier.module.named_parameters() if value.requires_grad]
    of_head = ("pre_classifier.", "classifier.")
    assert all(".lora_" in name or name.startswith(of_head) for name in changed) == ("lora" in more)


def quality_again(settings: Config, folder: Path) -> Any:  # noqa: ANN401
    """What the loaded classifier is worth on held-out records prepared anew."""
    classifier, tokenizer = load_classifier(folder)
    store = prepare(
        records_of(settings, Split.VALIDATION),
        Gold(),
        tokenizer,
        folder.parent / "again",
        PrepareConfig(settings.data.max_tokens),
    )
    reader = make_reader(settings, tokenizer, store)
    assert isinstance(reader, LabelReader)
    return label_quality(classifier, reader, quiet)[0]


def test_an_encoder_that_reads_too_little_is_refused(encoder_folder: Path, corpus: Path, tmp_path: Path) -> None:
    settings = load_config(
        experiment(corpus, {"mechanism": "plain"}),
        {"model": str(encoder_folder), "model_config": None, "max_full_tokens": 48},
    )
    with pytest.raises(ConfigError, match=r"max_full_tokens: 46"):
        train(settings, tmp_path / "run", quiet)


# every mechanism: what is charged, and what the claim says about labels


MECHANISMS: dict[str, tuple[dict[str, Any], dict[str, Any], bool, bool, bool]] = {
    # words of the plan, settings; are labels public annotation, protected with their record, read by plain steps?
    "plain": ({"public_epochs": 1}, {}, False, False, False),
    "redaction": ({"public_epochs": 1}, {}, True, False, True),
    "invented": ({"public_epochs": 1}, {}, True, False, True),
    "dpsgd": (NOISY, {}, False, True, False),
    "selective": ({**BOTH, "targets": "all"}, {}, True, False, True),
    "twice": ({**BOTH, "targets": "all"}, {}, True, False, True),
    "cadp": (BOTH, {"policy": "forgetful.yaml"}, False, True, True),
    "crt": (BOTH, {"policy": "forgetful.yaml", "conservative_policy": "cautious.yaml"}, True, True, True),
    "user": ({**NOISY, "user_cap": 4}, {}, False, True, False),
    "uedp": ({**NOISY, "user_cap": 4, "entity_cap": 1}, {}, False, True, False),
    "uedp-published": ({**NOISY, "entity_rate": 0.5}, {}, False, True, False),
}


def test_users_train_at_home(corpus: Path, tmp_path: Path) -> None:
    """DP-FedAvg: a user's whole update is one clipped vector; with next to no noise it learns."""
    plan = {
        "mechanism": "user",
        "noise_multiplier": 0.01,
        "steps": 40,
        "expected_batch_size": 20,
        "clip_norm": 1.0,
        "delta": 1e-3,
    }
    more = {"local": {"batch_size": 8, "learning_rate": 1.0}, "private": {"learning_rate": 0.05}}
    result = train(experiment(corpus, plan, **more), tmp_path / "run", quiet)
    assert labels_of(result).overall.interval().high < 0.5
    assert OWN_LABELS in result.guarantee.holds_if


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_ledger_is_the_plan_and_the_claim_speaks_of_labels(mechanism: str, corpus: Path, tmp_path: Path) -> None:
    words, more, public, own, exposed = MECHANISMS[mechanism]
    paths = {word: str(corpus.parent / name) for word, name in more.items()}
    result = train(experiment(corpus, {"mechanism": mechanism, **words}, **paths), tmp_path / "run", quiet)
    run = RunFolder.view(tmp_path / "run")
    executed = from_json(Terms, run.path(ReleaseFile.PLAN).read_bytes()).plan
    entries = read_entries(run.path(ReleaseFile.LEDGER))
    planned = {step.name: times for step, times in executed.executions().items() if times}
    assert entries.charges() == {**planned, MEASURING: 1}
    for neighbors in result.planned.mechanism.notions():
        by_plan: Counter[Event] = Counter({HELD_OUT_ALONE: 1})
        for step, times in executed.executions().items():
            by_plan[cost(step, neighbors)] += times
        assert Counter(dict(entries.compositions()[str(neighbors)])) == +by_plan
    guarantee = from_json(Guarantee, run.path(PrivateFile.GUARANTEE).read_bytes())
    assert guarantee == result.guarantee
    assert guarantee.figures == result.planned.guarantee.figures
    conditions = guarantee.holds_if
    assert (PUBLIC_CLASSES in conditions) == bool(guarantee.figures)
    assert (PUBLIC_LABELS in conditions, OWN_LABELS in conditions) == (public, own)
    assert (EXPOSED_LABELS in guarantee.not_protected) == exposed
    assert all(torch.isfinite(value).all() for value in read_model(run).values())


@pytest.mark.parametrize(
    ("plan", "way_out"),
    [
        ({"mechanism": "selective", **BOTH}, r"plan\.targets: all"),
        ({"mechanism": "twice", **BOTH}, r"plan\.targets: all"),
        ({"mechanism": "selective-published", **NOISY}, "sound form"),
        ({"mechanism": "cadp-published", **NOISY, "recall": 0.9}, "sound form"),
    ],
    ids=lambda value: str(value["mechanism"]) if isinstance(value, dict) else "",
)
def test_steps_that_cannot_learn_labels_are_refused_before_anything_is_spent(
    plan: dict[str, Any], way_out: str, corpus: Path, tmp_path: Path
) -> None:
    policy = str(corpus.parent / "forgetful.yaml")
    with pytest.raises(ConfigError, match=way_out):
        train(experiment(corpus, plan, policy=policy), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_redaction_does_not_see_what_secrets_say(tmp_path: Path) -> None:
    """Public-path invariance: corpora that differ inside their spans give the same classifier, bit for bit."""
    found = []
    for world, name in (("a", "x{}".format), ("b", "another name {}".format)):
        (tmp_path / world).mkdir()
        write_jsonl(corpus_of(60, name=name), tmp_path / world / "corpus.jsonl")
        write_jsonl(corpus_of(30, seed=1), tmp_path / world / "public.jsonl")
        settings = experiment(tmp_path / world / "corpus.jsonl", {"mechanism": "redaction", "public_epochs": 1})
        train(settings, tmp_path / world / "run", quiet)
        found.append(weights(tmp_path / world / "run"))
    assert equal(*found)


def test_labels_of_held_out_records_teach_nothing(corpus: Path, tmp_path: Path) -> None:
    settings = experiment(corpus, {"mechanism": "plain", "public_epochs": 1})
    held_out = {record.id for record in records_of(settings, Split.VALIDATION)}
    other = tmp_path / "other.jsonl"
    write_jsonl((replace(one, label="world") if one.id in held_out else one for one in corpus_of(240)), other)
    first = train(settings, tmp_path / "first", quiet)
    second = train(load_config(settings, {"corpus": str(other)}), tmp_path / "second", quiet)
    assert equal(weights(tmp_path / "first"), weights(tmp_path / "second"))
    assert first.utility != second.utility
    assert labels_of(second).commonest.errors == 0


# going on


@pytest.mark.parametrize(
    "plan", [{"mechanism": "dpsgd", **NOISY, "steps": 6}, {"mechanism": "redaction", "public_epochs": 1}]
)
def test_a_resumed_run_equals_an_undisturbed_one(plan: dict[str, Any], corpus: Path, tmp_path: Path) -> None:
    straight = train(experiment(corpus, plan), tmp_path / "straight", quiet)

    def stop(done: Progress) -> None:
        if done.stage == "training" and done.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(experiment(corpus, plan), tmp_path / "stopped", stop)
    resumed = resume(tmp_path / "stopped", quiet)
    assert resumed.utility == straight.utility
    assert resumed.guarantee == straight.guarantee
    assert equal(weights(tmp_path / "stopped"), weights(tmp_path / "straight"))


def test_a_classifier_is_loaded_as_what_it_is(corpus: Path, tmp_path: Path) -> None:
    settings = experiment(corpus, {"mechanism": "plain", "public_epochs": 2})
    result = train(settings, tmp_path / "run", quiet)
    assert load_classifier(tmp_path / "run")[0].settings.classes == tuple(CLASSES)
    assert quality_again(settings, tmp_path / "run") == result.utility.labels
    with pytest.raises(RunError, match="text classifier"):
        load(tmp_path / "run")
    with pytest.raises(RunError, match="text classifier, which generates no text"):
        CliRunner().invoke(app, ["generate", str(tmp_path / "run")], catch_exceptions=False)
    spoken = load_config(settings, {"task": "language", "classes": None})
    train(spoken, tmp_path / "spoken", quiet)
    with pytest.raises(RunError, match="found a language model"):
        load_classifier(tmp_path / "spoken")


def test_the_best_classifier_on_public_labels_is_kept(corpus: Path, tmp_path: Path) -> None:
    plan = {"mechanism": "dpsgd", **NOISY, "steps": 6}
    with pytest.raises(ClaimRefused, match="chosen on public text"):
        train(experiment(corpus, plan, eval_steps=2), tmp_path / "refused", quiet)
    public = str(corpus.parent / "public.jsonl")
    result = train(experiment(corpus, plan, eval_steps=2, eval_on=public), tmp_path / "run", quiet)
    assert result.guarantee.figures == result.planned.guarantee.figures
    words = {"mechanism": "redaction", "public_epochs": 1}
    train(experiment(corpus, words, eval_steps=2, early_stopping_patience=9), tmp_path / "redacted", quiet)


# labels that are wrong


def relabelled(corpus: Path, label: Callable[[int, Record], str | None], folder: Path) -> Path:
    write_jsonl(
        (replace(record, label=label(number, record)) for number, record in enumerate(corpus_of(120))),
        folder / "corpus.jsonl",
    )
    (folder / "public.jsonl").write_bytes((corpus.parent / "public.jsonl").read_bytes())
    return folder / "corpus.jsonl"


PLAIN: dict[str, Any] = {"mechanism": "plain", "public_epochs": 1}


def test_records_without_a_label_are_set_aside_and_counted(corpus: Path, tmp_path: Path) -> None:
    path = relabelled(corpus, lambda number, record: None if number % 10 == 0 else record.label, tmp_path)
    result = train(experiment(path, PLAIN), tmp_path / "run", quiet)
    assert result.set_aside == 12
    lines = [
        json.loads(line)
        for file in (tmp_path / "run" / "private").glob("*/private/quarantine.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert {(line["id"], line["reason"]) for line in lines} == {(f"r{n}", "no label") for n in range(0, 120, 10)}


@pytest.mark.parametrize(("side", "store"), [(Split.TRAIN, "prepared"), (Split.VALIDATION, "held-out")])
def test_a_label_that_is_no_class_is_refused_and_not_quoted(
    side: Split, store: str, corpus: Path, tmp_path: Path
) -> None:
    whose = next(iter(records_of(experiment(corpus, PLAIN), side))).id
    path = relabelled(corpus, lambda _, record: "Celia" if record.id == whose else record.label, tmp_path)
    with pytest.raises(ConfigError, match=f"another label in row 0 of {store}") as refused:
        train(experiment(path, PLAIN), tmp_path / "run", quiet)
    assert "Celia" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_corpus_without_labels_is_refused(corpus: Path, tmp_path: Path) -> None:
    path = relabelled(corpus, lambda *_: None, tmp_path)
    with pytest.raises(ConfigError, match="into the field `label`"):
        train(experiment(path, PLAIN), tmp_path / "run", quiet)


def test_a_corpus_of_one_label_is_learned(corpus: Path, tmp_path: Path) -> None:
    path = relabelled(corpus, lambda *_: "sports", tmp_path)
    labels = labels_of(train(experiment(path, {**PLAIN, "public_epochs": 4}), tmp_path / "run", quiet))
    assert labels.overall.errors == labels.commonest.errors == 0


def test_a_class_that_is_held_out_alone_counts_as_errors(corpus: Path, tmp_path: Path) -> None:
    held_out = {record.id for record in records_of(experiment(corpus, PLAIN), Split.VALIDATION)}
    path = relabelled(
        corpus, lambda _, record: "weather" if record.id in held_out else record.label, tmp_path
    )  # never seen in training
    settings = experiment(path, {**PLAIN, "public_epochs": 4}, classes=[*CLASSES, "weather"])
    labels = labels_of(train(settings, tmp_path / "run", quiet))
    assert labels.overall.errors == labels.overall.records > 10


def test_whole_numbers_are_names_of_classes(corpus: Path, tmp_path: Path) -> None:
    path = relabelled(corpus, lambda _, record: str(CLASSES.index(str(record.label))), tmp_path)
    settings = experiment(path, PLAIN, classes=[0, 1, 2])
    assert settings.classes == ("0", "1", "2")
    assert train(settings, tmp_path / "run", quiet).utility.labels is not None


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"classes": None}, "a public list of classes"),
        ({"classes": ["sports"]}, "two or more classes"),
        ({"classes": ["sports", "sports"]}, "different names"),
        ({"task": "language"}, "classes with task: classification"),
        ({"model": "gpt", "model_config": {}}, "an lstm or an encoder"),
        ({"lora": {"rank": 2}}, "adapters"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(more: dict[str, Any], error: str, corpus: Path) -> None:
    with pytest.raises((ConfigError, ModelError), match=error):
        check_used(experiment(corpus, PLAIN, **more))


@pytest.mark.parametrize("classes", [[True, False], "sports", [["a"], ["b"]]], ids=str)
def test_classes_are_a_list_of_names(classes: Any, corpus: Path) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="classes"):
        experiment(corpus, PLAIN, classes=classes)


def test_a_tied_shape_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tied"):
        train(experiment(corpus, PLAIN, model_config={"tied": True}), tmp_path / "run", quiet)


# measuring


def test_a_record_in_pieces_counts_once(tmp_path: Path) -> None:
    """Against a loop over records, their pieces one at a time."""
    torch.manual_seed(5)
    tokenizer = byte_tokenizer()
    shape = LSTMConfig(tokenizer.vocabulary_size, 8, 8, dropout=0.0)
    classifier = LSTMClassifier.new(shape, ClassifierConfig(tuple(CLASSES)))
    with torch.no_grad():
        classifier.head.weight.normal_(std=4.0)  # type: ignore[operator]
    records = list(corpus_of(40, name=lambda number: "z" * (10 + number)))
    store = prepare(iter(records), Gold(), tokenizer, tmp_path / "store", PrepareConfig(16))
    assert len(store) > 2 * len(records)
    reader = LabelReader(store, tokenizer.end, 100, CLASSES)
    seen: list[int] = []
    found, contributions = label_quality(classifier, reader, seen.append)

    def guess(number: int, view: View) -> str:
        rows = [row for row in range(len(store)) if store.records[row] == number]
        scores = [classifier.logits(reader.batch([row], view).inputs)[0, 0].log_softmax(0) for row in rows]
        return CLASSES[int(torch.stack(scores).sum(dim=0).argmax())]

    wrong: dict[bool, list[bool]] = {True: [], False: []}
    redacted: list[bool] = []
    for number, record in enumerate(records):
        wrong[bool(record.spans)].append(guess(number, View.FULL) != record.label)
        redacted.append(guess(number, View.REDACTED) != record.label)
    assert sum(redacted) != sum(map(sum, wrong.values())), "text as written and redacted text must tell apart"
    assert (found.with_secrets.errors, found.with_secrets.records) == (sum(wrong[True]), len(wrong[True]))
    assert (found.without_secrets.errors, found.without_secrets.records) == (sum(wrong[False]), len(wrong[False]))
    assert 0 < found.overall.errors < found.overall.records == 40
    assert found.commonest.errors == 40 - max(Counter(record.label for record in records).values())
    assert seen[-1] == len(store)
    assert contributions.vectors[:, 0].tolist() == [
        float(guess(n, View.FULL) != r.label) for n, r in enumerate(records)
    ]


def test_nothing_held_out_gives_no_number(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    store = prepare(iter(()), Gold(), tokenizer, tmp_path / "store")
    classifier = LSTMClassifier.new(LSTMConfig(tokenizer.vocabulary_size, 8, 8), ClassifierConfig(tuple(CLASSES)))
    found, _ = label_quality(classifier, LabelReader(store, tokenizer.end, 100, CLASSES), quiet)
    assert found.overall.records == found.commonest.records == 0
    assert found.overall.interval() == (0.0, 1.0)


# as a person meets it


def test_the_command_line_prints_error_rates_with_their_interval(corpus: Path, tmp_path: Path) -> None:
    words = ["train", str(corpus), "--task", "classification", "--policy", "gold", "--mechanism", "plain"]
    words += ["--set", f"classes=[{', '.join(CLASSES)}]", "--set", "plan.public_epochs=1", "--set", "held_out=0.3"]
    words += ["--set", "hidden_size=16", "--out", str(tmp_path / "run")]
    output = CliRunner().invoke(app, words, catch_exceptions=False).output
    for said in ("test error rate", "95 % interval", "with secrets", "always the commonest class", "No guarantee"):
        assert said in output
    assert "perplexity" not in output
