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

/// A file with this card, and tensors of these names, types and shapes, all of whose bytes are the same.
fn policy_file(
    network: &str,
    view: &str,
    hidden: &[i64],
    norm: &str,
    pods: i64,
    tensors: &[(String, String, Vec<usize>)],
    fill: u8,
) -> Vec<u8> {
    let version = match view {
        "gpu" => 3,
        "telemetry" => 2,
        _ => 1,
    };
    let card = format!(
        "{{'schema':1,'name':'n','view':'{view}','view_version':{version},'network':'{network}','hidden':{hidden:?},\
         'normalisation':'{norm}','objective':'o','algorithm':'a','members':['fgd'],\
         'mix':{{'version':3,'workload':'w','typical_pods':{pods}}}}}"
    );
    let mut header = format!("{{\"__metadata__\":{{\"steersman\":\"{}\"}}", card.replace('\'', "\\\""));
    let mut end = 0;
    for (i, (name, dtype, shape)) in tensors.iter().enumerate() {
        if tensors[..i].iter().any(|(earlier, ..)| earlier == name) {
            continue;
        }
        let width = match dtype.as_str() {
            "F64" | "I64" => 8,
            "F32" => 4,
            "F16" => 2,
            _ => 1,
        };
        let start = end;
        end += width * shape.iter().product::<usize>();
        header += &format!(",{name:?}:{{\"dtype\":{dtype:?},\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}");
    }
    header += "}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + end, fill);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn bytes_that_describe_nothing_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // SAFETY: the length is that of the bytes.
        let answers = unsafe {
            [
                api::steersman_decider_new(bytes.as_ptr(), bytes.len()),
                api::steersman_engine_new(bytes.as_ptr(), bytes.len()),
                api::telemetry::steersman_model_new(bytes.as_ptr(), bytes.len()),
                api::telemetry::steersman_telemetry_limit(bytes.as_ptr(), bytes.len(), [].as_mut_ptr(), 0),
            ]
        };
        prop_assert_eq!(answers, [-1; 4]);
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
    fn bytes_that_are_no_policy_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), is_formula: bool) {
        let name = if is_formula { "f.txt" } else { "f" };
        // SAFETY: the lengths are those of the bytes and of the name.
        let answer = unsafe { api::steersman_policy_new(bytes.as_ptr(), bytes.len(), name.as_ptr(), name.len()) };
        prop_assert_eq!(answer, -1);
        prop_assert!(error().starts_with(&format!("{name}, ")) || error().starts_with("f.txt: "), "{}", error());
        prop_assert!(!error().contains(['\n', '\r']), "{}", error());
    }

    #[test]
    fn formulas_of_any_lines_are_read_or_refused(
        lines in prop::collection::vec("(no GPU:|one GPU:|several GPUs:|a share of a GPU:|[-+.e0-9]{1,5} (fgd|dead_after|x)|[ #:a-z]{0,9})", 0..40),
    ) {
        let text = format!("# steersman formula 2\n{}", lines.join("\n"));
        // SAFETY: the lengths are those of the texts.
        let answer = unsafe { api::steersman_policy_new(text.as_ptr(), text.len(), "f.txt".as_ptr(), 5) };
        prop_assert!(answer > 0 || !error().contains("this is a bug"), "{}", error());
        api::steersman_forget(answer);
    }

    #[test]
    fn policies_of_any_card_are_read_or_refused(
        network in "linear|mlp|deepsets|gnn|rule|portfolio|rnn",
        view in "cluster|gpu|telemetry",
        hidden in prop::collection::vec(prop::sample::select(vec![-1, 0, 1, 2, 3, i64::MAX]), 0..4),
        norm in "none|layer|batch|x",
        pods in prop::sample::select(vec![-1, 0, 1, i64::MAX]),
        tensors in prop::collection::vec(("weights|rules|head.weight|head.bias|layers.0.weight|kind|mix.milli|mix.cpu|mix.accepts|mix.share|mix.value|mix.gpu_count|outlook.sequences|outlook.planned", "F32|F64|I64|U8|BOOL|F16|F8_E4M3", prop::collection::vec(0usize..6, 0..4)), 0..12),
        fill: u8,
    ) {
        let bytes = policy_file(&network, &view, &hidden, &norm, pods, &tensors, fill);
        // SAFETY: the lengths are those of the bytes and of the name.
        let answer = unsafe { api::steersman_policy_new(bytes.as_ptr(), bytes.len(), "f".as_ptr(), 1) };
        prop_assert!(answer > 0 || !error().contains("this is a bug"), "{}", error());
        prop_assert!(answer > 0 || !error().contains(['\n', '\r']), "{}", error());
        api::steersman_forget(answer);
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
            api::telemetry::steersman_model_remove_node(number, a, 1.0),
            api::telemetry::steersman_model_unbind(number, a, 1.0),
        ];
        prop_assert!(answers.iter().all(|&answer| answer == -1));
        prop_assert_eq!(error(), format!("there is no object {number}"));
    }
}
