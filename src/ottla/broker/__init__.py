"""The async shell: one process, one broker, one event loop, without locks between threads.

``node.py`` makes all parts and alone knows them; ``parts.py`` is what handlers may touch, ``status.py`` what admin pages may read.
The rooms, from the ground up: tasks, replicas, metadata, coordinators, requests, upkeep, handlers.
"""
