// Checks a running server through openai-node, as an application would use it.
//
//     node openai_node.mjs BASE_URL
import assert from "node:assert/strict";
import OpenAI from "openai";

const MESSAGES = [{ role: "user", content: "Name three colours of the rainbow." }];
const STORY = "The keeper of the harbour light kept two books. In the first";

const baseURL = process.argv[2];
if (!baseURL) {
  console.error("usage: node openai_node.mjs BASE_URL");
  process.exit(2);
}
const client = new OpenAI({ baseURL: `${baseURL.replace(/\/$/, "")}/v1`, apiKey: "unused", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

const chat = (options) =>
  client.chat.completions.create({ model, messages: MESSAGES, max_tokens: 24, temperature: 0, ...options });
const complete = (options) =>
  client.completions.create({ model, prompt: STORY, max_tokens: 24, temperature: 0, ...options });

function checkUsage(usage, tokensMax) {
  assert.ok(usage.prompt_tokens > 0);
  assert.ok(usage.completion_tokens > 0 && usage.completion_tokens <= tokensMax);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
}

async function readStream(stream, textOf) {
  const read = { text: "", finish: null, usage: null };
  for await (const chunk of stream) {
    read.usage = chunk.usage ?? read.usage;
    for (const choice of chunk.choices) {
      read.text += textOf(choice) ?? "";
      read.finish = choice.finish_reason ?? read.finish;
    }
  }
  return read;
}

const checks = {
  async "chat answers with usage"() {
    const answer = await chat({});
    assert.ok(answer.choices[0].message.content);
    assert.ok(["stop", "length"].includes(answer.choices[0].finish_reason));
    checkUsage(answer.usage, 24);
  },

  async "a chat stream says the same as the answer in one piece"() {
    const whole = await chat({});
    const stream = await chat({ stream: true, stream_options: { include_usage: true } });
    const read = await readStream(stream, (choice) => choice.delta.content);
    assert.equal(read.text, whole.choices[0].message.content);
    assert.equal(read.finish, whole.choices[0].finish_reason);
    assert.equal(read.usage.completion_tokens, whole.usage.completion_tokens);
  },

  async "the stream helper assembles a final completion"() {
    const runner = client.chat.completions.stream({ model, messages: MESSAGES, max_tokens: 24, temperature: 0 });
    const final = await runner.finalChatCompletion();
    assert.ok(final.choices[0].message.content);
  },

  async "completion text is the same streamed or not"() {
    const whole = await complete({});
    checkUsage(whole.usage, 24);
    const stream = await complete({ stream: true, stream_options: { include_usage: true } });
    const read = await readStream(stream, (choice) => choice.text);
    assert.equal(read.text, whole.choices[0].text);
    assert.equal(read.usage.completion_tokens, whole.usage.completion_tokens);
  },

  async "a wrong value is refused with its field"() {
    await assert.rejects(chat({ temperature: -1 }), (error) => error.status === 400 && error.param === "temperature");
  },

  async "an aborted stream leaves the server well"() {
    const stream = await complete({ stream: true, max_tokens: 400, ignore_eos: true });
    for await (const _ of stream) break;
    checkUsage((await chat({})).usage, 24);
  },

  async "four streams at once equal each one alone"() {
    const prompts = ["One, two, three,", "The capital of France is", "def fibonacci(n):", "Once upon a time"];
    const ask = async (prompt) => {
      const read = await readStream(await complete({ prompt, stream: true }), (choice) => choice.text);
      return read.text;
    };
    const together = await Promise.all(prompts.map(ask));
    for (const [index, prompt] of prompts.entries()) assert.equal(together[index], await ask(prompt));
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}
console.log(`${Object.keys(checks).length - failed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
