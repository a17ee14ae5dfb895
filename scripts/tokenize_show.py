# SPDX-License-Identifier: MIT
"""tokenize_show - shows a person what of a document is scored, and compares
token ids with transformers, for scripts/tokenize."""

import itertools
import os
import sys

from tokenize_input import read_json


def marked(pieces, colour):
    """Returns the text of pieces, which are pairs of a text and whether it is
    scored, with marks around scored text."""
    opened, closed = ("\x1b[32m", "\x1b[0m") if colour else ("[[", "]]")
    out = []
    for scored, group in itertools.groupby(pieces, lambda piece: piece[1]):
        text = "".join(piece[0] for piece in group)
        out.append(opened + text + closed if scored else text)
    return "".join(out)


def pieces_of(text, offsets, mask):
    """Returns a text as pieces. A character is scored if a token with it is, or
    if it is between two such tokens: some tokenizers leave out white space."""
    scored, last = bytearray(len(text)), None
    for (a, b), yes in zip(offsets, mask):
        if yes:
            first = a if last is None else min(a, last)
            scored[first:b] = b"\1" * (b - first)
        last = b if yes else None
    return list(zip(text, scored))


def summary(line):
    """Returns how long a line is. Nothing predicts the first token."""
    if "input_ids" not in line:
        return ", ".join(f"{key}: {len(ids)} tokens"
                         for key, ids in line.items())
    n = len(line["input_ids"])
    return f"{n} tokens, {sum(line.get('loss_mask', n * [1])[1:])} scored"


def show(lines, n):
    """Prints the first n documents. A line is a value for pppack and a function
    that returns a list of parts: a name, and pieces."""
    colour = sys.stdout.isatty()
    for number, (line, parts) in enumerate(itertools.islice(lines, n), 1):
        print(f"--- document {number}: {summary(line)}")
        for name, pieces in parts():
            print((f"{name}: " if name else "") + marked(pieces, colour))


class Check:
    """Compares the ids of the first texts with transformers, which rebuilds
    parts of some tokenizers by their class."""

    TEXTS = 8

    def __init__(self, model, notes):
        self.model, self.notes, self.seen = model, notes, []

    def add(self, text, special, ids):
        if self.seen is not None:
            self.seen.append((text, special, ids))
            if len(self.seen) == self.TEXTS:
                self.run()

    def run(self):
        """Compares the texts so far, once."""
        seen, self.seen = self.seen, None
        names = "config.json", "tokenizer_config.json"
        known = [read_json(os.path.join(self.model, name)) for name in names]
        if not seen or not (known[0].get("model_type") or
                            known[1].get("tokenizer_class")):
            return
        try:
            from transformers import AutoTokenizer
            tokenizer = AutoTokenizer.from_pretrained(
                self.model, trust_remote_code=False)
            for text, special, ids in seen:
                theirs = tokenizer(text, add_special_tokens=special)["input_ids"]
                if list(theirs) != ids:
                    self.notes.add(f"of the first {len(seen)} texts have other"
                                   " tokens in transformers"
                                   f" ({type(tokenizer).__name__})")
        except Exception:  # It is absent, or does not know the model.
            return
