"""A Hugging Face causal model (llama, qwen2 or gemma3_text) to a GGUF file of F32 tensors.

The file carries a small byte-level vocabulary of its own, so that it loads as a complete
model; the recorded tests feed ids, not text.
"""

import gguf
import numpy
import torch

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def rope_parameters(config):
    """The parameters of full-attention layers, however the configuration nests them."""
    parameters = config.rope_parameters
    return parameters.get("full_attention", parameters)


def frequency_factors(model, config):
    """What the model divides each plain rope frequency by, (head_size / 2)."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / (rope_parameters(config)["rope_theta"] ** half)
    return (plain / model.model.rotary_emb.inv_freq).numpy()


def write_hyperparameters(writer, config):
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = rope_parameters(config)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(0)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)


def byte_alphabet():
    """The printable character that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(moved)) for byte in range(256)]


def write_byte_level_vocabulary(writer, size, pre):
    """256 byte tokens, some merged pairs, then control tokens up to `size`."""
    alphabet = byte_alphabet()
    pairs = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("Ġ", "a"), ("r", "e"), ("o", "n"), ("Ġt", "he")]
    tokens = alphabet + [left + right for left, right in pairs]
    types = [NORMAL] * len(tokens)
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    controls += [f"<|spare_{index}|>" for index in range(size - len(tokens) - len(controls))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens + controls)
    writer.add_token_types(types + [CONTROL] * len(controls))
    writer.add_token_merges([f"{left} {right}" for left, right in pairs])
    writer.add_bos_token_id(len(tokens))
    writer.add_eos_token_id(len(tokens) + 2)
    writer.add_add_bos_token(False)


def write_sentencepiece_vocabulary(writer, size):
    """<pad> <eos> <bos> <unk>, 256 byte tokens, then pieces with scores up to `size`."""
    pieces = ["▁", "e", "t", "a", "o", "n", "i", "s", "h", "r", "▁t", "he", "▁the", "in", "▁a", "re", "on"]
    controls = [("<pad>", CONTROL), ("<eos>", CONTROL), ("<bos>", CONTROL), ("<unk>", UNKNOWN)]
    controls += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    spare = size - len(controls) - len(pieces)
    controls += [(f"<unused{index}>", CONTROL) for index in range(spare)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in controls] + pieces)
    writer.add_token_types([kind for _, kind in controls] + [NORMAL] * len(pieces))
    writer.add_token_scores([0.0] * len(controls) + [-float(rank) for rank in range(len(pieces))])
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def interleaved(weight, head_count):
    """Rows of a q or k projection reordered for rope on neighbouring pairs.

    Hugging Face rotates dimension i with i + head_size / 2; llama files rotate 2i with 2i + 1.
    """
    shape = weight.shape
    halves = weight.reshape(head_count, 2, shape[0] // head_count // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def tensor_values(name, values, config):
    if config.model_type == "llama":
        if ".q_proj." in name:
            return interleaved(values, config.num_attention_heads)
        if ".k_proj." in name:
            return interleaved(values, config.num_key_value_heads)
    if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
        return values + numpy.float32(1.0)
    return values


def write_tensors(writer, model, config):
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        values = parameter.detach().to(torch.float32).numpy()
        writer.add_tensor(target, numpy.ascontiguousarray(tensor_values(name, values, config)))
    if rope_parameters(config)["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", frequency_factors(model, config))


def write_gguf(model, name, path):
    config = model.config
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config.model_type]])
    writer.add_name(name)
    write_hyperparameters(writer, config)
    if config.model_type == "gemma3_text":
        write_sentencepiece_vocabulary(writer, config.vocab_size)
    else:
        write_byte_level_vocabulary(writer, config.vocab_size, "qwen2" if config.model_type == "qwen2" else "smollm")
    write_tensors(writer, model, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
