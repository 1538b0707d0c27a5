"""Optimizations that do not change the rows of a read: what each is for, where it is implemented, and how to turn it
off.

A test reads the same tables with each switch changed, and with all of them off. The switches are for developers of this
package; they are not options for users.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Shortcuts:
    """Which optimizations are used.

    Attributes
    ----------
    page_stubs:
        Only the pages of a column chunk that contain wanted rows are downloaded; small pages of nulls replace the
        others (``parquet.partial_chunk``). Without it, a filter that matches few rows of large row groups downloads
        them completely. Benchmark: ``pages``.
    batches_together:
        Several small batches are written into a frame's columns together (``outputs.pandas``). Without it, every column
        is accessed once per batch. Benchmark: ``tiny-many``.
    late_columns:
        The filter's columns are decoded first, then only the matching rows of the other columns
        (``read.page_choice.filter_leaves``). Without it, all columns of the row groups that may match are downloaded.
        Benchmark: ``needle``.
    plain_schemas:
        A schema that has only plain types is not searched for types that exist only in Arrow (``parquet.footer``).
        Without it, every type is checked several times.
    text_dictionaries:
        Text with few distinct values is read as indices into its dictionary, filtered by the dictionary and expanded
        once (``read.layout``). Without it, each value is copied several times. Benchmark: ``turns``, job ``text``.
    tight_memory:
        Large reads decode rows into memory of jemalloc, which releases the unused part of an array
        (``parquet.reader``). Without it, a table with narrow columns takes 1.4 times its size. Benchmark: ``peak``.
    streamed_listing:
        The files of a snapshot, and the first versions of a long change feed (``protocol.windows``), are read while the
        server still lists others (``run.task_queue``). Without it, a read waits for the whole list and keeps it in
        memory. Benchmark: ``first-row-1m``.
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
