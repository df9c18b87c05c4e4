"""Makes tiny random models with transformers and records their logits in eager f32.

    python tiny.py FOLDER

Writes FOLDER/NAME.gguf and FOLDER/NAME.json for every entry of MODELS and checks each file
against llama.cpp as well, so that a wrong conversion cannot become a reference.
"""

import json
import sys
import zlib
from importlib import metadata
from pathlib import Path

import numpy
import torch
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from convert import write_gguf
from llama import Llama

VOCAB = 288
SEQUENCE_TOKENS = (1, 37, 150)
# Beyond the first page of 64 tokens and its edges, and beyond the sliding windows below.
RECORDED_POSITIONS = (0, 1, 15, 16, 36, 63, 64, 65, 100, 128, 149)
# How far llama.cpp in f32 may be from transformers. Its GELU is a table of f16 values, which
# alone costs some 3e-4; a wrong conversion costs a hundred times more.
TOLERANCE_STD = {"llama": 2e-4, "qwen2": 2e-4, "gemma3_text": 2e-3}

_SHARED = {"vocab_size": VOCAB, "max_position_embeddings": 512, "attn_implementation": "eager"}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 50000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def _plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def _gemma_rope(full):
    return {"full_attention": full, "sliding_attention": _plain_rope(10000.0)}


MODELS = {
    # Grouped queries, output matrix of its own.
    "llama-gqa": LlamaForCausalLM(LlamaConfig(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, rope_parameters=_plain_rope(10000.0), tie_word_embeddings=False, **_SHARED)),
    # Odd head count, head size that is not hidden / heads, rope factors, tied, ragged rows.
    "llama-rope3": LlamaForCausalLM(LlamaConfig(
        hidden_size=60, intermediate_size=56, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=32, rope_parameters=_LLAMA3_ROPE, tie_word_embeddings=True, rms_norm_eps=1e-5, **_SHARED)),
    # A key head for each query head, rope scaled linearly.
    "llama-linear": LlamaForCausalLM(LlamaConfig(
        hidden_size=64, intermediate_size=56, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        head_dim=32, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        tie_word_embeddings=True, **_SHARED)),
    # Biases on q, k and v; seven query heads on one.
    "qwen2-seven": Qwen2ForCausalLM(Qwen2Config(
        hidden_size=112, intermediate_size=32, num_hidden_layers=1, num_attention_heads=7, num_key_value_heads=1,
        rope_parameters=_plain_rope(1000000.0), tie_word_embeddings=True, **_SHARED)),
    "qwen2-untied": Qwen2ForCausalLM(Qwen2Config(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        rope_parameters=_plain_rope(10000.0), tie_word_embeddings=False, **_SHARED)),
    # The sixth layer is the first with full attention; two rope bases, q and k norms.
    "gemma3-window": Gemma3ForCausalLM(Gemma3TextConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16, query_pre_attn_scalar=16, sliding_window=16, rope_parameters=_gemma_rope(_plain_rope(1000000.0)),
        **_SHARED)),
    # Rope scaled linearly in full-attention layers only, window larger than a page.
    "gemma3-linear": Gemma3ForCausalLM(Gemma3TextConfig(
        hidden_size=36, intermediate_size=40, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1,
        head_dim=16, query_pre_attn_scalar=16, sliding_window=70,
        rope_parameters=_gemma_rope({"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}), **_SHARED)),
}


class HalfCache(DynamicCache):
    """Keys and values pass through f16, as in Relight's and llama.cpp's KV caches."""

    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(key_states.half().float(), value_states.half().float(), *args, **kwargs)


def spread(key, gemma):
    """Mean and deviation of a parameter, in units of 1 / sqrt(inputs) for matrices.

    What a layer adds to the stream is kept small (outputs of the branches, or Gemma's norms
    after them): one key that rounds the other way in f16 must not move a logit by more than
    the tolerance of the tests. Wrong arithmetic moves them by a hundred times that.
    """
    if key.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")) and gemma:
        return -0.92, 0.03
    if key.endswith("norm.weight"):
        return (0.0 if gemma else 1.0), 0.3
    if key.endswith((".o_proj.weight", ".down_proj.weight")):
        return 0.0, 0.08
    if key.endswith(".bias"):
        return 0.0, 0.3
    return 0.0, 1.0


def fill(model, name):
    """Seeded weights of which every norm, bias and head matters."""
    random = numpy.random.default_rng(zlib.crc32(name.encode()))
    gemma = model.config.model_type == "gemma3_text"
    for key, parameter in model.named_parameters():
        mean, deviation = spread(key, gemma)
        scale = deviation / numpy.sqrt(parameter.shape[1] if parameter.ndim == 2 else 1)
        noise = random.standard_normal(tuple(parameter.shape), dtype=numpy.float32)
        parameter.data.copy_(torch.from_numpy(numpy.asarray(mean + scale * noise, dtype=numpy.float32)))
    model.eval()


def logits(model, tokens, cache):
    with torch.no_grad():
        return model(torch.tensor([tokens]), cache=cache, use_cache=True).logits[0].numpy()


def sequences(name):
    random = numpy.random.default_rng(zlib.crc32(f"{name}/tokens".encode()))
    return [[int(token) for token in random.integers(0, VOCAB, count)] for count in SEQUENCE_TOKENS]


def record_sequence(model, tokens):
    exact, half = logits(model, tokens, DynamicCache()), logits(model, tokens, HalfCache())
    positions = [position for position in RECORDED_POSITIONS if position < len(tokens)]
    return exact, half, {
        "tokens": tokens,
        "std": float(f"{half.std():.6g}"),
        "positions": [
            {
                "position": position,
                "logits": [float(f"{value:.7g}") for value in half[position]],
                "exact_difference": float(f"{abs(half[position] - exact[position]).max():.3g}"),
            }
            for position in positions
        ],
    }


def record_model(name, model, folder):
    fill(model, name)
    path = folder / f"{name}.gguf"
    write_gguf(model, name, path)
    recorded, worst_llama, worst_half = [], 0.0, 0.0
    llama = Llama(path, 512, exact=True)
    for tokens in sequences(name):
        exact, half, entry = record_sequence(model, tokens)
        llama.clear()
        difference = abs(llama.feed(tokens) - exact).max() / exact.std()
        worst_llama = max(worst_llama, float(difference))
        worst_half = max(worst_half, float(abs(half - exact).max() / exact.std()))
        recorded.append(entry)
    llama.close()
    if worst_llama > TOLERANCE_STD[model.config.model_type]:
        raise SystemExit(f"{name}: llama.cpp on the converted file is {worst_llama:.2e} std away from transformers")
    head = {
        "model": path.name,
        "oracle": f"transformers {metadata.version('transformers')}, torch {torch.__version__}",
        "kv": "f16",
    }
    lines = ",\n".join(json.dumps(entry) for entry in recorded)
    (folder / f"{name}.json").write_text(f'{json.dumps(head)[:-1]}, "sequences": [\n{lines}\n]}}\n')
    print(f"{name}: {path.stat().st_size} bytes, llama.cpp {worst_llama:.1e} std, f16 cache {worst_half:.1e} std")


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in MODELS.items():
        record_model(name, model, folder)


if __name__ == "__main__":
    main(sys.argv[1])
