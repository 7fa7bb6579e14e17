"""Audits of one run, by the processes that torchrun would start."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from audited import KNOWN, train_run
from forked_ranks import TIMEOUT, Work
from runs import quiet
from tacit.audits import audit as audits
from tacit.audits import candidates, passages
from tacit.audits.attacks import extraction, load_attacks
from tacit.audits.division import divided, together
from tacit.common.serialize import json_values
from tacit.config.audit_schema import AuditConfig, ExtractionConfig, ParaphrasesConfig, SamplingConfig
from tacit.errors import RunError
from tacit.runs.folder import RunFolder
from tacit.runs.weights import keep_model, read_model
from tacit.training.group import Group, joined

SETTINGS = AuditConfig(
    candidates=60,
    secrets=50,
    surrogates=1,
    checkpoints=True,
    extraction=ExtractionConfig(tries=2),
    sampling=SamplingConfig(texts=60, tokens=20),
    paraphrases=ParaphrasesConfig(paraphrases=3, values=5),
)
FASTER = {"public": {"learning_rate": 3e-2}}
_SMALL: dict[tuple[Any, str], int] = {
    (passages, "_POSITIONS"): 256,
    (passages, "_NUMBERS"): 1 << 16,
    (candidates, "_ROWS_AT_MOST"): 16,
    (extraction, "_ROWS"): 8,
}
"""So that there is something to divide."""


def every_audit(folder: Path) -> Work:
    """Work for each process: the audit with all attacks, what it found in `SIZE-RANK.json`; and work that differs."""
    canaries = [{**KNOWN, "repetitions": 1}, {**KNOWN, "template": "Key {2 digits}", "inside_probability": 1.0}]
    run = train_run(
        folder, {"mechanism": "plain", "public_epochs": 80, "public_batch_size": 24}, canaries, records=240, **FASTER
    )
    with RunFolder.open(run) as opened:
        keep_model(opened, 1, read_model(opened))
    load_attacks()
    for (module, name), value in _SMALL.items():
        setattr(module, name, value)

    def work() -> None:
        own = whole = 0
        share = Group.share

        def noted(self: Group, costs: np.ndarray) -> np.ndarray:
            nonlocal own, whole
            dealt = share(self, costs)
            own, whole = own + int(costs[dealt].sum()), whole + int(costs.sum())
            return dealt

        with joined("cpu", TIMEOUT) as group, patch.object(Group, "share", noted):
            found = audits.audit(run, SETTINGS, quiet, ranks=group)
            content = {"found": json_values(found), "own": own, "whole": whole}
            (folder / f"{group.size}-{group.rank}.json").write_text(json.dumps(content))
            try:
                with together(group):
                    divided([0, 1], [1, 1 + group.rank], lambda _: None, [np.zeros(1)])
            except RunError:
                (folder / f"{group.size}-{group.rank}-stopped").touch()

    return work
