//! What a placement rule for devices alone leaves of them, in a model without nodes, CPU or GPU models.
//!
//! `steersman.policies.leftovers` searches for the expected final loss of a device by these two passes.

use crate::arrays::{Result, index};
use crate::cluster::GPU;

/// Devices with equal milli left are equal: the state is how many have so many milli left.
pub const AMOUNTS: usize = GPU as usize + 1;
/// In place of the milli left of a device: the request fitted nowhere.
const REFUSED: i64 = -1;

/// Requests for devices, in the order of their arrival.
pub struct Requests<'a> {
    sizes: Vec<usize>,
    sequence: &'a [i64],
}

impl<'a> Requests<'a> {
    /// `sizes`: milli of a device; `sequence`: places in it.
    pub fn new(sizes: &[i64], sequence: &'a [i64]) -> Result<Self> {
        for &each in sequence {
            index("sequence", each, sizes.len())?;
        }
        let sizes = sizes.iter().map(|&size| index("sizes", size, AMOUNTS)).collect::<Result<_>>()?;
        Ok(Requests { sizes, sequence })
    }

    fn size(&self, i: usize) -> usize {
        self.sizes[self.sequence[i] as usize]
    }

    /// Place the requests on devices, and write the milli that the chosen one of each had left; -1: it fits nowhere.
    ///
    /// A request takes a device on which the loss of `table` grows least, the fullest of equals. `grain` divides all
    /// milli that devices may have left. `table` and `devices` are by milli left, [AMOUNTS].
    pub fn play(&self, grain: usize, table: &[f64], devices: &mut [i64], chosen: &mut [i64]) {
        for (i, chosen) in chosen.iter_mut().enumerate().take(self.sequence.len()) {
            let size = self.size(i);
            let (mut least, mut best) = (f64::INFINITY, None);
            for left in (size.next_multiple_of(grain.max(1))..AMOUNTS).step_by(grain.max(1)) {
                let growth = table[left - size] - table[left];
                if devices[left] > 0 && growth < least {
                    (least, best) = (growth, Some(left));
                }
            }
            *chosen = REFUSED;
            if let Some(left) = best {
                *chosen = left as i64;
                devices[left] -= 1;
                devices[left - size] += 1;
            }
        }
    }

    /// Undo `play`, which made `chosen` and `devices`; add the expected final leftover, in GPUs, of the device that each
    /// request left behind to `sums`, and 1 to `counts`.
    pub fn undo(&self, chosen: &[i64], devices: &mut [i64], sums: &mut [f64], counts: &mut [f64]) -> Result<()> {
        // Before anything is undone, a device's final loss is what it has left.
        let mut loss: Vec<f64> = (0..AMOUNTS).map(|left| left as f64 / GPU as f64).collect();
        for (i, &left) in chosen.iter().enumerate().take(self.sequence.len()).rev() {
            if left == REFUSED {
                continue;
            }
            let left = index("chosen", left, AMOUNTS)?;
            let after = left.checked_sub(self.size(i)).ok_or("chosen: less than the request")?;
            devices[left] += 1;
            devices[after] -= 1;
            // One of the devices with `left` went on to `after`: the mean moves by its share.
            loss[left] += (loss[after] - loss[left]) / devices[left] as f64;
            sums[after] += loss[after];
            counts[after] += 1.0;
        }
        Ok(())
    }
}
