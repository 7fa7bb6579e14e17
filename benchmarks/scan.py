"""How fast the policy `pii` scans, beside the pattern recognisers of Presidio, on the same simulated dialogs.

Both run in one process, in turns on the same chunks of dialogs, and are charged the processor time they used. Presidio
runs its usual English registry without a model for entities and without context words, so that it is charged for
patterns alone. The run fails when `pii`, which also looks for names, is not at least five times as fast.

    python benchmarks/scan.py [dialogs]

Presidio is no dependency of tacit: install it with `pip install presidio-analyzer`.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import quantiles
from typing import Any

from tacit.data.records import Record
from tacit.policies.pii.policy import Pii
from tacit.simulation.simulate import simulate

CHUNK = 50
LEAST_RATIO = 5.0

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
    print("Presidio:", ", ".join(sorted(str(one.name) for one in registry.recognizers)))  # type: ignore[has-type]
    analyzer = AnalyzerEngine(
        registry=registry, nlp_engine=NoModel(), supported_languages=["en"], context_aware_enhancer=NoContext()
    )
    return lambda record: analyzer.analyze(record.text, language="en")


def seconds(scan: Scan, records: Sequence[Record]) -> float:
    """Processor time to scan `records`."""
    start = time.process_time()
    for record in records:
        scan(record)
    return time.process_time() - start


def main(dialogs: int) -> int:
    """Prints both speeds and their ratio; 0 when the ratio is high enough."""
    scans: dict[str, Scan] = {"tacit pii": Pii().find, "Presidio": presidio_scan()}
    records = list(simulate("customersim", dialogs, seed=1))
    for scan in scans.values():
        seconds(scan, records[:CHUNK])
    spent: dict[str, list[float]] = {name: [] for name in scans}
    for start in range(0, len(records), CHUNK):
        for name, scan in scans.items():
            spent[name].append(seconds(scan, records[start : start + CHUNK]))
    for name, chunks in spent.items():
        print(f"{name}: {len(records) / sum(chunks):,.0f} dialogs a second and core")
    ratio = sum(spent["Presidio"]) / sum(spent["tacit pii"])
    ratios = [theirs / ours for ours, theirs in zip(*spent.values(), strict=True)]
    low, *_, high = quantiles(ratios, n=10)
    print(f"ratio {ratio:.1f} (a tenth of the chunks below {low:.1f}, a tenth above {high:.1f})")
    return 0 if ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
