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
//! ```

mod pool;
mod prefix;
mod store;

pub use pool::{AuditError, PageHandle, PageId, Pool};
pub use prefix::{ChainHash, PageTokens, PrefixIndex};
pub use store::{PageStore, PrefixHit};
