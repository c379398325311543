//! What the user has written, as the thread of the agent takes it from the thread of the terminal.
//!
//! Invariant: no message is lost between two turns, and whoever waits is woken when the terminal is
//! gone. The screen lets a bounded number of messages wait.

use super::screen::Effect;
use super::typed::{Chosen, Typed};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time between two looks at a question that has no end.
const LOOK: Duration = Duration::from_secs(60);

/// Shared by the two threads.
#[derive(Debug, Default)]
pub(super) struct InputQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Ctrl-C since the work began.
    interrupts: usize,
    is_working: bool,
    /// Whether the user has ended the program.
    has_ended: bool,
    /// Whether there is no terminal any more.
    is_gone: bool,
    /// Whether the thread of the terminal has panicked.
    has_failed: bool,
    steering: VecDeque<String>,
    queued: VecDeque<Typed>,
    /// The question, and its answer once there is one.
    question: Option<Option<Chosen>>,
}

impl QueueState {
    fn is_over(&self) -> bool {
        self.has_ended || self.is_gone
    }
}

impl InputQueue {
    /// Follows an effect of a key.
    pub fn push(&self, effect: Effect) {
        let mut state = self.lock();
        match effect {
            Effect::Steer(text) => state.steering.push_back(text),
            // One end is enough.
            Effect::Queue(Typed::End) if state.queued.contains(&Typed::End) => {}
            Effect::Queue(typed) => state.queued.push_back(typed),
            Effect::Answer(chosen) => state.answer(chosen),
            Effect::Interrupt => {
                state.interrupts += 1;
                state.has_ended |= state.interrupts > 1;
                state.answer(Chosen::Nothing);
            }
            Effect::Suspend | Effect::Redraw => {}
        }
        self.changed.notify_all();
    }

    /// Ends the work and the program.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Says that the terminal is gone, by a fault of its thread where that panics.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        state.has_failed = std::thread::panicking();
        self.changed.notify_all();
    }

    /// Whether the terminal is gone by a fault of its thread.
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Waits until the terminal is gone, but not for long.
    pub fn wait_for_close(&self, most: Duration) {
        let end = Instant::now() + most;
        let mut state = self.lock();
        while !state.is_gone {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Says whether there is work to interrupt.
    pub fn set_working(&self, is_working: bool) {
        let mut state = self.lock();
        if is_working && !state.has_ended {
            state.interrupts = 0;
        }
        state.is_working = is_working;
    }

    /// Whether the work is to stop.
    pub fn is_interrupted(&self) -> bool {
        let state = self.lock();
        state.interrupts > 0 || state.is_over()
    }

    /// The messages that come before the next answer.
    pub fn steering(&self) -> Vec<String> {
        self.lock().steering.drain(..).collect()
    }

    /// Opens a question; whether it may be asked.
    pub fn open_question(&self) -> bool {
        let mut state = self.lock();
        let is_stopping = state.is_working && state.interrupts > 0;
        let is_open = !is_stopping && !state.is_over();
        state.question = is_open.then_some(None);
        is_open
    }

    /// Waits for the answer, or until `end`.
    pub fn wait_for_answer(&self, end: Option<Instant>) -> Chosen {
        let mut state = self.lock();
        loop {
            if let Some(Some(chosen)) = state.question.take_if(|it| it.is_some()) {
                return chosen;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if state.is_over() || left.is_some_and(|left| left.is_zero()) {
                state.question = None;
                return Chosen::Nothing;
            }
            let waited = self.changed.wait_timeout(state, left.unwrap_or(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for what is typed next.
    pub fn next(&self) -> Typed {
        let mut state = self.lock();
        loop {
            if state.is_over() {
                return Typed::End;
            }
            let steering = state.steering.pop_front().map(Typed::Message);
            if let Some(typed) = steering.or_else(|| state.queued.pop_front()) {
                state.has_ended |= typed == Typed::End;
                return typed;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Each change is whole before something can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Answers the question, if there is one.
    fn answer(&mut self, chosen: Chosen) {
        if let Some(answer) = &mut self.question {
            *answer = Some(chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn message(text: &str) -> Typed {
        Typed::Message(text.to_owned())
    }

    #[test]
    fn steering_comes_before_the_queue_and_is_never_lost() {
        let queue = InputQueue::default();
        queue.set_working(true);
        queue.push(Effect::Queue(message("later")));
        queue.push(Effect::Steer("now".into()));
        assert_eq!(queue.steering(), ["now"]);
        queue.push(Effect::Steer("too late for the turn".into()));
        queue.set_working(false);
        assert_eq!(queue.next(), message("too late for the turn"));
        assert_eq!(queue.next(), message("later"));
    }

    #[test]
    fn the_first_interrupt_ends_the_work_and_the_second_the_program() {
        let queue = InputQueue::default();
        queue.set_working(true);
        assert!(!queue.is_interrupted());
        queue.push(Effect::Interrupt);
        assert!(queue.is_interrupted());
        queue.set_working(true);
        assert!(!queue.is_interrupted());
        queue.push(Effect::Interrupt);
        queue.push(Effect::Interrupt);
        queue.set_working(true);
        assert!(queue.is_interrupted());
        assert_eq!(queue.next(), Typed::End);
    }

    #[test]
    fn an_interrupt_answers_the_question_with_nothing() {
        let queue = InputQueue::default();
        queue.set_working(true);
        assert!(queue.open_question());
        queue.push(Effect::Interrupt);
        assert_eq!(queue.wait_for_answer(None), Chosen::Nothing);
        assert!(!queue.open_question());
        queue.set_working(false);
        assert!(queue.open_question());
        queue.push(Effect::Answer(Chosen::Key('y')));
        assert_eq!(queue.wait_for_answer(None), Chosen::Key('y'));
        // An answer without a question is none of the next one.
        queue.push(Effect::Answer(Chosen::Key('y')));
        assert!(queue.open_question());
        queue.push(Effect::Answer(Chosen::Text("no".into())));
        assert_eq!(queue.wait_for_answer(None), Chosen::Text("no".into()));
    }

    #[test]
    fn a_question_is_over_at_its_end_and_answered_with_nothing() {
        let queue = InputQueue::default();
        assert!(queue.open_question());
        assert_eq!(queue.wait_for_answer(Some(Instant::now())), Chosen::Nothing);
        // What comes later is no answer of the next one.
        queue.push(Effect::Answer(Chosen::Key('y')));
        assert!(queue.open_question());
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(queue.wait_for_answer(Some(soon)), Chosen::Nothing);
    }

    #[test]
    fn a_panic_of_the_terminal_is_a_fault() {
        struct Closing(Arc<InputQueue>);
        impl Drop for Closing {
            fn drop(&mut self) {
                self.0.close();
            }
        }
        for panics in [false, true] {
            let queue = Arc::new(InputQueue::default());
            let closing = Closing(queue.clone());
            let thread = std::thread::spawn(move || {
                let _closing = closing;
                assert!(!panics, "the drawing fails");
            });
            assert_eq!(thread.join().is_err(), panics);
            assert_eq!((queue.has_failed(), queue.next()), (panics, Typed::End));
        }
    }

    #[test]
    fn who_waits_is_woken_when_the_terminal_is_gone() {
        let queue = Arc::new(InputQueue::default());
        assert!(queue.open_question());
        let threads = [
            std::thread::spawn({
                let queue = queue.clone();
                move || assert_eq!(queue.next(), Typed::End)
            }),
            std::thread::spawn({
                let queue = queue.clone();
                move || assert_eq!(queue.wait_for_answer(None), Chosen::Nothing)
            }),
        ];
        queue.close();
        for thread in threads {
            thread.join().unwrap();
        }
        queue.wait_for_close(Duration::ZERO);
        assert!(queue.is_interrupted());
    }

    #[test]
    fn the_end_of_the_program_ends_the_work_and_answers_nothing() {
        let queue = InputQueue::default();
        queue.set_working(true);
        assert!(queue.open_question());
        queue.end();
        assert_eq!(queue.wait_for_answer(None), Chosen::Nothing);
        queue.set_working(true);
        assert!(queue.is_interrupted());
        assert_eq!(queue.next(), Typed::End);
    }
}
