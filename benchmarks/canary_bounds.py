"""Lower bounds on epsilon from 1,000 canaries in one run of an LSTM: unprotected, and DP-SGD at an epsilon of 4.

    python benchmarks/canary_bounds.py FOLDER [--only plain,dpsgd] [--epsilon 4] [--optimizer sgd --learning-rate 0.3]

Canaries are rare tokens, four times each, planted by fair coins among 500 simulated dialogs of at most 48 tokens. Runs
are kept in FOLDER and resumed there; results.json has every bound. Three scores, of which the audit uses the first:

| score | what it is |
|---|---|
| loss | the canary's log-probability under the last model |
| difference | the same, less that under the model after the first step |
| gradient | how far training moved along the canary's gradient at the first step, in the rows of its token alone |

The last one needs all of a run's weights before and after, which an auditor has. Research mode: nothing is released.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit import api
from tacit.audits.attacks.epsilon import own_scores
from tacit.audits.epsilon_bounds import one_run_bound
from tacit.audits.ideal import ideal_bound, mu_of
from tacit.audits.statistics import Scores, judged
from tacit.audits.target import Target
from tacit.common.progress import unwatched
from tacit.data.batches import TextBatch
from tacit.data.english_tokenizer import english_tokenizer
from tacit.runs.folder import RunFolder
from tacit.runs.weights import kept_models
from tacit.training.canaries import rare_words

CANARIES, VOCABULARY, DIALOGS, DRAWN = 1000, 10_240, 500, 900
ROWS = ("embedding.weight", "head.weight", "head.bias")
PLANS: dict[str, dict[str, Any]] = {
    "plain": {"plan.public_epochs": 20},
    "dpsgd": {"plan.expected_batch_size": DRAWN, "save_steps": 1},
}


def trained(mechanism: str, folder: Path, more: dict[str, Any]) -> Path:
    """The finished run, begun, resumed or taken as it is."""
    place, corpus = folder / mechanism, folder / "corpus.jsonl"
    if (place / "release/tacit/manifest.json").exists():
        return place
    if (place / "private/settings.json").exists():
        api.resume(place, observe=unwatched)
        return place
    if not corpus.exists():
        api.simulate("customersim", dialogs=DIALOGS, out=corpus)
    words = rare_words(english_tokenizer(VOCABULARY), 2 * CANARIES)
    canaries = [{"template": "{word}", "count": CANARIES, "known": False, "words": list(words)}]
    settings: dict[str, Any] = {
        "mode": "research",
        "max_tokens": 48,
        "max_full_tokens": 48,
        "vocabulary_size": VOCABULARY,
    }
    settings |= {"plan.mechanism": mechanism, "audit.canaries": canaries, **PLANS[mechanism], **more}
    api.train_config(api.config(corpus, settings=settings), place)
    return place


def bounds(place: Path) -> dict[str, float]:
    """By score; and what an ideal attacker would show if the claim is exact."""
    run = RunFolder.view(place)
    target = Target.of(run)
    (planted,) = target.planted
    inside = {canary.id: canary.inside for canary in planted.canaries}
    figures = target.guarantee.figures
    delta = max((one.delta for one in figures), default=1e-5)

    def losses() -> dict[str, float]:
        return dict(own_scores(target.learner, planted.plan.slot, planted.canaries, target.spelling(planted)).by_id)

    scores, kept = {"loss": losses()}, kept_models(run)
    if kept:
        last = {name: value.clone() for name, value in target.learner.module.state_dict().items()}
        target.learner.module.load_state_dict(kept[0].tensors(), strict=False)
        first = losses()
        scores["difference"] = {name: value - first[name] for name, value in scores["loss"].items()}
        scores["gradient"] = along_gradients(target, last)
    found = {name: one_run_bound(judged(Scores(one), inside), delta).epsilon for name, one in scores.items()}
    mu = mu_of(figures[0].epsilon, delta) if figures else float("inf")
    return found | {"ideal attacker": ideal_bound(mu, len(inside), delta, 0.95, False)}


def along_gradients(target: Target, last: dict[str, Tensor]) -> dict[str, float]:
    """For each canary, its log-probability's gradient at the weights in place, of norm 1, times how `last` differs."""
    module, found = target.learner.module, {}
    weights = dict(module.named_parameters())
    moved = {name: last[name] - weights[name].detach() for name in ROWS}
    for canary in target.planted[0].canaries:
        tokens = target.tokenizer.encode(canary.value)
        batch = TextBatch.of_tokens(torch.tensor([[target.tokenizer.begin, *tokens]]))
        module.zero_grad()
        (-target.learner.token_losses(batch).losses.sum()).backward()  # type: ignore[no-untyped-call]
        norm = torch.stack([one.grad.norm() for one in weights.values() if one.grad is not None]).norm()
        along, row = 0.0, tokens[0]
        for name, change in moved.items():
            slope = weights[name].grad
            along += 0.0 if slope is None else float((slope[row] * change[row]).sum())
        found[canary.id] = along / float(norm)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(PLANS))
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--learning-rate", type=float, default=0.015)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    results = given.folder / "results.json"
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    private = {"private.optimizer": given.optimizer, "private.learning_rate": given.learning_rate}
    for mechanism in given.only.split(","):
        more = {"plan.epsilon": given.epsilon, **private} if mechanism == "dpsgd" else {}
        known[mechanism] = bounds(trained(mechanism, given.folder, more))
        results.write_text(json.dumps(known, indent=1))
        sys.stderr.write(f"{mechanism}: {known[mechanism]}\n")


if __name__ == "__main__":
    main()
