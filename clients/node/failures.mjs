// Checks what users of a Node SDK see when the server fails under them.
//
//     node failures.mjs openai|ai-compatible|ai-openai BASE_URL SERVER_PID
//
// The server must be built with the feature `fault-injection`. The last check kills it.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const TOKENS = 20;
// Tokens before a fault in mid-answer: enough for text, and far from the end.
const TOKENS_BEFORE = 6;
const PANIC_BEFORE = { place: "prepare", blow: "panic" };
const PANIC_AMID = { place: "sample", blow: "panic", skip: TOKENS_BEFORE };
const KILLER = { place: "shared", blow: "abort", every_engine: true };
const DEATH_AMID = { place: "shared", blow: "abort", skip: TOKENS_BEFORE, times: 1 };
const once = (order) => ({ ...order, times: 1 });

// What an ask can come to, besides an error with this status.
const WHOLE = "the undisturbed text";
const CUT = "its beginning and an error";

// A fault; per ask what the user sees, and the statuses of the server's answers to the SDK.
const CASES = [
  { name: "a fault before the first token is retried", order: once(PANIC_BEFORE), asks: [[WHOLE, { 503: 1, 200: 1 }]] },
  { name: "a fault before the first token that stays is told", order: PANIC_BEFORE, asks: [[503, { 503: 3 }]] },
  { name: "a fault in mid-stream is told", order: once(PANIC_AMID), asks: [[CUT, { 200: 1 }]], streamed: true },
  {
    name: "a fault in mid-answer is retried",
    order: once(PANIC_AMID),
    asks: [[WHOLE, { 503: 1, 200: 1 }]],
    streamed: false,
  },
  { name: "a fault in mid-answer that stays is told", order: PANIC_AMID, asks: [[503, { 503: 3 }]], streamed: false },
  { name: "a killer is told so and then refused", order: KILLER, asks: "killer" },
  { name: "the engine's death in mid-answer is not seen", order: DEATH_AMID, asks: [[WHOLE, { 200: 1 }]] },
];

// What a killer gets from SDKs that obey `x-should-retry`, and from one that does not.
const OBEYED = [
  [500, { 500: 1 }],
  [422, { 422: 1 }],
];
const RETRIED = [
  [422, { 500: 1, 422: 1 }],
  [422, { 422: 1 }],
];

const [name, baseUrl, pid] = process.argv.slice(2);
if (!pid) {
  console.error("usage: node failures.mjs SDK BASE_URL SERVER_PID");
  process.exit(2);
}
const root = baseUrl.replace(/\/$/, "");
const baseURL = `${root}/v1`;

async function call(path, body) {
  const options = body && { method: "POST", body: JSON.stringify(body) };
  const answer = await fetch(root + path, options);
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return answer.text();
}

/** How many answers of each status the chat endpoint has given. */
async function answers() {
  const counts = {};
  for (const line of (await call("/metrics")).split("\n")) {
    if (line.startsWith("relight_http_answers_total{") && line.includes('route="/v1/chat/completions"')) {
      counts[line.match(/status="(\d+)"/)[1]] = Number(line.split(" ").at(-1));
    }
  }
  return counts;
}

function openai() {
  const client = new OpenAI({ baseURL, apiKey: "unused" });
  const ask = (prompt, options) => {
    const messages = [{ role: "user", content: prompt }];
    return client.chat.completions.create({ model: "any", messages, max_tokens: TOKENS, temperature: 0, ...options });
  };
  return {
    killer: OBEYED,
    whole: async (prompt) => (await ask(prompt, {})).choices[0].message.content,
    async *pieces(prompt) {
      for await (const chunk of await ask(prompt, { stream: true })) {
        for (const choice of chunk.choices) yield choice.delta.content ?? "";
      }
    },
  };
}

function ai(model) {
  const options = (prompt) => ({ model, prompt, maxOutputTokens: TOKENS, temperature: 0 });
  return {
    killer: RETRIED,
    whole: async (prompt) => (await generateText(options(prompt))).text,
    async *pieces(prompt) {
      let reported;
      const result = streamText({ ...options(prompt), onError: ({ error }) => (reported = error) });
      let failure;
      for await (const part of result.fullStream) {
        if (part.type === "text-delta") yield part.text;
        if (part.type === "error") failure = part.error;
      }
      if (failure === undefined) return;
      assert.ok(reported, "an error part without a call of onError");
      assert.notEqual(await Promise.resolve(result.finishReason).catch(() => "rejected"), "stop");
      throw failure;
    },
  };
}

const SDKS = {
  openai,
  "ai-compatible": () => ai(createOpenAICompatible({ name: "relight", baseURL, apiKey: "unused" })("any")),
  "ai-openai": () => ai(createOpenAI({ baseURL, apiKey: "unused" }).chat("any")),
};

/** The text that reached the user, and the error, if any. */
async function attempt(sdk, prompt, streamed, onPiece = () => {}) {
  let text = "";
  try {
    if (!streamed) return { text: await sdk.whole(prompt) };
    for await (const piece of sdk.pieces(prompt)) {
      text += piece;
      onPiece(text);
    }
    return { text };
  } catch (error) {
    return { text, error };
  }
}

/** An error that an SDK raised after its last try is inside the one that it throws. */
const innermost = (error) => error?.lastError ?? error;

function described(error) {
  if (!error) return "no error";
  const inner = innermost(error);
  // OpenAI's errors have the name of their base class.
  const label = ({ name, constructor }) => (name === "Error" ? constructor.name : (name ?? "a part"));
  const text = (value) => `${label(value)}: ${value.message ?? JSON.stringify(value)}`;
  return inner === error ? text(error) : `${text(error)} of ${inner.name}`;
}

function checkEnd(end, undisturbed, { text, error }) {
  if (end === WHOLE) {
    assert.equal(error, undefined, described(error));
    assert.equal(text, undisturbed);
    return;
  }
  assert.ok(error, `ended silently with ${JSON.stringify(text)}`);
  if (end === CUT) {
    assert.ok(text && undisturbed.startsWith(text) && text !== undisturbed, JSON.stringify([text, undisturbed]));
    assert.match(JSON.stringify(error, Object.getOwnPropertyNames(error)) + error, /internal/, described(error));
  } else {
    assert.equal(text, "");
    assert.equal(innermost(error).status ?? innermost(error).statusCode, end, described(error));
  }
}

async function runCase(sdk, number, { order, asks, streamed }) {
  // Numbers keep markers apart: each order strikes its own case only.
  const marker = `keeper number ${number} with ${streamed ? "streams" : "springs"}`;
  const prompt = `Tell a long story of the lighthouse ${marker}.`;
  const steps = asks === "killer" ? sdk.killer : asks;
  const undisturbed = typeof steps[0][0] === "string" ? await attempt(sdk, prompt, streamed) : { text: "" };
  assert.equal(undisturbed.error, undefined);
  await call("/v1/faults/inject", { ...order, marker });
  const seen = [];
  for (const [end, expected] of steps) {
    const before = await answers();
    const result = await attempt(sdk, prompt, streamed);
    const given = {};
    for (const [status, count] of Object.entries(await answers())) {
      if (count > (before[status] ?? 0)) given[status] = count - (before[status] ?? 0);
    }
    checkEnd(end, undisturbed.text, result);
    assert.deepEqual(given, expected, described(result.error));
    seen.push(described(result.error));
  }
  return seen.join("; ");
}

/** Nothing of the server is left that could say what happened: only the transport can. */
async function checkTheFrontsDeath(sdk) {
  let alive = true;
  const result = await attempt(sdk, "Tell a long story of a lighthouse that falls.", true, (text) => {
    if (alive && text) process.kill(Number(pid), "SIGKILL");
    alive = alive && !text;
  });
  assert.ok(result.error, `ended silently with ${JSON.stringify(result.text)}`);
  assert.ok(result.text, described(result.error));
  return described(result.error);
}

const sdk = SDKS[name]();
const checks = [];
for (const [number, item] of CASES.entries()) {
  for (const streamed of [false, true]) {
    if ((item.streamed ?? streamed) !== streamed) continue;
    checks.push([`${item.name}, ${streamed ? "streamed" : "whole"}`, () => runCase(sdk, number, { ...item, streamed })]);
  }
}
checks.push(["the front's death in mid-stream is told", () => checkTheFrontsDeath(sdk)]);
let failed = 0;
for (const [label, check] of checks) {
  try {
    console.log(`ok ${name}: ${label} (${await check()})`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${label}: ${error.message}`);
  }
}
console.log(`${checks.length - failed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
