"""Damage, drawn from a seed: of bytes, of the lines and tokens of a text, of values inside JSON, of the columns of
Parquet and npz files.
"""

from __future__ import annotations

import io
import json
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: What a value of any kind may turn into.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 10**400, 0.0, 1e-300, 1e308, float("nan"),
    float("inf"), "", " ", "a", "p99(ttft) <= 200ms", "30s", "1e3", "-5", "nan", "x" * 5000, "\x00", "\ud800", "é\u202e",  # noqa: E501
    "../../etc", "/dev/zero", "/dev/null", "${env:NOPE}", "http://", "ftp://x:y@h", "http://[", "http://h:99999", [], [[]], [None], {}, {"a": 1}, {"": []},  # noqa: E501
)  # fmt: skip
#: What a scalar of YAML may turn into.
TOKENS = (
    "null", "~", "true", "-1", "0", "1e999", ".nan", ".inf", "-.inf", "9" * 400, "0x" + "f" * 50, "0o9", "1:30", "2022-99-99",  # noqa: E501
    "[]", "{}", "''", '"', "'", "[", "{", "*a", "&a x", "&a [*a]", "!!python/object:os.system x", "!!int x", "!!binary x", "!!set {a, b}", "!<x> y", "? a", "- - -",  # noqa: E501
    "|", ">", "%", "@", "`", "\t", "<<: *a", "<<: {kind: x}", "---", "...", "x" * 3000, "\u0085", "\ufeff", "\u2028", "a: b: c", "#",  # noqa: E501
)  # fmt: skip


def text(rng: random.Random, base: bytes, others: list[bytes]) -> bytes:
    """One to four changes of a text file."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        base = rng.choice((_bytes, _bytes, _token, _token, _token, _lines, _lines, _indent, _splice, _deep))(
            rng, base, others
        )
    return base


def _bytes(rng: random.Random, base: bytes, _: list[bytes]) -> bytes:
    data = bytearray(base)
    for _number in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            data[at : at + rng.choice((1, 1, 3, 40))] = b""
        elif how == 1:
            data[at:at] = bytes([rng.randrange(256)])
        elif how == 2:
            data[at : at + 1] = bytes([rng.choice(b"\t\n\r :-#[]{}\"'&*!|>%@`,?\x00\xff")])
        elif how == 3:
            end = min(len(data), at + rng.randrange(1, 60))
            data[at:at] = data[at:end] * rng.choice((1, 1, 30))
        else:
            del data[at:]
    return bytes(data)


def _token(rng: random.Random, base: bytes, _: list[bytes]) -> bytes:
    places = [found.span() for found in re.finditer(rb"[^\s:,\[\]{}#]+", base)]
    if not places:
        return base
    start, end = rng.choice(places)
    return base[:start] + rng.choice(TOKENS).encode() + base[end:]


def _lines(rng: random.Random, base: bytes, others: list[bytes]) -> bytes:
    lines = base.splitlines(keepends=True) or [b"\n"]
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        lines.insert(to, lines[at])
    elif how == 1:
        lines[at], lines[to] = lines[to], lines[at]
    elif how == 2:
        del lines[at]
    else:
        lines.insert(to, rng.choice(rng.choice(others).splitlines(keepends=True) or [b"\n"]))
    return b"".join(lines)


def _indent(rng: random.Random, base: bytes, _: list[bytes]) -> bytes:
    lines = base.splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((b" ", b"  ", b"\t", b"   ")) + lines[at] if rng.random() < 0.5 else lines[at].lstrip(b" ")
    return b"".join(lines)


def _splice(rng: random.Random, base: bytes, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    return base[: rng.randrange(len(base) + 1)] + other[rng.randrange(len(other) + 1) :]


def _deep(rng: random.Random, base: bytes, _: list[bytes]) -> bytes:
    n = rng.choice((50, 500, 3000))
    bombs = (b"[" * n, b"{a: " * n, b"- " * n, b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n, _bomb(rng))
    at = rng.choice([0, len(base), *(found.end() for found in re.finditer(rb": |\n", base))])
    return base[:at] + rng.choice(bombs) + base[at:]


def _bomb(rng: random.Random) -> bytes:
    levels = [f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]" for i in range(1, rng.choice((3, 6, 12)))]
    return "\n".join(["", "b0: &b0 [x, x]", *levels, ""]).encode()


def value(rng: random.Random, document: Any) -> Any:
    """The document with one value, somewhere in it, exchanged, taken out or put in."""
    document = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            places += [(one, key) for key in one]
            left += one.values()
        elif isinstance(one, list):
            places += [(one, i) for i in range(len(one))]
            left += one
    if not places or rng.random() < 0.01:
        return rng.choice(VALUES)
    where, key = rng.choice(places)
    how = rng.randrange(6)
    if how == 0:
        del where[key]
    elif how == 1 and isinstance(where, dict):
        where[rng.choice(("x", "", "kind", "é", "a.b", "<<", "0", *where))] = rng.choice(VALUES)
    elif how == 2:
        other, name = rng.choice(places)
        try:
            where[key] = json.loads(json.dumps(other[name]))
        except (KeyError, IndexError, ValueError):
            where[key] = None
    elif how == 3:
        where[key] = [where[key]] * rng.choice((1, 2, 50))
    else:
        where[key] = rng.choice(VALUES)
    return document


def values(rng: random.Random, document: Any) -> bytes:
    """Some values exchanged, as JSON, which is YAML too."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = value(rng, document)
    return json.dumps(document).encode()


def parquet(rng: random.Random, data: bytes) -> bytes:
    """One column of another type, with nulls, with odd numbers, doubled, gone, or rows that are others'."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(rng.choice((1, 1, 2))):
        table = _column(rng, table)
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()


def _column(rng: random.Random, table: pa.Table) -> pa.Table:
    at = rng.randrange(table.num_columns)
    name, n = table.column_names[at], table.num_rows
    held = table.column(at).to_pylist()
    how = rng.randrange(9)
    if how == 0:
        return table.drop_columns([name])
    if how == 1:
        return table.append_column(rng.choice(table.column_names), table.column(at))
    if how == 2:
        return table.take(pa.array([rng.randrange(n) for _ in range(rng.randrange(n + 3))], pa.int64()))
    if how == 3:
        metadata = {b"plimsoll.records.schema": rng.choice((b"", b"0", b"-1", b"9", b"x", b"1" * 5000))}
        return table.replace_schema_metadata(rng.choice((None, metadata)))
    odd: tuple[Any, ...] = (None, 0, -1, -2, 1, 127, 2**31, 2**62, 2**63 - 1, -(2**63))
    if how in (4, 5):
        made = [rng.choice(odd) if rng.random() < 0.2 else one for one in held]
    elif how == 6:
        made = [rng.choice(([], None, [None], [-1, 5], [2**62] * 3, list(range(50)))) for _ in range(n)]
    elif how == 7:
        made = [rng.choice((float("nan"), float("inf"), 1.5, None)) for _ in range(n)]
    else:
        made = [rng.choice(("", "OK", "measure", None, "x" * 100, "é")) for _ in range(n)]
    try:
        column = pa.array(
            made, type=rng.choice((None, None, table.schema.field(at).type, pa.float64(), pa.uint64(), pa.bool_()))
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        column = pa.nulls(n)
    return table.set_column(at, name, column)


def npz(rng: random.Random, data: bytes) -> bytes:
    """One array of another type, shape or content."""
    with np.load(io.BytesIO(data)) as archive:
        held = {name: archive[name] for name in archive.files}
    name = rng.choice(list(held))
    array = held[name]
    if name == "scalars" and rng.random() < 0.8:
        array = np.array(values(rng, json.loads(str(array))).decode())
    else:
        odd = [2**62, -1, 0, 2**63 - 1, -(2**63), 1]
        how = rng.randrange(6)
        if how == 0 and array.ndim and array.dtype == np.int64 and array.size:
            array = array.copy()
            array[rng.randrange(array.size)] = rng.choice(odd)
        elif how == 1:
            array = array[: len(array) // 2] if array.ndim else np.zeros(3)
        elif how == 2:
            array = np.zeros(array.shape, rng.choice(("f8", "U3", "?", "c16", "i4", "M8[ns]")))
        elif how == 3:
            array = np.full((3, 2), rng.choice(odd), np.int64)
        elif how == 4:
            del held[name]
        else:
            array = np.concatenate([np.ravel(array), np.ravel(array)])
    if name in held:
        held[name] = array
    out = io.BytesIO()
    np.savez(out, **held)
    return out.getvalue()


def raw(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut off or put in, whatever they mean."""
    return _bytes(rng, data, [])
