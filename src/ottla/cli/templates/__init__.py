"""What ``ottla generate`` prints: dashboards, rules and units, made from the names that the broker serves."""
