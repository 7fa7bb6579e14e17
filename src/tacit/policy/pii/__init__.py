"""Personal data in English text: the policy `pii` and its parts."""
