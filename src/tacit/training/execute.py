"""What every process of a run does once all is prepared and planned: it trains, and measures on held-out records.

G1 (same parts). A process reads what was prepared and what was planned from the run folder, and prepares nothing.
G2 (shares). Of several processes each takes its share of every draw and of the held-out records; all have the results.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

from tacit.common.progress import Observer, Progress
from tacit.config.schema import Config
from tacit.config.setting import Mode
from tacit.data.batches import RowReader
from tacit.data.forms import Forms
from tacit.data.labels import LabelReader
from tacit.data.ownership import RecordMarks
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ConfigError
from tacit.models.classifier import Classifier
from tacit.models.evaluation import evaluate, label_quality, mean_nats
from tacit.models.language_model import Learner
from tacit.models.transformers_model import own_parameters
from tacit.privacy.noisy_utility import Contributions
from tacit.privacy.plan import Plan, Targets, View
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.utility import TokenQuality, Utility
from tacit.runs.weights import keep_model
from tacit.training.checks import public_choice
from tacit.training.group import ALONE, Group
from tacit.training.marking import Caps, annotate
from tacit.training.parts import Model, make_reader, train_settings, with_cache
from tacit.training.pools import Annotation, Pools
from tacit.training.randomness import Streams
from tacit.training.trainer import Choice, Trainer, watched


@dataclass(frozen=True, slots=True, eq=False)
class RunParts:
    """What was prepared, as every process reads it."""

    config: Config
    tokenizer: Tokenizer
    store: PreparedCorpus
    held_out: PreparedCorpus
    marks: RecordMarks
    annotation: Annotation
    dropped: float | None
    pools: Pools

    @classmethod
    def of(cls, config: Config, tokenizer: Tokenizer, run: RunFolder) -> "RunParts":
        store, held_out = (PreparedCorpus(run.path(place)) for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT))
        for one in (store, held_out):
            make_reader(config, tokenizer, one)  # which looks every label up, before anything is spent
        _check_held_out(held_out)
        marks = RecordMarks.load(run.path(PrivateFile.MARKS))
        annotation, dropped = annotate(store, marks, Caps(config.plan.user_cap, config.plan.entity_cap))
        return cls(config, tokenizer, store, held_out, marks, annotation, dropped, Pools(annotation))


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """One process's part in a run. The run is open for writing on the rank that writes, and a view on the others."""

    parts: RunParts
    plan: Plan
    forms: Forms | None
    learner: Model
    run: RunFolder
    group: Group

    def train(self, observe: Observer, announce: Observer) -> None:
        """Execute what is left of the plan; as `Trainer.train`."""
        config, parts, run = self.parts.config, self.parts, self.run
        reader = make_reader(config, parts.tokenizer, parts.store, self.forms)
        streams = Streams.research(config.seed or 0) if config.mode == Mode.RESEARCH else Streams.release()
        choice = make_choice(config, parts.tokenizer, self.learner, run, self.group)
        log = config.training.report_to if self.group.writes else "none"
        with (
            with_cache(config, self.learner, run.path(PrivateFile.SETTINGS).parent, len(parts.store)) as trained,
            watched(run, log, observe) as watching,
            self.group.passing(),
        ):
            trainer = Trainer(run, trained, self.plan, reader, parts.pools, train_settings(config), choice, self.group)
            trainer.train(streams, _keeping(watching, run, config.training.save_steps, self.learner), announce)

    def measure(self, characters: int, observe: Observer) -> tuple[Utility, Contributions]:
        """What the model is worth on held-out records that have so many characters."""
        learner, store = self.learner, self.parts.held_out
        reader = make_reader(self.parts.config, self.parts.tokenizer, store)

        def told(done: int) -> None:
            observe(Progress("measuring", done, len(store)))

        with self.group.passing():
            if isinstance(learner, Classifier) and isinstance(reader, LabelReader):
                labels, contributions = label_quality(learner, reader, told, self.group)
                return Utility(TokenQuality(), TokenQuality(), 0, labels), contributions
            return evaluate(cast(Learner, learner), store, cast(RowReader, reader), characters, told, self.group)


def make_choice(
    config: Config, tokenizer: Tokenizer, learner: Model, run: RunFolder, group: Group = ALONE
) -> Choice | None:
    """What chooses among models, by a store that is prepared; None where nobody asked."""
    training = config.training
    if training.eval_steps is None:
        return None
    store = PreparedCorpus(run.path(PrivateFile.HELD_OUT if public_choice(config) is None else PrivateFile.CHOICE))
    if not len(store):
        raise ConfigError("a record of eval_on that can be used", "none", "give a corpus like the one to train on")
    reader = make_reader(config, tokenizer, store)
    seen = (View.REDACTED, Targets.PUBLIC) if training.eval_on == "redacted" else (View.FULL, Targets.ALL)
    nats = partial(mean_nats, learner, store, reader, *seen, group)
    return Choice(run, training.eval_steps, training.early_stopping_patience, nats, group.writes)


def _keeping(observe: Observer, run: RunFolder, every: int | None, learner: Model) -> Observer:
    """`observe`, with the model kept every so many steps and after the last."""
    if every is None:
        return observe

    def told(progress: Progress) -> None:
        if progress.done % every == 0 or progress.done == progress.total:
            keep_model(run, progress.done, own_parameters(learner))
        observe(progress)

    return told


def _check_held_out(store: PreparedCorpus) -> None:
    if not len(store):
        raise ConfigError(
            expected="at least one held-out record, to measure with",
            found="none: the corpus has few users, or few records; or no record of held_out_corpus can be used",
            way_out="raise held_out (the share of users, or of records without users), then train again",
        )
