# SPDX-License-Identifier: MIT
"""tokenize_input - reads records for scripts/tokenize from text, JSON Lines and
tables, and says on standard error what it could not use of them."""

import collections
import gzip
import json
import os
import sys
import zlib


def fail(text, status=2):
    """Prints one line. Libraries quote bytes and break lines."""
    text = "".join(c if c.isprintable() else "?" for c in
                   " ".join(text.split()))
    print(f"tokenize: {text}", file=sys.stderr)
    sys.exit(status)


def need(module, pip=""):
    try:
        return __import__(module)
    except ImportError:
        fail(f"Python has no '{module}': try 'pip install {pip or module}'", 3)


def read_json(path):
    """Returns the object in a file, or an empty one if there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        fail(f"{path}: {error}")
    if not isinstance(value, dict):
        fail(f"{path}: must be an object")
    return value


class Notes:
    """Counts what a person should know about all records, and prints a line
    about each kind at the end."""

    def __init__(self):
        self.unused, self.counts = collections.Counter(), collections.Counter()

    def keys(self, keys):
        """Counts keys of a record that nothing reads."""
        self.unused.update(set(keys))

    def add(self, what, n=1):
        """Counts records. what is the rest of a sentence."""
        self.counts[what] += n

    def print(self):
        if self.unused:
            keys = ", ".join(f"'{key}' ({n})" for key, n in
                             sorted(self.unused.items()))
            print(f"tokenize: note: not used, with the number of lines: {keys}",
                  file=sys.stderr)
        for what, n in self.counts.items():
            print(f"tokenize: note: {n} {what}", file=sys.stderr)


def parse_json(text, name, number):
    """Returns the value of a text that begins with line number of a file."""
    try:
        value = json.loads(text)
        # An escape may name half of a character, which is no text.
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        fail(f"{name}: line {number}: incomplete surrogate pair")
    except json.JSONDecodeError as error:
        fail(f"{name}: line {number + error.lineno - 1}, column"
             f" {error.colno}: not JSON: {error.msg}")
    except (ValueError, RecursionError) as error:  # a number or a depth
        fail(f"{name}: line {number}: {error}")
    return value


# The most characters of a document, and how many are read at once. A stream may
# have no end.
MOST, PIECE = 1 << 30, 1 << 20


def bounded(name, pieces):
    """Yields the pieces of a text, and fails if they cannot belong to one."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if "\0" in piece:
            fail(f"{name}: has a zero byte")
        if size > MOST:
            fail(f"{name}: is longer than 1 GiB")
        yield piece


def read_rest(name, file):
    """Returns the rest of a file."""
    return "".join(bounded(name, iter(lambda: file.read(PIECE), "")))


def read_lines(name, file):
    """Yields the lines of a file."""
    def pieces(piece):
        while piece:
            yield piece
            piece = "" if piece.endswith("\n") else file.readline(PIECE)

    number = 1
    while first := file.readline(PIECE):
        yield "".join(bounded(f"{name}: line {number}", pieces(first)))
        number += 1


def json_records(name, file):
    """Yields where each line is and its value, or that of each element if the
    file is a list."""
    for number, line in enumerate(read_lines(name, file), 1):
        if number == 1 and line.lstrip().startswith("["):
            elements = parse_json(line + read_rest(name, file), name, number)
            for n, element in enumerate(elements, 1):
                yield f"{name}: element {n}", element
        elif line.strip():
            yield f"{name}: line {number}", parse_json(line, name, number)


TABLES = (".parquet", ".arrow", ".feather")


def open_table(name):
    """Yields the batches of a table, without a look at their values."""
    arrow = need("pyarrow")
    if name.endswith(".parquet"):
        parquet = __import__("pyarrow.parquet").parquet
        yield from parquet.ParquetFile(name).iter_batches()
        return
    source = arrow.memory_map(name)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
        file = arrow.ipc.open_file(source)
        yield from map(file.get_batch, range(file.num_record_batches))
    else:  # Datasets are cached as streams.
        yield from arrow.ipc.open_stream(source)


ROWS = 1024  # A damaged table may have 2^62 rows of nothing.


def table_rows(name):
    """Yields the records of a table. A damaged table may point anywhere in
    memory, so its values are read only after its offsets were checked."""
    try:
        for batch in open_table(name):
            batch.validate(full=True)
            for first in range(0, batch.num_rows, ROWS):
                yield from batch.slice(first, ROWS).to_pylist()
    except Exception as error:  # The library raises all kinds.
        number = isinstance(error, OSError) and error.errno
        fail(f"{name}: {os.strerror(number) if number else error}")


def without_nulls(value):
    """Returns a value without the keys that are null: the rows of a table have
    each key of any row."""
    if isinstance(value, dict):
        return {key: without_nulls(v) for key, v in value.items()
                if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def table_records(name):
    for number, record in enumerate(table_rows(name), 1):
        yield f"{name}: row {number}", without_nulls(record)


def open_input(name):
    text = {"encoding": "utf-8-sig", "newline": "\n"}
    if name == "-":
        sys.stdin.reconfigure(**text)
        return sys.stdin
    try:
        return (gzip.open(name, "rt", **text) if name.endswith(".gz") else
                open(name, **text))
    except OSError as error:
        fail(f"{name}: {error.strerror}")


def text_records(name, read):
    """Yields what read, a function of a file's name and the open file, yields,
    and refuses a file that cannot be read as text."""
    with open_input(name) as file:
        try:
            yield from read(name, file)
        except UnicodeDecodeError as error:
            fail(f"{name}: not UTF-8: {error.reason}")
        except IsADirectoryError:
            fail(f"{name}: is a directory")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            fail(f"{name}: {error}")


def lines(name, file):
    for line in read_lines(name, file):
        yield name, line.rstrip("\r\n")


def whole(name, file):
    yield name, read_rest(name, file)
