"""Records logits and greedy continuations of a real model for the tests of every run.

    python record.py NAME MODEL.gguf F32.gguf VECTORS.json

NAME picks the prompts. F32.gguf is the same model dequantized (dequantize.py): what
llama.cpp computes from it in f32 is the reference that both engines are measured against.
The format is described in README.md.
"""

import hashlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path

import numpy

from llama import Llama
from prompts import PROMPTS

CONTINUATION_TOKENS = 48
TOP = 20
CONTEXT_TOKENS = 2048


def log_softmax(row):
    row = row.astype(numpy.float64)
    row = row - row.max()
    return row - numpy.log(numpy.exp(row).sum())


def divergence(reference, row):
    """KL divergence of `row` from `reference`, both logits, in nats."""
    p, q = log_softmax(reference), log_softmax(row)
    return float((numpy.exp(p) * (p - q)).sum())


def argmax_and_margin(row):
    first, second = numpy.argsort(-row, kind="stable")[:2]
    return int(first), float(row[first] - row[second])


def rounded(values):
    return [round(float(value), 5) for value in values]


def greedy(llama, tokens):
    """Logits of the prompt and of each continuation token, and the continuation."""
    llama.clear()
    rows = [llama.feed(tokens)]
    continuation, margins = [], []
    while len(continuation) < CONTINUATION_TOKENS:
        token, margin = argmax_and_margin(rows[-1][-1])
        continuation.append(token)
        margins.append(round(margin, 5))
        if llama.ends_generation(token):
            break
        rows.append(llama.feed([token]))
    return numpy.concatenate(rows), continuation, margins


def recorded_positions(prompt_count, row_count):
    """The first token, the middle and the end of the prompt, and the end of the continuation."""
    return sorted({0, prompt_count // 2, prompt_count - 1, row_count - 1})


def record_position(position, row, reference):
    ids = numpy.argsort(-row, kind="stable")[:TOP]
    return {
        "position": position,
        "mean": round(float(row.mean()), 5),
        "std": round(float(row.std()), 5),
        "reference_mean": round(float(reference.mean()), 5),
        "reference_std": round(float(reference.std()), 5),
        "kl": round(divergence(reference, row), 7),
        "ids": [int(token) for token in ids],
        "logits": rounded(row[ids]),
        "reference": rounded(reference[ids]),
    }


def record_prompt(name, text, llama, exact):
    tokens = llama.tokenize(text)
    rows, continuation, margins = greedy(llama, tokens)
    exact.clear()
    reference = exact.feed((tokens + continuation)[: len(rows)])
    steps = range(len(tokens) - 1, len(tokens) - 1 + len(continuation))
    return {
        "name": name,
        "text": text,
        "tokens": tokens,
        "continuation": continuation,
        "margins": margins,
        "reference_argmax": [int(reference[step].argmax()) for step in steps],
        "positions": [
            record_position(position, rows[position], reference[position])
            for position in recorded_positions(len(tokens), len(rows))
        ],
    }


def write_vectors(vectors, path):
    """One prompt a line: small, and a change of one prompt is a change of one line."""
    head = {key: value for key, value in vectors.items() if key != "prompts"}
    lines = ",\n".join(json.dumps(prompt, ensure_ascii=False) for prompt in vectors["prompts"])
    head_text = json.dumps(head, ensure_ascii=False)
    path.write_text(f'{head_text[:-1]}, "prompts": [\n{lines}\n]}}\n')


def oracle_name():
    """What makes the numbers: the package, or another library in its place."""
    name = f"llama-cpp-python {metadata.version('llama_cpp_python')}"
    return f"{name} on another build of llama.cpp" if "LLAMA_CPP_LIB_PATH" in os.environ else name


def main(name, model_path, exact_path, target):
    model_path = Path(model_path)
    llama = Llama(model_path, CONTEXT_TOKENS)
    exact = Llama(exact_path, CONTEXT_TOKENS, exact=True)
    vectors = {
        "model": model_path.name,
        "sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
        "bytes": model_path.stat().st_size,
        "oracle": oracle_name(),
        "prompts": [record_prompt(key, text, llama, exact) for key, text in PROMPTS[name].items()],
    }
    write_vectors(vectors, Path(target))
    llama.close()
    exact.close()
    for prompt in vectors["prompts"]:
        worst = max(entry["kl"] for entry in prompt["positions"])
        print(f"{name} {prompt['name']}: {len(prompt['tokens'])} tokens, largest KL {worst:.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
