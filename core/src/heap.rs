//! Binary heaps of numbers, and a sort of few elements, whose order is a closure: it may read what the standard library's heap
//! could not borrow.

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

/// Remove the element at a place of a binary heap.
pub fn remove(heap: &mut Vec<usize>, place: usize, goes_before: impl Fn(usize, usize) -> bool) {
    heap.swap_remove(place);
    if place < heap.len() {
        sink(heap, place, &goes_before);
        rise(heap, place, goes_before);
    }
}

/// Add an element to a binary heap.
pub fn push(heap: &mut Vec<usize>, element: usize, goes_before: impl Fn(usize, usize) -> bool) {
    let place = heap.len();
    heap.push(element);
    rise(heap, place, goes_before);
}

/// Move an element of a binary heap up to where it belongs.
fn rise(heap: &mut [usize], mut place: usize, goes_before: impl Fn(usize, usize) -> bool) {
    let element = heap[place];
    while place > 0 && goes_before(element, heap[(place - 1) / 2]) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = element;
}

/// Sort a few elements by insertion; equal ones stay in their order. Each use of the standard library's sort would add 7 kB
/// to the portable core.
pub fn sort_few<T>(elements: &mut [T], goes_before: impl Fn(&T, &T) -> bool) {
    for i in 1..elements.len() {
        let mut k = i;
        while k > 0 && goes_before(&elements[k], &elements[k - 1]) {
            elements.swap(k, k - 1);
            k -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_left_after_a_removal_comes_in_order(count in 1usize..40, places in prop::collection::vec(0usize..40, 0..20)) {
            let mut heap: Vec<usize> = (0..count).rev().collect();
            heapify(&mut heap, |a, b| a < b);
            let mut left: Vec<usize> = (0..count).collect();
            for place in places.into_iter().filter(|&place| place < count) {
                if place < heap.len() {
                    let element = heap[place];
                    left.retain(|&other| other != element);
                    remove(&mut heap, place, |a, b| a < b);
                }
            }
            let found: Vec<usize> = std::iter::from_fn(|| (!heap.is_empty()).then(|| pop(&mut heap, |a, b| a < b))).collect();
            prop_assert_eq!(found, left);
        }
    }
}
