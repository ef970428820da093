"""What ``ottla generate`` prints: dashboards, rules and units, made from the names that the broker serves.

Only text is made here. A metric's name is taken from where it is served, never written a second time.
"""
