//! Aligned bytes, and their conversion to numbers.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;

/// A type for which every bit pattern is a valid value.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u32 {}
impl Plain for u8 {}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read as numbers only")] [u8; 64]);

/// Zeroed bytes aligned to a cache line, or to a large page if there are many.
pub(crate) struct Buffer {
    start: NonNull<Line>,
    /// The allocation that contains the bytes.
    whole: NonNull<u8>,
    layout: Layout,
    /// Number of bytes available from the start, possibly more than requested.
    room: usize,
    bytes: usize,
}

// SAFETY: the buffer owns its bytes.
unsafe impl Send for Buffer {}
// SAFETY: the bytes change only through mutable references.
unsafe impl Sync for Buffer {}

/// Size of a large page. Large pages reduce address translation misses.
const PAGE: usize = 2 << 20;

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

impl Buffer {
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let align = if bytes >= PAGE { PAGE } else { align_of::<Line>() };
        let room = bytes.max(1).next_multiple_of(align);
        // With a small alignment the system returns zeroed pages, cleared on first access; the start is aligned inside.
        let layout = Layout::from_size_align(room.saturating_add(align), align_of::<u128>());
        let layout = layout.expect("no plan reaches the size of the address space");
        // SAFETY: the layout is not empty, and the allocation holds the bytes after its aligned start.
        let (whole, start) = unsafe {
            let whole = std::alloc::alloc_zeroed(layout);
            let Some(whole) = NonNull::new(whole) else { std::alloc::handle_alloc_error(layout) };
            (whole, whole.add(whole.align_offset(align)))
        };
        if align == PAGE {
            advise_large_pages(start, room);
        }
        Self { start: start.cast(), whole, layout, room, bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn as_slice<T: Plain>(&self) -> &[T] {
        // SAFETY: the bytes are initialised, aligned to 64 and there are at least `bytes`; any bits are a `T`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    pub(crate) fn as_mut_slice<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    pub(crate) fn region(&mut self, offset: usize, bytes: usize) -> Region {
        assert!(offset + bytes <= self.room, "the plan lies outside its arena");
        Region { address: self.start.as_ptr() as usize + offset, bytes }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.whole.as_ptr(), self.layout) }
    }
}

/// An empty vector with capacity `count`, on large pages if the system provides them. Otherwise filling a new vector of
/// many megabytes spends most of its time in page faults.
pub fn roomy(count: usize) -> Vec<f32> {
    let mut vector: Vec<f32> = Vec::with_capacity(count);
    let start = vector.as_mut_ptr().cast::<u8>();
    let (skipped, bytes) = (start.align_offset(PAGE), count * size_of::<f32>());
    if bytes >= skipped.saturating_add(PAGE) {
        let whole = (bytes - skipped) / PAGE * PAGE;
        // SAFETY: the range is inside the vector's memory.
        if let Some(page) = NonNull::new(unsafe { start.add(skipped) }) {
            advise_large_pages(page, whole);
        }
    }
    vector
}

/// Requests large pages from the system. A refusal only affects speed.
#[cfg(target_os = "linux")]
fn advise_large_pages(start: NonNull<u8>, bytes: usize) {
    unsafe extern "C" {
        fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    const HUGEPAGE: i32 = 14;
    // SAFETY: this function of the C library does not change the contents of the memory, which is ours.
    unsafe { madvise(start.as_ptr(), bytes, HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_large_pages(_: NonNull<u8>, _: usize) {}

/// A range of a buffer's bytes, valid while a run borrows the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Region {
    address: usize,
    bytes: usize,
}

/// Inputs, outputs and scratch memory of an operation during a run.
///
/// The plan guarantees that an output or scratch region overlaps no other region of the same step. The exception is an
/// input whose memory the operation may reuse; such an operation checks [`Io::aliased`] and reads through the output.
/// The executor holds both the arena and the memory mutably for the whole run.
pub(crate) struct Io<'a> {
    pub(crate) inputs: &'a [Region],
    pub(crate) outputs: &'a [Region],
    pub(crate) scratch: Region,
}

impl<'a> Io<'a> {
    /// Elements of an input. Must not be held together with an output that aliases it.
    pub(crate) fn input<T: Plain>(&self, index: usize) -> &'a [T] {
        slice(self.inputs[index])
    }

    /// Elements of an output; called once per output.
    pub(crate) fn output<T: Plain>(&self, index: usize) -> &'a mut [T] {
        slice_mut(self.outputs[index])
    }

    /// Elements of an input tensor that the operation changes in place. No other operand of the step reads the tensor.
    pub(crate) fn in_place<T: Plain>(&self, index: usize) -> &'a mut [T] {
        slice_mut(self.inputs[index])
    }

    /// Memory for intermediate results, with arbitrary contents.
    pub(crate) fn scratch<T: Plain>(&self) -> &'a mut [T] {
        slice_mut(self.scratch)
    }

    pub(crate) fn aliased(&self, index: usize) -> bool {
        self.inputs[index].address == self.outputs[0].address && self.inputs[index].bytes > 0
    }
}

fn slice<'a, T: Plain>(region: Region) -> &'a [T] {
    if region.bytes == 0 {
        return &[];
    }
    // SAFETY: the region was cut from an initialised buffer aligned to the element, which outlives the run.
    unsafe { std::slice::from_raw_parts(region.address as *const T, region.bytes / size_of::<T>()) }
}

fn slice_mut<'a, T: Plain>(region: Region) -> &'a mut [T] {
    if region.bytes == 0 {
        return &mut [];
    }
    // SAFETY: as above; the plan guarantees that nothing else reads or writes the region during the step.
    unsafe { std::slice::from_raw_parts_mut(region.address as *mut T, region.bytes / size_of::<T>()) }
}
