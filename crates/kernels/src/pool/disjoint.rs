//! One slice, many writers.

/// A slice that several members write at once, each to ranges of its own.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it only hands out `&mut` to disjoint ranges, which may cross threads if `T` may.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        let len = slice.len();
        Self {
            start: slice.as_mut_ptr(),
            len,
            lifetime: std::marker::PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No two live slices of one `Disjoint` may overlap.
    #[expect(
        clippy::mut_from_ref,
        reason = "the point of this type; see the safety contract"
    )]
    pub(crate) unsafe fn slice(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range outside the slice"
        );
        // SAFETY: `range` lies within the slice that `start` came from.
        let first = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds as above; the caller promises that nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(first, range.len()) }
    }
}
