"""Runs of Python objects: corpora, policies and models in memory; known by their content, resumed or refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tacit
from tacit.api import resume, simulate, train
from tacit.common.progress import Progress, unwatched
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, CorpusError, RunError
from tacit.policies.patterns import Digits, Regex

SETTINGS: dict[str, Any] = {
    "held_out": 0.3,
    "max_tokens": 64,
    "max_full_tokens": 64,
    "model_config": {"hidden_size": 8, "embedding_size": 8},
    "plan": {"steps": 3, "expected_batch_size": 4, "noise_multiplier": 1},
}
RESEARCH = {**SETTINGS, "mode": "research", "seed": 1}


@pytest.fixture(scope="module")
def records() -> list[tacit.Record]:
    return list(simulate("customersim", dialogs=30))


def stop(_: Progress) -> None:
    raise KeyboardInterrupt


def model_of(folder: Path) -> bytes:
    return (folder / "release" / "model.safetensors").read_bytes()


def test_a_table_trains_the_model_that_its_file_trains(records: list[tacit.Record], tmp_path: Path) -> None:
    simulate("customersim", dialogs=30, out=tmp_path / "c.jsonl")
    train(tmp_path / "c.jsonl", mechanism="dpsgd", policy="digits", out=tmp_path / "file", settings=RESEARCH)
    table = pa.table({name: [getattr(one, name) for one in records] for name in ("id", "text", "user")})
    table = table.rename_columns(["id", "body", "customer"])
    run = train(
        table,
        mechanism="dpsgd",
        policy=Digits(),
        out=tmp_path / "memory",
        settings=RESEARCH,
        text_field="body",
        user_field="customer",
    )
    assert model_of(run.folder) == model_of(tmp_path / "file")
    assert (run.folder / "private" / "inputs").stat().st_mode & 0o077 == 0
    assert not list((run.folder / "release").glob("**/*corpus*"))
    assert run.verify().holds


def test_names_of_fields_are_settings_of_a_run(records: list[tacit.Record], tmp_path: Path) -> None:
    """A file with other names, and a held-out one like it, train the model that files with the usual names train."""
    names: dict[str, Any] = {"text_field": "body", "id_field": "number", "user_field": "customer"}
    halves = {"c": records[:20], "h": [replace(one, id=f"h{one.id}", user=f"h{one.user}") for one in records[20:]]}
    for name, half in halves.items():
        write_jsonl(half, tmp_path / f"{name}.jsonl")
        rows = [{"body": one.text, "number": one.id, "customer": one.user} for one in half]
        (tmp_path / f"{name}-renamed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def begin(suffix: str, observe: Any = unwatched, **more: Any) -> tacit.Run:  # noqa: ANN401
        held_out = {"held_out": None, "held_out_corpus": str(tmp_path / f"h{suffix}.jsonl")}
        more |= {"policy": "digits", "settings": {**RESEARCH, **held_out}, "observe": observe}
        return train(tmp_path / f"c{suffix}.jsonl", mechanism="dpsgd", out=tmp_path / f"run{suffix}", **more)

    usual = begin("")
    with pytest.raises(KeyboardInterrupt):
        begin("-renamed", stop, **names)
    renamed = resume(tmp_path / "run-renamed")
    assert model_of(renamed.folder) == model_of(usual.folder)
    assert renamed.utility == usual.utility
    assert not (renamed.folder / "private" / "inputs").exists()
    assert not any('"body"' in file.read_text() for file in (renamed.folder / "release").glob("**/*.json"))
    with pytest.raises(CorpusError, match="the field 'costumer' in some record"):
        train(tmp_path / "c.jsonl", mechanism="dpsgd", out=tmp_path / "x", settings=SETTINGS, user_field="costumer")
    settings = renamed.folder / "private" / "settings.json"
    settings.write_text(settings.read_text().replace('"customer"', '"user"'))
    with pytest.raises(RunError, match="changed since: settings"):
        resume(renamed)


def test_a_stopped_run_resumes_from_its_private_files(records: list[tacit.Record], tmp_path: Path) -> None:
    given: list[Any] = [*records, {"text": " "}]
    with pytest.raises(KeyboardInterrupt):
        train(
            (one for one in given),
            mechanism="dpsgd",
            policy={"regex": "[0-9]+", "kind": "NUMBER"},
            out=tmp_path / "run",
            settings=SETTINGS,
            observe=stop,
        )
    assert resume(tmp_path / "run").guarantee.figures
    (tmp_path / "run" / "private" / "inputs" / "policy.yaml").write_text("policy: digits\n")
    with pytest.raises(RunError, match="changed since: policy"):
        resume(tmp_path / "run")


def test_records_that_cannot_be_used_are_counted(records: list[tacit.Record], tmp_path: Path) -> None:
    given: list[Any] = [*records, {"text": ""}, {"no text": 1}]
    run = train(given, mechanism="dpsgd", policy="digits", out=tmp_path / "run", settings=SETTINGS)
    assert run.set_aside == 2


def test_a_policy_object_is_needed_again_in_another_process(records: list[tacit.Record], tmp_path: Path) -> None:
    folder, policy = tmp_path / "run", Regex("[0-9]{2,}", "NUMBER")
    run = train(records, mechanism="dpsgd", policy=policy, out=folder, settings=SETTINGS)
    assert resume(run).guarantee == run.guarantee, "this process knows the policy"
    program = f"""
import tacit
from tacit.policies.patterns import Digits, Regex
for policy in (None, Digits(), Regex("[0-9]{{2,}}", "NUMBER")):
    try:
        print(tacit.load({str(folder)!r}).resume(policy=policy).guarantee.mechanism)
    except tacit.TacitError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    missing, other, same = done.stdout.strip().splitlines()
    assert "the policy object that the run was trained with" in missing
    assert "changed since: policy" in other
    assert same == "dpsgd"


def test_a_start_that_is_refused_leaves_nothing(records: list[tacit.Record], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train(records, mechanism="nonsense", out=tmp_path / "run", settings=SETTINGS)
    with pytest.raises(ConfigError, match="a policy"):
        train(records, mechanism="dpsgd", policy=7, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="other files"):
        train(records, mechanism="dpsgd", out=tmp_path / "mine", settings=SETTINGS)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_run_that_has_begun_is_not_overwritten(records: list[tacit.Record], tmp_path: Path) -> None:
    run = train(records, mechanism="dpsgd", policy="digits", out=tmp_path / "run", settings=SETTINGS)
    corpus = run.folder / "private" / "inputs" / "corpus.jsonl.zst"
    before = corpus.read_bytes()
    with pytest.raises(RunError, match="has begun"):
        train(records[:20], mechanism="dpsgd", policy="digits", out=tmp_path / "run", settings=SETTINGS)
    assert corpus.read_bytes() == before


def test_unknown_names_of_fields_are_type_errors(records: list[tacit.Record]) -> None:
    with pytest.raises(TypeError, match="txt_field"):
        tacit.scan(records, "digits", processes=1, txt_field="body")  # type: ignore[call-arg]


def test_a_transformers_model_with_its_tokenizer(records: list[tacit.Record], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from tacit.data.tokenizer import byte_tokenizer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={symbol: at for at, symbol in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner)
    shape = {"vocab_size": 256, "n_positions": 66, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    settings = {**SETTINGS, "model_config": {}}
    run = train(
        records, mechanism="dpsgd", policy="digits", model=model, tokenizer=tokenizer, out=tmp_path / "a",
        settings=settings,
    )  # fmt: skip
    assert run.config["model"] == str(run.folder / "private" / "inputs" / "model")
    assert run.generate("Hello", tokens=3).startswith("Hello")
    assert (run.tokenizer.vocabulary_size - byte_tokenizer().vocabulary_size) == 0
    with pytest.raises(ConfigError, match="give both model and tokenizer"):
        train(records, mechanism="dpsgd", tokenizer=tokenizer, out=tmp_path / "b")
    with pytest.raises(ConfigError, match="a name, a folder or a model"):
        train(records, mechanism="dpsgd", model=object(), out=tmp_path / "c")  # type: ignore[arg-type]
