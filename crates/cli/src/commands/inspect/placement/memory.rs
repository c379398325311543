//! What of the weights is in memory, and what a token reads.

use super::super::report::size;
use backend::SlotClass;
use engine::WeightsPlan;
use serde_json::{Value as Json, json};

/// Shares of its experts that a token finds in memory.
const HIT_RATES: [f64; 3] = [0.0, 0.5, 0.9];

/// A line each for what is in memory, and for what a token reads.
pub(super) fn text(plan: &WeightsPlan) -> String {
    let Some(stream) = &plan.stream else {
        return format!("all weights are in memory: {}\n", size(plan.bytes()));
    };
    let limit = plan.limit.map_or(String::new(), |limit| format!(" of {}", size(limit)));
    let mut out = format!("weights take {}{limit} of memory\n", size(plan.bytes()));
    out += &format!("  always in memory  {:>10}\n", size(plan.resident));
    for SlotClass { bytes, experts, slots } in &stream.classes {
        let held = size(bytes * slots);
        let each = size(*bytes);
        out +=
            &format!("  slots             {held:>10}  {slots} of {each} for {experts} experts\n");
    }
    if stream.layers > 0 {
        let (held, read) = (size(stream.layers), size(stream.step_bytes));
        out += &format!("  layers            {held:>10}  of {read} that every step reads\n");
    }
    out += &format!("  read buffers      {:>10}\n", size(stream.buffers));
    out += "bytes that a token reads, by the share of its experts that are in memory\n";
    for rate in HIT_RATES {
        out += &format!("  {rate:<16}  {:>10}\n", size(plan.token_bytes(rate)));
    }
    out
}

/// The same as JSON.
pub(super) fn json(plan: &WeightsPlan) -> Json {
    let stream = plan.stream.clone().unwrap_or_default();
    let class = |class: &SlotClass| json!({"bytes": class.bytes, "experts": class.experts, "slots": class.slots});
    let reads = |rate: f64| json!({"hit_rate": rate, "bytes": plan.token_bytes(rate)});
    json!({
        "limit_bytes": plan.limit,
        "bytes": plan.bytes(),
        "resident_bytes": plan.resident,
        "slots": stream.classes.iter().map(class).collect::<Json>(),
        "layer_bytes": stream.layers,
        "step_read_bytes": stream.step_bytes,
        "buffer_bytes": stream.buffers,
        "token_reads": HIT_RATES.map(reads),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::StreamPlan;

    fn plan() -> WeightsPlan {
        let class = |bytes, experts, slots| SlotClass { bytes, experts, slots };
        let classes = vec![class(3 << 20, 96, 30), class(1 << 20, 32, 10)];
        let (layers, step_bytes) = (4 << 20, 16 << 20);
        let (buffers, token_bytes) = (8 << 20, 40 << 20);
        let stream = Some(StreamPlan { classes, layers, buffers, step_bytes, token_bytes });
        WeightsPlan { placed: Vec::new(), resident: 20 << 20, limit: Some(132 << 20), stream }
    }

    #[test]
    fn what_is_in_memory_and_what_a_token_reads_is_shown() {
        let expected = "\
weights take 132.00 MiB of 132.00 MiB of memory
  always in memory   20.00 MiB
  slots              90.00 MiB  30 of 3.00 MiB for 96 experts
  slots              10.00 MiB  10 of 1.00 MiB for 32 experts
  layers              4.00 MiB  of 16.00 MiB that every step reads
  read buffers        8.00 MiB
bytes that a token reads, by the share of its experts that are in memory
  0                  56.00 MiB
  0.5                36.00 MiB
  0.9                20.00 MiB
";
        assert_eq!(text(&plan()), expected);
        let resident = WeightsPlan { stream: None, limit: None, ..plan() };
        assert_eq!(text(&resident), "all weights are in memory: 20.00 MiB\n");
        let json = json(&plan());
        assert_eq!(
            (&json["bytes"], &json["buffer_bytes"]),
            (&(132 << 20).into(), &(8 << 20).into())
        );
        assert_eq!(json["slots"][1]["slots"], 10);
        assert_eq!(json["token_reads"][2]["bytes"], 20 << 20);
    }
}
