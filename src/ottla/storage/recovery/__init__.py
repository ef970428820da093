"""From files to a log after a start, and looking for damage: recovery, replay of producers, scrubbing, verification.

It reads what ``log`` has written and never serves requests. What happens while a log is open does not belong here.
"""
