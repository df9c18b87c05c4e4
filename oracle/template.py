"""Renders chats with Python's Jinja, set up as transformers does it.

    python oracle/template.py --templates FOLDER [--model FILE.gguf ...] --out VECTORS.json

Templates are the FOLDER's `*.jinja` files and those inside the models. A template that
refuses a chat is recorded as `null`.
"""

import argparse
import datetime
import json
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1796036400
SPECIAL = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather in a city, e.g. \"Köln\" <now & later>",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3, "maximum": 1e20}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "ping", "parameters": {}}},
]


def _call(name, arguments):
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}


def _turn(role, content, **more):
    return {"role": role, "content": content, **more}


_CALLED = [
    _turn("user", "How is the weather in Köln?"),
    _turn("assistant", "", tool_calls=[_call("get_weather", {"city": "Köln", "days": 2})]),
    _turn("tool", "{\"sky\": \"grey\"}", tool_call_id="call00001"),
]

CHATS = {
    "one": {"messages": [_turn("user", "Hello, world!")]},
    "open": {"messages": [_turn("user", "Hello, world!")], "add_generation_prompt": True},
    "system": {"messages": [_turn("system", " Be brief. "), _turn("user", "Hi\n")], "add_generation_prompt": True},
    "turns": {
        "messages": [
            _turn("system", "Be brief."),
            _turn("user", "1 + 1?"),
            _turn("assistant", "  2\n"),
            _turn("user", "<b>Sure & \"true\"?</b> é 日本 🚀"),
        ],
        "add_generation_prompt": True,
    },
    "closed": {"messages": [_turn("user", "a"), _turn("assistant", "b")]},
    "twice": {"messages": [_turn("user", "a"), _turn("user", "b")]},
    "assistant-first": {"messages": [_turn("assistant", "a"), _turn("user", "skip"), _turn("user", "stop")]},
    "thought": {
        "messages": [
            _turn("user", "a"),
            _turn("assistant", "<think>\nhm\n</think>\n\nyes"),
            _turn("user", "b"),
            _turn("assistant", "<think>\nwell\n</think>\n\nno"),
        ]
    },
    "quick": {
        "messages": [_turn("user", "a")],
        "add_generation_prompt": True,
        "variables": {"enable_thinking": False, "custom": {"k": [1, "v"]}, "date_string": "1 Jan 2000"},
    },
    "tools": {"messages": _CALLED[:1], "tools": TOOLS, "add_generation_prompt": True},
    "called": {"messages": _CALLED, "tools": TOOLS, "add_generation_prompt": True},
    "called-twice": {
        "messages": [
            _CALLED[0],
            _turn("assistant", "Let me see.", tool_calls=[_call("get_weather", {"city": "Bonn"}), _call("ping", {})]),
            _turn("tool", "rain", tool_call_id="call00001"),
            _turn("tool", "pong", tool_call_id="call00002"),
        ],
        "tools": TOOLS,
        "add_generation_prompt": True,
    },
    "empty": {"messages": []},
}


class _Generation(Extension):
    """The block that marks the assistant's words for training; it changes no text."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def _to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def compile_template(source):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def render(template, chat):
    """The text, or None where the template refuses."""
    try:
        return template.render(
            **{"documents": None},
            **chat.get("variables", {}),
            **SPECIAL,
            messages=chat["messages"],
            tools=chat.get("tools"),
            add_generation_prompt=chat.get("add_generation_prompt", False),
        )
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, IndexError):
        return None


def model_template(path):
    """The template inside a model file."""
    import gguf

    field = gguf.GGUFReader(path).get_field("tokenizer.chat_template")
    return field.contents()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", type=Path, required=True)
    parser.add_argument("--model", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sources = {path.name: path.read_text() for path in sorted(options.templates.glob("*.jinja"))}
    sources |= {path.name: model_template(path) for path in options.model}
    lines = []
    for name, source in sources.items():
        template = compile_template(source)
        lines += [
            json.dumps({"template": name, "chat": chat, "text": render(template, value)}, ensure_ascii=False)
            for chat, value in CHATS.items()
        ]
    head = json.dumps({"oracle": f"jinja2 {jinja2.__version__}", "now": NOW, "special": SPECIAL, "chats": CHATS}, ensure_ascii=False)
    options.out.write_text(head[:-1] + ', "renderings": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{len(sources)} templates, {len(lines)} renderings")


if __name__ == "__main__":
    main()
