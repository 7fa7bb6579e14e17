"""Train, resume, price and load: the functions that give or need a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tacit.api.inputs import FieldNames, check_policy_object, inputs_of, store_of
from tacit.api.settings import config
from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import rounded_up
from tacit.common.progress import logged, unwatched
from tacit.errors import ConfigError, RunError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tacit.audits.findings import Audit
    from tacit.common.progress import Observer
    from tacit.config.schema import Config
    from tacit.data.corpus import CorpusSource
    from tacit.data.tokenizer import Tokenizer
    from tacit.mechanisms.build import Terms
    from tacit.models.classifier import Classifier
    from tacit.models.language_model import Learner
    from tacit.policies.policy import Policy
    from tacit.privacy.guarantee import Guarantee
    from tacit.privacy.noisy_utility import ReleasedUtility
    from tacit.privacy.plan import Plan
    from tacit.reports.write import Reported
    from tacit.runs.release import FileName
    from tacit.runs.utility import Utility
    from tacit.runs.verify import Verified
    from tacit.training.prepared import Prepared
    from tacit.training.stages import Trained

T = TypeVar("T")


@dataclass(frozen=True)
class Run(Result):
    """A finished run: its claim, its model, and what can be done with them.

    Made by `tacit.train` and `tacit.load`. Each part is read from the run folder when it is first asked for. Of a
    release folder that somebody sent you, everything works that needs no private files: all but `audit` and `resume`.

    Examples:
        >>> import tacit
        >>> run = tacit.load("run")
        >>> run.config["plan"]["mechanism"]
        'selective'
        >>> text = run.generate("Hello", tokens=5)
    """

    folder: Path
    set_aside: int | None = None
    """Records that could not be used, right after training; `private/` has the reasons."""
    shared: int | None = None
    """Held-out texts that also occur in the training corpus, right after training."""
    base: Path | None = None
    """The folder of the base model of released adapters, where the run does not know it."""

    @cached_property
    def guarantee(self) -> "Guarantee":
        """What is guaranteed; `guarantee.sentence()` is the claim in words."""
        from tacit.privacy.guarantee import Guarantee
        from tacit.runs.release import PrivateFile, ReleaseFile

        inside = self.read(Guarantee, PrivateFile.GUARANTEE)
        return inside or self._required(Guarantee, ReleaseFile.GUARANTEE)

    @property
    def canary_values(self) -> dict[str, str]:
        """What each planted canary says, by its id; none where the private part is missing."""
        from tacit.runs.folder import RunFolder
        from tacit.runs.verify import planted_canaries

        planted = planted_canaries(RunFolder.view(self.folder)).planted
        return {canary.id: canary.value for one in planted for canary in one.canaries}

    @cached_property
    def plan(self) -> "Plan":
        """The plan that was priced and executed."""
        return self._terms.plan

    @cached_property
    def _terms(self) -> "Terms":
        from tacit.mechanisms.build import Terms
        from tacit.runs.release import ReleaseFile

        return self._required(Terms, ReleaseFile.PLAN)

    @cached_property
    def utility(self) -> "Utility":
        """What the model is worth on held-out text, exactly; only the folder that was trained in has it."""
        from tacit.runs.release import PrivateFile
        from tacit.runs.utility import Utility

        found = self.read(Utility, PrivateFile.UTILITY)
        if found is None:
            way_out = "use `released_utility`: the same numbers with noise"
            raise RunError("the private part of a finished run", "none in this folder", way_out)
        return found

    @cached_property
    def released_utility(self) -> "ReleasedUtility":
        """What the model is worth on held-out text, with the noise that was priced: this may leave."""
        from tacit.privacy.noisy_utility import ReleasedUtility
        from tacit.runs.release import ReleaseFile

        return self._required(ReleasedUtility, ReleaseFile.UTILITY)

    @cached_property
    def config(self) -> dict[str, Any]:
        """All settings of the run; of a release those that may leave."""
        from tacit.runs.release import PrivateFile, ReleaseFile

        inside: dict[str, Any] | None = self.read(dict, PrivateFile.SETTINGS)
        return inside or self._required(dict, ReleaseFile.CONFIG)

    @property
    def model(self) -> "Learner | Classifier":
        """The model, once the run is verified; `model.module` is the torch module."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer of the model."""
        return self._loaded[1]

    def generate(
        self, prompt: str = "", *, chat: str | None = None, tokens: int = 100, temperature: float = 1.0, seed: int = 0
    ) -> str:
        """Continue a prompt with the model, or answer a message.

        Args:
            prompt: what the text begins with. chat: instead, a message to answer; the answer alone is returned. tokens:
                the most to add. temperature: 0 takes the likeliest token each time. seed: same seed, same text.
        """
        from tacit.models.answers import answered
        from tacit.models.loading import continued

        if chat is None:
            return continued(*self._loaded, prompt, tokens, temperature, seed)
        if prompt:
            raise ConfigError("a prompt to continue, or a message to answer", "both", "leave prompt or chat out")
        return answered(*self._loaded, self.folder, chat, tokens, temperature, seed)

    def audit(
        self,
        *,
        attacks: Sequence[str] | None = None,
        reference: "str | Path | Run | None" = None,
        settings: Mapping[str, Any] | None = None,
        observe: "Observer" = unwatched,
    ) -> "Audit":
        """Attack the model and compare the findings with the claim; see `tacit.audit`."""
        from tacit.api.results import audit

        return audit(self, attacks=attacks, reference=reference, settings=settings, observe=observe)

    def report(self, *, out: str | Path | None = None, sample: int | None = None) -> "Reported":
        """Write the page of the run; see `tacit.report`."""
        from tacit.api.results import report

        return report(self, out=out, sample=sample)

    def verify(self) -> "Verified":
        """Recompute the claim from ledger, plan and files; see `tacit.verify`."""
        from tacit.api.results import verify

        return verify(self)

    def export(self, out: str | Path) -> Path:
        """Write the model as a new Hugging Face folder, adapters merged; see `tacit.api.export`."""
        from tacit.api.results import export

        return export(self, out)

    def resume(self, *, policy: "Policy | None" = None, observe: "Observer" = unwatched) -> "Run":
        """Continue the run if it was stopped; see `tacit.api.resume`."""
        return resume(self, policy=policy, observe=observe)

    def tables(self) -> Iterator[Table | Note]:
        """What the model is worth on held-out text, what to know about the corpus, what was `auto`, and the claim."""
        if not self._sent:
            yield from self.utility.tables()
        if self.set_aside:
            yield Note(f"{self.set_aside:,} records set aside; private/*/private/quarantine.jsonl has the reasons")
        if self.shared:
            yield Note(f"{self.shared:,} held-out texts also occur in the training corpus: the model has seen them")
        if chosen := self._automatic():
            yield Note("auto: " + ", ".join(f"{name} {value}" for name, value in chosen.items()), "dim")
        yield Note(self.guarantee.sentence(), "strong")

    def _automatic(self) -> dict[str, str]:
        """Settings of the private steps that nobody gave, and what was taken."""
        private = self._terms.rebuilt().private
        if private is None:
            return {}
        taken = {
            "expected_batch_size": f"{private.expected_batch:g}",
            "steps": f"{private.steps:,}",
            "noise_multiplier": rounded_up(private.noise_multiplier, 4),
            "clip_norm": f"{private.clip_norm:g}",
            "delta": rounded_up(private.delta, 3),
        }
        return {name: value for name, value in taken.items() if self.config["plan"].get(name) is None}

    def to_json(self) -> dict[str, Any]:
        """Folder, claim, guarantee and utility as JSON values."""
        from tacit.common.serialize import json_values

        return {
            "folder": str(self.folder),
            "sentence": self.guarantee.sentence(),
            "guarantee": json_values(self.guarantee),
            "utility": json_values(self.released_utility if self._sent else self.utility),
            "set_aside": self.set_aside,
            "shared": self.shared,
        }

    @property
    def _sent(self) -> bool:
        return not (self.folder / "private").is_dir()

    @cached_property
    def _loaded(self) -> "tuple[Learner | Classifier, Tokenizer]":
        from tacit.models.loading import load_any

        return load_any(self.folder, self.base)

    def read(self, kind: type[T], name: "FileName") -> T | None:
        """What a file of the run contains; None if it is not there."""
        from tacit.runs.folder import RunFolder

        view = RunFolder.view(self.folder)
        return view.read_json(kind, name) if view.path(name).is_file() else None

    def _required(self, kind: type[T], name: "FileName") -> T:
        found = self.read(kind, name)
        if found is None:
            way_out = f"finish it: tacit train --resume {self.folder}"
            raise RunError(f"a finished run in {self.folder}", f"one without {name}", way_out)
        return found


def load(run: "str | Path | Run", *, base: str | Path | None = None) -> Run:
    """Open a run folder, or a release folder that somebody sent you.

    Args:
        run: the folder that `tacit.train` made, or a copy of its `release/` under any name. Files are read, and the
            run is verified, when a part of it is asked for.
        base: the folder of the base model, for adapters that somebody sent you.

    Examples:
        >>> import tacit
        >>> tacit.load("run").guarantee.mechanism
        'selective'
    """
    from tacit.runs.folder import RunFolder

    known = run.base if isinstance(run, Run) else None
    RunFolder.view(folder_of(run))
    return Run(folder_of(run), base=known if base is None else Path(base))


def train(
    corpus: "CorpusSource | None" = None,
    *,
    mechanism: str,
    epsilon: float | None = None,
    policy: "str | Path | Mapping[str, Any] | Policy | None" = None,
    model: "str | Path | PreTrainedModel" = "lstm",
    lora_rank: int | None = None,
    base_name: str | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    expected_batch_size: float | None = None,
    task: str | None = None,
    tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
    mode: str | None = None,
    seed: int | None = None,
    prepared: "str | Path | Prepared | None" = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    observe: "Observer" = unwatched,
    **field_names: Unpack[FieldNames],
) -> Run:
    """Train a model on sensitive text and return the finished run.

    Args:
        corpus: a file, records, dictionaries, a table (pandas, polars, pyarrow), or a Hugging Face dataset. What is in
                memory is written to `private/inputs/` of the run, so that the run can be resumed. A prepared store has
                its own.
        mechanism: how to protect; `tacit plan --list` lists the mechanisms.
        epsilon: the privacy target; noise, sampling rate and steps are derived from it.
        policy: what is secret: a name, names with commas (any of them), a YAML file, a definition, or a `Policy`: pii.
        model: lstm, gpt, a local Hugging Face folder, the folder of an earlier run, or a model of transformers (with
            `tokenizer=` its tokenizer).
        lora_rank: train adapters of this rank instead of the whole model.
        base_name: what released adapters call the model that they belong to; by default the name of its folder.
        epochs: expected passes over the private units. minutes: instead, how long training may take.
        expected_batch_size: records drawn on average per private step; larger is better for the model and slower.
        task: language, or classification of records by their label.
        tokenizer: bytes, bpe, model (that of the model folder), or a tokenizer.json.
        mode: release, or research: all is drawn from `seed`, nothing is guaranteed. prepared: a store that
            `tacit.prepare` made; corpus, policy, tokenizer and data settings come from it.
        out: the run folder, run-MECHANISM by default. observe: called with progress events.
        settings: every other setting by its full or short name: {"clip_norm": 0.5}.
        **field_names: what the corpus calls the parts of a record (text_field, user_field, label_field, ...); of a
            corpus in a file they are settings, and held_out_corpus is read with them, too.

    Examples:
        >>> import tacit
        >>> size = {"hidden_size": 8, "embedding_size": 8}
        >>> settings = {"model_config": size, "held_out": 0.3, "max_tokens": 64, "max_full_tokens": 64}
        >>> settings["public_epochs"] = 1
        >>> run = tacit.train(
        ...     "corpus.jsonl", mechanism="selective", epsilon=8, epochs=1, expected_batch_size=16, out="run",
        ...     settings=settings,
        ... )
        >>> run.guarantee.figures[0].epsilon <= 8
        True
    """
    if isinstance(corpus, str | Path) and Path(corpus).suffix in (".yaml", ".yml"):
        way_out = "tacit.api.train_config(tacit.api.config(FILE), out)"
        raise ConfigError("a corpus", "a YAML file with settings", way_out)
    folder = Path(out or f"run-{mechanism}")
    words: dict[str, Any] = {"mechanism": mechanism, "epsilon": epsilon, "epochs": epochs, "task": task, "seed": seed}
    words["minutes"] = minutes
    with inputs_of(folder) as inputs:
        words["model"], words["tokenizer"] = inputs.model(model, tokenizer)
        words["policy"] = None if policy is None else inputs.policy(policy, "policy")
        words |= {"expected_batch_size": expected_batch_size, "lora_rank": lora_rank, "base_name": base_name}
        file, names = (None, field_names) if corpus is None else inputs.corpus(corpus, field_names)
        store = None if prepared is None else store_of(prepared)
        asked = config(file, prepared=store, mode=mode, **words, **names, settings=settings)
        return _trained(asked, folder, observe, inputs.set_aside, store)


def train_config(
    config: "Config",
    out: str | Path | None = None,
    *,
    prepared: str | Path | None = None,
    observe: "Observer" = unwatched,
) -> Run:
    """Train with all settings at hand, such as those of a YAML file: `train_config(config("settings.yaml"))`."""
    store = None if prepared is None else Path(prepared)
    return _trained(config, Path(out or f"run-{config.plan.mechanism}"), observe, prepared=store)


def resume(run: "str | Path | Run", *, policy: "Policy | None" = None, observe: "Observer" = unwatched) -> Run:
    """Continue a run that was stopped, with what it began with; a finished one is sealed anew.

    Args:
        policy: the policy, if the run was given one as an object and this is another process.
    """
    from tacit.runs.release import PrivateFile
    from tacit.training.stages import resume as go_on

    folder = folder_of(run)
    settings: dict[str, Any] = load(folder).read(dict, PrivateFile.SETTINGS) or {}
    check_policy_object(str(settings.get("policy")), policy)
    return _finished(go_on(folder, logged(observe)))


def generate(
    run: "str | Path | Run",
    prompt: str = "",
    tokens: int = 100,
    temperature: float = 1.0,
    seed: int = 0,
    *,
    chat: str | None = None,
    base: str | Path | None = None,
) -> str:
    """Continue a prompt with the model of a run, which is included; or answer the message `chat`, the answer alone."""
    return load(run, base=base).generate(prompt, chat=chat, tokens=tokens, temperature=temperature, seed=seed)


def folder_of(run: "str | Path | Run") -> Path:
    """The folder of a run."""
    return run.folder if isinstance(run, Run) else Path(run)


def _trained(
    config: "Config", folder: Path, observe: "Observer", set_aside: int = 0, prepared: Path | None = None
) -> Run:
    from tacit.training.stages import train as begin

    return _finished(begin(config, folder, logged(observe), prepared), set_aside)


def _finished(trained: "Trained", set_aside: int = 0) -> Run:
    run = Run(trained.folder, trained.set_aside + set_aside, trained.shared)
    vars(run).update(guarantee=trained.guarantee, utility=trained.utility)  # known: nothing is to be read
    return run
