//! Who owns which page of the KV arena. [`Pool`] hands pages out as owned values,
//! [`PrefixIndex`] remembers full pages by the tokens they were computed from, and
//! [`PageStore`] is the two together: taking pages gives up remembered ones when no free
//! ones are left.
//!
//! ```text
//!             take                     drop of the last handle
//!   free ───────────────> held ──────────────────────────────────> free
//!                          │  ▲
//!                     seal │  │ hit                     evict
//!                          ▼  │          drop          ───────> free
//!                     held and cached ────────> idle ─┘
//!                                                 ▲
//!   an earlier engine's sealed pages ─────────────┘ adopt
//! ```
//!
//! A page has an entry in the [`PageTable`] exactly while it is cached, and is never written
//! while it is: so what the table says is true whenever the engine dies.

pub mod checksum;
mod pool;
mod prefix;
mod store;
mod table;
#[cfg(test)]
pub(crate) mod test_memory;

pub use pool::{AuditError, PageHandle, PageId, Pool, PoolWitness};
pub use prefix::{ChainHash, PageMemory, PageTokens, PrefixIndex};
pub use store::{PageStore, PrefixHit};
#[cfg(test)]
pub(crate) use table::injected;
pub use table::{PageTable, TableShape};
