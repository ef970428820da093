"""Everything at once: one broker whose parts all work on the same logs while clients come and go, and disks misbehave.

What is done, what goes wrong, and what must hold afterwards. Time, network and disk are the simulation's.
"""
