"""The async shell: one process, one broker, one event loop, without locks between threads.

``node.py`` opens, starts and stops a broker; ``assembly.py`` makes its parts, and alone knows them all. ``parts.py`` is what handlers may
touch, ``status.py`` what admin pages may read. The rooms, from the ground up: tasks, peers, requests, liveness, metadata and replicas,
controller and upkeep, coordinators, fetching, handlers, homes. A decision belongs to a machine, a file or a socket to a port.
"""
