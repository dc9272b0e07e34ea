//! What a host describes: arrays by name, as the bytes of a safetensors file.

use safetensors::tensor::{SafeTensors, TensorView};

/// An error that a host shows to its user: one line.
pub type Error = String;
pub type Result<T> = std::result::Result<T, Error>;

/// Arrays by name.
pub struct Arrays<'a> {
    tensors: SafeTensors<'a>,
}

/// An element of an array.
pub trait Element: Sized {
    const DTYPE: safetensors::Dtype;
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($type:ty, $dtype:ident) => {
        impl Element for $type {
            const DTYPE: safetensors::Dtype = safetensors::Dtype::$dtype;
            fn read(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("a chunk has the size of an element"))
            }
        }
    };
}

element!(u8, U8);
element!(i64, I64);
element!(i32, I32);
element!(f64, F64);

impl Element for bool {
    const DTYPE: safetensors::Dtype = safetensors::Dtype::BOOL;
    fn read(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

impl<'a> Arrays<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        // The same text for pointers of any size, on which the parser's reasons depend.
        let wrong = || "not a safetensors file, or a part of one".to_owned();
        let tensors = SafeTensors::deserialize(bytes).map_err(|_| wrong())?;
        let is_wide = |(_, view): (_, TensorView)| view.shape().iter().any(|&length| u32::try_from(length).is_err());
        if tensors.iter().any(is_wide) { Err(wrong()) } else { Ok(Arrays { tensors }) }
    }

    fn view<T: Element>(&self, name: &str, dimensions: usize) -> Result<TensorView<'a>> {
        let view = self.tensors.tensor(name).map_err(|_| format!("{name}: missing"))?;
        if view.dtype() != T::DTYPE {
            return Err(format!("{name}: expected {:?}, is {:?}", T::DTYPE, view.dtype()));
        }
        if view.shape().len() != dimensions {
            return Err(format!("{name}: expected {dimensions} dimensions, has {}", view.shape().len()));
        }
        Ok(view)
    }

    pub fn list<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        let view = self.view::<T>(name, 1)?;
        Ok(view.data().chunks_exact(size_of::<T>()).map(T::read).collect())
    }

    /// Return a list of this length.
    pub fn list_of<T: Element>(&self, name: &str, length: usize) -> Result<Vec<T>> {
        let list = self.list(name)?;
        if list.len() == length {
            Ok(list)
        } else {
            Err(format!("{name}: expected {length} values, has {}", list.len()))
        }
    }

    /// Return a list of natural numbers below a bound.
    pub fn indices(&self, name: &str, below: usize) -> Result<Vec<usize>> {
        self.list(name)?.into_iter().map(|value| index(name, value, below)).collect()
    }

    pub fn rows<T: Element>(&self, name: &str, columns: usize) -> Result<Vec<Vec<T>>> {
        let view = self.view::<T>(name, 2)?;
        let (rows, found) = (view.shape()[0], view.shape()[1]);
        if found != columns {
            return Err(format!("{name}: expected {columns} columns, has {found}"));
        }
        let size = size_of::<T>();
        let row =
            |i: usize| view.data()[i * columns * size..][..columns * size].chunks_exact(size).map(T::read).collect();
        Ok((0..rows).map(row).collect())
    }

    /// Return so many rows.
    pub fn rows_of<T: Element>(&self, name: &str, count: usize, columns: usize) -> Result<Vec<Vec<T>>> {
        let rows = self.rows(name, columns)?;
        if rows.len() == count { Ok(rows) } else { Err(format!("{name}: expected {count} rows, has {}", rows.len())) }
    }

    /// Return so many rows in one piece.
    pub fn table<T: Element>(&self, name: &str, count: usize, columns: usize) -> Result<Vec<T>> {
        let view = self.view::<T>(name, 2)?;
        if view.shape() != [count, columns] {
            return Err(format!("{name}: expected {count} rows of {columns}, has {:?}", view.shape()));
        }
        Ok(view.data().chunks_exact(size_of::<T>()).map(T::read).collect())
    }

    pub fn columns<T: Element>(&self, name: &str) -> Result<usize> {
        Ok(self.view::<T>(name, 2)?.shape()[1])
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    pub fn number(&self, name: &str) -> Result<i64> {
        let view = self.view::<i64>(name, 0)?;
        Ok(i64::read(view.data()))
    }
}

/// Return an index below a bound.
pub fn index(name: &str, value: i64, below: usize) -> Result<usize> {
    match usize::try_from(value) {
        Ok(index) if index < below => Ok(index),
        _ => Err(format!("{name}: {value} is not in 0..{below}")),
    }
}

/// Return an index below a bound, None for -1.
pub fn optional(name: &str, value: i64, below: usize) -> Result<Option<usize>> {
    if value == -1 { Ok(None) } else { index(name, value, below).map(Some) }
}

/// Copy rows into an array that has as many numbers.
pub fn copy_rows<'a, T: Copy + 'a>(name: &str, out: &mut [T], rows: impl Iterator<Item = &'a [T]>) -> Result<()> {
    let mut rest = out;
    for row in rows {
        let Some((first, others)) = rest.split_at_mut_checked(row.len()) else {
            return Err(format!("{name}: expected more numbers"));
        };
        first.copy_from_slice(row);
        rest = others;
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("{name}: expected fewer numbers")) }
}
