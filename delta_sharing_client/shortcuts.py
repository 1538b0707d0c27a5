"""Optimizations that do not change rows: what each is for, where it is, and how to turn it off.

A test reads the same tables with each of them off, and with all of them off. They are for developers of this package,
not options for users.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Shortcuts:
    """Which optimizations are used.

    Attributes
    ----------
    page_stubs:
        Only the pages of a column chunk with wanted rows are downloaded; small pages of nulls replace the others
        (``parquet.partial_chunk``). Without it, a filter that matches few rows of large row groups downloads them
        completely. Benchmark: ``pages``.
    batches_together:
        Several small batches are written into a frame's columns at a time (``outputs.pandas``). Without it, each column
        is accessed once per file. Benchmark: ``tiny-many``.
    late_columns:
        The filter's columns are decoded first, and of the others only the matching rows
        (``read.page_choice.filter_leaves``). Without it, all columns of the row groups that may match are downloaded.
        Benchmark: ``needle``.
    plain_schemas:
        A schema with only plain types is not searched for types that only Arrow has (``parquet.footer``). Without it,
        every type is checked several times.
    text_dictionaries:
        Text of few distinct values is read as indices into its dictionary, filtered by the dictionary and expanded once
        (``read.layout``). Without it, each value is copied several times. Benchmark: ``turns``, job ``text``.
    tight_memory:
        Large reads decode rows into memory of jemalloc, which releases the unused part of an array
        (``parquet.reader``). Without it, a table with narrow columns takes 1.4 times its size. Benchmark: ``peak``.
    streamed_listing:
        The files of a snapshot, and the first versions of a long change feed (``protocol.windows``), are read while the
        server still lists others (``run.task_queue``). Without it, a read waits for the whole list and keeps it.
        Benchmark: ``first-row-1m``.
    lines_at_once:
        The lines of a listing that arrive together are decoded as one list (``protocol.response_stream``). Without it,
        each line is decoded separately. Benchmark: ``plan-1m``.
    """

    page_stubs: bool = True
    batches_together: bool = True
    late_columns: bool = True
    plain_schemas: bool = True
    text_dictionaries: bool = True
    tight_memory: bool = True
    streamed_listing: bool = True
    lines_at_once: bool = True


SHORTCUTS = Shortcuts()
