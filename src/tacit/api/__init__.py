"""One function for each verb of the command line, and `Run`, the handle of a finished run.

    from tacit import api

    api.simulate("customersim", dialogs=200, out="corpus.jsonl")
    run = api.train("corpus.jsonl", mechanism="selective", epsilon=2)

`import tacit` has the common ones as `tacit.train`, `tacit.scan` and so on. Nothing is loaded before it is needed.
`observe` is called with progress events (`tacit.common.progress`); all functions log under the name `tacit`. Errors are
`tacit.TacitError`, with `expected`, `found` and `way_out`.
"""

from tacit.api.corpora import (
    compare_policies,
    context,
    detector_measure,
    detector_show,
    detector_train,
    label_draw,
    label_read,
    scan,
    simulate,
)
from tacit.api.five_ways import quickstart
from tacit.api.plans import mechanisms, plan
from tacit.api.prepared import prepare, prepare_config
from tacit.api.private_step import PrivateStep
from tacit.api.results import (
    audit,
    audit_model,
    export,
    report,
    shadow_seconds,
    sweep,
    sweep_board,
    sweep_slurm,
    verify,
)
from tacit.api.settings import config
from tacit.api.training import Run, generate, load, resume, train, train_config

__all__ = [
    "PrivateStep",
    "Run",
    "audit",
    "audit_model",
    "compare_policies",
    "config",
    "context",
    "detector_measure",
    "detector_show",
    "detector_train",
    "export",
    "generate",
    "label_draw",
    "label_read",
    "load",
    "mechanisms",
    "plan",
    "prepare",
    "prepare_config",
    "quickstart",
    "report",
    "resume",
    "scan",
    "shadow_seconds",
    "simulate",
    "sweep",
    "sweep_board",
    "sweep_slurm",
    "train",
    "train_config",
    "verify",
]
