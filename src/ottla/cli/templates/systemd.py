"""A systemd unit for a broker, or for the brokers of all of a machine's cores."""

from __future__ import annotations

from typing import Final

STOP_SECONDS: Final = 60
"""More than an orderly stop takes: logs are synced, and answers on their way are sent."""


def unit(*, command: str, properties: str, user: str, cores: str | None = None) -> str:
    """Returns the text of ``ottla.service``. The broker is restarted when it fails, and stopped in order by SIGTERM.

    Its data is in StateDirectory, /var/lib/ottla, unless the properties name log.dirs.

    With ``cores``, SIGTERM goes to the supervisor alone, which stops its brokers together: a second SIGTERM would end them at once.
    """
    option = "" if cores is None else f" --cores {cores}"
    kill_mode = "" if cores is None else "KillMode=mixed\n"
    return f"""\
[Unit]
Description=ottla broker
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
User={user}
ExecStart={command} broker start {properties}{option} --log-format json
{kill_mode}KillSignal=SIGTERM
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
