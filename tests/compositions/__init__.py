"""Reads composed at random: the options of a read, an output, and the query that an engine stacks on it.

The expected rows come from plain Python over the rows that were written: ``conditions`` evaluates filters, ``tables``
has the rows of every version, and ``cases`` applies the steps. ``outputs`` runs a case; ``decoders`` chooses the
settings with which all decoders and shortcuts are used on small files, and counts their use. A case is determined by
its table, its seed and its number, so that a failing one can be repeated: ``python -m tools.soak compositions --help``.
"""
