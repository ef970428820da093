"""The pages for operators, beside a broker that is started from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.runtime.serve import Beside


def admin_beside(config: BrokerConfig) -> Beside | None:
    """Returns the pages, where the configuration asks for them."""
    if config["ottla.admin.listener"] is None:
        return None
    from ottla.admin_http.server import serve_admin

    return serve_admin
