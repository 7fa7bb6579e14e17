"""The fixed names of a run's files."""

from enum import StrEnum


class ReleaseFile(StrEnum):
    """What may leave your organization."""

    MODEL = "model.safetensors"
    TOKENIZER = "tokenizer.json"
    CONFIG = "config.json"
    PLAN = "plan.json"
    LEDGER = "ledger.jsonl"
    GUARANTEE = "guarantee.json"
    UTILITY = "utility.json"
    AUDIT = "audit.json"
    REPORT = "report.html"
    ARCHITECTURE = "model.json"
    MADE = "made.json"
    CERTIFICATE = "certificate.md"
    REGISTRY = "certificate.yaml"
    MODEL_CARD = "README.md"
    MANIFEST = "manifest.json"


class PrivateFile(StrEnum):
    """What may not."""

    LOCK = "lock"
    KEY = "key"
    GUARANTEE = "guarantee.json"
    UTILITY = "utility.json"
    AUDIT = "audit.json"
    POLICY = "policy.json"
    SETTINGS = "settings.json"
    INPUTS = "inputs"
    STEPS = "steps.jsonl"
    MARKED = "marked"
    SUMMARY = "corpus.json"
    PREPARED = "prepared"
    MEMBERS = "members"
    HELD_OUT = "held-out"
    CHOICE = "choice"
    MARKS = "marks.safetensors"
    CANARIES = "canaries.json"
    CHECKPOINTS = "checkpoints"
    BEST = "best.safetensors"
    TENSORBOARD = "tensorboard"
    SAMPLE = "sample.json"
    SHARED = "shared.json"
    IDENTITY = "identity.json"
    INSIDE_REPORT = "report.html"
    NOTED = "prepared.json"


FileName = ReleaseFile | PrivateFile
