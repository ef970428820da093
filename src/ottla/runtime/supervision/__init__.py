"""Several nodes on one machine: each is a process, and one supervisor starts, watches and ends them.

How a process is started and ended lives here; what a node is configured to be does not (``ottla.cli.nodes``).
"""
