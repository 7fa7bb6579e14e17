"""Runs on chats: with and without a template, trained, attacked, reported and resumed."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import yaml
from tokenizers import Tokenizer as HuggingFaceTokenizer
from torch import Tensor
from typer.testing import CliRunner

from chat_folders import CHATML, TRIMMING, chat, write_llama, write_tokenizer
from runs import PLANS, quiet
from tacit.api import audit, generate, report, scan, simulate
from tacit.audits.target import Target
from tacit.cli.main import app
from tacit.config.load import load_config
from tacit.config.model_schema import LSTMConfig
from tacit.config.schema import Config
from tacit.data.chats import ChatTemplate
from tacit.data.folder_tokenizer import read_folder_tokenizer
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError, CorpusError, RunError
from tacit.models.answers import answered
from tacit.models.lstm import LSTM
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.prepared import prepare
from tacit.training.stages import resume, train

QUICK = {"exposure": {"draws": 100, "method": "sampled"}, "extraction": {"tries": 1}, "surrogates": 1, "candidates": 10}
CANARIES = [{"template": "My code is {4 digits}", "count": 4, "repetitions": 2, "inside_probability": 1.0}]
SMALL = {"embedding_size": 4, "hidden_size": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated chats and a tiny model folder."""
    folder = tmp_path_factory.mktemp("chats")
    simulate("customersim", 30, folder / "chats.jsonl", format="messages")
    write_llama(folder / "llama", CHATML)
    return folder


def settings(corpus: Path, mechanism: str = "selective", **more: Any) -> Config:  # noqa: ANN401
    words = {
        "corpus": str(corpus),
        "mode": "research",
        "policy": "gold",
        "held_out": 0.3,
        "max_tokens": 96,
        "max_full_tokens": 120,
        "plan": {"mechanism": mechanism, **PLANS[mechanism]},
        "model_config": SMALL if more.get("model", "lstm") == "lstm" else {},
        **more,
    }
    return load_config(words)


def llama(place: Path, mechanism: str = "selective", **more: Any) -> Config:  # noqa: ANN401
    words = {"model": str(place / "llama"), "lora": {"rank": 2}, "canaries": CANARIES, **more}
    return settings(place / "chats.jsonl", mechanism, **words)


@pytest.fixture(scope="module")
def templated(place: Path) -> Path:
    """A run with a template, of which the assistant's messages are learned."""
    return train(llama(place, train_on="assistant"), place / "run", quiet).folder


def test_a_run_with_a_template_goes_all_the_way(templated: Path) -> None:
    store = PreparedCorpus(templated / "private" / PrivateFile.PREPARED)
    facts = store.header.facts
    assert (facts.chats, facts.train_on) == (True, "assistant")
    assert facts.chat_template is not None
    assert facts.chat_template["source"] == CHATML
    assert not store.header.counts.quarantined
    audit(templated, settings=QUICK)
    assert report(templated).page.is_file()


def test_canaries_are_spelled_as_they_were_trained(templated: Path) -> None:
    """What exposure scores is a row of the store, token for token, and all of it is learned."""
    target = Target.of(RunFolder.view(templated))
    (planted,) = target.planted
    spelling, store = target.spelling(planted), target.trained.store
    rows = {store.record_id(row): row for row in range(len(store))}
    for canary in planted.canaries:
        row = rows[f"{canary.id}/0"]
        spelled = spelling.of_values(planted.plan.slot, [canary.value])[0]
        tokens = [*spelling.opening, *(int(token) - 1 for token in spelled if token)]
        whole = store.full(row).tokens.tolist()
        assert whole[: len(tokens)] == tokens
        assert target.tokenizer.decode(whole[len(tokens) :]) == "<|im_end|>\n"
        learned = store.learned(row)
        assert learned is not None
        assert int(learned.sum()) == len(store.redacted(row)) - len(spelling.opening) - 1  # but the line break


def test_messages_are_answered_from_the_command_line(templated: Path, place: Path) -> None:
    words = ["generate", str(templated), "--chat", "Where is my order?", "--tokens", "5", "--temperature", "0"]
    found = CliRunner().invoke(app, words, catch_exceptions=False)
    answer = generate(templated, chat="Where is my order?", tokens=5, temperature=0.0)
    assert found.output.strip() == answer
    assert ChatTemplate.of_folder(templated / "release") == ChatTemplate.of_folder(place / "llama")
    with pytest.raises(ConfigError, match="both"):
        generate(templated, "Once", chat="Hello?")


@pytest.mark.parametrize("template", [None, CHATML])
def test_an_answer_ends_where_the_message_ends(template: str | None, tmp_path: Path) -> None:
    """A model that says more: what comes behind the end of its message is no part of the answer."""
    folder = write_tokenizer(tmp_path, template)
    tokenizer = read_folder_tokenizer(folder)
    manifest = folder / ReleaseFile.MANIFEST  # as if it were released
    manifest.parent.mkdir(exist_ok=True)
    manifest.touch()
    end = "\n" if template is None else "<|im_end|>"
    asked: list[str] = []

    def says(_: object, start: Tensor, *others: object) -> Tensor:
        asked.append(tokenizer.decode(start[0].tolist()))
        whole = HuggingFaceTokenizer.from_file(str(folder / "tokenizer.json")).encode(f"It is here.{end}user")
        return torch.tensor([whole.ids])

    model = LSTM.new(LSTMConfig(tokenizer.vocabulary_size, 2, 2))
    with patch("tacit.models.answers.generate", says):
        answer = answered(model, tokenizer, folder, " Where is it? ", 20, 0.0, 0)
    assert answer == "It is here."
    lines = f"{tokenizer.decode([tokenizer.begin])}user: Where is it?\nassistant: "
    system = "<|im_start|>system\nBe kind.<|im_end|>\n"
    templated = f"{system}<|im_start|>user\nWhere is it?<|im_end|>\n<|im_start|>assistant\n"
    assert asked == [lines if template is None else templated]


def test_another_template_is_another_model(templated: Path, place: Path) -> None:
    file = place / "llama" / "chat_template.jinja"
    file.write_text(TRIMMING)
    with pytest.raises(RunError, match="changed since: model"):
        resume(templated, quiet)
    file.write_text(CHATML)
    resume(templated, quiet)


@pytest.mark.parametrize("train_on", ["all", "assistant"])
def test_models_without_a_template_read_lines(train_on: str, place: Path, tmp_path: Path) -> None:
    config = settings(place / "chats.jsonl", canaries=CANARIES, train_on=train_on, tokenizer="bytes")
    trained = train(config, tmp_path / "run", quiet)
    held_out = PreparedCorpus(tmp_path / "run/private" / PrivateFile.HELD_OUT)
    assert held_out.framed
    counted = trained.utility.public.tokens + trained.utility.private.tokens
    characters = trained.utility.characters
    assert characters < counted < 1.1 * characters  # bytes: one for each character, and what ends messages and rows
    audit(tmp_path / "run", settings=QUICK)


def test_fewer_targets_are_assistants(place: Path, tmp_path: Path) -> None:
    """Negative control: with all of it learned, more is measured."""
    tokens = []
    for train_on in ("all", "assistant"):
        config = settings(place / "chats.jsonl", "plain", train_on=train_on)
        tokens.append(train(config, tmp_path / train_on, quiet).utility.public.tokens)
    assert tokens[1] < 0.8 * tokens[0]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def with_system(number: int) -> dict[str, Any]:
    said = (("system", "Be brief."), ("user", f"Order {number}?"), ("assistant", "Shipped."))
    return chat(*said, id=str(number))


def test_a_template_that_rejects_system_turns_is_one_sentence(tmp_path: Path) -> None:
    """Before anything is written: no run folder, and the corpus was hardly read."""
    corpus = write(tmp_path / "chats.jsonl", [with_system(number) for number in range(300)])
    write_llama(tmp_path / "llama", TRIMMING)
    words = ["--model", str(tmp_path / "llama"), "--mechanism", "redaction", "--out", str(tmp_path / "run")]
    found = CliRunner().invoke(app, ["train", str(corpus), *words])
    assert isinstance(found.exception, ConfigError)
    rejected = "the template rejects the roles system, user, assistant: System role not supported"
    assert rejected in str(found.exception)
    assert not (tmp_path / "run").exists()


def test_some_rejected_chats_are_counted(tmp_path: Path) -> None:
    rows = [chat(("user", f"Order {number}?"), ("assistant", "Shipped."), id=str(number)) for number in range(20)]
    corpus = write(tmp_path / "chats.jsonl", [with_system(100), *rows, with_system(101)])
    write_llama(tmp_path / "llama", TRIMMING)
    config = settings(corpus, "redaction", model=str(tmp_path / "llama"), policy="digits")
    assert train(config, tmp_path / "run", quiet).set_aside == 2


def test_texts_have_no_assistant(tmp_path: Path) -> None:
    corpus = write(tmp_path / "texts.jsonl", [{"text": f"Order {number}."} for number in range(20)])
    with pytest.raises(ConfigError, match="chats with train_on: assistant"):
        train(settings(corpus, "plain", policy="digits", train_on="assistant"), tmp_path / "run", quiet)
    rows = [{"text": f"Order {number}."} if number % 2 else with_system(number) for number in range(20)]
    mixed = write(tmp_path / "mixed.jsonl", rows)
    with pytest.raises(CorpusError, match="records with messages beside records without"):
        train(settings(mixed, "plain", policy="digits"), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_a_policy_for_the_users_messages_alone(place: Path, tmp_path: Path) -> None:
    definition = {"roles": {"of": ["user"], "policy": "gold"}}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({"policy": definition}))
    both, users = (scan(place / "chats.jsonl", one, processes=1, stability=20) for one in ("gold", definition))
    assert 0 < users.secrets < both.secrets
    assert users.stability is None or users.stability.redaction_stable
    config = settings(place / "chats.jsonl", policy=str(tmp_path / "policy.yaml"))
    store = train(config, tmp_path / "run", quiet).folder / "private" / PrivateFile.PREPARED
    spans = PreparedCorpus(store).header.counts.spans
    assert 0 < spans <= users.secrets
    with pytest.raises(Exception, match="a text without roles"):
        scan([{"text": "no chat"}], definition, processes=1)


def test_a_prepared_store_has_the_template(place: Path, tmp_path: Path) -> None:
    """A run takes a store of chats that was made with its template, and no other."""
    write_llama(tmp_path / "llama", CHATML)
    config = settings(place / "chats.jsonl", "redaction", model=str(tmp_path / "llama"), train_on="assistant")
    store = prepare(config, tmp_path / "store", quiet)
    assert store.records
    train(config, tmp_path / "run", quiet, tmp_path / "store")
    (tmp_path / "llama" / "chat_template.jinja").write_text(CHATML.replace("Be kind", "Be brief"))
    with pytest.raises(ConfigError, match="chat template"):
        train(config, tmp_path / "other", quiet, tmp_path / "store")
