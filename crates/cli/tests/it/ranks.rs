//! Ranks that are threads, and plans of ranks.

use crate::gannet::{check_error, check_usage, run, succeed};
use serde_json::Value;

const QUESTION: [&str; 5] = ["run", "--temp", "0", "--json", "What is the capital of France?"];

fn text(more: &[&str]) -> String {
    let answer: Value = serde_json::from_str(&succeed(&[&QUESTION[..], more].concat())).unwrap();
    answer["text"].as_str().unwrap().to_owned()
}

#[test]
fn stages_that_are_threads_give_the_answer_of_one() {
    let alone = text(&[]);
    for division in [&["--pipeline", "3"][..], &["--pipeline", "2", "--stage-layers", "4,1"]] {
        assert_eq!(text(&[&["--ranks", "local"][..], division].concat()), alone);
    }
    assert!(text(&["--ranks", "local", "--tensor", "2"]).contains("Paris"));
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let run = |more: &[&str]| run(&[&QUESTION[..], more].concat());
    check_usage(&run(&["--tensor", "2"]), "mpirun -n 2");
    check_usage(&run(&["--ranks", "mpi"]), "launcher such as mpirun");
    check_usage(&run(&["--ranks", "local", "--tensor", "2", "--local-cpus", "0"]), "2 ranges");
    let layers = ["--ranks", "local", "--pipeline", "2", "--stage-layers", "2,2"];
    check_error(&run(&layers), "expected 5 in all");
    check_error(&run(&["--ranks", "local", "--pipeline", "9"]), "5 layers cannot be divided");
}

#[test]
fn a_plan_has_each_rank() {
    let plan = succeed(&["inspect", "builtin", "--pipeline", "2", "--tensor", "2", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let ranks = plan["ranks"].as_array().unwrap();
    let layers: Vec<_> = ranks.iter().map(|rank| rank["layers"].as_u64().unwrap()).collect();
    assert_eq!((layers.len(), layers.iter().sum::<u64>()), (4, 2 * 5));
    let weights: u64 = ranks.iter().map(|rank| rank["weights_bytes"].as_u64().unwrap()).sum();
    let whole: Value = serde_json::from_str(&succeed(&["inspect", "builtin", "--json"])).unwrap();
    assert!(weights.abs_diff(whole["bytes"].as_u64().unwrap()) < 8, "{weights}");
    let table = succeed(&["inspect", "builtin", "--pipeline", "3", "--link", "1Gbit,1ms"]);
    assert!(table.starts_with("3 stages") && table.contains("sent per token"), "{table}");
    check_error(&run(&["inspect", "builtin", "--pipeline", "9"]), "5 layers cannot be divided");
    check_usage(&run(&["inspect", "builtin", "--pipeline", "2", "--link", "fast"]), "10Gbit,50us");
}
