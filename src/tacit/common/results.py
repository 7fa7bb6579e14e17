"""What every result of a verb has in common."""

from typing import Any


class Result:
    """A result that can be written as JSON: `--json` prints it."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        from tacit.common.serialize import json_values

        values: dict[str, Any] = json_values(self)
        return values
