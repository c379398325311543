//! Reading experts at the start that earlier runs have used often.
//!
//! Invariant: nothing waits for these reads but what needs their experts or their slots.

use crate::cpu::stream::state::{Place, SlotClass, WeightStream};
use crate::heat::Heat;
use crate::routes::ExpertBytes;
use base::Urgency;

impl WeightStream {
    /// Bytes of an expert.
    pub fn expert_bytes(&self, expert: usize) -> ExpertBytes {
        let entry = &self.entries[expert].entry;
        ExpertBytes { slot: entry.space(), read: entry.file_bytes() }
    }

    /// Makes experts as hot as if each had been chosen in its share of all steps, and starts to
    /// read the hottest into the slots that are empty, in the order in which files hold them.
    pub fn preload(&mut self, shares: &[(usize, f32)]) {
        let mut hottest: Vec<usize> = Vec::new();
        for &(expert, share) in shares.iter().filter(|(_, share)| *share > 0.0) {
            self.entries[expert].heat = Heat::steady(share.into(), self.step);
            if self.entries[expert].place == Place::OnDisk {
                hottest.push(expert);
            }
        }
        let heat = |expert: &usize| Some(self.entries[*expert].heat);
        hottest.sort_by(|a, b| Heat::order(heat(b), heat(a)).then(a.cmp(b)));
        let is_empty = |slot: &usize| self.slots[*slot].expert.is_none();
        let empty = |class: &SlotClass| class.slots.clone().filter(is_empty).collect();
        let mut empty: Vec<Vec<usize>> = self.classes.iter().map(empty).collect();
        let with_slot = |expert: usize| Some((expert, empty[self.entries[expert].class].pop()?));
        let mut chosen: Vec<_> = hottest.into_iter().filter_map(with_slot).collect();
        let place = |expert: usize| self.entries[expert].entry.place();
        chosen.sort_by(|a, b| place(a.0).cmp(&place(b.0)));
        for (expert, slot) in chosen {
            self.read(expert, slot, Urgency::Ahead);
            self.stats.preloaded += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_bytes, place, request, scripted, started};
    use super::*;

    fn wait_for_all(stream: &mut WeightStream) {
        while stream.entries.iter().any(|expert| matches!(expert.place, Place::Reading(_))) {
            stream.wait();
        }
    }

    /// Needs an expert once.
    fn need(stream: &mut WeightStream, expert: usize) {
        stream.begin_step(true, 1);
        stream.heat(expert, 1);
        request(stream, &[expert]);
        while !stream.is_in(expert) && !stream.has_failed(expert) {
            stream.wait();
        }
        stream.release(expert);
    }

    #[test]
    fn the_hottest_are_read_ahead_into_empty_slots_and_stay() {
        let mut stream = started(&scripted(6), 12, 4);
        need(&mut stream, 11);
        let shares: Vec<(usize, f32)> = (0..12).map(|it| (it, [0.3, 0.0, 0.1][it % 3])).collect();
        stream.preload(&shares);
        wait_for_all(&mut stream);
        // Expert 11 has a slot already; the first three of those with the largest share get one.
        let held: Vec<_> = (0..12).filter(|expert| stream.is_in(*expert)).collect();
        assert_eq!(held, [0, 3, 6, 11]);
        held.iter().for_each(|expert| check_bytes(&stream, *expert));
        assert_eq!(stream.stats().unwrap().preloaded, 3);
        // One use is less than what is known of the others.
        for expert in [1, 4, 7] {
            need(&mut stream, expert);
        }
        assert!([0, 3, 6].into_iter().all(|expert| stream.is_in(expert)));
        let stats = stream.stats().unwrap();
        assert_eq!(stats.reads.counts.iter().sum::<u64>(), stats.misses + stats.preloaded);
    }

    #[test]
    fn an_expert_that_is_needed_does_not_wait_for_those_that_are_read_ahead() {
        for seed in 0..6 {
            let mut stream = started(&scripted(seed), 12, 6);
            stream.preload(&(0..6).map(|expert| (expert, 0.5)).collect::<Vec<_>>());
            for expert in [9, 5] {
                need(&mut stream, expert);
                check_bytes(&stream, expert);
            }
            wait_for_all(&mut stream);
            assert!(stream.slots.iter().all(|slot| !slot.memory.is_empty() && !slot.pinned));
        }
    }

    #[test]
    fn an_expert_that_cannot_be_read_ahead_is_an_error_only_once_it_is_needed() {
        let file = scripted(7);
        let mut stream = started(&file, 6, 4);
        file.broken.lock().unwrap().insert(place(2, 0).start);
        stream.preload(&[(1, 0.5), (2, 0.5)]);
        wait_for_all(&mut stream);
        assert!(stream.is_in(1) && !stream.is_in(2));
        assert!(stream.take_failure().is_none());
        need(&mut stream, 2);
        assert!(stream.take_failure().is_some());
    }
}
