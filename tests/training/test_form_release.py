"""The release of form counts in a run: charged before, drawn once, priced, and refused where no proof covers it."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from runs import experiment, mechanism_of, quiet, write_corpus
from tacit.data.form_counts import count_forms
from tacit.data.forms import Forms
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.build import Terms, plan
from tacit.privacy.account import account
from tacit.privacy.events import Gaussian, Relation
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.plan import Neighbors, Unit, View, cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify
from tacit.training.stages import resume, train

SMALL: dict[str, Any] = {"model_config": {"embedding_size": 4, "hidden_size": 4}}
LEARNED: dict[str, Any] = {"public_view": "learned", "form_epsilon": 50.0}
PRICED: dict[str, Any] = {"records": 1000, "epochs": 3, "expected_batch_size": 50, "public_epochs": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    train(experiment(write_corpus(folder, 60), "selective", LEARNED, **SMALL), folder / "run", quiet)
    return folder / "run"


def test_a_run_releases_once_and_its_claim_contains_the_price(run: Path) -> None:
    view = RunFolder.view(run)
    terms, guarantee = view.read_json(Terms, ReleaseFile.PLAN), view.read_json(Guarantee, ReleaseFile.GUARANTEE)
    charges = read_entries(view.path(ReleaseFile.LEDGER)).charges()
    assert charges["forms"] == 1
    assert terms.plan.forms is not None
    assert {step.view for step in terms.plan.executions() if step.name == "public"} == {View.LEARNED}
    assert "The form of secrets was counted once, with noise: (" in guarantee.sentence()
    assert any("noise that is part of the figures" in one.text for one in guarantee.holds_if)
    without = terms.spent({**charges, "forms": 0})
    for figure in guarantee.figures:
        assert account(without[figure.neighbors]).epsilon(figure.delta) < figure.epsilon
    assert verify(run).holds
    assert not (run / "release" / "tacit" / "forms.json").exists()
    forms = view.read_json(Forms, PrivateFile.FORMS)
    assert forms.tables, "something was learned"


def test_a_ledger_without_the_release_does_not_verify(run: Path, tmp_path: Path) -> None:
    """The negative control: a run that counted forms and did not charge them."""
    with patch("tacit.privacy.ledger.Ledger.charge", _not_forms):
        corpus = write_corpus(tmp_path, 60)
        train(experiment(corpus, "selective", LEARNED, **SMALL), tmp_path / "run", quiet)
    assert [one.name for one in verify(tmp_path / "run").checks if not one.holds] == [
        "the ledger counts every planned step"
    ]


def _not_forms(self: Any, name: str, times: int = 1) -> None:  # noqa: ANN401
    if name != "forms":
        self._append({"charge": list(self.counts).index(name), "times": times})
        self.counts[name] += times


@pytest.mark.parametrize("lost", ["learn", "count_forms"])
def test_a_release_that_was_lost_stays_charged_and_one_that_was_kept_is_not_drawn_again(
    lost: str, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path, 60)
    settings = experiment(corpus, "selective", LEARNED, **SMALL)
    with patch(f"tacit.training.forms.{lost}", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "run", quiet)
    view = RunFolder.view(tmp_path / "run")
    assert not view.path(PrivateFile.FORMS).exists()
    assert read_entries(view.path(ReleaseFile.LEDGER)).charges()["forms"] == 1
    with patch("tacit.training.execute.Trainer.train", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "run", quiet)
    kept = view.path(PrivateFile.FORMS).read_bytes()
    trained = resume(tmp_path / "run", quiet)
    assert view.path(PrivateFile.FORMS).read_bytes() == kept
    assert read_entries(view.path(ReleaseFile.LEDGER)).charges()["forms"] == 2
    assert trained.guarantee.figures[0].epsilon > trained.planned.guarantee.figures[0].epsilon, "both are counted"
    assert verify(tmp_path / "run").holds


def test_pieces_of_a_record_are_one_vector(run: Path) -> None:
    """Dialogs are cut into several rows here; a sum over fewer records than rows is within their number."""
    store = PreparedCorpus(run / "private" / "prepared")
    sums, contexts = count_forms(store, byte_tokenizer(), 0.01)
    records = len({int(store.records[row]) for row, spans in enumerate(store.span_counts()) if spans})
    assert contexts
    assert len(store) > records
    assert sum(value**2 for value in sums.values()) ** 0.5 <= records * 2**30


def test_the_target_is_of_all_and_the_share_is_stated() -> None:
    words = {"mechanism": "selective", "epsilon": 2.0, "public_view": "learned", **PRICED}
    usual, less = plan(words), plan({**words, "form_epsilon": 0.2})
    noises = [one.mechanism.private.noise_multiplier for one in (usual, less) if one.mechanism.private is not None]
    assert noises[1] < noises[0], "what counts do not spend, steps may"
    for one, share in ((usual, 1.0), (less, 0.2)):
        assert 1.95 < one.guarantee.figures[0].epsilon <= 2.0
        assert one.plan.forms is not None
        alone = account(((cost(one.plan.forms, Neighbors(Unit.SECRETS)), 1),)).epsilon(one.guarantee.figures[0].delta)
        assert 0.97 * share < alone <= share
    with pytest.raises(ConfigError, match="form_epsilon below epsilon"):
        plan({**words, "form_epsilon": 2.0})
    with pytest.raises(ConfigError, match="form_epsilon"):
        plan({**words, "public_view": "invented", "form_epsilon": 0.2})


def test_the_release_is_one_gaussian_for_secrets_and_has_no_price_for_others() -> None:
    forms = plan({"mechanism": "twice", "epsilon": 2.0, "public_view": "learned", **PRICED}).plan.forms
    assert forms is not None
    for relation in Relation:
        for copies in (1, 5):
            event = cost(forms, Neighbors(Unit.SECRETS, relation, copies))
            assert isinstance(event, Gaussian)
            assert (event.copies, event.relation) == (copies, relation)
    for unit in set(Unit) - {Unit.SECRETS}:
        with pytest.raises(ClaimRefused):
            cost(forms, Neighbors(unit))


@pytest.mark.parametrize("name", ["crt", "redaction", "invented", "dpsgd", "cadp"])
def test_claims_that_secrets_were_not_used_refuse_to_count_them(name: str) -> None:
    """With them "not used", and the average case of crt, would be false."""
    words: dict[str, Any] = {"mechanism": name, "records": 100, "public_view": "learned", "form_epsilon": 1.0}
    words |= {"flagged": 30} if name in ("crt", "cadp") else {}
    words |= {} if name in ("redaction", "invented") else {"noise_multiplier": 1.0}
    with pytest.raises(ConfigError, match="public_view"):
        mechanism_of(words)
