"""What attacks measured, said with its doubt: rates, lower bounds on epsilon, and the verdict on a claim."""

from tacit.audit.bounds import LowerBound, one_run_bound, one_run_pairs_bound
from tacit.audit.guesses import GuessPlan, default_plans
from tacit.audit.rates import Rates, rates
from tacit.audit.scores import Judged, Scores, judged
from tacit.audit.verdict import Finding, Verdict, judge

__all__ = [
    "Finding",
    "GuessPlan",
    "Judged",
    "LowerBound",
    "Rates",
    "Scores",
    "Verdict",
    "default_plans",
    "judge",
    "judged",
    "one_run_bound",
    "one_run_pairs_bound",
    "rates",
]
