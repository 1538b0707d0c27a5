"""A read as a lazy Polars frame with push-down of columns, filter and row limit."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import counting_name, has_extension, sliced, with_counting
from delta_sharing_client.columns import narrowed
from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.outputs.streams import RowStream, end_on_interrupt
from delta_sharing_client.predicates.polars_expressions import weaker_predicate, without_hints
from delta_sharing_client.read_base import Read, with_pushed

if TYPE_CHECKING:
    import polars as pl

    from delta_sharing_client.run.batches import Batches

_TABLE_ROWS = 1_048_576


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return ``table`` as a Polars frame. Raises ``UnsupportedFeatureError`` for geometry if this version of Polars
    panics on it."""
    polars = optional.load("polars", "polars")
    if not hasattr(polars, "BaseExtension") and any(map(has_extension, table.schema)):
        raise UnsupportedFeatureError(
            f"Polars {polars.__version__} has no extension types, but the table has columns of geometry or geography."
            " Update Polars, or leave these columns out.",
            feature="geometry",
        )
    frame: pl.DataFrame = polars.from_arrow(table)
    return frame


def frame(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pl.DataFrame:
    """Return ``batches``, which have ``schema``, as one Polars frame."""
    polars = optional.load("polars", "polars")
    frames = [frame_of(table) for table in _tables(batches)] or [frame_of(schema.empty_table())]
    whole: pl.DataFrame = polars.concat(frames)
    return whole


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of consecutive batches, each with so many rows that the fixed cost of a conversion is small."""
    together: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows >= _TABLE_ROWS:
            yield pa.Table.from_batches(together)
            together, rows = [], 0
        together.append(batch)
        rows += batch.num_rows
    if together:
        yield pa.Table.from_batches(together)


def lazy_frame(read: Read, batches_of: Callable[..., Batches]) -> pl.LazyFrame:
    """Return ``read`` as a ``polars.LazyFrame``; every ``collect`` sends new requests, through ``batches_of``.

    The filter and the limit of ``read`` define its rows. The supported parts of a query's own filter skip data, and
    Polars applies all of it to the rows.
    """
    polars = optional.load("polars", "polars")
    plugins = optional.load("polars.io.plugins", "polars")
    end_on_interrupt()
    schema, whole = read.schema, read.limit_rows
    counting = counting_name(schema)

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, head: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        predicate = None if predicate is None else without_hints(predicate)
        names = None if columns is None else [name for name in columns if name != counting]
        asked = read if names is None else read.select(*narrowed(read.request.columns, names))
        is_counted = columns is None or counting in columns
        least = min((limit for limit in (head, whole) if limit is not None), default=None)
        if least is not None:
            # Polars applies both limits before its filter, regardless of their order in the query.
            asked = asked.limit(least)
        elif predicate is not None and (weaker := weaker_predicate(predicate, schema)) is not None:
            asked = with_pushed(asked, weaker)
        # Polars does not pass on a limit that follows a filter, but stops taking rows once it has enough.
        eager = predicate is None
        begin = functools.partial(batches_of, asked, eager=eager)
        with contextlib.closing(RowStream(begin, small_first=not eager)) as batches:
            for part in sliced(batches, batch_rows):
                part = with_counting(part, counting) if is_counted else part
                rows = frame_of(pa.Table.from_batches([part]))
                yield rows if predicate is None else rows.filter(predicate)

    columns_of_polars = frame_of(schema.empty_table()).schema
    return plugins.register_io_source(source, schema={counting: polars.Boolean, **columns_of_polars}).drop(counting)
