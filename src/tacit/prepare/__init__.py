"""From records and spans to the prepared store: views, pieces, duplicates, caps, canaries. Never imports torch."""

from tacit.prepare.canaries import CANARY, CanaryPlan, CanaryRecord, KnownCanaries, Slot, draw_canaries, plant
from tacit.prepare.caps import CapReport, NounReport, cap_contributions, salted_order
from tacit.prepare.cut import Piece, cut
from tacit.prepare.duplicates import Key, Routing, Seen, seen_texts
from tacit.prepare.headers import Counts, Facts, Header
from tacit.prepare.pipeline import Duplicates, PrepareSettings, prepare, public_segments
from tacit.prepare.store import Prepared
from tacit.prepare.users import dealt_users
from tacit.prepare.views import FullTokens, PublicText, PublicTokens, divide

__all__ = [
    "CANARY",
    "CanaryPlan",
    "CanaryRecord",
    "CapReport",
    "Counts",
    "Duplicates",
    "Facts",
    "FullTokens",
    "Header",
    "Key",
    "KnownCanaries",
    "NounReport",
    "Piece",
    "PrepareSettings",
    "Prepared",
    "PublicText",
    "PublicTokens",
    "Routing",
    "Seen",
    "Slot",
    "cap_contributions",
    "cut",
    "dealt_users",
    "divide",
    "draw_canaries",
    "plant",
    "prepare",
    "public_segments",
    "salted_order",
    "seen_texts",
]
