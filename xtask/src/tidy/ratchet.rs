//! Numbers that may only go down. Lower the bound when the count falls; raising one needs a
//! reason in the commit.

use super::Finding;
use super::source::Source;

/// `unsafe` blocks, functions and impls outside tests.
const UNSAFE_MAX: usize = 63;
/// `#[expect(…)]` attributes outside tests.
const EXPECT_MAX: usize = 46;
/// Lines of code of the longest file outside tests.
const LONGEST_FILE_MAX: usize = 430;
/// Crates of others that ours name in their manifests.
const EXTERNAL_MAX: usize = 31;

/// What the ratchets count, over all sources.
#[derive(Debug, Default)]
pub(super) struct Counts {
    unsafe_count: usize,
    expect_count: usize,
    longest_file: usize,
    external_count: usize,
}

impl Counts {
    pub(super) fn new(external_count: usize) -> Self {
        Self {
            external_count,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, source: &Source) {
        if source.is_test {
            return;
        }
        self.unsafe_count += source.unsafe_count;
        self.expect_count += source.expect_count;
        self.longest_file = self.longest_file.max(source.code_lines);
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let ratchets = [
            (
                "unsafe blocks, functions and impls",
                self.unsafe_count,
                UNSAFE_MAX,
            ),
            ("`expect` attributes", self.expect_count, EXPECT_MAX),
            (
                "lines of code in the longest file",
                self.longest_file,
                LONGEST_FILE_MAX,
            ),
            ("external dependencies", self.external_count, EXTERNAL_MAX),
        ];
        ratchets
            .iter()
            .filter(|(_, count, bound)| count > bound)
            .map(|(name, count, bound)| {
                let message = format!("{count} {name}, the ratchet stands at {bound}");
                Finding::new("xtask/src/tidy/ratchet.rs", 0, message)
            })
            .collect()
    }
}
