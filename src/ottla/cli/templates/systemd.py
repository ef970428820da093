"""A systemd unit for a broker."""

from __future__ import annotations

from typing import Final

STOP_SECONDS: Final = 60
"""More than an orderly stop takes: logs are synced, and answers on their way are sent."""


def unit(*, command: str, properties: str, user: str) -> str:
    """The text of ``ottla.service``. The broker is restarted when it fails, and stopped in order by SIGTERM."""
    return f"""\
[Unit]
Description=ottla broker
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
User={user}
ExecStart={command} broker start {properties} --log-format json
KillSignal=SIGTERM
TimeoutStopSec={STOP_SECONDS}
Restart=on-failure
RestartSec=2
LimitNOFILE=100000
StateDirectory=ottla
NoNewPrivileges=true
ProtectSystem=full
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
