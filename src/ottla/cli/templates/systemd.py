"""Systemd units: for a broker, or the brokers of all of a machine's cores; for a file of pipelines."""

from __future__ import annotations

from typing import Final

from ottla.cli.exit_codes import CANNOT_CONTINUE, INTERRUPTED, WRONG_CALL, WRONG_CONFIG

STOP_SECONDS: Final = 60
"""More than an orderly stop takes: logs are synced, and answers on their way are sent."""

HARDENING: Final = """\
NoNewPrivileges=true
CapabilityBoundingSet=
ProtectSystem=full
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
ProtectClock=true
ProtectControlGroups=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
LockPersonality=true
RemoveIPC=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
"""What a unit of brokers forbids them: nothing that they do."""


def unit(*, command: str, properties: str, user: str, cores: str | None = None) -> str:
    """Returns the text of ``ottla.service``. The broker is restarted when it fails, and stopped in order by SIGTERM.

    A start has no time limit: systemd would end a recovery that takes longer than its 90 s, and repeat it.

    One whose configuration is wrong is not started again, and one that ends at once thirty times in ten minutes neither: that is to be
    seen. What else it may not do is nothing that a broker does; ``config/lint.py`` has where log.dirs cannot be.

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
StartLimitIntervalSec=10min
StartLimitBurst=30

[Service]
Type=notify
User={user}
ExecStart={command} broker start {properties}{option} --log-format json
{kill_mode}KillSignal=SIGTERM
TimeoutStartSec=infinity
TimeoutStopSec={STOP_SECONDS}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus={WRONG_CALL} {WRONG_CONFIG}
LimitNOFILE=100000
UMask=0077
StateDirectory=ottla
StateDirectoryMode=0700
{HARDENING}
[Install]
WantedBy=multi-user.target
"""


def pipeline_unit(*, command: str, file: str, app: str, user: str, bootstrap: str, command_config: str | None, memory: str | None) -> str:
    """Returns the text of ``ottla-pipeline-APP.service``.

    SIGTERM is for the driver alone, which stops its queries between two steps, and then its JVM. A driver that dies is started again; one
    that has ended because a query may not continue, or because its command is wrong, is not. Spark writes below the working directory.
    """
    config = "" if command_config is None else f" --command-config {command_config}"
    limit = "" if memory is None else f"MemoryMax={memory}\n"
    state = f"ottla-pipelines/{app}"
    return f"""\
[Unit]
Description=ottla pipeline {app}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=1h
StartLimitBurst=10

[Service]
User={user}
StateDirectory={state}
WorkingDirectory=%S/{state}
ExecStart={command} pipeline run {file} --app {app} --data %S/{state}/data -B {bootstrap}{config}
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={STOP_SECONDS}
Restart=on-failure
RestartSec=30
SuccessExitStatus={INTERRUPTED}
RestartPreventExitStatus={WRONG_CALL} {CANNOT_CONTINUE}
{limit}NoNewPrivileges=true
ProtectSystem=full
ProtectHome=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""
