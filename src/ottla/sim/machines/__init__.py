"""Machines alone, without event loop, codecs and sockets: a heap of events, abstract logs, a store that forgets what was not fsynced.

Level 1 of the simulation: hundreds of seeds a second, with every invariant checked on each event. The shipped nodes are simulated by
the rest of ``ottla.sim``; what runs here is the same machine that they run. ``exhaustive`` visits every state of a small scope in place
of drawing some.
"""
