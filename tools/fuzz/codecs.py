"""Feed damaged bytes to every codec of ``delta_sharing_client.delta``, which may only raise a DeltaSharingError.

::

    python -m tools.fuzz.codecs --seconds 60                 # all targets, coverage-guided where atheris is there
    python -m tools.fuzz.codecs --target variant --seed 7    # one target, random mutation, repeatable
    python -m tools.fuzz.codecs --target variant --input 030100  # one input, as a failure prints it

Each target also checks the guarantees of its codec for accepted inputs, and no input may take longer than ``SLOW``
seconds of processor time. The exit code is 1 after a failure; the failing input is printed as hexadecimal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import struct
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.delta.deletion_vectors import (
    DeletionVector,
    decode_file,
    decode_inline,
    encode_file,
    relative_path,
    z85_decode,
    z85_encode,
)
from delta_sharing_client.delta.partition_values import parse_partition_value
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.delta.statistics import StatisticsReader, num_records
from delta_sharing_client.delta.type_rows import TYPES as ROWS
from delta_sharing_client.delta.type_rows import is_primitive
from delta_sharing_client.delta.variant.column import variant_to_json
from delta_sharing_client.errors import DeltaSharingError
from tests.time_limits import Stopwatch
from tests.unit.delta.native_bitmaps import native_inline
from tests.unit.delta.variant_encoder import dictionary, encode, primitive, variants_to_python
from tests.vectors import encode_inline, in_padded_text

SLOW = 2.0
INTERVALS = ("interval year to month", "interval day to second")
TYPES = [*map(PrimitiveType, (*filter(is_primitive, ROWS), *INTERVALS)), DecimalType(38, 18), DecimalType(5, 2)]
SCHEMA = StructType(
    (
        *(StructField(f"c{index}", data_type) for index, data_type in enumerate(TYPES)),
        StructField("s", StructType((StructField("x", PrimitiveType("long")),))),
    )
)
PATHS = [*((f"c{index}",) for index in range(len(TYPES))), ("s", "x")]
STATISTICS = StatisticsReader(SCHEMA, ColumnMappingMode.NONE, ["c0"], PATHS)
SHREDDED = pa.struct(
    {
        "a": pa.struct({"value": pa.binary(), "typed_value": pa.int64()}),
        "b": pa.struct({"value": pa.binary(), "typed_value": pa.list_(pa.struct({"value": pa.binary()}))}),
    }
)
NAMES = ["a", "b", "c"]


# --- targets ---


def inline_vector(data: bytes) -> None:
    """The first byte is the cardinality, and the other bytes are the bitmap."""
    padded = data[1:] + bytes(-len(data[1:]) % 4)
    vector = decode_inline(DeletionVectorDescriptor("i", z85_encode(padded), len(data) - 1, data[0] if data else 0))
    positions = vector.positions()
    assert len(positions) == vector.cardinality == data[0]
    assert (positions[:-1] < positions[1:]).all()
    mask = vector.keep_mask(0, 1000)
    assert (0 if mask is None else mask.false_count) == (positions < 1000).sum() == vector.count_in(0, 1000)
    assert decode_inline(encode_inline(vector)) == vector


def stored_vector(data: bytes) -> None:
    """The bytes are a file. Half of the time its size and checksum are corrected, as otherwise every input would be
    refused."""
    size = max(len(data) - 9, 0)
    if len(data) > 9 and data[-1] % 2:
        bitmap = data[5:-4]
        data = data[:1] + struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    vector = decode_file(data, DeletionVectorDescriptor("p", "x", size, data[-5] if size else 0, 1))
    assert len(vector.positions()) == vector.cardinality


def z85(data: bytes) -> None:
    """The bytes are Z85 text."""
    text = data.decode("latin-1")
    try:
        path = relative_path(DeletionVectorDescriptor("u", text, 0, 0))
    except DeltaSharingError:
        pass
    else:
        assert path.count("/") == (len(text) > 20)
        assert ".." not in path.split("/")
    assert in_padded_text(z85_decode(text)) == text


def partition_value(data: bytes) -> None:
    """The first byte chooses the type, and the other bytes are the partition value."""
    data_type = TYPES[data[0] % len(TYPES)] if data else TYPES[0]
    text = data[1:].decode("utf-8", "surrogateescape" if data and data[0] > 127 else "replace")
    value = parse_partition_value(text, data_type, column="p")
    assert pa.scalar(value, to_arrow_type(data_type)).is_valid == (value is not None)


def statistics(data: bytes) -> None:
    """The bytes are the JSON text of statistics; no error at all may be raised."""
    text = data.decode("utf-8", "replace")
    for vector in (None, DeletionVectorDescriptor("p", "x", 40, 3, 1)):
        try:
            result = STATISTICS.read(AddFile("f", {"c0": text[:20]}, stats=text, deletion_vector=vector))
            bounds = [result.bounds(path) for path in PATHS]
            count = num_records(text)
        except DeltaSharingError as error:
            raise AssertionError("statistics are hints: nothing may be raised") from error
        assert count is None or count >= 0
        assert all(item is None or item.null_count is None or item.null_count >= 0 for item in bounds)


def variant(data: bytes) -> None:
    """The first byte is the length of the metadata; the metadata and then the value follow."""
    size = data[0] if data else 0
    metadata, value = data[1 : 1 + size], data[1 + size :]
    array = pa.array([{"metadata": metadata, "value": value}])
    text = variant_to_json(array).to_pylist()[0]
    json.loads(text)
    variants_to_python(array)


def shredded_variant(data: bytes) -> None:
    """Five length-prefixed parts: metadata, value, the values of two shredded fields, and the value of array elements.
    An absent part is null."""
    parts: list[bytes | None] = []
    at = 0
    for _ in range(5):
        size = data[at] if at < len(data) else 255
        parts.append(None if size == 255 else data[at + 1 : at + 1 + size])
        at += 1 + (0 if size == 255 else size)
    metadata, value, first, second, element = parts
    typed = {
        "a": {"value": first, "typed_value": None if first else len(data)},
        "b": {"value": second, "typed_value": None if element is None else [{"value": element}] * 2},
    }
    row = {"metadata": metadata, "value": value, "typed_value": typed if len(data) % 2 else None}
    array = pa.array([row], pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": SHREDDED}))
    json.loads(variant_to_json(array).to_pylist()[0])
    variants_to_python(array)


def warm_up() -> None:
    """Let libraries load their lazy imports (pyarrow loads pandas), so that these do not count towards the time of an
    input."""
    partition_value(bytes([TYPES.index(PrimitiveType("timestamp"))]) + b"2020-01-01")
    variant(bytes([3]) + dictionary([]) + primitive(0))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "inline_vector": inline_vector,
    "stored_vector": stored_vector,
    "z85": z85,
    "partition_value": partition_value,
    "statistics": statistics,
    "variant": variant,
    "shredded_variant": shredded_variant,
}


# --- seeds: valid inputs of every kind ---


def seeds(name: str) -> list[bytes]:
    """Return valid inputs of a target."""
    return _SEEDS[name]()


def _vector_seeds() -> list[bytes]:
    sets = [[], [3, 4, 7, 11, 18, 29], range(100, 200), range(0, 400, 2), [5, 70_000, 1 << 33, (1 << 40) + 1]]
    results = []
    for positions in sets:
        # The native form lists every bucket, so large positions would make the seed large.
        near = [position for position in positions if position < 1 << 34]
        for descriptor in (
            encode_inline(DeletionVector.from_positions(positions)),
            native_inline(DeletionVector.from_positions(near)),
        ):
            data = z85_decode(descriptor.path_or_inline_dv)[: descriptor.size_in_bytes]
            results.append(bytes([descriptor.cardinality % 256]) + data)
    return results


def _file_seeds() -> list[bytes]:
    vectors = [DeletionVector.from_positions(positions) for positions in ([], [9], range(50))]
    return [encode_file([vector], uuid.UUID(int=1))[0] for vector in vectors]


def _partition_seeds() -> list[bytes]:
    texts = [
        "5", "-128", "1.5E+10", "NaN", "true", "1970-01-01", "2024-01-01 00:00:00.123456", "2024-01-01T10:00:00.000Z",
        "12345678901234567890.123456789012345678", "\\u0001\\u00FF", "null", "-0.00", "9999999-12-31",
        "INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '1 02:03:04.000005' DAY TO SECOND", "INTERVAL '90' MINUTE",
    ]  # fmt: skip
    return [bytes([index]) + text.encode() for index in range(len(TYPES)) for text in texts]


def _statistics_seeds() -> list[bytes]:
    values = ["x", 5, 1.5, True, "1970-01-01", "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00", "NaN", None]
    results = []
    for value in values:
        columns = {f"c{index}": value for index in range(len(TYPES))} | {"s": {"x": value}}
        counts = {f"c{index}": index for index in range(len(TYPES))} | {"s": {"x": 0}}
        results.append({"numRecords": 10, "minValues": columns, "maxValues": columns, "nullCount": counts})
    results.append({"numRecords": 3, "tightBounds": False, "nullCount": {"c1": 3}})
    return [json.dumps(item).encode() for item in results]


def _trees() -> list[tuple[bytes, bytes]]:
    trees: list[object] = [
        None, 5, "text", "long " * 20, [1, [2, []]], {"a": 1, "b": {"c": None}}, [{"a": 1.5}, {"a": b"x"}], {},
    ]  # fmt: skip
    results = [(dictionary(NAMES), encode(tree, NAMES)) for tree in trees]
    results += [(dictionary(NAMES, 4), encode(tree, NAMES, extra=3, large=True)) for tree in trees]
    widths = {3: 1, 4: 2, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4, 12: 8, 17: 8, 18: 8, 20: 16}
    results += [(dictionary([]), primitive(kind, bytes(width))) for kind, width in widths.items()]
    return results


def _variant_seeds() -> list[bytes]:
    return [bytes([len(metadata)]) + metadata + value for metadata, value in _trees()]


def _shredded_seeds() -> list[bytes]:
    def part(data: bytes | None) -> bytes:
        return b"\xff" if data is None else bytes([len(data)]) + data

    results = []
    for metadata, value in _trees():
        for parts in ([metadata, value] + [None] * 3, [metadata, None, value, None, value], [metadata] + [None] * 4):
            data = b"".join(map(part, parts))
            results += [data, data + b"\xff"]
    return results


_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "inline_vector": _vector_seeds,
    "stored_vector": _file_seeds,
    "z85": lambda: [b"HelloWorld", b"ab^-aqEH.-t@S}K{vb[*k^", b"%nSc0", b""],
    "partition_value": _partition_seeds,
    "statistics": _statistics_seeds,
    "variant": _variant_seeds,
    "shredded_variant": _shredded_seeds,
}


# --- running ---


class Failed(Exception):
    """Raised for an input for which a codec broke its guarantee."""

    def __init__(self, name: str, data: bytes, reason: str) -> None:
        super().__init__(f"{reason}\nrun again: python -m tools.fuzz.codecs --target {name} --input {data.hex()}")


def run_one(name: str, data: bytes) -> bool:
    """Feed one input; return whether it was accepted.

    Raises
    ------
    Failed
        An error other than ``DeltaSharingError`` was raised, or it took too long.
    """
    clock = Stopwatch(time.process_time)
    accepted = True
    try:
        TARGETS[name](data)
    except DeltaSharingError:
        accepted = False
    except Exception as error:
        raise Failed(name, data, f"{type(error).__name__}: {error}") from error
    if not clock.within(SLOW):
        raise Failed(name, data, f"it took {clock.took:.1f} seconds")
    return accepted


def mutate(data: bytes, others: list[bytes], random_: random.Random) -> bytes:
    """Return ``data`` with one to four random changes."""
    damaged = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(damaged) + 1)
        size = random_.choice((1, 1, 2, 4, 8))
        kind = random_.randrange(7)
        if kind == 0 and at < len(damaged):
            damaged[at] ^= 1 << random_.randrange(8)
        elif kind == 1:
            damaged[at : at + size] = random_.randbytes(size)
        elif kind == 2:
            number = random_.choice((0, 1, 127, 128, 255, 256, 65535, 1 << 31, (1 << 32) - 1, (1 << 63) - 1))
            damaged[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, random_.choice(("little", "big")))
        elif kind == 3:
            del damaged[at : at + size]
        elif kind == 4:
            damaged[at:at] = damaged[max(0, at - size * 4) : at]
        elif kind == 5:
            other = random_.choice(others)
            cut = random_.randrange(len(other) + 1)
            damaged[at:] = other[cut:]
        else:
            damaged[at:at] = bytes([random_.choice(b'0123456789.-+eE"{}[]:,TZ\\ \0\xff')]) * size
    return bytes(damaged)


def fuzz_randomly(names: list[str], *, seed: int, seconds: float | None = None, inputs: int | None = None) -> str:
    """Mutate seeds at random, for a time or for a number of inputs per target; return the counts.

    Raises
    ------
    Failed
        At the first input for which a codec breaks its guarantee.
    """
    random_ = random.Random(seed)
    lines = []
    warm_up()
    for name in names:
        corpus = seeds(name)
        accepted = sum(run_one(name, data) for data in corpus)
        fed, stop = len(corpus), None if seconds is None else time.monotonic() + seconds / len(names)
        while (inputs is None or fed < inputs) and (stop is None or time.monotonic() < stop):
            data = mutate(random_.choice(corpus), corpus, random_)
            fed += 1
            if run_one(name, data):
                accepted += 1
                if len(corpus) < 2000 and len(data) < 4096:
                    corpus.append(data)
        lines.append(f"{name}: {fed} inputs, {accepted} accepted")
    return "\n".join(lines)


def fuzz_guided(names: list[str], *, seconds: float, seed: int) -> None:
    """Run atheris over all targets; the first byte of an input chooses one. Atheris ends the process."""
    import atheris  # an optional dependency, found by main

    warm_up()
    atheris.instrument_all()

    def one(data: bytes) -> None:
        if data:
            run_one(names[data[0] % len(names)], data[1:])

    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(names):
            for number, data in enumerate(seeds(name)):
                (Path(folder) / f"{name}{number}").write_bytes(bytes([index]) + data)
        options = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=4096", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *options, "-artifact_prefix=" + folder + "/", folder], one)
        atheris.Fuzz()


def main(arguments: list[str] | None = None) -> int:
    """Run the program that the module docstring describes."""
    parser = argparse.ArgumentParser(description="Feed damaged bytes to the codecs.")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--input", type=bytes.fromhex, help="one input of one target, in hexadecimal")
    parser.add_argument("--random", action="store_true", help="mutate at random even if atheris is installed")
    options = parser.parse_args(arguments)
    names = options.target or list(TARGETS)
    write = sys.stdout.write
    if options.input is not None:
        write("accepted\n" if run_one(names[0], options.input) else "refused\n")
        return 0
    write(f"seed {options.seed}\n")
    if importlib.util.find_spec("atheris") and not options.random:
        fuzz_guided(names, seconds=options.seconds, seed=options.seed)
        return 0
    try:
        write(fuzz_randomly(names, seed=options.seed, seconds=options.seconds) + "\n")
    except Failed as failure:
        write(f"FAILED: {failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
