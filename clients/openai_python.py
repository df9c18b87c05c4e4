"""Checks a running server through openai-python, as an application would use it.

    python openai_python.py BASE_URL [--server-pid PID] [--only NAME]

Every check is a function of a client; what it asserts is what an SDK user relies on.
"""

import argparse
import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

import openai

CHAT = [{"role": "user", "content": "Name three colours of the rainbow."}]
STORY = "The keeper of the harbour light kept two books. In the first"


class Target:
    """The server under test."""

    def __init__(self, base_url, server_pid):
        self.base_url = f"{base_url}/v1"
        self.client = openai.OpenAI(base_url=self.base_url, api_key="unused", max_retries=0, timeout=300)
        self.server_pid = server_pid
        self.model = self.client.models.list().data[0].id

    def chat(self, **options):
        options = {"messages": CHAT, "max_tokens": 24, "temperature": 0, **options}
        return self.client.chat.completions.create(model=self.model, **options)

    def complete(self, **options):
        options = {"prompt": STORY, "max_tokens": 24, "temperature": 0, **options}
        return self.client.completions.create(model=self.model, **options)


def check_usage(usage, tokens_max):
    assert usage.prompt_tokens > 0
    assert 0 < usage.completion_tokens <= tokens_max
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def read_chat_stream(stream):
    """Text, finish reason and usage of one streamed choice; ids must not change."""
    text, finish, usage, ids = "", None, None, set()
    for chunk in stream:
        ids.add(chunk.id)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert finish is None, "text after the finish reason"
            text += choice.delta.content or ""
            finish = choice.finish_reason
    assert len(ids) == 1, ids
    return text, finish, usage


def a_model_is_listed_and_can_be_retrieved(target):
    assert target.client.models.retrieve(target.model).id == target.model


def chat_answers_with_usage(target):
    answer = target.chat()
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    check_usage(answer.usage, 24)


def a_chat_stream_says_the_same_as_the_answer_in_one_piece(target):
    whole = target.chat()
    text, finish, usage = read_chat_stream(target.chat(stream=True, stream_options={"include_usage": True}))
    assert text == whole.choices[0].message.content, (text, whole.choices[0].message.content)
    assert finish == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def usage_is_streamed_only_when_asked_for(target):
    assert read_chat_stream(target.chat(stream=True))[2] is None


def the_stream_helper_assembles_a_final_completion(target):
    options = {"messages": CHAT, "max_tokens": 512, "temperature": 0, "model": target.model}
    with target.client.chat.completions.stream(**options) as stream:
        for _event in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content


def a_conversation_of_several_turns_is_answered(target):
    turns = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is 12 times 3?"},
        {"role": "assistant", "content": "12 times 3 is 36."},
        {"role": "user", "content": [{"type": "text", "text": "And if you add 4 to that?"}]},
    ]
    answer = target.chat(messages=turns)
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens > target.chat().usage.prompt_tokens


def completion_text_is_the_same_streamed_or_not(target):
    whole = target.complete()
    assert whole.object == "text_completion"
    check_usage(whole.usage, 24)
    text, usage = "", None
    for chunk in target.complete(stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        text += "".join(choice.text for choice in chunk.choices)
    assert text == whole.choices[0].text
    assert usage.completion_tokens == whole.usage.completion_tokens


def token_ids_are_accepted_as_a_prompt(target):
    answer = target.complete(prompt=[504, 2210, 282, 260], max_tokens=8)
    assert answer.usage.prompt_tokens == 4
    assert answer.usage.completion_tokens <= 8


def several_prompts_give_choices_in_order(target):
    prompts = ["One, two, three,", "The capital of France is"]
    both = target.complete(prompt=prompts, max_tokens=8)
    assert [choice.index for choice in both.choices] == [0, 1]
    alone = [target.complete(prompt=prompt, max_tokens=8).choices[0].text for prompt in prompts]
    assert [choice.text for choice in both.choices] == alone


def a_seed_repeats_a_sampled_answer(target):
    options = {"temperature": 1.2, "top_p": 0.95, "max_tokens": 32}
    first = target.chat(seed=7, **options).choices[0].message.content
    assert first == target.chat(seed=7, **options).choices[0].message.content
    others = {target.chat(seed=seed, **options).choices[0].message.content for seed in (8, 9, 10)}
    assert others != {first}


def n_choices_differ_and_are_numbered(target):
    answer = target.chat(n=3, temperature=1.5, seed=1, max_tokens=24)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    check_usage(answer.usage, 3 * 24)


def a_stop_string_ends_the_answer_and_is_cut(target):
    words = target.complete(max_tokens=24).choices[0].text.split()
    answer = target.complete(max_tokens=24, stop=[words[3]])
    assert answer.choices[0].finish_reason == "stop"
    assert words[3] not in answer.choices[0].text


def max_tokens_ends_with_length(target):
    answer = target.chat(max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


def logprobs_come_with_alternatives(target):
    answer = target.chat(logprobs=True, top_logprobs=5, max_tokens=6)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert len(entry.top_logprobs) == 5
        assert abs(entry.logprob - entry.top_logprobs[0].logprob) < 1e-5, "greedy takes the best"
        assert entry.logprob <= 0


def wrong_values_are_refused_with_their_field(target):
    cases = [
        ("temperature", {"temperature": -1}),
        ("top_p", {"top_p": 1.5}),
        ("max_tokens", {"max_tokens": -4}),
        ("logit_bias", {"logit_bias": {"99999999": 1}}),
        ("messages", {"messages": "hello"}),
    ]
    for field, options in cases:
        try:
            target.chat(**options)
        except openai.BadRequestError as error:
            assert field in (error.param or ""), (field, error.param, error.body)
        else:
            raise AssertionError(f"{field} was accepted")


def a_prompt_that_does_not_fit_is_refused_with_both_numbers(target):
    try:
        target.complete(prompt="word " * 60_000, max_tokens=1)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error.body
        numbers = [word for word in error.message.replace(",", " ").split() if word.strip(".").isdigit()]
        assert len(numbers) >= 2, error.message
    else:
        raise AssertionError("a prompt of 60000 words was accepted")


def more_tokens_than_fit_are_a_wish(target):
    answer = target.chat(max_tokens=1_000_000, stop=["."])
    assert answer.choices[0].finish_reason in ("stop", "length")


def a_client_that_leaves_does_no_harm(target):
    for _ in range(4):
        stream = target.complete(stream=True, max_tokens=400, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    chat_answers_with_usage(target)


def the_async_client_gets_eight_answers_at_once(target):
    async def ask_all():
        async with openai.AsyncOpenAI(base_url=target.base_url, api_key="unused", max_retries=0) as client:
            create = client.chat.completions.create
            questions = [[{"role": "user", "content": f"Tell me about the number {n}."}] for n in range(8)]
            tasks = [create(model=target.model, messages=q, max_tokens=16, temperature=0) for q in questions]
            return questions, await asyncio.gather(*tasks)

    questions, answers = asyncio.run(ask_all())
    for question, answer in zip(questions, answers):
        check_usage(answer.usage, 16)
        alone = target.chat(messages=question, max_tokens=16).choices[0].message.content
        assert answer.choices[0].message.content == alone, "an answer depends on its neighbours"


def children(pid):
    listing = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in listing for child in path.read_text().split()]


def streams_survive_the_death_of_the_engine(target):
    """Needs --server-pid: kills every child of the server in the middle of two streams."""
    asks = [{"temperature": 0}, {"temperature": 1.1, "seed": 5}]
    options = {"max_tokens": 96, "extra_body": {"ignore_eos": True}}
    undisturbed = [target.complete(**ask, **options).choices[0].text for ask in asks]
    streams = [iter(target.complete(stream=True, **ask, **options)) for ask in asks]
    texts = ["", ""]
    for _ in range(6):
        for index, stream in enumerate(streams):
            texts[index] += next(stream).choices[0].text
    engines = children(target.server_pid)
    assert engines, "the server has no engine process"
    for engine in engines:
        os.kill(engine, signal.SIGKILL)
    for index, stream in enumerate(streams):
        texts[index] += "".join(choice.text for chunk in stream for choice in chunk.choices)
    assert texts == undisturbed, (texts, undisturbed)
    assert not set(engines) & set(children(target.server_pid)), "a killed engine is still there"


CHECKS = [
    a_model_is_listed_and_can_be_retrieved,
    chat_answers_with_usage,
    a_chat_stream_says_the_same_as_the_answer_in_one_piece,
    usage_is_streamed_only_when_asked_for,
    the_stream_helper_assembles_a_final_completion,
    a_conversation_of_several_turns_is_answered,
    completion_text_is_the_same_streamed_or_not,
    token_ids_are_accepted_as_a_prompt,
    several_prompts_give_choices_in_order,
    a_seed_repeats_a_sampled_answer,
    n_choices_differ_and_are_numbered,
    a_stop_string_ends_the_answer_and_is_cut,
    max_tokens_ends_with_length,
    logprobs_come_with_alternatives,
    wrong_values_are_refused_with_their_field,
    a_prompt_that_does_not_fit_is_refused_with_both_numbers,
    more_tokens_than_fit_are_a_wish,
    a_client_that_leaves_does_no_harm,
    the_async_client_gets_eight_answers_at_once,
]


def run(check, target):
    try:
        check(target)
    except Exception as error:  # a check may fail in any way; each failure is reported and counted
        print(f"FAILED {check.__name__}: {type(error).__name__}: {error}")
        traceback.print_exc()
        return False
    print(f"ok {check.__name__}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_url", help="without /v1")
    parser.add_argument("--server-pid", type=int, help="also kill this server's engine and demand the same bytes")
    parser.add_argument("--only", help="the name of one check")
    arguments = parser.parse_args()
    target = Target(arguments.base_url.rstrip("/"), arguments.server_pid)
    checks = CHECKS + ([streams_survive_the_death_of_the_engine] if arguments.server_pid else [])
    chosen = [check for check in checks if arguments.only in (None, check.__name__)]
    if not chosen:
        parser.error(f"no check is called {arguments.only}")
    results = [run(check, target) for check in chosen]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
