"""The verb `audit`: attack a trained model as an outsider would, and set what it says beside the claim."""

from tacit.auditing.driver import audit
from tacit.auditing.settings import AuditSettings

__all__ = ["AuditSettings", "audit"]
