"""The simulated world that implements the ports: virtual time, streams in memory, disks that forget what was not synced.

An entire cluster and its clients run in one process, on one event loop, under one seed. The same seed gives the same run, byte
for byte; a failure prints its seed. Nothing here reads a clock, a socket, a file or the global random state.
"""
