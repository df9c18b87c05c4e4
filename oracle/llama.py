"""A model in llama.cpp, token ids in and logits out, through llama_cpp's low-level API."""

import ctypes
import os

# Spinning barriers starve on a machine with other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import llama_cpp
import numpy

THREADS = 2
BATCH_TOKENS = 512


@llama_cpp.llama_log_callback
def _keep_quiet(_level, _text, _user_data):
    pass


llama_cpp.llama_log_set(_keep_quiet, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


class Llama:
    """One model and one context with a single sequence.

    `exact` keeps the KV cache in f32 and leaves flash attention off: with a file of F32
    weights this is the reference arithmetic. Otherwise llama.cpp's own defaults hold.
    """

    def __init__(self, path, context_tokens, exact=False):
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context_tokens
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = THREADS
        params.n_outputs_max = BATCH_TOKENS
        if exact:
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context for {path}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.position = 0

    def close(self):
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def tokenize(self, text):
        """Ids of `text` with the model's special tokens added and parsed."""
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, len(ids), True, True)
        if count < 0:
            raise RuntimeError(f"tokenizer wants {-count} ids of room")
        return list(ids[:count])

    def ends_generation(self, token):
        return llama_cpp.llama_vocab_is_eog(self._vocab, token)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self.position = 0

    def feed(self, tokens):
        """Logits after each of `tokens`, which continue the sequence: (len(tokens), vocab) f32."""
        rows = numpy.empty((len(tokens), self.vocab_size), dtype=numpy.float32)
        for start in range(0, len(tokens), BATCH_TOKENS):
            chunk = tokens[start : start + BATCH_TOKENS]
            self._decode(chunk)
            for index in range(len(chunk)):
                pointer = llama_cpp.llama_get_logits_ith(self._context, index)
                rows[start + index] = numpy.ctypeslib.as_array(pointer, (self.vocab_size,))
        return rows

    def _decode(self, tokens):
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = self.position + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 1
        code = llama_cpp.llama_decode(self._context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code} at position {self.position}")
        self.position += len(tokens)
