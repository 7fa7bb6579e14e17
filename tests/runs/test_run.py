"""The run folder: fixed names, whole files, one writer, no ledger no resume, nothing private in release/."""

import ast
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import tacit
from runs import recorded
from tacit.common import files
from tacit.common.serialize import to_json
from tacit.data.tokenizer import byte_tokenizer, load_tokenizer
from tacit.errors import LedgerError, RunError
from tacit.mechanisms.build import Terms, plan
from tacit.mechanisms.registry import describe
from tacit.privacy.events import Free
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.plan import Plan
from tacit.runs.folder import RunFolder
from tacit.runs.release import MadeWith, PrivateFile, ReleaseFile
from tacit.runs.weights import read_model, write_model

PLANNED = plan({"mechanism": "selective", "noise_multiplier": 1.0, "records": 500})
TERMS = Terms(describe(PLANNED.mechanism), PLANNED.plan)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_new_run_has_its_names_and_an_empty_ledger(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "deep" / "run") as run:
        assert names(run.folder) == {"run.json", "release/tacit/ledger.jsonl", "private/key", "private/lock"}
        assert run.ledger.charges() == {}
        assert (run.folder / "private").stat().st_mode & 0o077 == 0
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty").close()


def test_what_was_written_is_read(run: RunFolder) -> None:
    """Plan, guarantee, configuration, utility, tokenizer, model; by the writer and by a reader."""
    tokenizer = byte_tokenizer()
    tensors = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.zeros(())}
    run.write_json(ReleaseFile.PLAN, TERMS)
    run.write_json(ReleaseFile.GUARANTEE, PLANNED.guarantee)
    run.write_json(
        ReleaseFile.CONFIG, {"model": "lstm", "model_config": {"hidden_size": 200}, "data": {"max_tokens": 64}}
    )
    run.write_json(PrivateFile.SETTINGS, {"seed": 7})
    run.write(ReleaseFile.TOKENIZER, tokenizer.save)
    write_model(run, tensors)
    run.close()
    view = RunFolder.view(run.folder)
    assert view.read_json(Terms, ReleaseFile.PLAN) == TERMS
    assert view.read_json(Guarantee, ReleaseFile.GUARANTEE) == PLANNED.guarantee
    assert view.read_json(dict, ReleaseFile.CONFIG)["model_config"] == {"hidden_size": 200}
    assert view.read_json(dict, PrivateFile.SETTINGS) == {"seed": 7}
    assert load_tokenizer(view.path(ReleaseFile.TOKENIZER)).hash == tokenizer.hash
    read = read_model(view)
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in tensors.items())
    assert names(run.folder / "release") <= set(ReleaseFile)
    assert {path.name for path in (run.folder / "private").iterdir()} <= set(PrivateFile)


def test_release_files_are_readable_and_private_ones_are_not(run: RunFolder) -> None:
    write_model(run, {"a": torch.zeros(2)})
    run.write_json(PrivateFile.SETTINGS, {})
    assert run.path(ReleaseFile.MODEL).stat().st_mode & 0o777 == 0o644
    assert run.path(PrivateFile.SETTINGS).stat().st_mode & 0o777 == 0o600


def test_g1_files_are_synced_before_they_get_their_name(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def told_sync(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[1]
        done.append("sync " + re.sub("(?<=^.draft-)[0-9a-f]{16}-", "", name))
        sync(descriptor)

    def told_replace(source: Path, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", told_sync)
    monkeypatch.setattr(os, "replace", told_replace)
    run.write_json(ReleaseFile.UTILITY, {})
    assert done == ["sync .draft-utility.json", "rename", "sync tacit"]


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_g1_a_failed_write_leaves_the_old_file(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, fails: str, number: int
) -> None:
    run.write_json(ReleaseFile.UTILITY, {"records": 1})
    before = names(run.folder)

    def refuse(*_: Any) -> NoReturn:  # noqa: ANN401
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        if fails == "write":
            patched.setattr("tacit.runs.folder.write_new", refuse)
        else:
            patched.setattr(os, fails, refuse)
        with pytest.raises(RunError, match=os.strerror(number).lower()):
            run.write_json(ReleaseFile.UTILITY, {"records": 2})
    assert run.read_json(dict, ReleaseFile.UTILITY) == {"records": 1}
    assert names(run.folder) == before


def test_g1_a_disk_limit_met_by_safetensors_is_a_clear_error(run: RunFolder) -> None:
    """A real one, in a process of its own whose files may not grow beyond 64 KB."""
    run.close()
    script = """
import resource, signal, sys
from pathlib import Path
import torch
from tacit.errors import RunError
from tacit.runs.folder import RunFolder
from tacit.runs.weights import read_model, write_model
run = RunFolder.open(Path(sys.argv[1]))
write_model(run, {"a": torch.ones(3)})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    write_model(run, {"a": torch.zeros(1 << 16)})
except RunError as error:
    print(error)
assert read_model(run)["a"].tolist() == [1, 1, 1]
"""
    done = subprocess.run([sys.executable, "-c", script, str(run.folder)], capture_output=True, text=True, check=True)
    assert "found file too large. Way out: make room on the disk and resume" in done.stdout
    kept = {"run.json", "release/tacit/ledger.jsonl", "release/model.safetensors", "private/key", "private/lock"}
    assert names(run.folder) == kept


def test_g2_a_second_writer_is_refused_and_a_reader_is_not(run: RunFolder) -> None:
    with pytest.raises(RunError, match="only writer"):
        RunFolder.open(run.folder)
    RunFolder.view(run.folder)
    run.close()
    run.close()
    RunFolder.open(run.folder).close()


def test_g2_a_dead_writer_holds_nothing(run: RunFolder) -> None:
    run.close()
    script = """
import sys, time
from pathlib import Path
from tacit.runs.folder import RunFolder
run = RunFolder.open(Path(sys.argv[1]))
print("open", flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", script, str(run.folder)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    with pytest.raises(RunError, match="another process"):
        RunFolder.open(run.folder)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    RunFolder.open(run.folder).close()


def test_g3_without_the_ledger_there_is_no_going_on(run: RunFolder) -> None:
    run.ledger.declare("public", {"record": Free("why")})
    run.close()
    ledger = run.path(ReleaseFile.LEDGER)
    content = ledger.read_bytes()
    ledger.unlink()
    with pytest.raises(LedgerError, match="begin a new run"):
        RunFolder.open(run.folder)
    ledger.write_bytes(content.replace(b"public", b"puclib"))
    with pytest.raises(LedgerError):
        RunFolder.open(run.folder)
    ledger.write_bytes(content)
    with RunFolder.open(run.folder) as again:
        assert again.ledger.charges() == {"public": 0}


def test_g4_the_plan_stays(run: RunFolder) -> None:
    run.write_json(ReleaseFile.PLAN, TERMS)
    run.write_json(ReleaseFile.PLAN, TERMS)
    planned = plan({"mechanism": "selective", "noise_multiplier": 2.0, "records": 500})
    other = Terms(describe(planned.mechanism), planned.plan)
    with pytest.raises(RunError, match="another one"):
        run.write_json(ReleaseFile.PLAN, other)
    assert run.read_json(Terms, ReleaseFile.PLAN) == TERMS


@pytest.mark.parametrize(
    "content",
    [
        {"seed": 1},
        {"training": [{"random-seed": 1}]},
        {"train_loss": 2.5},
        {"steps": {"losses": [0.5]}},
        {"corpus": "letters-of-ann-lee.jsonl"},
        {"a setting that nobody thought of": ""},
        {"task": {"language": 1}},
    ],
    ids=str,
)
def test_g5_what_may_not_leave_is_refused(run: RunFolder, content: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=next(iter(content))):
        run.write_json(ReleaseFile.CONFIG, content)
    assert not run.path(ReleaseFile.CONFIG).exists()
    run.write_json(PrivateFile.SETTINGS, content)


def unpickles(source: str) -> bool:
    """Whether the code names a loader that unpickles, or a module that has no other use."""
    modules = {"_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    loaders = {
        (module, name) for module in ("pickle", "torch", "np", "numpy") for name in ("load", "loads", "Unpickler")
    }
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    safe = [call.func for call in calls if "allow_pickle=False" in map(ast.unparse, call.keywords)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and modules & {alias.name.split(".")[0] for alias in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and node.module:
            imported = {(node.module, alias.name) for alias in node.names}
            if node.module.split(".")[0] in modules or imported & loaders:
                return True
        if isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in loaders and node not in safe:
            return True
    return False


def test_g5_nothing_in_the_package_unpickles() -> None:
    """Controls: each way of writing it is noticed."""
    controls = ("torch.load(p)", "import dill", "from pickle import loads", "np.load(p)", "pickle.Unpickler(f)")
    assert all(unpickles(control) for control in (*controls, "np.load(p, allow_pickle=True)"))
    assert not unpickles("np.load(p, allow_pickle=False)")
    for file in Path(tacit.__file__).parent.rglob("*.py"):
        assert not unpickles(file.read_text("utf-8")), file


def test_importing_the_folder_needs_no_torch() -> None:
    script = "import sys, tacit.runs.folder; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_private_log_survives_a_torn_line(run: RunFolder) -> None:
    assert recorded(run) == []
    run.record({"step": 0, "loss": 2.5, "kind": "public"})
    with run.path(PrivateFile.STEPS).open("a") as log:
        log.write('{"step": 1, "lo')
    run.close()
    with RunFolder.open(run.folder) as again:
        again.record({"step": 1, "loss": 2.25})
        lines = [{"step": 0, "loss": 2.5, "kind": "public"}, {"step": 1, "loss": 2.25}]
        assert recorded(again) == lines
    RunFolder.open(run.folder).close()
    assert recorded(RunFolder.view(run.folder)) == lines


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for open_it in (RunFolder.open, RunFolder.view):
        with pytest.raises(RunError, match=r"without a run\.json"):
            open_it(tmp_path)
        with pytest.raises(RunError, match="no folder"):
            open_it(tmp_path / "nowhere")
    with pytest.raises(RunError, match="other files"):
        RunFolder.create(tmp_path)
    assert names(tmp_path) == {"notes.txt"}
    (tmp_path / "run.json").write_text(json.dumps({"format": "tacit-run", "version": 2}))
    with pytest.raises(RunError, match="this version"):
        RunFolder.open(tmp_path)


def test_a_run_that_has_begun_is_not_made_again(run: RunFolder) -> None:
    with pytest.raises(RunError, match="the only writer"):
        RunFolder.create(run.folder)
    run.ledger.declare("public", {"a record, zero-out": Free("nobody's")})
    run.ledger.charge("public")
    with pytest.raises(RunError, match="that charged nothing"):
        run.discard()
    run.close()
    with pytest.raises(RunError, match="found a run that has begun"):
        RunFolder.create(run.folder)
    run.path(ReleaseFile.LEDGER).unlink()
    with pytest.raises(RunError, match="found a run that has begun"):
        RunFolder.create(run.folder)
    with pytest.raises(RunError, match="make the run folder"):
        RunFolder.create(run.folder / "run.json" / "deeper")


def test_what_a_start_that_charged_nothing_left_is_taken_over(run: RunFolder) -> None:
    """At every moment before the first charge; and drafts of killed writers are gone when a run is opened."""
    run.write_json(PrivateFile.SETTINGS, {"of": "the first try"})
    run.close()
    drafts = [run.folder / place / ".draft-a" for place in ("", "release", "release/tacit", "private")]
    for draft in drafts:
        draft.mkdir()
        (draft / "part").write_text("half")
    RunFolder.open(run.folder).close()
    assert not any(draft.exists() for draft in drafts)
    (run.folder / "private").chmod(0o755)
    RunFolder.create(run.folder).close()
    assert not run.path(PrivateFile.SETTINGS).exists()
    assert (run.folder / "private").stat().st_mode & 0o777 == 0o700
    (run.folder / "run.json").unlink()
    RunFolder.create(run.folder).close()
    run.path(ReleaseFile.LEDGER).unlink()
    (run.folder / "run.json").unlink()
    with RunFolder.create(run.folder) as again:
        again.discard()
    assert not run.folder.exists()


@pytest.mark.parametrize("again", ["create", "discard"])
def test_a_start_that_was_killed_while_removing_an_older_one_can_be_repeated(
    again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a mark that is removed before other parts: the folder would be taken for other files."""
    for removed in range(20):
        place = tmp_path / f"{again} {removed}"
        with RunFolder.create(place) as run:
            run.write_json(PrivateFile.SETTINGS, {})
            run.write_json(ReleaseFile.MADE, MadeWith())
        left = [removed]

        def killed(part: Path, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            files.remove(part)

        child = os.fork()
        if not child:
            try:
                monkeypatch.setattr("tacit.runs.folder.remove", killed)
                RunFolder.create(place) if again == "create" else RunFolder.open(place).discard()
                os._exit(0)
            finally:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, 9)
        RunFolder.create(place).close()
        if not ended:
            assert removed > 5
            return


def test_a_folder_with_our_names_and_other_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "diary.txt").write_text("mine")
    with pytest.raises(RunError, match="other files"):
        RunFolder.create(tmp_path)
    assert names(tmp_path) == {"private/diary.txt"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_written(run: RunFolder, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    run.close()

    def refuse(*_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        raise OSError(number, os.strerror(number))

    half = run.folder.parent / "half"
    acts: list[tuple[str, Callable[[], object]]] = [
        ("os.open", lambda: RunFolder.open(run.folder)),
        ("pathlib.Path.mkdir", lambda: RunFolder.create(half)),
        ("tacit.runs.folder.sync_folder", lambda: RunFolder.create(half)),
        ("tacit.common.files.write_new", lambda: RunFolder.create(half)),
    ]
    for name, act in acts:
        with monkeypatch.context() as patched:
            patched.setattr(name, refuse)
            with pytest.raises(RunError, match=os.strerror(number).lower()):
                act()
    assert names(half) == set()
    RunFolder.create(half).close()


def test_closed_runs_and_readers_do_not_write(run: RunFolder) -> None:
    run.close()
    for closed in (run, RunFolder.view(run.folder)):
        with pytest.raises(RunError, match="open for writing"):
            closed.write_json(ReleaseFile.UTILITY, {})
        with pytest.raises(RunError, match="open for writing"):
            closed.record({"step": 1})
        with pytest.raises(RunError, match="open for writing"):
            closed.ledger.charges()


def test_files_that_are_missing_or_damaged_are_said(run: RunFolder) -> None:
    with pytest.raises(RunError, match=r"guarantee\.json"):
        run.read_json(Guarantee, ReleaseFile.GUARANTEE)
    with pytest.raises(RunError, match=r"model\.safetensors"):
        read_model(run)
    run.path(ReleaseFile.PLAN).write_text(to_json(PLANNED.plan)[:-5])
    with pytest.raises(RunError, match=r"plan\.json"):
        run.read_json(Plan, ReleaseFile.PLAN)
    run.path(ReleaseFile.MODEL).write_bytes(b"\x80\x04pickled")
    with pytest.raises(RunError, match="whole"):
        read_model(run)


def test_tensors_that_share_memory(run: RunFolder) -> None:
    """One parameter under two names is refused; two parts of one buffer are two tensors."""
    tensor = torch.zeros(8)
    with pytest.raises(RunError, match="share their memory"):
        write_model(run, {"a": tensor, "b": tensor})
    assert not run.path(ReleaseFile.MODEL).exists()
    write_model(run, {"a": tensor[:4], "b": tensor[4:]})
    assert read_model(run)["b"].tolist() == [0, 0, 0, 0]
