"""Replicated machines over partitions of internal topics: the runtime that runs them, and the coordinators that are such machines.

What a machine decides is in a package of its own (``ottla.groups``); this room appends, applies, answers, and has effects carried out.
"""
