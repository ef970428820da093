"""Exit codes of the command, beside 0 and 1."""

from __future__ import annotations

from typing import Final

WRONG_CALL: Final = 2
CANNOT_CONTINUE: Final = 3
"""Of ``ottla pipeline run`` and ``submit``: a query may not continue from its checkpoint, or brokers refuse the user: it would
end in the same way again."""
INTERRUPTED: Final = 130
