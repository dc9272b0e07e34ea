//! Formulas: linear policies as text that a person can read and edit, a term a line by kind of pod.
//!
//! `steersman.policies.formula` documents the format. Terms are node features of the view `gpu`, and rules.

use std::collections::BTreeMap;

use crate::arrays::Result;
use crate::learned::{FEATURES, KINDS, WEIGHTS, Weights};
use crate::policy::{MOST_WEIGHT, refusal};
use crate::rules::{FGD, RULES};

const HEADER: &str = "# steersman formula 2";
const KIND_NAMES: [&str; KINDS] = ["no GPU", "a share of a GPU", "one GPU", "several GPUs"];
const MOST_TERMS: usize = 64;
const MOST_BYTES: usize = 1 << 16;
/// Where lines end, as in Python's `splitlines`.
const ENDS: [char; 9] = ['\n', '\r', '\x0b', '\x0c', '\x1c', '\x1d', '\x1e', '\u{2028}', '\u{2029}'];

/// Features of the state of a node, in the order of `steersman.policies.features`.
const STATE: [&str; FEATURES] = [
    "fragmented",
    "idle",
    "whole_devices",
    "part_devices",
    "part_idle",
    "untouched",
    "cpu_left",
    "cpu_short",
    "cpu_spare",
    "least_waste",
    "dead",
    "left_squares",
    "lost_planned",
    "filled_idle",
    "gpu_filled_idle",
];

/// Where the weight of a term stands.
#[derive(Clone, Copy)]
enum Term {
    Feature(usize),
    Rule(usize),
}

/// All terms by name, in the order in which errors list them.
fn terms() -> Vec<(String, Term)> {
    let state = |suffix: &'static str, first: usize| {
        STATE.iter().enumerate().map(move |(i, name)| (format!("{name}_{suffix}"), Term::Feature(first + i)))
    };
    let rule = |(r, (name, _)): (usize, &(&str, _))| {
        // FGD's score is the last feature.
        (name.to_string(), if r == FGD { Term::Feature(WEIGHTS - 1) } else { Term::Rule(r) })
    };
    state("after", 0).chain(state("change", FEATURES)).chain(RULES.iter().enumerate().map(rule)).collect()
}

/// Read the text of a formula.
pub fn read(file: &str, bytes: &[u8]) -> Result<Weights> {
    let wrong = |problem: &str| refusal(file, "", "", problem);
    if bytes.len() > MOST_BYTES {
        return Err(wrong(&format!("is larger than {MOST_BYTES} bytes; expected a formula")));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text; expected a formula"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut lines = text.split(ENDS).zip(1..);
    if lines.next().is_none_or(|(line, _)| line.trim() != HEADER) {
        return Err(refusal(file, "line 1", "", &format!("expected '{HEADER}', the first line of a formula")));
    }
    let terms: BTreeMap<String, Term> = terms().into_iter().collect();
    let mut weights = Weights { linear: vec![[0.0; WEIGHTS]; KINDS], rules: vec![], layers: vec![] };
    let mut rules = vec![[0.0; RULES.len()]; KINDS];
    let (mut kind, mut read): (Option<usize>, Vec<(usize, String)>) = (None, Vec::new());
    let mut kinds = [false; KINDS];
    for (line, number) in lines {
        let wrong = |field: &str, problem: &str| refusal(file, &format!("line {number}"), field, problem);
        let text = line.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        if let Some(name) = text.strip_suffix(':') {
            let Some(k) = KIND_NAMES.iter().position(|each| *each == name) else {
                return Err(wrong(name, &format!("is not a kind of pod; expected one of {}", known_kinds())));
            };
            if std::mem::replace(&mut kinds[k], true) {
                return Err(wrong(name, "occurs twice; expected each kind of pod once"));
            }
            kind = Some(k);
            continue;
        }
        let Some(kind) = kind else {
            return Err(wrong("", &format!("'{text}' precedes the kinds of pods; expected one of {}", known_kinds())));
        };
        let (amount, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let name = name.trim_start();
        let Some(&term) = terms.get(name) else {
            let (field, what) = if name.is_empty() { (text, "a weight and a term") } else { (name, "a term") };
            return Err(wrong(field, &format!("is not {what}; known: {}", known_terms())));
        };
        let weight = read_number(amount)
            .ok_or_else(|| wrong(name, &format!("'{amount}' is not a number from -1e+12 to 1e+12")))?;
        let place = (kind, name.to_owned());
        if read.contains(&place) {
            return Err(wrong(name, &format!("occurs twice for {}; expected each term once", KIND_NAMES[kind])));
        }
        read.push(place);
        match term {
            Term::Feature(i) => weights.linear[kind][i] = weight,
            Term::Rule(r) => rules[kind][r] = weight,
        }
    }
    if let Some(k) = kinds.iter().position(|is_there| !is_there) {
        let name = KIND_NAMES[k];
        let problem = format!("is missing; expected the line '{name}:' and its terms, if it has any");
        return Err(refusal(file, "", name, &problem));
    }
    if read.len() > MOST_TERMS {
        return Err(wrong(&format!("has {} terms; expected at most {MOST_TERMS}", read.len())));
    }
    if rules.iter().flatten().any(|&weight| weight != 0.0) {
        weights.rules = rules;
    }
    Ok(weights)
}

fn known_kinds() -> String {
    KIND_NAMES.map(|name| format!("'{name}:'")).join(", ")
}

fn known_terms() -> String {
    terms().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// A decimal number, no infinity and none that is larger than a weight may be.
fn read_number(text: &str) -> Option<f64> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| is_decimal)?;
    (number.abs() <= MOST_WEIGHT).then_some(number)
}
