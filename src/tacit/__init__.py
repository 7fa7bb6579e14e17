"""tacit trains language models on sensitive text without reproducing its secrets, and states what is guaranteed.

    import tacit

    run = tacit.train("corpus.jsonl", mechanism="selective", epsilon=2)
    print(run.guarantee.sentence())
    print(run.audit().verdict.sentence)

Each name is loaded when it is first used, so that `import tacit` takes milliseconds and never loads torch. Further
functions, one for each verb of the command line, are in `tacit.api`.

Threads of torch, if it is loaded later, sleep while they wait for each other: threads that spin beside other work made
steps take up to twenty times as long (docs/results.md). OMP_WAIT_POLICY, if it is set, decides instead.
"""

import importlib as _importlib
import os as _os
import sys as _sys
import typing as _typing

if _typing.TYPE_CHECKING:
    from tacit.api import PrivateStep, Run, audit, load, plan, prepare, report, scan, train, verify
    from tacit.config.schema import Config
    from tacit.data.records import Record, Span
    from tacit.errors import TacitError
    from tacit.policies.policy import Policy
    from tacit.privacy.guarantee import Guarantee

    __version__: str

if "torch" not in _sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & _os.environ.keys():
    _os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

__all__ = [
    "Config",
    "Guarantee",
    "Policy",
    "PrivateStep",
    "Record",
    "Run",
    "Span",
    "TacitError",
    "__version__",
    "audit",
    "load",
    "plan",
    "prepare",
    "report",
    "scan",
    "train",
    "verify",
]

_PLACES = {
    **dict.fromkeys(("PrivateStep", "Run", "audit", "load", "plan", "prepare", "report"), "tacit.api"),
    **dict.fromkeys(("scan", "train", "verify"), "tacit.api"),
    "Config": "tacit.config.schema",
    "Guarantee": "tacit.privacy.guarantee",
    "Policy": "tacit.policies.policy",
    "Record": "tacit.data.records",
    "Span": "tacit.data.records",
    "TacitError": "tacit.errors",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _importlib.import_module("importlib.metadata").version("tacit")
    elif name in _PLACES:
        value = getattr(_importlib.import_module(_PLACES[name]), name)
    else:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
