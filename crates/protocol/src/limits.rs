//! Every bound of the two processes, in one place, with compile-time assertions on how
//! they relate. A queue, length, retry or wait without a constant here has no bound and is
//! a fault.

/// Largest frame on the pipe. It must hold a whole request body, its prompt ids and the
/// progress of every choice.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Largest HTTP body.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Bodies above this size are read only while fewer than `LARGE_BODIES_MAX` others are.
pub const LARGE_BODY_BYTES: usize = 256 << 10;
pub const LARGE_BODIES_MAX: usize = 16;
/// Keys of one JSON object that the server reads.
pub const OBJECT_KEYS_MAX: usize = 256;
/// Levels of nesting in a value that reaches the chat template; JSON parsers, which bound
/// the whole text, must still be able to read the messages around it.
pub const VALUE_DEPTH_MAX: usize = 64;
/// Open HTTP connections; the next one is answered with 503 and closed.
pub const CONNECTIONS_MAX: usize = 1024;
/// Descriptors that connections leave alone, so that an engine can always be started.
pub const DESCRIPTORS_RESERVED: usize = 64;
/// Wait before accepting again after a failure to accept.
pub const ACCEPT_RETRY_MS: u64 = 100;
/// How long a connection may take to send a request's head, from the moment it is idle.
pub const HEADER_READ_MS_MAX: u64 = 30_000;
/// How long a request's body may take to arrive.
pub const BODY_READ_MS_MAX: u64 = 60_000;
/// How long a stream waits for its first token before its status is sent: until then a
/// failure still has a status code of its own.
pub const FIRST_TOKEN_WAIT_MS_MAX: u64 = 10_000;
/// How long a client may leave sent bytes unacknowledged before its connection is cut.
pub const READER_STALL_MS_MAX: u32 = 60_000;
/// Largest prompt that is tokenized at all; longer text cannot fit any context we serve.
pub const PROMPT_BYTES_MAX: usize = 8 << 20;
/// Tokens of a prompt given as ids.
pub const PROMPT_TOKENS_MAX: usize = 1 << 20;
/// Messages in one chat.
pub const MESSAGES_MAX: usize = 4096;
/// Choices (`n`) of one request.
pub const CHOICES_MAX: u16 = 16;
/// Prompts in one Completions body.
pub const PROMPTS_MAX: usize = 64;
/// Stop strings of one request, and the length of each.
pub const STOP_STRINGS_MAX: usize = 16;
pub const STOP_STRING_BYTES_MAX: usize = 512;
pub const STOP_TOKEN_IDS_MAX: usize = 64;
/// Entries of `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Alternatives reported per token.
pub const TOP_LOGPROBS_MAX: u8 = 20;
/// Candidates that `top_k` may keep; 0 means no limit.
pub const TOP_K_MAX: u32 = 1 << 20;

/// Requests that wait in the front when the engine is full or down.
pub const QUEUE_REQUESTS_MAX: usize = 512;
/// How long a request may wait for its first step before it is refused.
pub const QUEUE_AGE_MS_MAX: u64 = 300_000;
/// Requests that an engine holds at once, running and waiting.
pub const ENGINE_REQUESTS_MAX: usize = 1024;
/// Requests that are open at once, waiting or running.
pub const OPEN_REQUESTS_MAX: usize = QUEUE_REQUESTS_MAX + ENGINE_REQUESTS_MAX;
/// Commands and prepared requests on their way to the engine's core.
pub const ENGINE_INBOX_MAX: usize = 2 * ENGINE_REQUESTS_MAX;
/// Least time between two reports of a busy engine's numbers.
pub const STATS_MS_MIN: u64 = 100;
/// Sequences that decode at once.
pub const SLOTS_MAX: usize = 256;
/// Events buffered for one reader before its request is failed.
pub const READER_EVENTS_MAX: usize = 65_536;

/// Engine deaths within `RESTART_PERIOD_MS` after which the model counts as failed.
/// Unless told otherwise.
pub const RESTARTS_MAX: usize = 8;
/// The most that an operator may allow.
pub const RESTARTS_CEILING: usize = 1000;
pub const RESTART_PERIOD_MS: u64 = 60_000;
/// Latches of a generator without a confirmed step between them: a new process may cure what
/// a new generator does not.
pub const LATCHES_IN_A_ROW_MAX: u32 = 4;
/// Wait before a restart, doubled from the first to the second with each death after which no
/// token came.
pub const RESTART_BACKOFF_MS_MIN: u64 = 20;
pub const RESTART_BACKOFF_MS_MAX: u64 = 5_000;
/// An engine that has not said hello by then is killed.
pub const HELLO_MS_MAX: u64 = 10_000;
/// A loading engine that reports no progress for this long is killed.
pub const LOAD_SILENCE_MS_MAX: u64 = 120_000;
/// An engine asked to exit, or killed, that is not gone by then is killed, or given up.
pub const ENGINE_EXIT_MS_MAX: u64 = 5_000;
/// Longest time between two looks of the supervisor at its deadlines.
pub const SUPERVISOR_TICK_MS: u64 = 100;
/// Messages from clients' tasks to the supervisor, one of them kept free per open stream
/// for its cancel.
pub const SUPERVISOR_INBOX_MAX: usize = 4096;
/// Request bytes that the ledger holds at once.
pub const LEDGER_BYTES_MAX: usize = 1 << 30;
/// Last bytes of a choice's text kept to check what an engine says about them again.
pub const TEXT_TAIL_BYTES_MAX: usize = 4096;

/// Requests remembered as guilty, and for how long each.
pub const QUARANTINED_MAX: usize = 1024;
pub const QUARANTINE_MS: u64 = 600_000;
/// How long an engine may be at one thing, unless told otherwise, plus `HANG_FACTOR` times what
/// its own cost model predicts for that thing.
pub const HANG_TIMEOUT_MS: u64 = 5_000;
pub const HANG_TIMEOUT_MS_MAX: u64 = 3_600_000;
pub const HANG_FACTOR: u64 = 10;
/// Most that one look at the flight recorder adds to the age of what it finds unchanged: who
/// could not look does not know what happened meanwhile.
pub const LOOK_MS_MAX: u64 = 5 * SUPERVISOR_TICK_MS;
/// After an engine was killed for want of memory the next ones get half as many requests, and
/// one more for each time that passes like this.
pub const ADMISSION_RAISE_MS: u64 = 60_000;
/// Longest report of a panic that goes into a fault's record.
pub const REPORT_BYTES_MAX: usize = 8 << 10;
/// Faults that are remembered.
pub const FAULT_RECORDS_MAX: usize = 256;
/// How long a contained fault shows as `degraded`.
pub const DEGRADED_MS: u64 = 60_000;

/// `Retry-After` we may send, in seconds: some clients sleep as long as it says.
pub const RETRY_AFTER_S_MIN: u32 = 1;
pub const RETRY_AFTER_S_MAX: u32 = 10;

/// Instructions that a chat template may execute; templates come from model files.
pub const TEMPLATE_FUEL_MAX: u64 = 10_000_000;

/// Tokens ahead that one sequence may have drafted in a step.
pub const DRAFT_TOKENS_MAX: usize = 8;
/// Rows of a step with drafts: beyond, arithmetic bounds it and a row costs what it brings.
pub const DRAFT_ROWS_MAX: usize = 16;

/// Tokens of key/value state in one page.
pub const PAGE_TOKENS: usize = 64;

const _: () = assert!(
    BODY_BYTES_MAX * 2 < FRAME_BYTES_MAX,
    "a body must fit a frame"
);
const _: () = assert!(PROMPT_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(LARGE_BODY_BYTES < BODY_BYTES_MAX);
const _: () = assert!(
    PROMPT_TOKENS_MAX * 5 < FRAME_BYTES_MAX,
    "a varint id is at most 5 bytes"
);
const _: () = assert!(QUEUE_REQUESTS_MAX <= ENGINE_REQUESTS_MAX);
const _: () = assert!(SLOTS_MAX <= ENGINE_REQUESTS_MAX);
const _: () = assert!(
    2 * OPEN_REQUESTS_MAX <= SUPERVISOR_INBOX_MAX,
    "every open stream needs room for its submission and its cancel"
);
const _: () = assert!(2 * STOP_STRING_BYTES_MAX <= TEXT_TAIL_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX < LEDGER_BYTES_MAX);
const _: () = assert!(HANG_TIMEOUT_MS > LOOK_MS_MAX);
const _: () = assert!(HANG_TIMEOUT_MS <= HANG_TIMEOUT_MS_MAX);
const _: () = assert!((LATCHES_IN_A_ROW_MAX as usize) < RESTARTS_MAX);
const _: () = assert!(0 < RESTARTS_MAX && RESTARTS_MAX <= RESTARTS_CEILING);
const _: () = assert!(0 < DRAFT_TOKENS_MAX && DRAFT_TOKENS_MAX < DRAFT_ROWS_MAX);
const _: () = assert!(RETRY_AFTER_S_MIN <= RETRY_AFTER_S_MAX);
const _: () = assert!(RESTART_BACKOFF_MS_MIN <= RESTART_BACKOFF_MS_MAX);
