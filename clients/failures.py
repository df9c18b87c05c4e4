"""Checks what users of a Python SDK see when the server fails under them.

    python failures.py openai|langchain|litellm BASE_URL SERVER_PID

The server must be built with the feature `fault-injection`. The last check kills it.
"""

import json
import os
import signal
import sys
import urllib.request
from dataclasses import dataclass
from functools import partial

TOKENS = 20
# Tokens before a fault in mid-answer: enough for text, and far from the end.
TOKENS_BEFORE = 6
PANIC_BEFORE = {"place": "prepare", "blow": "panic"}
PANIC_AMID = {"place": "sample", "blow": "panic", "skip": TOKENS_BEFORE}
KILLER = {"place": "shared", "blow": "abort", "every_engine": True}
DEATH_AMID = {"place": "shared", "blow": "abort", "skip": TOKENS_BEFORE, "times": 1}
ONCE = {"times": 1}

# What an ask can come to, besides an exception with a status.
WHOLE, CUT = "the undisturbed text", "its beginning and an exception"


@dataclass
class Case:
    """A fault; per ask what the user sees, and the statuses of the server's answers to the SDK."""

    name: str
    order: dict
    asks: list
    shapes: tuple = ("whole", "streamed")


CASES = [
    Case("a fault before the first token is retried", PANIC_BEFORE | ONCE, [(WHOLE, {503: 1, 200: 1})]),
    Case("a fault before the first token that stays is raised", PANIC_BEFORE, [(503, {503: 3})]),
    Case("a fault in mid-stream is raised", PANIC_AMID | ONCE, [(CUT, {200: 1})], ("streamed",)),
    Case("a fault in mid-answer is retried", PANIC_AMID | ONCE, [(WHOLE, {503: 1, 200: 1})], ("whole",)),
    Case("a fault in mid-answer that stays is raised", PANIC_AMID, [(503, {503: 3})], ("whole",)),
    Case("a killer is tried once and then refused", KILLER, [(500, {500: 1}), (422, {422: 1})]),
    Case("the engine's death in mid-answer is not seen", DEATH_AMID, [(WHOLE, {200: 1})]),
]


class Server:
    """The server under test, seen past any SDK."""

    def __init__(self, base_url, pid):
        self.base_url = base_url.rstrip("/")
        self.pid = pid

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.base_url + path, data) as answer:
            return answer.read().decode()

    def answers(self):
        """How many answers of each status the chat endpoint has given."""
        counts = {}
        for line in self.call("/metrics").splitlines():
            if line.startswith("relight_http_answers_total{") and 'route="/v1/chat/completions"' in line:
                status = int(line.partition('status="')[2].partition('"')[0])
                counts[status] = int(float(line.rpartition(" ")[2]))
        return counts


class OpenAi:
    def __init__(self, base_url):
        import openai

        self.client = openai.OpenAI(base_url=base_url, api_key="unused")

    def ask(self, prompt, **options):
        messages = [{"role": "user", "content": prompt}]
        options |= {"model": "any", "messages": messages, "max_tokens": TOKENS, "temperature": 0}
        return self.client.chat.completions.create(**options)

    def whole(self, prompt):
        return self.ask(prompt).choices[0].message.content

    def pieces(self, prompt):
        for chunk in self.ask(prompt, stream=True):
            yield "".join(choice.delta.content or "" for choice in chunk.choices)


class LangChain:
    def __init__(self, base_url):
        from langchain_openai import ChatOpenAI

        self.model = ChatOpenAI(
            base_url=base_url, api_key="unused", model="any", max_tokens=TOKENS, temperature=0
        )

    def whole(self, prompt):
        return self.model.invoke(prompt).text

    def pieces(self, prompt):
        for chunk in self.model.stream(prompt):
            yield chunk.text


class LiteLlm:
    def __init__(self, base_url):
        # Else it looks for prices on the network.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        litellm.suppress_debug_info = True
        self.litellm = litellm
        self.base_url = base_url

    def ask(self, prompt, **options):
        messages = [{"role": "user", "content": prompt}]
        options |= {"model": "openai/any", "messages": messages, "max_tokens": TOKENS, "temperature": 0}
        return self.litellm.completion(base_url=self.base_url, api_key="unused", **options)

    def whole(self, prompt):
        return self.ask(prompt).choices[0].message.content

    def pieces(self, prompt):
        for chunk in self.ask(prompt, stream=True):
            yield "".join(choice.delta.content or "" for choice in chunk.choices)


SDKS = {"openai": OpenAi, "langchain": LangChain, "litellm": LiteLlm}


def attempt(sdk, prompt, streamed, on_piece=lambda text: None):
    """The text that reached the user, and the exception, if any."""
    text = ""
    try:
        if not streamed:
            return sdk.whole(prompt), None
        for piece in sdk.pieces(prompt):
            text += piece
            on_piece(text)
        return text, None
    except Exception as error:  # whatever the SDK raises is what is to be seen
        return text, error


def run_case(sdk, server, case, shape):
    # Orders stay, so each has a marker of its own.
    marker = f"keeper of case {CASES.index(case)} {shape}"
    prompt = f"Tell a long story of the lighthouse {marker}."
    streamed = shape == "streamed"
    undisturbed = attempt(sdk, prompt, streamed) if case.order != KILLER else ("", None)
    assert undisturbed[1] is None, undisturbed[1]
    server.call("/v1/faults/inject", case.order | {"marker": marker})
    seen = []
    for end, expected in case.asks:
        before = server.answers()
        text, error = attempt(sdk, prompt, streamed)
        given = {status: count - before.get(status, 0) for status, count in server.answers().items()}
        given = {status: count for status, count in given.items() if count}
        check_end(end, undisturbed[0], text, error)
        assert given == expected, f"the server gave {given}: {described(error)}"
        seen.append(described(error))
    return "; ".join(seen)


def check_end(end, undisturbed, text, error):
    if end == WHOLE:
        assert error is None, described(error)
        assert text == undisturbed, (text, undisturbed)
        return
    assert error is not None, f"ended silently with {text!r}"
    if end == CUT:
        assert text and undisturbed.startswith(text) and text != undisturbed, (text, undisturbed)
        assert "an internal error" in str(error), described(error)
    else:
        assert text == "", text
        assert getattr(error, "status_code", None) == end, described(error)


def described(error):
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}" if error else "no exception"


def check_the_fronts_death(sdk, server):
    """Nothing of the server is left that could say what happened: only the transport can."""

    def kill(text):
        # Later pieces come after the death; the process is a zombie until its parent looks.
        if text:
            os.kill(server.pid, signal.SIGKILL)

    text, error = attempt(sdk, "Tell a long story of a lighthouse that falls.", True, kill)
    assert error is not None, f"ended silently with {text!r}"
    assert text, described(error)
    return described(error)


def main():
    name, base_url, pid = sys.argv[1:]
    server = Server(base_url, int(pid))
    sdk = SDKS[name](server.base_url + "/v1")
    checks = [
        (f"{case.name}, {shape}", partial(run_case, sdk, server, case, shape))
        for case in CASES
        for shape in case.shapes
    ]
    checks.append(("the front's death in mid-stream is raised", partial(check_the_fronts_death, sdk, server)))
    failed = 0
    for case, check in checks:
        try:
            print(f"ok {name}: {case} ({check()})", flush=True)
        except Exception as error:  # a check may fail in any way; each failure is reported and counted
            failed += 1
            print(f"FAILED {name}: {case}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
