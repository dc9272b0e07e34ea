//! Functions of a C library whose arrays are pointers, written as functions of slices.

/// Return an array of the host, which may be nowhere if it is empty.
///
/// # Safety
/// `pointer` has `length` elements.
pub unsafe fn array<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    // SAFETY: the caller's, as above.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, length) } }
}

/// Return an array that is written.
///
/// # Safety
/// `pointer` has room for `length` elements.
pub unsafe fn output<'a, T>(pointer: *mut T, length: usize) -> &'a mut [T] {
    // SAFETY: the caller's, as above.
    if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(pointer, length) } }
}

/// Define exported functions that return a number. An array is `name: in TYPE[LENGTH]`, or `out` if it is written: a
/// pointer for the host, and a slice for the body. A length is a number or a later argument; `..`: the argument right
/// after the pointer, which has no name.
macro_rules! doors {
    ($($(#[$doc:meta])* fn $name:ident($($arguments:tt)*) $body:block)*) => {
        $(crate::api::doors::door! { {$(#[$doc])*} $name {} {} {$($arguments)*,} $body })*
    };
}

/// One function of `doors!`: its documentation and name, its arguments in C and the slices that were made so far, the
/// arguments that are left, and its body. Later arguments become slices first, since they may be lengths of earlier ones.
macro_rules! door {
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$a:ident: in $type:ident[..], $($rest:tt)*} $body:block) => {
        crate::api::doors::door! {
            {$($doc)*} $name {$($c)* $a: *const $type, length: usize,}
            {let $a = unsafe { crate::api::doors::array($a, length) }; $($slices)*} {$($rest)*} $body
        }
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$a:ident: out $type:ident[..], $($rest:tt)*} $body:block) => {
        crate::api::doors::door! {
            {$($doc)*} $name {$($c)* $a: *mut $type, length: usize,}
            {let $a = unsafe { crate::api::doors::output($a, length) }; $($slices)*} {$($rest)*} $body
        }
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$a:ident: in $type:ident[$length:expr], $($rest:tt)*} $body:block) => {
        crate::api::doors::door! {
            {$($doc)*} $name {$($c)* $a: *const $type,}
            {let $a = unsafe { crate::api::doors::array($a, $length) }; $($slices)*} {$($rest)*} $body
        }
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$a:ident: out $type:ident[$length:expr], $($rest:tt)*} $body:block) => {
        crate::api::doors::door! {
            {$($doc)*} $name {$($c)* $a: *mut $type,}
            {let $a = unsafe { crate::api::doors::output($a, $length) }; $($slices)*} {$($rest)*} $body
        }
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$a:ident: $type:ty, $($rest:tt)*} $body:block) => {
        crate::api::doors::door! { {$($doc)*} $name {$($c)* $a: $type,} {$($slices)*} {$($rest)*} $body }
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {} {$(,)?} $body:block) => {
        $($doc)*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($c)*) -> i64 $body
    };
    ({$($doc:tt)*} $name:ident {$($c:tt)*} {$($slices:tt)*} {$(,)?} $body:block) => {
        $($doc)*
        ///
        /// # Safety
        /// Each array has its length.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($c)*) -> i64 {
            // SAFETY: the caller's, as above.
            $($slices)*
            $body
        }
    };
}

pub(crate) use {door, doors};
