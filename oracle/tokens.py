"""Prints the ids of text.txt, as many as --count says, for a model.

    python tokens.py MODEL.gguf COUNT > TOKENS.json
"""

import json
import sys
from pathlib import Path

from llama import Llama

if __name__ == "__main__":
    llama = Llama(sys.argv[1], 16)
    tokens = llama.tokenize(Path(__file__).with_name("text.txt").read_text())
    llama.close()
    count = int(sys.argv[2])
    if len(tokens) < count:
        raise SystemExit(f"text.txt has {len(tokens)} tokens, {count} are wanted")
    print(json.dumps(tokens[:count]))
