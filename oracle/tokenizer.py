"""Records the token ids that llama.cpp gives to a corpus of strings.

    python oracle/tokenizer.py --model FILE.gguf --out VECTORS.json [--random COUNT] [--seed SEED]

Each string is recorded twice: `plain` as text without special tokens, `special` with BOS
and EOS as the model wants them and the names of control tokens parsed.
"""

import argparse
import ctypes
import json
from importlib import metadata
from pathlib import Path

import llama_cpp

from corpus import strings


@llama_cpp.llama_log_callback
def _keep_quiet(_level, _text, _user_data):
    pass


class Vocabulary:
    """The tokenizer of a model file, without its weights."""

    def __init__(self, path):
        llama_cpp.llama_log_set(_keep_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def encode(self, text, special):
        data = text.encode()
        room = len(data) + 8
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, room, special, special)
        if count < 0:
            raise RuntimeError(f"llama.cpp wants room for {-count} ids of {len(data)} bytes")
        return list(ids[:count])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--random", type=int, default=40, help="random strings beside the written ones")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    vocabulary = Vocabulary(options.model)
    lines = [
        json.dumps(
            {"text": text, "plain": vocabulary.encode(text, False), "special": vocabulary.encode(text, True)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for text in strings(options.random, options.seed)
    ]
    head = json.dumps({"model": options.model.name, "oracle": f"llama-cpp-python {metadata.version('llama_cpp_python')}"})
    # One string a line: a change of one string is a change of one line.
    options.out.write_text(head[:-1] + ', "strings": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{options.model.name}: {len(lines)} strings")


if __name__ == "__main__":
    main()
