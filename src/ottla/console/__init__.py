"""A page to look at a cluster, in a process of its own: any cluster, as a client; nodes of this machine can be killed and started again.

``watching.py`` looks at the cluster and notes what changes, ``probe.py`` writes to it all the time and notes how long that takes,
``reading.py`` reads topics and groups, ``pages.py`` is what each page shows, ``app.py`` serves them. Numbers are rendered here and reach a
browser as text: its own numbers end at 2^53.
"""
