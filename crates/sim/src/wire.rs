//! One direction of the pipe: bytes in flight, cut into pieces anywhere, in order, some late.

use std::collections::VecDeque;

use crate::random::Random;

/// Pieces into which one write may fall.
const PIECES_MAX: u64 = 3;
/// Longest flight of a piece on a pipe that is not stalled.
const FLIGHT_MS_MAX: u64 = 3;

#[derive(Debug, Default)]
pub(crate) struct Wire {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the last write.
    written: usize,
    /// No piece that is written from now on arrives before this.
    clear_ms: u64,
}

impl Wire {
    /// Puts bytes on the wire and returns when each of their pieces is to be taken off.
    pub(crate) fn send(&mut self, now_ms: u64, bytes: &[u8], random: &mut Random) -> Vec<u64> {
        self.written = bytes.len();
        let mut rest = bytes;
        let mut arrivals = Vec::new();
        let cuts = random.below(PIECES_MAX);
        for cut in (0..=cuts).rev() {
            let count = if cut == 0 {
                rest.len()
            } else {
                random.index(rest.len() + 1)
            };
            let (piece, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = after;
            if !piece.is_empty() {
                self.clear_ms = self.clear_ms.max(now_ms + random.below(FLIGHT_MS_MAX));
                self.pieces.push_back(piece.to_vec());
                arrivals.push(self.clear_ms);
            }
        }
        arrivals
    }

    /// The piece that is due.
    pub(crate) fn arrive(&mut self) -> Option<Vec<u8>> {
        self.pieces.pop_front()
    }

    /// Nothing that is written from now on arrives before `until_ms`.
    pub(crate) fn stall(&mut self, until_ms: u64) {
        self.clear_ms = self.clear_ms.max(until_ms);
    }

    /// The writer died in its last write: some of that was not written.
    pub(crate) fn cut(&mut self, random: &mut Random) {
        let in_flight = self.bytes();
        let lost = random.index(self.written.min(in_flight) + 1);
        let mut left = in_flight - lost;
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
    }

    /// Everything in flight, at once.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        self.pieces.drain(..).flatten().collect()
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }
}
