"""The controller: what the cluster should look like, as decisions over the metadata image.

Pure functions that return records (``decided.py``). Appending and publishing them is the broker's active controller's; what an image
looks like is ``metadata``'s.
"""
