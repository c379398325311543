//! Registers the metrics under their names.

use super::drafts::DraftMetrics;
use super::ranks::RankMetrics;
use super::values::MetricValues;
use prometheus_client::registry::{Metric, Registry};

pub(super) fn register(of: &MetricValues, registry: &mut Registry) {
    let MetricValues { counters, gauges, cache, .. } = of;
    // The encoder appends `_total` to the names of counters.
    let named_counters = [
        ("prompt_tokens", "Prompt tokens computed or found in the cache", &counters.prompt_tokens),
        ("generation_tokens", "Tokens generated", &counters.generation_tokens),
        ("prefix_cache_queries", "Prompt tokens looked up in the cache", &counters.cache_queries),
        ("prefix_cache_hits", "Prompt tokens found in the cache", &counters.cache_hits),
        ("num_preemptions", "Sequences preempted for lack of KV blocks", &counters.preemptions),
        ("kv_blocks_evicted", "Cached KV blocks evicted", &counters.evictions),
        ("state_snapshots_evicted", "Snapshots of states evicted", &cache.evicted_states),
        ("engine_steps", "Steps computed", &counters.steps),
        ("requests_rejected", "Requests rejected because the queue was full", &counters.rejected),
    ];
    put(registry, &named_counters);
    put(registry, &[("request_success", "Requests that ended, by outcome", &of.finishes)]);
    register_drafts(&of.drafts, registry);
    register_ranks(&of.ranks, registry);
    let named_gauges = [
        ("num_requests_running", "Requests being computed", &gauges.running),
        ("num_requests_waiting", "Requests waiting to be computed", &gauges.waiting),
        ("draft_kv_blocks_used", "KV blocks of the draft model in use", &gauges.draft_used),
        ("draft_kv_blocks_cached", "KV blocks of its prefix cache", &gauges.draft_cached),
        ("draft_kv_blocks_free", "Empty KV blocks of the draft model", &gauges.draft_free),
        ("state_slots_live", "State slots held by sequences", &cache.live_states),
        ("state_slots_kept", "State slots that hold snapshots", &cache.kept_states),
        ("state_slots_free", "Empty state slots", &cache.free_states),
    ];
    put(registry, &named_gauges);
    let groups = [
        ("kv_blocks_used", "KV blocks held by sequences, by group of rows", &cache.used),
        ("kv_blocks_cached", "KV blocks kept as prefix cache, by group of rows", &cache.cached),
        ("kv_blocks_free", "Empty KV blocks, by group of rows", &cache.free),
        ("kv_blocks", "All KV blocks, by group of rows", &cache.total),
    ];
    put(registry, &groups);
    let help = "Bytes that the model holds on the device, by kind";
    put(registry, &[("device_memory_bytes", help, &of.memory)]);
    let help = "Share of the KV blocks held by sequences, of the fullest group, 0 to 1";
    put(registry, &[("kv_cache_usage_perc", help, &cache.usage)]);
    let help = "Prompt tokens looked up in the cache, by what became of them";
    put(registry, &[("prefix_cache_tokens", help, &cache.causes)]);
    let prefill = "Prompt tokens computed per second, by request";
    let decode = "Tokens generated per second after the first, by request";
    let histograms = [
        ("time_to_first_token_seconds", "From submission to the first token", &of.first_token),
        ("inter_token_latency_seconds", "From a token to the next", &of.gap),
        ("request_queue_time_seconds", "From submission to admission", &of.queued),
        ("request_prefill_time_seconds", "From admission to the first token", &of.prefill),
        ("request_decode_time_seconds", "From the first token to the end", &of.decode),
        ("e2e_request_latency_seconds", "From submission to the end", &of.end_to_end),
        ("step_time_seconds", "Time of a step", &of.step),
        ("request_prefill_tokens_per_second", prefill, &of.prefill_rate),
        ("request_decode_tokens_per_second", decode, &of.decode_rate),
        ("iteration_tokens", "Rows of a step", &of.rows),
        ("iteration_sequences", "Sequences of a step: the size of its batch", &of.sequences),
        ("request_prompt_tokens", "Tokens of a request's prompt", &of.prompt_length),
        ("request_generation_tokens", "Tokens a request generated", &of.generated_length),
    ];
    put(registry, &histograms);
    let rate = "Bytes per second from disk, by restored prefix";
    let restores = [
        ("kv_disk_restore_seconds", "From looking to the last block, by prefix", &of.disk.restore),
        ("kv_disk_restore_bytes_per_second", rate, &of.disk.restore_rate),
    ];
    put(registry, &restores);
    registry.register_collector(Box::new(of.disk.clone()));
    registry.register_collector(Box::new(of.weights.clone()));
}

fn register_drafts(of: &DraftMetrics, registry: &mut Registry) {
    let accepted = "Drafted tokens that were accepted, by drafter";
    let drafts = [
        ("spec_decode_num_draft_tokens", "Drafted tokens, by drafter", &of.drafted),
        ("spec_decode_num_accepted_tokens", accepted, &of.accepted),
    ];
    put(registry, &drafts);
    let help = "Drafted tokens that were accepted, by drafter and place in the draft";
    put(registry, &[("spec_decode_num_accepted_tokens_per_pos", help, &of.places)]);
    let help = "Sequences of steps, by the number of drafted tokens verified for them";
    put(registry, &[("spec_decode_steps", help, &of.lengths)]);
    let help = "Time of a batch that drafts one token over that of a step of one row, by drafter";
    put(registry, &[("spec_decode_draft_cost", help, &of.costs)]);
}

fn register_ranks(of: &RankMetrics, registry: &mut Registry) {
    let help = "Time of the first of several ranks for a step, without waiting for others";
    put(registry, &[("rank_step_seconds", help, &of.step)]);
    let help = "Seconds in which the first rank waited for others";
    put(registry, &[("rank_wait_seconds", help, &of.waited)]);
    put(registry, &[("rank_bytes", "Bytes that the first rank sent to others", &of.bytes)]);
    let help = "Share of the last steps in which the first rank waited for others, 0 to 1";
    put(registry, &[("pipeline_idle_ratio", help, &of.idle)]);
}

fn put<M: Metric + Clone>(registry: &mut Registry, table: &[(&str, &str, &M)]) {
    for &(name, help, metric) in table {
        registry.register(format!("gannet:{name}"), help, metric.clone());
    }
}
