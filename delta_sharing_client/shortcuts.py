"""The clever parts that change no row: what each is for, where its door is, and how to do without it.

A test reads the same tables with each of them off, and all of them. They are for those who work on this package: no
option of a user.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(slots=True)
class Shortcuts:
    """Which shortcuts are taken.

    Attributes
    ----------
    page_stubs:
        Of a column chunk only the pages with wanted rows are fetched; small pages of nulls stand for the others
        (``parquet.partial_chunk``). Without it a filter that hits few rows of large row groups fetches them whole, and
        drops the rows it does not want afterwards. Benchmark: ``pages``.
    touch_ahead:
        While the first rows are on their way, a thread has the system provide the memory of the frame
        (``outputs.pandas``). Without it that happens between the rows. Benchmark: ``loopback-full``.
    batches_together:
        Small batches are put into a frame's columns several at a time (``outputs.pandas``). Without it each column is
        touched once a file. Benchmark: ``tiny-many``.
    late_columns:
        The filter's columns are decoded first, and of the others what they leave (``read.pages.filter_leaves``).
        Without it all columns of the row groups that may match are fetched. Benchmark: ``needle``.
    columns_as_stored:
        Columns that need no conversion go from the file's batch to ours in one piece (``read.decode``). Without it each
        is looked up, asked what it needs, and put in its place. Benchmark: ``tiny-crowd``.
    texts_alone_measured:
        Before a row group is decoded, only its texts are looked at for what they unpack to (``read.decode``). Without
        it every column chunk's entry in the footer is. Benchmark: ``latency-many``.
    plain_schemas:
        A schema of nothing but plain types needs no second look for forms that only Arrow has
        (``parquet.footer``). Without it every type is asked a dozen questions.
    tight_memory:
        Once there are many, rows are decoded into memory of jemalloc, which takes back what an array turned out not to
        need (``parquet.reader``). Without it a table of narrow columns takes 1.4 times its size. Benchmark: ``peak``.
    streamed_listing:
        The files of a snapshot, and the first versions of a long change feed (``protocol.windows``), are read while the
        server still lists others (``run.listing``). Without it a read waits for the whole list, and keeps it.
        Benchmark: ``first-row-1m``.
    lines_at_once:
        The lines of a listing that arrive together are decoded as one list (``protocol.pages``). Without it each is cut
        out, and decoded by a call of its own. Benchmark: ``plan-1m``.
    """

    page_stubs: bool = True
    touch_ahead: bool = True
    batches_together: bool = True
    late_columns: bool = True
    columns_as_stored: bool = True
    texts_alone_measured: bool = True
    plain_schemas: bool = True
    tight_memory: bool = True
    streamed_listing: bool = True
    lines_at_once: bool = True


SHORTCUTS = Shortcuts()
