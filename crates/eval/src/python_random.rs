//! Random choices as Python's `random` makes them, so that few-shot examples are the ones that
//! lm-evaluation-harness draws.

const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// Python's `random.Random`: the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), seeded
/// with an integer.
#[derive(Clone, Debug)]
pub struct PythonRandom {
    state: [u32; WORDS],
    /// Words of the state that are used up.
    used: usize,
}

impl PythonRandom {
    /// The generator of `random.Random(seed)`.
    pub fn new(seed: u64) -> Self {
        let words = [seed as u32, (seed >> 32) as u32];
        let key = if words[1] == 0 { &words[..1] } else { &words[..] };
        Self { state: seeded(key), used: WORDS }
    }

    /// The next `bits` random bits, 1 to 64 of them, as `getrandbits` gives them.
    pub fn bits(&mut self, bits: u32) -> u64 {
        assert!((1..=64).contains(&bits), "{bits} bits");
        let low = u64::from(self.next_u32() >> 32_u32.saturating_sub(bits));
        match bits.checked_sub(32) {
            None | Some(0) => low,
            Some(more) => low | u64::from(self.next_u32() >> (32 - more)) << 32,
        }
    }

    /// A number below `below`, which is not 0, as `randrange` draws it.
    pub fn below(&mut self, below: u64) -> u64 {
        assert!(below > 0, "below(0)");
        let bits = u64::BITS - below.leading_zeros();
        loop {
            let drawn = self.bits(bits);
            if drawn < below {
                return drawn;
            }
        }
    }

    /// The places of `count` of `of` things, as `sample` chooses them.
    ///
    /// # Panics
    /// If `count` is above `of`.
    pub fn sample(&mut self, of: usize, count: usize) -> Vec<usize> {
        assert!(count <= of, "{count} of {of}");
        if of <= pool_limit(count) {
            self.drawn_from_pool(of, count)
        } else {
            self.drawn_from_all(of, count)
        }
    }

    /// Draws from the things that are left.
    fn drawn_from_pool(&mut self, of: usize, count: usize) -> Vec<usize> {
        let mut pool: Vec<usize> = (0..of).collect();
        let draw = |at| pool.swap_remove(self.below((of - at) as u64) as usize);
        (0..count).map(draw).collect()
    }

    /// Draws from all things, again where one is drawn twice.
    fn drawn_from_all(&mut self, of: usize, count: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::with_capacity(count);
        let mut is_chosen = vec![false; of];
        while chosen.len() < count {
            let drawn = self.below(of as u64) as usize;
            if !std::mem::replace(&mut is_chosen[drawn], true) {
                chosen.push(drawn);
            }
        }
        chosen
    }

    fn next_u32(&mut self) -> u32 {
        if self.used == WORDS {
            self.renew();
            self.used = 0;
        }
        let mut word = self.state[self.used];
        self.used += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn renew(&mut self) {
        for at in 0..WORDS {
            let next = self.state[(at + 1) % WORDS];
            let joined = self.state[at] & 0x8000_0000 | next & 0x7fff_ffff;
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + MIDDLE) % WORDS] ^ joined >> 1 ^ odd;
        }
    }
}

/// The things of which `sample` keeps a list, if it draws so many of them.
fn pool_limit(count: usize) -> usize {
    let mut table: usize = 1;
    while count > 5 && table < 3 * count {
        table *= 4;
    }
    21 + if count > 5 { table } else { 0 }
}

/// The state after `init_by_array`.
fn seeded(key: &[u32]) -> [u32; WORDS] {
    let mut state = [0; WORDS];
    state[0] = 19_650_218;
    for at in 1..WORDS {
        state[at] = mixed(state[at - 1], 1_812_433_253).wrapping_add(at as u32);
    }
    let mut at = 1;
    let step = |at: &mut usize, state: &mut [u32; WORDS]| {
        *at += 1;
        if *at == WORDS {
            state[0] = state[WORDS - 1];
            *at = 1;
        }
    };
    for (place, word) in (0..key.len()).cycle().map(|it| (it, key[it])).take(WORDS.max(key.len())) {
        state[at] = (state[at] ^ mixed(state[at - 1], 1_664_525))
            .wrapping_add(word)
            .wrapping_add(place as u32);
        step(&mut at, &mut state);
    }
    for _ in 1..WORDS {
        state[at] = (state[at] ^ mixed(state[at - 1], 1_566_083_941)).wrapping_sub(at as u32);
        step(&mut at, &mut state);
    }
    state[0] = 0x8000_0000;
    state
}

fn mixed(word: u32, factor: u32) -> u32 {
    (word ^ word >> 30).wrapping_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python 3.11 gives.
    #[test]
    fn numbers_are_those_of_python() {
        let widths = [32, 32, 32, 1, 7, 33, 64];
        check(
            0,
            widths,
            [3626764237, 1654615998, 3255389356, 1, 53, 173879092, 9431353882395063546],
        );
        check(
            1234,
            widths,
            [4150886329, 3342196574, 1892932127, 0, 0, 4684278597, 17326454776888161602],
        );
        check(
            1099511627781,
            widths,
            [2166296868, 2220160828, 1153647273, 1, 118, 4412769416, 15088778494213698714],
        );
    }

    fn check(seed: u64, widths: [u32; 7], expected: [u64; 7]) {
        let mut random = PythonRandom::new(seed);
        assert_eq!(widths.map(|bits| random.bits(bits)), expected, "{seed}");
    }

    /// `random.Random(1234).sample(range(of), count)`, twice.
    #[test]
    fn samples_are_those_of_python() {
        check_sample(5, &[0, 4, 1, 3, 2]);
        check_sample(21, &[18, 1, 2, 3]);
        check_sample(22, &[18, 1, 21, 2]);
        check_sample(85, &[10, 12, 45, 30, 2, 3]);
        check_sample(86, &[85, 10, 12, 45, 30, 2]);
        check_sample(1000, &[92, 932, 965, 961, 826]);
        check_sample(
            1000,
            &[
                638, 495, 630, 474, 152, 93, 187, 730, 117, 865, 14, 515, 498, 901, 988, 255, 66,
                683, 554, 934, 477, 70, 615, 691, 91,
            ],
        );
        check_sample(
            277,
            &[
                238, 35, 45, 263, 23, 138, 32, 154, 246, 181, 136, 127, 102, 232, 9, 260, 36, 2,
                170, 73, 242, 193, 42, 13, 19,
            ],
        );
        check_sample(
            278,
            &[
                45, 263, 23, 138, 32, 154, 246, 181, 136, 127, 102, 232, 271, 9, 260, 36, 2, 170,
                73, 242, 193, 85, 27, 39, 254,
            ],
        );
    }

    fn check_sample(of: usize, expected: &[usize]) {
        let mut random = PythonRandom::new(1234);
        random.sample(of, expected.len());
        assert_eq!(random.sample(of, expected.len()), expected, "{of}");
    }
}
