"""How fast the policies `pii` and `names,pii` scan, beside Presidio, on the same simulated dialogs.

All run in one process, in turns on the same chunks of dialogs, and are charged the processor time they used.
"Presidio's patterns" is its usual English registry without a model for entities and without context words.
"Presidio" is its analyzer as it comes, with the same spaCy pipeline as `names`; "the policy presidio" is tacit's, which
leaves out the components of the pipeline that Presidio does not need. The run fails when `pii`, which also looks for
names, is not at least seven times as fast as Presidio's patterns and 80 times as fast as Presidio, or `names,pii` not
twice as fast as Presidio.

    python benchmarks/scan.py [dialogs]

Presidio is no dependency of tacit: install it with `pip install presidio-analyzer`.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tacit.data.records import Record
from tacit.policies.pii.policy import Pii
from tacit.policies.registry import build_policy, parse_policy
from tacit.policies.tagging import default_pipeline
from tacit.simulation.simulate import simulate

CHUNK = 50
LEAST_RATIOS = {("pii", "Presidio's patterns"): 7.0, ("pii", "Presidio"): 80.0, ("names,pii", "Presidio"): 2.0}

Scan = Callable[[Record], object]


def presidio_scan() -> Scan:
    """Presidio's analysis of one record with its pattern recognisers."""
    try:
        from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry, RecognizerResult
        from presidio_analyzer.context_aware_enhancers import ContextAwareEnhancer
        from presidio_analyzer.nlp_engine import NlpArtifacts, NlpEngine
        from spacy.tokens import Doc
        from spacy.vocab import Vocab
    except ImportError:
        sys.exit("Presidio is not installed here: pip install presidio-analyzer")

    class NoModel(NlpEngine):
        """An engine that finds no words and no entities, at no cost."""

        def load(self) -> None:
            pass

        def is_loaded(self) -> bool:
            return True

        def process_text(self, text: str, language: str) -> NlpArtifacts:
            return NlpArtifacts([], Doc(Vocab()), [], [], self, language)

        def process_batch(
            self,
            texts: Iterable[str],
            language: str,
            batch_size: int = 1,
            n_process: int = 1,
            **_: Any,  # noqa: ANN401  (Presidio's signature)
        ) -> Iterator[tuple[str, NlpArtifacts]]:
            return ((text, self.process_text(text, language)) for text in texts)

        def is_stopword(self, word: str, language: str) -> bool:
            return False

        def is_punct(self, word: str, language: str) -> bool:
            return False

        def get_supported_entities(self) -> list[str]:
            return []

        def get_supported_languages(self) -> list[str]:
            return ["en"]

    class NoContext(ContextAwareEnhancer):
        """Scores are left as they are."""

        def __init__(self) -> None:
            super().__init__(0.0, 0.0, 0, 0)

        def enhance_using_context(
            self,
            text: str,
            raw_results: list[RecognizerResult],
            nlp_artifacts: NlpArtifacts,
            recognizers: list[EntityRecognizer],
            context: list[str] | None = None,
        ) -> list[RecognizerResult]:
            return raw_results

    registry = RecognizerRegistry(supported_languages=["en"])
    registry.load_predefined_recognizers(languages=["en"])
    registry.remove_recognizer("SpacyRecognizer")
    print("Presidio's patterns:", ", ".join(sorted(str(one.name) for one in registry.recognizers)))  # type: ignore[has-type]
    analyzer = AnalyzerEngine(
        registry=registry, nlp_engine=NoModel(), supported_languages=["en"], context_aware_enhancer=NoContext()
    )
    return lambda record: analyzer.analyze(record.text, language="en")


def whole_presidio_scan(pipeline: str) -> Scan:
    """Presidio's analysis of one record with the spaCy pipeline, as it comes."""
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    models = [{"lang_code": "en", "model_name": pipeline}]
    engine = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models}).create_engine()
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    analyzer = AnalyzerEngine(nlp_engine=engine, supported_languages=["en"])
    return lambda record: analyzer.analyze(record.text, language="en")


def seconds(scan: Scan, records: Sequence[Record]) -> float:
    """Processor time to scan `records`."""
    start = time.process_time()
    for record in records:
        scan(record)
    return time.process_time() - start


def main(dialogs: int) -> int:
    """Prints all speeds and their ratios; 0 when the ratios are high enough."""
    pipeline = default_pipeline()
    scans: dict[str, Scan] = {
        "pii": Pii().find,
        "names,pii": parse_policy("names,pii").find,
        "Presidio's patterns": presidio_scan(),
        "the policy presidio": build_policy({"presidio": {"pipeline": pipeline}}).find,
        "Presidio": whole_presidio_scan(pipeline),
    }
    records = list(simulate("customersim", dialogs, seed=1))
    for scan in scans.values():
        seconds(scan, records[:CHUNK])
    spent: dict[str, list[float]] = {name: [] for name in scans}
    for start in range(0, len(records), CHUNK):
        for name, scan in scans.items():
            spent[name].append(seconds(scan, records[start : start + CHUNK]))
    for name, chunks in spent.items():
        print(f"{name}: {len(records) / sum(chunks):,.0f} dialogs per second and core")
    ratios = {(ours, theirs): _ratio(spent, ours, theirs) for ours in list(scans)[:2] for theirs in list(scans)[2:]}
    return 0 if all(ratios[pair] >= least for pair, least in LEAST_RATIOS.items()) else 1


def _ratio(spent: dict[str, list[float]], ours: str, theirs: str) -> float:
    """How many times as fast one is, which is also printed with its spread over the chunks."""
    ratios = sorted(their / our for our, their in zip(spent[ours], spent[theirs], strict=True))
    ratio = sum(spent[theirs]) / sum(spent[ours])
    print(f"{ours} is {ratio:.1f} times as fast as {theirs} ({ratios[0]:.1f} to {ratios[-1]:.1f} over the chunks)")
    return ratio


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
