"""Pricing: what a composition of events costs, and how much noise a target epsilon needs.

account(composition)      the one accountant of the product: exact, PLD or (saying so) RDP
calibrate_noise, calibrate_steps, check_delta, default_delta
PLD, RDP, ClosedForm      the accountants by themselves;  Reference: dp-accounting's, as a second opinion
published_epsilon         what the papers' accountants would have printed
"""

from tacit.accounting.calibrate import calibrate_noise, calibrate_steps, check_delta, default_delta
from tacit.accounting.closed_form import ClosedForm
from tacit.accounting.pld import PLD
from tacit.accounting.product import Accountant, account
from tacit.accounting.profile import Profile
from tacit.accounting.published import SDP_ORDERS, UEDP_ORDERS, published_epsilon
from tacit.accounting.reference import Reference
from tacit.accounting.renyi import RDP

__all__ = [
    "PLD",
    "RDP",
    "SDP_ORDERS",
    "UEDP_ORDERS",
    "Accountant",
    "ClosedForm",
    "Profile",
    "Reference",
    "account",
    "calibrate_noise",
    "calibrate_steps",
    "check_delta",
    "default_delta",
    "published_epsilon",
]
