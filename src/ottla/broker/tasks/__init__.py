"""How work is run on the loop: without a Task where nothing suspends, one flight at a time, in slices.

It knows nothing of what the work is.
"""
