"""What noise costs a small model: the losses that `tacit plan` quotes.

    python benchmarks/advice.py

DP-SGD with 20 passes at three epsilons, beside ordinary training, of an LSTM of 64/128 on rows of 64 tokens, with all
other settings by default: on 200 simulated dialogs and on 300 lines of WikiText-2's training part, measured on dialogs
of another part and on lines of the validation part. Nats per character, one seed. Writes
src/tacit/mechanisms/advice.json in about five minutes on one core.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tacit import api
from tacit.mechanisms import advice

sys.path.insert(0, str(Path(__file__).parent / "reproduce"))
from corpora import wikitext2

from defaults import Settings, simulated, written

OUT = Path(advice.__file__).with_name(advice.MEASURED)
EPSILONS = (1.0, 4.0, 16.0)
SMALL: Settings = {
    "model_config": {"embedding_size": 64, "hidden_size": 128},
    "data.max_tokens": 64,
    "data.max_full_tokens": 96,
    "audit.canaries": [],
}
PASSES = 20


def _wikitext(folder: Path) -> Settings:
    return written(folder, islice(wikitext2("train"), 300), islice(wikitext2("valid"), 150)) | {"policy": "digits"}


CORPORA: Mapping[str, Callable[[Path], Settings]] = {
    "200 simulated dialogs": partial(simulated, dialogs=200, held_out=60),
    "300 lines of WikiText-2": _wikitext,
}


def trained(make: Callable[[Path], Settings], settings: Settings) -> tuple[float, int, float]:
    """Nats per character; steps and noise to batch, where there is noise."""
    with TemporaryDirectory() as place:
        asked = {"mode": "research", **SMALL, **make(Path(place)), **settings}
        run = api.train_config(api.config(asked.pop("corpus"), settings=asked), Path(place, "run"))
        private = run._terms.rebuilt().private
        ratio = 0.0 if private is None else private.noise_multiplier / private.expected_batch
        return run.utility.nats_a_character, 0 if private is None else private.steps, ratio


def main() -> None:
    """Train all, and write what was lost."""
    found = []
    for corpus, make in CORPORA.items():
        exact, _, _ = trained(make, {"plan.mechanism": "plain", "public_epochs": PASSES})
        print(f"{corpus}: {exact:.3f} nats per character without noise", flush=True)
        for epsilon in EPSILONS:
            began = time.process_time()
            nats, steps, ratio = trained(make, {"plan.mechanism": "dpsgd", "epsilon": epsilon, "epochs": PASSES})
            found.append({"corpus": corpus, "steps": steps, "noise_to_batch": ratio, "lost": round(nats - exact, 4)})
            spent = time.process_time() - began
            print(
                f"epsilon {epsilon:g}: {nats - exact:.3f} more at {ratio:.3g}, {steps} steps, {spent:.0f} s", flush=True
            )
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
