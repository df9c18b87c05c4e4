"""Mean KL divergence from the f32 reference: Relight's logits and llama.cpp's, same file, same ids.

    python divergence.py MODEL.gguf F32.gguf TOKENS.json RELIGHT.f32

RELIGHT.f32 holds one row of little-endian f32 logits for each id. Prints one JSON object.
"""

import json
import sys
from pathlib import Path

import numpy

from llama import Llama

# Rows compared at a time: each is up to 262144 numbers in f64, several times over.
ROWS = 128


def log_softmax(rows):
    rows = rows.astype(numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))


def compare(reference, rows):
    """Per row: KL divergence in nats, and whether the best id is the reference's."""
    p, q = log_softmax(reference), log_softmax(rows)
    return (numpy.exp(p) * (p - q)).sum(axis=1), reference.argmax(axis=1) == rows.argmax(axis=1)


def summary(compared):
    kl = numpy.concatenate([kl for kl, _ in compared])
    agrees = numpy.concatenate([agrees for _, agrees in compared])
    return {"kl_mean": kl.mean(), "kl_p99": numpy.percentile(kl, 99), "kl_max": kl.max(), "same_best": agrees.mean()}


def main(model_path, exact_path, tokens_path, relight_path):
    tokens = json.loads(Path(tokens_path).read_text())
    llama = Llama(model_path, len(tokens))
    exact = Llama(exact_path, len(tokens), exact=True)
    relight = numpy.memmap(relight_path, dtype="<f4", mode="r").reshape(len(tokens), llama.vocab_size)
    ours, theirs = [], []
    for start in range(0, len(tokens), ROWS):
        chunk = tokens[start : start + ROWS]
        reference = exact.feed(chunk)
        ours.append(compare(reference, relight[start : start + len(chunk)]))
        theirs.append(compare(reference, llama.feed(chunk)))
    result = {"tokens": len(tokens), "relight": summary(ours), "llama.cpp": summary(theirs)}
    print(json.dumps(result, default=float))


if __name__ == "__main__":
    main(*sys.argv[1:])
