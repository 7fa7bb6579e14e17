"""Functions for what comes before training: corpora and policies."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tacit.api.inputs import FieldNames, fields_of, policy_of
from tacit.common.progress import Progress, logged, unwatched
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.common.progress import Observer
    from tacit.config.setting import SegmentBy
    from tacit.data.corpus import CorpusReader, CorpusSource
    from tacit.data.records import Record
    from tacit.papers.alpha_context import Contexts
    from tacit.policies.compare import PolicyComparison
    from tacit.policies.coverage import CoverageCounts
    from tacit.policies.detectors.detector import Detector
    from tacit.policies.detectors.training import FlaggedShare, TrainedDetector
    from tacit.policies.labels import Sample
    from tacit.policies.policy import Policy
    from tacit.policies.scan import Scan
    from tacit.simulation.simulate import SimulatedCorpus


def simulate(
    simulator: str,
    dialogs: int = 10_000,
    out: str | Path | None = None,
    seed: int = 0,
    split: str = "train",
    *,
    format: str = "text",
    held_out_people: str | Path | None = None,
    observe: "Observer" = unwatched,
) -> "SimulatedCorpus":
    """A simulated corpus with gold spans, whose records can be iterated over; with `out`, written to that file first.

    format: text, or messages (chats of a user and an assistant).
    held_out_people: also write to this file as many people who are in no split, for membership tests.
    """
    from tacit.data.corpus import write_jsonl
    from tacit.simulation.simulate import SimulatedCorpus, simulate_held_out

    observe = logged(observe)
    corpus = SimulatedCorpus(simulator, dialogs, seed, split, format)
    apart = None if held_out_people is None else Path(held_out_people)
    if out is not None and apart is not None and apart.resolve() == Path(out).resolve():
        raise ConfigError("two files", f"{out} for both", "give --held-out-people another file than --out")
    if out is not None:
        _make_folder(Path(out).parent)
        write_jsonl(_counted(corpus, dialogs, observe), Path(out))
    if apart is not None:
        people = corpus.summary.users
        _make_folder(apart.parent)
        write_jsonl(_counted(simulate_held_out(simulator, people, seed), people, observe), apart)
    return corpus


def _counted(records: Iterable["Record"], total: int, observe: "Observer") -> Iterator["Record"]:
    for done, record in enumerate(records, 1):
        yield record
        observe(Progress("simulating", done, total))


def scan(
    corpus: "CorpusSource",
    policy: "str | Path | Mapping[str, Any] | Policy" = "pii",
    *,
    sample: int = 5,
    show_secrets: bool = False,
    stability: int = 200,
    processes: int | None = None,
    out: str | Path | None = None,
    observe: "Observer" = unwatched,
    **field_names: Unpack[FieldNames],
) -> "Scan":
    """Count what a policy marks in a corpus and, with gold spans, what it misses.

    Args:
        corpus: a file, records, dictionaries, a table (pandas, polars, pyarrow), or a Hugging Face dataset.
        policy: what is secret: a name, names with commas (any of them), a YAML file, a definition, or a `Policy`.
        sample: how many records to show in the result.
        show_secrets: whether the sample shows secrets; otherwise they are blacked out.
        stability: on how many records to measure whether the mask depends on what the secrets say; False: on none.
        processes: how many processes; all cores by default.
        out: a folder for scan.html, scan.json and quarantine.jsonl.
        observe: called with progress events.
        **field_names: what the corpus calls the parts of a record (text_field, user_field, label_field, ...).

    Examples:
        >>> import tacit
        >>> found = tacit.scan("corpus.jsonl", "digits", processes=1)
        >>> found.records
        80
        >>> found.card.overall.recall.value < 1
        True
        >>> tacit.scan([{"body": "My code is 4417."}], {"regex": "[0-9]+"}, processes=1, text_field="body").secrets
        1
    """
    from tacit.policies.scan import scan as look
    from tacit.reports.policy_pages import scan_page

    chosen = policy_of(policy)
    reader, told = _opened(corpus, field_names, out, observe)
    shown = {"sample": sample, "stability": stability}
    found = look(reader, chosen, **shown, show_secrets=show_secrets, processes=processes, progress=told)
    if out is not None:
        _write_result(Path(out), "scan", found.to_json(), scan_page(found))
    return found


def compare_policies(
    corpus: "CorpusSource",
    policies: "Sequence[str | Path] | Mapping[str, str | Path | Mapping[str, Any] | Policy]",
    *,
    processes: int | None = None,
    out: str | Path | None = None,
    observe: "Observer" = unwatched,
    **field_names: Unpack[FieldNames],
) -> "PolicyComparison":
    """`tacit policy compare`: policies side by side, each in the words of `--policy` or by a name of its own."""
    from tacit.policies.compare import compare_policies as compare
    from tacit.reports.policy_pages import policies_page

    named = policies if isinstance(policies, Mapping) else {str(words): words for words in policies}
    chosen = {name: policy_of(policy) for name, policy in named.items()}
    reader, told = _opened(corpus, field_names, out, observe)
    found = compare(reader, chosen, processes=processes, progress=told)
    if out is not None:
        _write_result(Path(out), "policies", found.to_json(), policies_page(found))
    return found


def _opened(
    corpus: "CorpusSource", names: FieldNames, out: str | Path | None, observe: "Observer"
) -> "tuple[CorpusReader, Callable[[int, int], None]]":
    """The corpus, and what is to be told of records and characters that were read."""
    from tacit.data.corpus import open_corpus

    fields = fields_of(names)
    if isinstance(corpus, str | Path):
        open_corpus(corpus, fields)  # refuses what cannot be read before a folder is made for the result
    if out is not None:
        _make_folder(Path(out))
    observe = logged(observe)
    reader = open_corpus(corpus, fields, None if out is None else Path(out) / "quarantine.jsonl")

    def told(records: int, characters: int) -> None:
        observe(Progress("reading", records, None, characters=characters, share=reader.share_read))

    return reader, told


def _write_result(out: Path, name: str, content: dict[str, Any], page: str) -> None:
    from tacit.common.files import write_private

    write_private(out / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
    write_private(out / f"{name}.html", page.encode())


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise ConfigError(f"to write to {folder}", found, "choose another folder, or one you may write to") from error


def label_draw(
    corpus: "CorpusSource",
    policy: "str | Path | Mapping[str, Any] | Policy",
    out: str | Path,
    *,
    conservative: "str | Path | Mapping[str, Any] | Policy | None" = None,
    records: int = 200,
    seed: int | None = None,
    gold: bool = False,
    show_found: bool = False,
    draft: str | Path | None = None,
    segment_by: "SegmentBy" = "record",
    **field_names: Unpack[FieldNames],
) -> "Sample":
    """`tacit label draw`: records, turns or sentences drawn at random, written to a file for a person to label.

    draft: the folder of a causal language model that drafts labels, which the person is shown.
    """
    from tacit.data.corpus import open_corpus
    from tacit.policies.drafts import Drafter
    from tacit.policies.labels import LabelOrigin, check_free, draw_sample, write_sample

    if gold and (show_found or draft is not None):
        found = "show_found" if show_found else "draft"
        raise ConfigError(f"gold or {found}", "both", "leave one out: gold spans are no person to be shown things")
    if show_found and draft is not None:
        raise ConfigError("show_found or draft", "both", "leave one out: labels have one source of bias at a time")
    check_free(Path(out))
    drafter = None if draft is None else Drafter(Path(draft))
    shown = LabelOrigin.PERSON_SHOWN_FOUND if show_found else LabelOrigin.PERSON
    labels = LabelOrigin.GOLD if gold else LabelOrigin.PERSON_SHOWN_DRAFT if drafter else shown
    second = None if conservative is None else policy_of(conservative)
    reader = open_corpus(corpus, fields_of(field_names))
    sample = draw_sample(
        reader,
        policy_of(policy),
        second,
        size=records,
        seed=seed,
        labels=labels,
        segment_by=segment_by,
        drafter=drafter,
    )
    write_sample(sample, Path(out))
    return sample


def label_read(
    sample: str | Path,
    policy: "str | Path | Mapping[str, Any] | Policy",
    *,
    conservative: "str | Path | Mapping[str, Any] | Policy | None" = None,
    corpus: str | Path | None = None,
    out: str | Path | None = None,
    **field_names: Unpack[FieldNames],
) -> "CoverageCounts":
    """`tacit label read`: how often the policy misses a secret at most; with `out`, written for `coverage`."""
    from tacit.data.corpus import open_corpus
    from tacit.policies.coverage import measured, write_coverage
    from tacit.policies.labels import check_corpus, read_labels

    labelled = read_labels(Path(sample))
    if corpus is not None:
        check_corpus(labelled, open_corpus(corpus, fields_of(field_names)))
    result = measured(labelled, policy_of(policy), None if conservative is None else policy_of(conservative))
    if out is not None:
        inputs = [Path(file).resolve() for file in (sample, corpus) if file is not None]
        if Path(out).resolve() in inputs:
            raise ConfigError("another file for the counts", "the sample or the corpus", "name another one as `out`")
        write_coverage(result, Path(out))
    return result


def detector_train(
    out: str | Path,
    negatives: str | Path,
    *,
    templates: str | Path | None = None,
    prompts: str | Path | None = None,
    encoder: str | Path | None = None,
    epochs: int = 0,
    reword: bool = True,
    round_trip: Sequence[str] = (),
    seq2seq: Sequence[str] = (),
    same_meaning: str | Path | None = None,
    alike: float = 0.5,
    most: int = 400,
    recall: float = 0.99,
    false_alarms: float = 0.002,
    sentences: int = 20_000,
    harmless: bool = True,
    seed: int = 0,
    observe: "Observer" = unwatched,
) -> "TrainedDetector":
    """`tacit detector train`: a detector of sensitive contexts in the new folder `out`, and how well it does."""
    from tacit.policies.detectors.encoder import DetectorSettings
    from tacit.policies.detectors.paraphrase import phi_of
    from tacit.policies.detectors.training import train

    phi = phi_of(reword, round_trip, seq2seq, _path(same_meaning), alike, most)
    settings = DetectorSettings(recall, false_alarms, sentences, harmless, seed, encoder=_path(encoder), epochs=epochs)
    return train(Path(out), Path(negatives), phi, settings, logged(observe), _path(templates), _path(prompts))


def detector_show(folder: str | Path) -> "Detector":
    """`tacit detector show`: the detector of a folder that is whole, with its `card` and its `hash`."""
    from tacit.policies.detectors.detector import read_detector

    return read_detector(Path(folder))


def detector_measure(folder: str | Path, corpus: str | Path, **field_names: Unpack[FieldNames]) -> "FlaggedShare":
    """`tacit detector measure`: how many sentences of a corpus the detector flags."""
    from tacit.policies.detectors.training import measure

    return measure(Path(folder), Path(corpus), fields_of(field_names))


def context(
    text: str,
    target: str,
    model: str | Path,
    *,
    alpha: float = 0.01,
    occurrence: int | None = None,
    reword: bool = False,
    round_trip: Sequence[str] = (),
    most: int = 10,
) -> "Contexts":
    """Which words before a target make a model expect it: `shortest` of the result is its alpha-context."""
    from tacit.papers.alpha_context import contexts_of
    from tacit.policies.detectors.paraphrase import paraphrases_by

    return contexts_of(text, target, Path(model), alpha, occurrence, paraphrases_by(reword, round_trip, most))


def _path(place: str | Path | None) -> Path | None:
    return None if place is None else Path(place)
