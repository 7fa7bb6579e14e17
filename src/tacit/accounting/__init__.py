"""Pricing: what a composition of events costs, and how much noise a target epsilon needs.

`account` is the one accountant of the product; `ClosedForm`, `LibraryPLD` (dp-accounting's), `PLD` (ours, for units
with several records) and `RDP` are what it chooses from. `published_epsilon` is what the papers' accountants print.
"""

from tacit.accounting.calibrate import calibrate_noise, check_delta, default_delta
from tacit.accounting.closed_form import ClosedForm
from tacit.accounting.library import LibraryPLD
from tacit.accounting.pld import PLD
from tacit.accounting.product import Accountant, account, quick_account
from tacit.accounting.profile import Profile
from tacit.accounting.published import SDP_ORDERS, UEDP_ORDERS, published_epsilon
from tacit.accounting.renyi import RDP

__all__ = [
    "PLD",
    "RDP",
    "SDP_ORDERS",
    "UEDP_ORDERS",
    "Accountant",
    "ClosedForm",
    "LibraryPLD",
    "Profile",
    "account",
    "calibrate_noise",
    "check_delta",
    "default_delta",
    "published_epsilon",
    "quick_account",
]
