"""Everything at once: one broker whose parts all work on the same logs while clients come and go, and disks misbehave."""
