"""The texts whose logits are recorded. All of them were written for this purpose."""

_STORY = (
    "The keeper of the harbour light kept two books. In the first she wrote what the sea did: the hour of the tide, "
    "the height of the swell, the colour of the sky when the wind turned. In the second she wrote what people did: who "
    "came in late, who forgot a lamp, who sang on the pier. When a storm broke the window of her room, the first book "
    "was soaked and the second stayed dry on its shelf. She copied what could still be read, line by line, and where a "
    "page was lost she asked the fishermen what they remembered. "
)


def _chat(*turns):
    """`turns` in the ChatML form that SmolLM2-Instruct was trained on, open for the assistant."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    rows = [("system", system), *turns]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in rows)
    return text + "<|im_start|>assistant\n"


_PLAIN = {
    "one-word": "The",
    "fact": "The capital of France is",
    "code": "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        return n\n",
    "scripts": "Übung macht den Meister. 日本語の文章と、한국어 문장, и русский текст — plus emoji 🚀🌊 and ∑ x² ≤ 10:",
    "numbers": "1, 2, 4, 8, 16, 32, 64, 128,",
    "list": "Shopping list:\n- 2 apples\n- 1 loaf of bread\n- 500 g of rice\n\nTotal number of items:",
    # Longer than the sliding window of 512 tokens that Gemma 3 uses.
    "long": _STORY * 7 + "In the end the first book was",
}

PROMPTS = {
    "smollm2": {
        "chat": _chat(("user", "Name three colours of the rainbow.")),
        "chat-turns": _chat(
            ("user", "What is 12 times 3?"),
            ("assistant", "12 times 3 is 36."),
            ("user", "And if you add 4 to that?"),
        ),
        **_PLAIN,
    },
    "gemma3": {"story": _STORY, **_PLAIN},
}
