"""Several nodes of one machine, as the command line makes them: what each is configured to be, where it lives, and its process.

How processes are started, watched and ended is in ``ottla.runtime.supervision``.
"""
