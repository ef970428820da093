"""Record batch v2: checked by header and CRC, stamped in place, iterated, built, compressed.

Whatever opens or makes a batch does it here, by one kernel. What a log requires of batches is ``storage/log/batch_rules.py``'s.
"""
