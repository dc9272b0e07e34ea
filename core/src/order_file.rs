//! Order files: a card and the weights of a learned order, as the bytes of a safetensors file. A policy file may have an
//! order, too.
//!
//! Nothing in a file is executed. An error names the file, the field, and what would be right.

use std::collections::BTreeMap;

use safetensors::tensor::SafeTensors;
use serde::Deserialize;

use crate::arrays::Result;
use crate::order::{LINEAR, UNIT};
use crate::policy::{CARD as POLICY_CARD, MOST_MEBIBYTES, ORDER_CARD, Setting, is_real, reals, refusal};

const SCHEMA: i64 = 2;
const WEIGHTS: &str = "order";
const MOST_HIDDEN: i64 = 1000;
const OVERTAKING: [&str; 3] = ["any", "none", "easy"];

/// The card of an order file; `steersman.orders.registry` documents the fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Card {
    #[serde(default)]
    schema: i64,
    name: String,
    overtaking: String,
    estimates: String,
    ageing: Option<f64>,
    #[serde(default)]
    hidden: i64,
    #[serde(default)]
    objective: String,
    #[serde(default)]
    training: Vec<String>,
    #[serde(default)]
    settings: BTreeMap<String, Setting>,
    #[serde(default)]
    gain: f64,
    #[serde(default)]
    reference: String,
    #[serde(default)]
    made_by: String,
}

/// An order file, or a policy file.
pub struct OrderFile {
    /// Its card in JSON, as it stands; that of a policy file is not checked.
    pub card: String,
    /// The weights of an order file; none: it is a policy file, whose card names its order.
    pub weights: Vec<f64>,
}

impl OrderFile {
    /// Read the bytes of a file of this name.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |field: &str, problem: String| refusal(file, "", field, &problem);
        if bytes.len() > MOST_MEBIBYTES << 20 {
            return Err(refuse("", format!("is {} bytes; expected {MOST_MEBIBYTES} MiB at most", bytes.len())));
        }
        let no_file = |error| refuse("", format!("cannot be read: {error}"));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(no_file)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        if let Some(card) = metadata.get(POLICY_CARD) {
            return Ok(OrderFile { card: card.clone(), weights: Vec::new() });
        }
        let text = metadata.get(ORDER_CARD).ok_or_else(|| refuse("", "is not an order file".to_owned()))?;
        let hidden = check_card(text, refuse)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(no_file)?;
        let missing = |_| refuse(WEIGHTS, "is missing".to_owned());
        let weights = tensors.tensor(WEIGHTS).map_err(missing)?;
        let expected = LINEAR + UNIT * hidden;
        if weights.shape() != [expected] {
            let problem = format!("has shape {:?}; expected [{expected}] for its hidden units", weights.shape());
            return Err(refuse(WEIGHTS, problem));
        }
        if !is_real(&weights) {
            return Err(refuse(WEIGHTS, format!("has numbers of {:?}; expected F64", weights.dtype())));
        }
        let weights: Vec<f64> = reals(&weights).collect();
        if weights.iter().any(|weight| !weight.is_finite()) {
            return Err(refuse(WEIGHTS, "has a weight that is not a finite number".to_owned()));
        }
        Ok(OrderFile { card: text.clone(), weights })
    }
}

/// Check a card; return the hidden units of the order.
fn check_card(text: &str, refuse: impl Fn(&str, String) -> String) -> Result<usize> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: Option<i64>,
    }
    let no_card = |error| refuse("", format!("is no order file of this version of steersman: {error}"));
    // The schema is read first: a newer one may have fields that a card of this one may not have.
    let schema = serde_json::from_str::<Versioned>(text).map_err(no_card)?.schema.unwrap_or(SCHEMA);
    if schema != SCHEMA {
        return Err(refuse("schema", format!("{schema} is of another version of steersman; expected {SCHEMA}")));
    }
    let card: Card = serde_json::from_str(text).map_err(no_card)?;
    if !OVERTAKING.contains(&card.overtaking.as_str()) {
        let problem = format!("'{}' is unknown; expected {}", card.overtaking, OVERTAKING.join(", "));
        return Err(refuse("overtaking", problem));
    }
    if !(0..=MOST_HIDDEN).contains(&card.hidden) {
        return Err(refuse("hidden", format!("{} must be at least 0 and at most {MOST_HIDDEN}", card.hidden)));
    }
    match card.ageing {
        Some(ageing) if ageing <= 0.0 => Err(refuse("ageing", format!("{ageing} must be above 0 seconds"))),
        _ => Ok(card.hidden as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, TensorView};

    const GOOD: &str = r#"{"name":"mine","overtaking":"easy","estimates":"history","ageing":3600.0,"hidden":1}"#;

    fn file(key: &str, card: &str, weights: &[f64]) -> Vec<u8> {
        let data: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        let tensor = TensorView::new(Dtype::F64, vec![weights.len()], &data).expect("the length is right");
        let metadata = Some([(key.to_owned(), card.to_owned())].into());
        safetensors::serialize([(WEIGHTS, tensor)], metadata).expect("it is a file")
    }

    #[test]
    fn an_order_file_has_a_card_and_weights() {
        let weights: Vec<f64> = (0..LINEAR + UNIT).map(|i| i as f64 / 7.0).collect();
        let read = OrderFile::read("mine", &file(ORDER_CARD, GOOD, &weights)).expect("it is good");
        assert_eq!((read.card.as_str(), read.weights), (GOOD, weights));
        let policy = OrderFile::read("mine", &file(POLICY_CARD, r#"{"order":"wfp3"}"#, &[])).expect("it is a policy");
        assert_eq!((policy.card.as_str(), policy.weights.len()), (r#"{"order":"wfp3"}"#, 0));
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let weights = vec![0.5; LINEAR + UNIT];
        for (from, to, says) in [
            ("easy", "some", "mine, overtaking: 'some' is unknown; expected any, none, easy"),
            ("3600.0", "0.0", "mine, ageing: 0 must be above 0 seconds"),
            (":1}", ":2}", "mine, order: has shape [34]; expected [44] for its hidden units"),
            (":1}", ":-1}", "mine, hidden: -1 must be at least 0 and at most 1000"),
            (":1}", r#":1,"schema":9}"#, "mine, schema: 9 is of another version of steersman; expected 2"),
            (":1}", r#":1,"x":9}"#, "mine: is no order file of this version of steersman: unknown field `x`"),
            ("}", "", "mine: is no order file of this version of steersman: EOF"),
        ] {
            let error = OrderFile::read("mine", &file(ORDER_CARD, &GOOD.replace(from, to), &weights)).err();
            assert!(error.as_ref().is_some_and(|error| error.starts_with(says)), "{error:?}");
        }
        let odd = OrderFile::read("mine", &file(ORDER_CARD, GOOD, &[f64::NAN; LINEAR + UNIT])).err();
        assert_eq!(odd.as_deref(), Some("mine, order: has a weight that is not a finite number"));
        let other = OrderFile::read("mine", &file("other", GOOD, &weights)).err();
        assert_eq!(other.as_deref(), Some("mine: is not an order file"));
        assert!(OrderFile::read("mine", b"nothing").is_err_and(|error| error.starts_with("mine: cannot be read: ")));
    }
}
