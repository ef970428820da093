"""Repeatable benchmarks. Figures are for one machine in one run; compare ratios, never absolute values."""
