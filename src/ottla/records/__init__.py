"""Record batch v2: checked by header and CRC, stamped in place, iterated, built, compressed."""
