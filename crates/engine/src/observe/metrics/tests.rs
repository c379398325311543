//! Laws of the counts.

use super::*;
use prometheus_client::encoding::text::encode;
use std::time::Instant;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// One request of 10 prompt tokens, 4 of them cached, that gave 5 tokens in 4 steps.
fn one_request(metrics: &Metrics) {
    let lookup = Lookup { queried: 10, found: 4, without_rows: 1, without_state: 2 };
    metrics.admitted(secs(0.5), lookup);
    metrics.load(1, 2);
    metrics.blocks(0, 3, 1, 4);
    metrics.step(Step { rows: 6, sequences: 1, took: secs(0.25) });
    metrics.prompt_computed(secs(0.25), 6);
    metrics.first_token(secs(0.75));
    for _ in 0..2 {
        metrics.step(Step { rows: 1, sequences: 1, took: secs(0.1) });
        metrics.tokens(1, secs(0.1));
    }
    metrics.step(Step { rows: 4, sequences: 1, took: secs(0.1) });
    metrics.drafted(Drafter::Suffix, 3, 1);
    metrics.draft_cost(Drafter::Model, 0.125);
    metrics.tokens(2, secs(0.1));
    let ended =
        RequestTotals { prompt_tokens: 10, generated: 5, total: secs(1.05), decode: secs(0.3) };
    metrics.finished(&Outcome::Length, ended);
}

#[test]
fn reports_add_up() {
    let metrics = Metrics::default();
    one_request(&metrics);
    metrics.preempted(2);
    metrics.evicted(3);
    metrics.rejected();
    let stats = metrics.snapshot();
    assert_eq!((stats.prompt_tokens, stats.generation_tokens), (10, 5));
    assert_eq!((stats.cache_queries, stats.cache_hits), (10, 4));
    assert_eq!((stats.running, stats.waiting), (1, 2));
    let blocks = BlockStats { window: None, used: 3, cached: 1, free: 4 };
    assert_eq!((stats.blocks[0], stats.blocks.len()), (blocks, 1));
    let causes: Vec<_> = stats.by_cause().collect();
    assert_eq!(causes, [("found", 4), ("no_rows", 1), ("no_state", 2), ("unknown", 3)]);
    assert_eq!((stats.drafted(), stats.accepted(), stats.steps), (3, 1, 4));
    let costs: Vec<_> = stats.drafts.iter().filter_map(|it| Some((it.drafter, it.cost?))).collect();
    assert_eq!(costs, [(Drafter::Model, 0.125)]);
    assert_eq!((stats.preemptions, stats.evictions, stats.rejected), (2, 3, 1));
    assert_eq!(stats.finished, [0, 1, 0, 0, 0]);
    assert_eq!(stats.rows_per_step, 3.0);
    assert_eq!((stats.first_token.count, stats.first_token.mean), (1, 0.75));
    // Two tokens that came together share their gap.
    assert_eq!(stats.between_tokens.count, 4);
    assert!((stats.between_tokens.mean - 0.075).abs() < 1e-9, "{:?}", stats.between_tokens);
    assert!((0.05..=0.1).contains(&stats.between_tokens.p50), "{:?}", stats.between_tokens);
}

#[test]
fn the_computed_part_of_a_prompt_counts_where_its_request_ends_before() {
    let metrics = Metrics::default();
    metrics.admitted(secs(0.5), Lookup { queried: 10, found: 4, ..Lookup::default() });
    metrics.prompt_cut(3);
    assert_eq!(metrics.snapshot().prompt_tokens, 7);
}

#[test]
fn groups_and_states_are_counted_apart() {
    let metrics = Metrics::default();
    metrics.groups(&[None, Some(128)]);
    metrics.blocks(0, 1, 1, 6);
    metrics.blocks(1, 3, 0, 1);
    // A group that there is not.
    metrics.blocks(2, 9, 9, 9);
    metrics.states(2, 5, 1);
    metrics.states_evicted(4);
    let stats = metrics.snapshot();
    let windows: Vec<_> = stats.blocks.iter().map(|it| (it.window, it.used, it.total())).collect();
    assert_eq!(windows, [(None, 1, 8), (Some(128), 3, 4)]);
    assert_eq!(stats.states, StateStats { live: 2, kept: 5, free: 1, evicted: 4 });
    let text = encoded(&metrics);
    for line in [
        "gannet:kv_blocks_used{group=\"all\"} 1",
        "gannet:kv_blocks{group=\"128\"} 4",
        // That of the fullest group.
        "gannet:kv_cache_usage_perc 0.75",
        "gannet:state_slots_live 2",
        "gannet:state_slots_kept 5",
        "gannet:state_slots_free 1",
        "gannet:state_snapshots_evicted_total 4",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
    }
}

fn encoded(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[test]
fn text_has_the_numbers_under_their_names() {
    let metrics = Metrics::default();
    one_request(&metrics);
    let text = encoded(&metrics);
    for line in [
        "# TYPE gannet:prompt_tokens counter",
        "gannet:prompt_tokens_total 10",
        "gannet:generation_tokens_total 5",
        "gannet:request_success_total{finished_reason=\"length\"} 1",
        "gannet:request_success_total{finished_reason=\"timeout\"} 0",
        "gannet:num_requests_waiting 2",
        "gannet:kv_cache_usage_perc 0.375",
        "gannet:kv_blocks_used{group=\"all\"} 3",
        "gannet:prefix_cache_tokens_total{cause=\"no_state\"} 2",
        "# TYPE gannet:time_to_first_token_seconds histogram",
        "gannet:time_to_first_token_seconds_count 1",
        "gannet:time_to_first_token_seconds_bucket{le=\"0.5\"} 0",
        "gannet:time_to_first_token_seconds_bucket{le=\"0.75\"} 1",
        "gannet:time_to_first_token_seconds_bucket{le=\"+Inf\"} 1",
        "gannet:iteration_tokens_sum 12.0",
        "gannet:request_prefill_tokens_per_second_sum 24.0",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn the_first_of_several_ranks_counts_what_it_sends_and_waits_for() {
    let metrics = Metrics::default();
    for _ in 0..200 {
        metrics.ranks(RankStep { took: secs(0.4), waited: secs(0.1), bytes: 10 });
    }
    // A call that began before the step: no more than all of it.
    metrics.ranks(RankStep { took: secs(0.5), waited: secs(2.0), bytes: 0 });
    let text = encoded(&metrics);
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
    };
    assert_eq!(value("gannet:rank_bytes_total"), 2000.0);
    assert!((value("gannet:rank_wait_seconds_total") - 20.5).abs() < 1e-9);
    assert_eq!(value("gannet:rank_step_seconds_count"), 201.0);
    assert!((value("gannet:rank_step_seconds_sum") - 60.0).abs() < 1e-9);
    // The last of sixteen steps or so counts most.
    let idle = value("gannet:pipeline_idle_ratio");
    assert!((0.28..0.31).contains(&idle), "{idle}");
}

#[test]
fn reads_of_experts_are_a_histogram() {
    let metrics = Metrics::default();
    assert!(encoded(&metrics).contains("\ngannet:weights_read_seconds_count 0\n"));
    let mut stats = StreamStats { preloaded: 3, ahead: 5, ahead_used: 4, ..StreamStats::default() };
    for seconds in [0.001, 0.002, 0.002, 7.0] {
        stats.reads.add(secs(seconds));
    }
    metrics.weights(stats);
    let text = encoded(&metrics);
    for line in [
        "gannet:weights_preloaded_total 3",
        "gannet:weights_foreseen_total 5",
        "gannet:weights_foreseen_used_total 4",
        "gannet:weights_read_seconds_sum 7.005",
        "gannet:weights_read_seconds_count 4",
        "gannet:weights_read_seconds_bucket{le=\"0.001\"} 1",
        "gannet:weights_read_seconds_bucket{le=\"0.0025\"} 3",
        "gannet:weights_read_seconds_bucket{le=\"5.0\"} 3",
        "gannet:weights_read_seconds_bucket{le=\"+Inf\"} 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let reads = metrics.snapshot().weights_reads;
    assert_eq!(reads.count, 4);
    assert!((reads.mean - 7.005 / 4.0).abs() < 1e-9 && (0.0015..=0.0025).contains(&reads.p50));
}

#[test]
fn without_work_nothing_stalls() {
    let mut metrics = Metrics::default();
    assert_eq!(metrics.stalled_for(), None);
    pass(&mut metrics, secs(20.0));
    check_stalled(&metrics, |metrics| metrics.working(true));
    metrics.working(false);
    assert_eq!(metrics.stalled_for(), None);
}

#[test]
fn work_stalls_until_something_goes_on() {
    let mut metrics = Metrics::default();
    metrics.working(true);
    pass(&mut metrics, secs(20.0));
    metrics.working(true);
    assert!(metrics.stalled_for().expect("there is work") >= secs(20.0));
    check_stalled(&metrics, |metrics| metrics.step(Step::default()));
}

/// Moves the clock of the progress forward by `time`.
fn pass(metrics: &mut Metrics, time: Duration) {
    let counters = Arc::get_mut(&mut metrics.0).expect("no clone exists");
    counters.progress.zero -= time;
}

/// What stalls has done so since `act` at most.
fn check_stalled(metrics: &Metrics, act: impl FnOnce(&Metrics)) {
    let before = Instant::now();
    act(metrics);
    let stalled = metrics.stalled_for().expect("there is work");
    assert!(stalled <= before.elapsed() + secs(0.001), "{stalled:?}");
}

#[test]
fn clones_share_their_counts() {
    let metrics = Metrics::default();
    metrics.clone().rejected();
    assert_eq!(metrics.snapshot().rejected, 1);
}
