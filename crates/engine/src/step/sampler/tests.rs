use super::*;

fn sample(params: &SamplingParams, logits: &[f32], draws: usize) -> Vec<u32> {
    sample_after(params, logits, &[], 0, draws)
}

fn sample_after(
    params: &SamplingParams,
    logits: &[f32],
    tokens: &[u32],
    prompt: usize,
    draws: usize,
) -> Vec<u32> {
    let mut sampler = Sampler::new(params.clone());
    let mut scratch = SamplerScratch::new(logits.len());
    let history = History { tokens, fresh: &[], prompt, banned: &[], allowed: None, greedy: false };
    (0..draws).map(|_| sampler.sample(logits, history, &mut scratch, None).unwrap().0).collect()
}

/// Temperature 1 with a fixed seed.
fn drawn() -> SamplingParams {
    SamplingParams { temperature: 1.0, seed: Some(11), ..SamplingParams::default() }
}

fn distinct(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

const LOGITS: [f32; 6] = [0.0, 3.0, 1.0, 2.9, -5.0, 3.0];

#[test]
fn temperature_zero_takes_the_best_and_the_lowest_of_equals() {
    assert_eq!(sample(&SamplingParams::default(), &LOGITS, 2), [1, 1]);
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    assert_eq!(sample(&drawn(), &LOGITS, 50), sample(&drawn(), &LOGITS, 50));
    let other = SamplingParams { seed: Some(12), ..drawn() };
    assert_ne!(sample(&drawn(), &LOGITS, 50), sample(&other, &LOGITS, 50));
}

#[test]
fn draws_follow_the_softmax() {
    let logits = [0.0, 1.0, 2.0];
    let ids = sample(&drawn(), &logits, 20_000);
    let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    for (id, logit) in (0u32..).zip(logits) {
        let share = ids.iter().filter(|i| **i == id).count() as f64 / 20_000.0;
        assert!((share - f64::from(logit).exp() / total).abs() < 0.015, "{id}: {share}");
    }
}

#[test]
fn each_cut_off_keeps_what_it_says() {
    let check = |params: SamplingParams, want: &[u32]| {
        assert_eq!(distinct(sample(&params, &LOGITS, 3000)), want, "{params:?}");
    };
    check(SamplingParams { top_k: 2, ..drawn() }, &[1, 5]);
    check(SamplingParams { top_k: 1, ..drawn() }, &[1]);
    check(SamplingParams { top_p: 0.5, ..drawn() }, &[1, 5]);
    check(SamplingParams { top_p: 0.0, ..drawn() }, &[1]);
    check(SamplingParams { min_p: 0.8, ..drawn() }, &[1, 3, 5]);
    check(SamplingParams { min_p: 1.0, ..drawn() }, &[1, 5]);
    let biased = vec![(4, 1000.0)];
    check(SamplingParams { logit_bias: biased, ..drawn() }, &[4]);
}

#[test]
fn the_typical_set_drops_the_too_likely_when_the_rest_is_flat() {
    // Entropy is about 2.1: the flat tail (surprise 3) is nearer to it than the peak (0.7).
    let logits: Vec<f32> = (0..11).map(|i| if i == 0 { 2.3 } else { 0.0 }).collect();
    let params = SamplingParams { typical_p: 0.3, ..drawn() };
    assert!(!sample(&params, &logits, 500).contains(&0));
}

#[test]
fn a_long_tail_is_sorted_as_far_as_needed() {
    let logits: Vec<f32> = (0..5000).map(|i| ((i * 7919 % 5000) as f32) / 5000.0).collect();
    let params = SamplingParams { top_p: 0.5, ..drawn() };
    let least = sample(&params, &logits, 2000).into_iter().map(|id| logits[id as usize]);
    // Half the mass of a uniform density of exp(x) on 0..1 lies above x = 0.62.
    assert!(least.fold(1.0f32, f32::min) > 0.61);
}

#[test]
fn penalties_lower_what_was_seen_within_their_window() {
    let repeat = |window| SamplingParams {
        repeat_penalty: 2.0,
        penalty_window: window,
        ..SamplingParams::default()
    };
    assert_eq!(sample_after(&repeat(None), &LOGITS, &[1], 1, 1), [5]);
    assert_eq!(sample_after(&repeat(None), &LOGITS, &[1, 5, 3], 3, 1), [1]);
    assert_eq!(sample_after(&repeat(Some(1)), &LOGITS, &[1, 5], 2, 1), [1]);
    let presence = SamplingParams { presence_penalty: 0.2, ..SamplingParams::default() };
    assert_eq!(sample_after(&presence, &LOGITS, &[1], 1, 1), [1], "prompts are not counted");
    assert_eq!(sample_after(&presence, &LOGITS, &[1], 0, 1), [5]);
    let frequency = SamplingParams { frequency_penalty: 0.06, ..SamplingParams::default() };
    assert_eq!(sample_after(&frequency, &LOGITS, &[1, 1, 5, 5], 0, 1), [3]);
}

#[test]
fn banned_ids_are_not_chosen_and_nan_is_an_error() {
    let mut sampler = Sampler::new(SamplingParams::default());
    let mut scratch = SamplerScratch::new(6);
    let history = History {
        tokens: &[],
        fresh: &[],
        prompt: 0,
        banned: &[1, 5],
        allowed: None,
        greedy: false,
    };
    assert_eq!(sampler.sample(&LOGITS, history, &mut scratch, None).unwrap().0, 3);
    let broken = [0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0];
    assert!(matches!(sampler.sample(&broken, history, &mut scratch, None), Err(Error::NotFinite)));
}

#[test]
fn logprobs_are_the_log_softmax_best_first() {
    let got = logprobs(&LOGITS, 2, 3, &mut SamplerScratch::new(LOGITS.len())).unwrap();
    let total: f64 = LOGITS.iter().map(|l| f64::from(*l).exp()).sum();
    assert!((f64::from(got.logprob) - (1.0 - total.ln())).abs() < 1e-6);
    assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 5, 3]);
    assert!(
        logprobs(&LOGITS, 0, 0, &mut SamplerScratch::new(LOGITS.len())).unwrap().top.is_empty()
    );
}

#[test]
fn logprobs_are_those_of_the_unchanged_logits() {
    let mut scratch = SamplerScratch::new(LOGITS.len());
    let want = logprobs(&LOGITS, 2, 3, &mut scratch).unwrap();
    let mut sampler = Sampler::new(drawn());
    let history = History {
        tokens: &[],
        fresh: &[],
        prompt: 0,
        banned: &[1, 3, 5],
        allowed: None,
        greedy: false,
    };
    sampler.sample(&LOGITS, history, &mut scratch, None).unwrap();
    assert_eq!(logprobs(&LOGITS, 2, 3, &mut scratch).unwrap(), want);
}

#[test]
fn sampled_logprobs_are_the_shares_of_what_could_be_drawn() {
    let draw = |params: SamplingParams, top| {
        let history = History {
            tokens: &[],
            fresh: &[],
            prompt: 0,
            banned: &[5],
            allowed: None,
            greedy: false,
        };
        let mut scratch = SamplerScratch::new(LOGITS.len());
        let mut sampler = Sampler::new(params.clone());
        let drawn = sampler.sample(&LOGITS, history, &mut scratch, Some(top)).unwrap();
        let alone = Sampler::new(params).sample(&LOGITS, history, &mut scratch, None).unwrap();
        assert_eq!(drawn.0, alone.0, "the report changes no draw");
        (drawn.0, drawn.1.unwrap())
    };
    let cut = SamplingParams { top_k: 3, temperature: 0.5, ..drawn() };
    let (id, got) = draw(cut.clone(), 6);
    assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3, 2]);
    let weights = [3.0, 2.9, 1.0].map(|logit: f64| (logit / 0.5).exp());
    for ((_, logprob), weight) in got.top.iter().zip(weights) {
        let share = weight / weights.iter().sum::<f64>();
        assert!((f64::from(*logprob).exp() - share).abs() < 1e-6, "{got:?}");
    }
    assert!(got.top.contains(&(id, got.logprob)));
    assert_eq!(draw(cut, 2).1.top, got.top[..2], "fewer alternatives change no number");
    let certain = TokenLogprobs { logprob: 0.0, top: vec![(1, 0.0)] };
    assert_eq!(draw(SamplingParams::default(), 4), (1, certain));
}

#[test]
fn banning_every_token_is_an_error_and_not_token_0() {
    for temperature in [0.0, 1.0] {
        let banned = LOGITS.iter().zip(0..).map(|(_, id)| (id, f32::NEG_INFINITY)).collect();
        let params = SamplingParams { logit_bias: banned, temperature, ..drawn() };
        assert_eq!(params.check(LOGITS.len()), Ok(()));
        let history = History {
            tokens: &[],
            fresh: &[],
            prompt: 0,
            banned: &[],
            allowed: None,
            greedy: false,
        };
        let choice = Sampler::new(params).sample(
            &LOGITS,
            history,
            &mut SamplerScratch::new(LOGITS.len()),
            None,
        );
        assert!(matches!(choice, Err(Error::NothingLeft)), "{choice:?}");
    }
}

#[test]
fn a_bias_that_would_swallow_the_others_is_refused() {
    for bias in [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN] {
        let params = SamplingParams { logit_bias: vec![(1, bias)], ..drawn() };
        assert!(params.check(LOGITS.len()).unwrap_err().1.contains("logit_bias"), "{bias}");
    }
}
