"""Cards measured record by record, and cards and scans read back from their JSON."""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from tacit.data.records import Record
from tacit.policies.card import CardCounts, KindCounts, PolicyCard
from tacit.policies.policy import Policy
from tacit.policies.scan import Scan


def card_of(policy: Policy, records: Iterable[Record]) -> PolicyCard:
    """The card of `policy` on labelled records; records without labels are left out."""
    counts = CardCounts()
    for record in records:
        counts.add(record, policy.find(record))
    return PolicyCard(policy.id, policy.hash, counts)


def read_card(value: dict[str, Any]) -> PolicyCard:
    """The card that `PolicyCard.to_json` wrote; what follows from the counts is computed anew."""
    kinds = {kind: KindCounts(**entry["counts"]) for kind, entry in value["kinds"].items()}
    counts = CardCounts(value["records"], value["records_with_a_miss"], kinds)
    return PolicyCard(value["policy"]["id"], value["policy"]["hash"], counts)


def read_scan(value: dict[str, Any]) -> Scan:
    """The result that `Scan.to_json` wrote."""
    derived = {"format", "policy", "card", "secrets", "users", "share_of_records", "share_of_tokens"}
    fields = {name: entry for name, entry in value.items() if name not in derived}
    policy = {"policy_id": value["policy"]["id"], "policy_hash": value["policy"]["hash"]}
    card = read_card(value["card"]) if value["card"] else None
    return TypeAdapter(Scan).validate_python(fields | policy | {"card": card}, extra="forbid")
