//! Binary heaps of numbers, whose order is a closure: it may read what the standard library's heap could not borrow.

/// Move an element of a binary heap down to where it belongs.
pub fn sink(heap: &mut [usize], mut place: usize, goes_before: impl Fn(usize, usize) -> bool) {
    let element = heap[place];
    loop {
        let mut child = 2 * place + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && goes_before(heap[child + 1], heap[child]) {
            child += 1;
        }
        if !goes_before(heap[child], element) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = element;
}

/// Make a binary heap.
pub fn heapify(heap: &mut [usize], goes_before: impl Fn(usize, usize) -> bool) {
    for place in (0..heap.len() / 2).rev() {
        sink(heap, place, &goes_before);
    }
}

/// Remove the first element of a binary heap.
pub fn pop(heap: &mut Vec<usize>, goes_before: impl Fn(usize, usize) -> bool) -> usize {
    let first = heap.swap_remove(0);
    if !heap.is_empty() {
        sink(heap, 0, goes_before);
    }
    first
}

/// Add an element to a binary heap.
pub fn push(heap: &mut Vec<usize>, element: usize, goes_before: impl Fn(usize, usize) -> bool) {
    heap.push(element);
    let mut place = heap.len() - 1;
    while place > 0 && goes_before(element, heap[(place - 1) / 2]) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = element;
}
