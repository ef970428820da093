"""Exit codes of the command, beside 0 and 1."""

from __future__ import annotations

from typing import Final

from ottla.errors import KafkaError

WRONG_CALL: Final = 2
CANNOT_CONTINUE: Final = 3
"""Of ``ottla pipeline run`` and ``submit``: a query may not continue from its checkpoint, or brokers refuse the user: it would
end in the same way again."""
WRONG_CONFIG: Final = 78
"""Of ``ottla broker start``: no node starts with this configuration, so that another start would end in the same way; EX_CONFIG."""
INTERRUPTED: Final = 130


class WrongConfig(KafkaError):
    """The refusal of a configuration with which no node starts."""
