//! Whatever a host says, an answer is a number or an error with a text, never a panic.

use proptest::prelude::*;
use steersman_core::api;

fn error() -> String {
    let mut text = [0u8; 4096];
    // SAFETY: the buffer has this length.
    let length = unsafe { api::steersman_error(text.as_mut_ptr(), text.len()) };
    String::from_utf8_lossy(&text[..length.min(text.len())]).into_owned()
}

/// A safetensors file with these arrays of int64, [A] each, and nothing else.
fn file(names: &[&str], values: &[i64]) -> Vec<u8> {
    let size = 8 * values.len();
    let entry = |(i, name): (usize, &&str)| {
        format!(
            "{name:?}:{{\"dtype\":\"I64\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
            values.len(),
            i * size,
            (i + 1) * size
        )
    };
    let header = format!("{{{}}}", names.iter().enumerate().map(entry).collect::<Vec<_>>().join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    for _ in names {
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_that_describe_nothing_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // SAFETY: the length is that of the bytes.
        let answers = unsafe {
            [api::steersman_decider_new(bytes.as_ptr(), bytes.len()), api::steersman_engine_new(bytes.as_ptr(), bytes.len())]
        };
        prop_assert_eq!(answers, [-1, -1]);
        prop_assert_eq!(error(), "not a safetensors file, or a part of one");
    }

    #[test]
    fn files_with_other_arrays_are_refused(
        names in prop::sample::subsequence(vec!["nodes.gpu_count", "classes.constraint", "policy.node", "arrivals.time"], 0..4),
        values in prop::collection::vec(any::<i64>(), 0..5),
    ) {
        let bytes = file(&names, &values);
        // SAFETY: the length is that of the bytes.
        prop_assert_eq!(unsafe { api::steersman_engine_new(bytes.as_ptr(), bytes.len()) }, -1);
        prop_assert!(!error().contains("this is a bug"), "{}", error());
    }

    #[test]
    fn objects_that_do_not_exist_are_refused(number in any::<i64>(), a in any::<i64>(), b in any::<usize>()) {
        let answers = [
            api::steersman_decider_place(number, a, a, a, a),
            api::steersman_decider_remove(number, a, a, a, a),
            api::steersman_engine_advance(number, b),
            api::steersman_engine_answer(number, a),
            api::steersman_engine_set_head(number, a),
            api::steersman_batch_engine(number, b),
        ];
        prop_assert!(answers.iter().all(|&answer| answer == -1));
        prop_assert_eq!(error(), format!("there is no object {number}"));
    }
}
