use super::*;
use base::Rng;

/// A cut-off with its number.
#[derive(Clone, Copy, Debug)]
enum Cut {
    TopK(usize),
    TopP(f32),
    MinP(f32),
}

impl Cut {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(3) {
            0 => Self::TopK([1, 3, 50, 700, 4000][rng.below(5) as usize]),
            1 => Self::TopP(rng.uniform() as f32),
            _ => Self::MinP((rng.uniform() * rng.uniform()) as f32),
        }
    }

    fn apply(self, candidates: &mut Candidates<'_>) {
        match self {
            Self::TopK(k) => candidates.top_k(k),
            Self::TopP(p) => candidates.top_p(p),
            Self::MinP(p) => candidates.min_p(p),
        }
    }

    /// The definition, on a sorted list. False if what it keeps hangs on the last digits.
    fn apply_naively(self, items: &mut Vec<Candidate>) -> bool {
        let mut clear = true;
        let kept = match self {
            Self::TopK(k) => k,
            Self::TopP(p) => {
                let target = items.iter().map(exp).sum::<f64>() * f64::from(p);
                let mut mass = 0.0;
                let below = items.iter().take_while(|item| {
                    mass += exp(item);
                    clear &= (mass - target).abs() > 1e-5 * target;
                    mass < target
                });
                below.count() + 1
            }
            Self::MinP(p) => items.iter().filter(|i| i.0 >= items[0].0 + p.ln()).count(),
        };
        items.truncate(kept);
        clear
    }
}

fn exp(item: &Candidate) -> f64 {
    f64::from(item.0).exp()
}

/// Rows of several lengths and shapes: peaked to flat, some with ties, some with banned ids.
fn row(rng: &mut Rng) -> Vec<f32> {
    let len = [1, 6, 300, RUN, RUN + 1, 3 * RUN + 17, 20 * RUN][rng.below(7) as usize];
    let spread = [0.01, 0.5, 2.0, 6.0][rng.below(4) as usize];
    let (ties, banned) = (rng.below(2) == 0, rng.below(3) as f64 * 0.2);
    let logit = |rng: &mut Rng| match rng.normal() * spread {
        _ if rng.uniform() < banned => f32::NEG_INFINITY,
        // Rounding makes zeros of both signs.
        logit if ties => (logit * 2.0).round() / 2.0,
        logit => logit,
    };
    let mut row: Vec<f32> = (0..len).map(|_| logit(rng)).collect();
    row[rng.below(len as u64) as usize] = spread;
    row
}

fn sorted(logits: &[f32]) -> Vec<Candidate> {
    let possible = logits.iter().zip(0..).filter(|(logit, _)| **logit > f32::NEG_INFINITY);
    let mut items: Vec<Candidate> = possible.map(|(logit, id)| (logit + 0.0, id)).collect();
    items.sort_by(better);
    items
}

fn members(candidates: &Candidates<'_>) -> Vec<Candidate> {
    if candidates.listed {
        return candidates.workspace.items.clone();
    }
    let mut items = sorted(candidates.logits);
    items.retain(|item| better(item, &candidates.last).is_le());
    items
}

fn workspace(isa: Isa, logits: &[f32]) -> CandidateScratch {
    let mut workspace = CandidateScratch::new(isa, logits.len());
    workspace.survey.look(logits);
    workspace
}

fn best_isa() -> Isa {
    Isa::detect().unwrap()
}

/// Runs `check` on candidates of random rows after random cut-offs, with what must be left.
fn on_random_rows(rows: u64, mut check: impl FnMut(&mut Candidates<'_>, &[Candidate])) {
    for seed in 0..rows {
        let mut rng = Rng::new(seed);
        let logits = row(&mut rng);
        let mut workspace = workspace(best_isa(), &logits);
        let (mut candidates, mut want) =
            (Candidates::new(&logits, &mut workspace), sorted(&logits));
        check(&mut candidates, &want);
        for _ in 0..3 {
            let cut = Cut::random(&mut rng);
            if !cut.apply_naively(&mut want) {
                break;
            }
            cut.apply(&mut candidates);
            check(&mut candidates, &want);
        }
    }
}

#[test]
fn cut_offs_in_any_order_keep_what_their_definitions_keep() {
    let (mut listed, mut unlisted) = (0, 0);
    on_random_rows(400, |candidates, want| {
        assert_eq!(members(candidates), want);
        let counter = if candidates.listed { &mut listed } else { &mut unlisted };
        *counter += 1;
    });
    assert!(listed > 200 && unlisted > 200, "{listed} lists, {unlisted} others");
}

#[test]
fn the_best_has_the_lowest_id_of_equals() {
    on_random_rows(100, |candidates, want| {
        let best = candidates.workspace.survey.argmax(candidates.logits);
        assert_eq!((candidates.workspace.survey.best, best), want[0]);
    });
}

/// With draws spread evenly over [0, 1), each id is drawn as often as its share predicts, up to one
/// draw: sharper than a chi-square test of random draws.
fn check_draws(candidates: &mut Candidates<'_>, want: &[Candidate], temperature: f32) {
    const DRAWS: usize = 500;
    let weight = |item: &Candidate| (f64::from(item.0 - want[0].0) / f64::from(temperature)).exp();
    let total: f64 = want.iter().map(weight).sum();
    let mut ids: Vec<u32> =
        (0..DRAWS).map(|i| candidates.draw(temperature, (i as f64 + 0.5) / DRAWS as f64)).collect();
    ids.sort_unstable();
    let mut drawn = 0;
    for item in want {
        let first = ids.partition_point(|id| *id < item.1);
        let count = ids[first..].partition_point(|id| *id == item.1);
        let share = weight(item) / total * DRAWS as f64;
        assert!((count as f64 - share).abs() < 1.02, "{item:?}: {count} for {share}");
        drawn += count;
    }
    assert_eq!(drawn, DRAWS, "no other ids");
}

#[test]
fn draws_follow_the_softmax_of_what_is_left() {
    let mut temperatures = [1.0, 0.6, 1.7, 1e-40].into_iter().cycle();
    on_random_rows(60, |candidates, want| {
        check_draws(candidates, want, temperatures.next().unwrap());
    });
}

#[test]
fn a_prefix_that_ends_among_equals_is_drawn_to_its_last_id() {
    let logits = vec![0.5; 3 * RUN];
    let mut workspace = workspace(best_isa(), &logits);
    let mut candidates = Candidates::new(&logits, &mut workspace);
    candidates.top_p(0.5);
    assert!(!candidates.listed);
    let want: Vec<_> = (0..3 * RUN as u32 / 2).map(|id| (0.5, id)).collect();
    assert_eq!(members(&candidates), want);
    check_draws(&mut candidates, &want, 1.0);
}

#[test]
fn the_typical_set_is_drawn_by_its_own_best() {
    // Three of mass 0.02 each and a likely one: the typical set of a small mass leaves that out.
    let mut logits = vec![0.0; 50];
    logits[7] = 2.3;
    let mut workspace = workspace(best_isa(), &logits);
    let mut candidates = Candidates::new(&logits, &mut workspace);
    candidates.typical(0.05);
    let want = members(&candidates);
    assert!(want.iter().all(|item| item.0 == 0.0) && want.len() > 1);
    check_draws(&mut candidates, &want, 1e-4);
}

/// The typical set of mass `p` by its definition: all candidates sorted by their distance.
fn typical_by_sorting(items: &[Candidate], p: f32) -> Vec<Candidate> {
    let best = items[0].0;
    let total: f64 = items.iter().map(|item| f64::from(item.0 - best).exp()).sum();
    let log_prob = |item: &Candidate| f64::from(item.0 - best) - total.ln();
    let entropy: f64 = items.iter().map(|i| -log_prob(i) * log_prob(i).exp()).sum();
    let distance = |item: &Candidate| (-log_prob(item) - entropy).abs() as f32;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|a, b| distance(&items[*a]).total_cmp(&distance(&items[*b])));
    let mut mass = 0.0;
    let below = order.iter().take_while(|at| {
        mass += log_prob(&items[**at]).exp();
        mass < f64::from(p)
    });
    let kept = below.count() + 1;
    order.truncate(kept);
    order.sort_unstable();
    order.into_iter().map(|at| items[at]).collect()
}

#[test]
fn selecting_the_typical_set_keeps_what_sorting_keeps() {
    let bits = |items: &[Candidate]| -> Vec<_> {
        items.iter().map(|(logit, id)| (logit.to_bits(), *id)).collect()
    };
    let (mut small, mut large) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let logits = row(&mut rng);
        let mut workspace = workspace(best_isa(), &logits);
        let mut candidates = Candidates::new(&logits, &mut workspace);
        if rng.below(3) == 0 {
            Cut::random(&mut rng).apply(&mut candidates);
        }
        let p = (rng.uniform() as f32).min(0.999);
        let want = typical_by_sorting(&members(&candidates), p);
        candidates.typical(p);
        assert!(candidates.listed);
        assert_eq!(bits(&members(&candidates)), bits(&want), "seed {seed}, mass {p}");
        *(if want.len() > MAX_LISTED { &mut large } else { &mut small }) += 1;
    }
    assert!(small > 50 && large > 50, "{small} small sets, {large} large ones");
}

#[test]
fn every_isa_draws_the_same() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let logits = row(&mut rng);
        let (cuts, uniform) = ([(); 2].map(|()| Cut::random(&mut rng)), rng.uniform());
        let draw = |isa| {
            let mut workspace = workspace(isa, &logits);
            let mut candidates = Candidates::new(&logits, &mut workspace);
            let first = candidates.draw(0.9, uniform);
            cuts.iter().for_each(|cut| cut.apply(&mut candidates));
            (first, candidates.draw(0.9, uniform))
        };
        for isa in Isa::available() {
            assert_eq!(draw(isa), draw(Isa::SCALAR), "{isa:?}, seed {seed}");
        }
    }
}

#[test]
fn rounding_never_finds_a_weight_of_nothing() {
    assert_eq!(find([0.0, 1.0, 0.0, 2.0, 0.0].into_iter(), 0.0), (1, 0.0));
    assert_eq!(find([0.0, 1.0, 0.0, 2.0, 0.0].into_iter(), 1.0), (3, 1.0));
    assert_eq!(find([0.0, 1.0, 0.0, 2.0, 0.0].into_iter(), 3.0), (3, 1.0));
    assert_eq!(find([0.5, 0.5].into_iter(), reaching(0.5)), (0, 0.0));
    assert_eq!(find([0.5, 0.5].into_iter(), reaching(0.0)), (0, 0.0));
}
