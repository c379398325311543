//! Masks of constrained sequences, computed on a separate thread during the forward pass.
//!
//! A constraint's state moves to the mask thread before the forward pass and returns with its masks
//! afterwards: one for the row of the last known token, and one for each drafted token that the
//! constraint allows. States return in the order they were sent and hold nothing that depends on
//! timing, so threads decide no bits. A state stays on the engine's thread if its last masks took
//! less time than waking a thread, or if its grammar excludes no token.

use crate::request::constraint::{Allowed, Constraint, GrammarRef, TokenSet};
use crate::request::fields::Request;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Approximate time to hand a state over and back.
const QUICK: Duration = Duration::from_micros(20);

/// State of the constraint of one sequence, and its masks for one step.
#[derive(Debug)]
pub(crate) struct ConstraintState {
    grammar: GrammarRef,
    /// Created with the first masks, since that may take a while.
    state: Option<Box<dyn Constraint>>,
    /// Tokens that the state wants next.
    forced: Vec<u32>,
    /// The draft of the step.
    draft: Vec<u32>,
    /// Drafted tokens that the state has accepted.
    accepted: usize,
    /// Masks of the row of the last known token and of each accepted draft.
    rows: Vec<TokenMask>,
    /// The mask of the row after drafted tokens, where a model drafts.
    draft_row: Option<Box<TokenMask>>,
    /// Number of masks of this step.
    filled: usize,
    /// Whether the last masks took at most [`QUICK`], or there are none.
    quick: bool,
    /// Ids below which masks hold some; 0 if the grammar excludes no token.
    mask_size: usize,
}

/// The ids allowed in one row.
#[derive(Debug)]
pub(crate) struct TokenMask {
    /// Ids that may be chosen, unless all may; [`admit_stop_ids`](Self::admit_stop_ids) decides
    /// about stop ids.
    pub ids: TokenSet,
    pub allowed: Allowed,
    /// Whether the most likely one of them is chosen.
    pub greedy: bool,
    /// Why there is no mask.
    error: Option<String>,
}

/// The constraint of a request, if it has one. During a step, the mask thread may have it.
#[derive(Debug)]
pub(crate) enum SequenceConstraint {
    None,
    Here(Box<ConstraintState>),
    Lent,
}

impl SequenceConstraint {
    /// The constraint of `request`, before its first token.
    pub fn of(request: &Request, vocab_size: usize) -> Self {
        let Some(grammar) = request.constraint.clone() else { return Self::None };
        let excludes = grammar.excludes();
        Self::Here(Box::new(ConstraintState {
            grammar,
            state: None,
            forced: Vec::new(),
            draft: Vec::new(),
            accepted: 0,
            rows: Vec::new(),
            draft_row: None,
            filled: 0,
            quick: !excludes,
            mask_size: if excludes { vocab_size } else { 0 },
        }))
    }

    /// Sets the draft of a step and computes its masks, if that is quick. Otherwise returns the
    /// state for the mask thread.
    pub fn lend(&mut self, draft: &[u32]) -> Option<Box<ConstraintState>> {
        let state = self.state()?;
        state.draft.clear();
        state.draft.extend_from_slice(draft);
        if state.quick {
            state.compute();
            return None;
        }
        match std::mem::replace(self, Self::Lent) {
            Self::Here(state) => Some(state),
            Self::None | Self::Lent => None,
        }
    }

    /// Takes the state back from the thread if it was sent there. States return in the order in
    /// which they were sent.
    pub fn take_back(&mut self, masks: &Masks) {
        if matches!(self, Self::Lent) {
            *self = Self::Here(masks.next());
        }
    }

    /// The state, unless it was sent to the thread.
    pub fn state(&mut self) -> Option<&mut ConstraintState> {
        match self {
            Self::Here(state) => Some(state),
            Self::None | Self::Lent => None,
        }
    }
}

impl ConstraintState {
    /// The mask of row `at` of the step. Rows after a draft that is not allowed have none.
    ///
    /// # Errors
    /// If the constraint failed, or refuses a token that it allowed.
    pub fn allowed(&mut self, at: usize) -> Result<&mut TokenMask, String> {
        match self.rows[..self.filled].get_mut(at) {
            Some(TokenMask { error: Some(error), .. }) => Err(std::mem::take(error)),
            Some(allowed) => Ok(allowed),
            None => Err("the constraint refuses a token that it allowed".into()),
        }
    }

    /// Records the `ids` chosen in this step. Returns whether no token may follow.
    ///
    /// # Errors
    /// If the constraint fails or panics.
    pub fn accept(&mut self, ids: &[u32]) -> Result<bool, String> {
        let accepted = std::mem::take(&mut self.accepted);
        let Some(state) = &mut self.state else { return Ok(false) };
        let drafted = ids.iter().zip(&self.draft[..accepted]);
        let known = drafted.take_while(|(id, draft)| id == draft).count();
        let forced = &mut self.forced;
        forced.clear();
        guarded(|| {
            if accepted > known {
                state.rollback(accepted - known)?;
            }
            ids[known..].iter().try_for_each(|id| state.accept(*id))?;
            let is_complete = state.is_complete();
            if !is_complete {
                state.forced(forced);
            }
            Ok(is_complete)
        })
    }

    /// Tokens that probably come next, whatever the model says.
    pub fn forced(&self) -> &[u32] {
        &self.forced
    }

    /// Number of the first drafted tokens that may come next.
    pub fn allowed_prefix(&mut self, draft: &[u32]) -> usize {
        let Some(state) = self.state.as_mut().filter(|_| !draft.is_empty()) else {
            return draft.len();
        };
        // A state that fails reports that when the masks are computed.
        guarded(|| Ok(state.allowed_prefix(draft))).unwrap_or(0)
    }

    /// The mask after the `drafted` tokens, which may come next; `None` where that is not known.
    pub fn mask_after(&mut self, drafted: &[u32]) -> Option<&mut TokenMask> {
        let Self { state, draft_row, mask_size, .. } = self;
        let state = state.as_mut()?;
        let row = draft_row.get_or_insert_with(|| Box::new(TokenMask::new(*mask_size)));
        let mut accepted = 0;
        let filled = guarded(|| {
            for id in drafted {
                state.accept(*id)?;
                accepted += 1;
            }
            row.fill(&mut **state);
            Ok(())
        });
        let back = if accepted == 0 { Ok(()) } else { guarded(|| state.rollback(accepted)) };
        // A state that fails reports that when the masks of the step are computed.
        let is_filled = filled.and(back).is_ok() && row.error.is_none();
        is_filled.then_some(&mut **row)
    }

    /// Computes the masks of the step.
    fn compute(&mut self) {
        let start = Instant::now();
        self.fill();
        self.quick = self.mask_size == 0 || start.elapsed() <= QUICK;
    }

    /// Computes the masks, as far as drafted tokens are allowed.
    fn fill(&mut self) {
        let Self { grammar, state, draft, accepted, rows, filled, mask_size, .. } = self;
        let mut started = guarded(|| Ok(state.get_or_insert_with(|| grammar.start())));
        *filled = 0;
        for at in 0..=draft.len() {
            if at == rows.len() {
                rows.push(TokenMask::new(*mask_size));
            }
            *filled += 1;
            let row = &mut rows[at];
            match &mut started {
                Ok(state) => row.fill(&mut ***state),
                Err(error) => row.error = Some(error.clone()),
            }
            let next = draft.get(at).filter(|id| row.error.is_none() && row.allows(**id));
            let (Some(&next), Ok(state)) = (next, &mut started) else { break };
            // A state that refuses a token it allowed reports that when the token is chosen.
            if guarded(|| state.accept(next)).is_err() {
                break;
            }
            *accepted += 1;
        }
    }
}

impl TokenMask {
    fn new(size: usize) -> Self {
        let allowed = Allowed::Listed { may_end: false };
        Self { ids: TokenSet::new(size), allowed, greedy: false, error: None }
    }

    fn fill(&mut self, state: &mut dyn Constraint) {
        self.ids.clear();
        let ids = &mut self.ids;
        let filled = guarded(|| match state.is_complete() {
            true => Ok((Allowed::Listed { may_end: true }, false)),
            false => Ok((state.mask(ids)?, state.greedy())),
        });
        let none = (Allowed::Listed { may_end: false }, false);
        let (filled, error) = filled.map_or_else(|error| (none, Some(error)), |it| (it, None));
        ((self.allowed, self.greedy), self.error) = (filled, error);
    }

    /// Whether `id` may be chosen.
    fn allows(&self, id: u32) -> bool {
        self.allowed == Allowed::All || self.ids.contains(id)
    }

    /// Allows stop ids where the sequence may end, unless it is too `early` and there is another
    /// choice. Returns whether any other id may be chosen. Changes nothing where all ids may be.
    pub fn admit_stop_ids(&mut self, stop_ids: &[u32], early: bool) -> bool {
        let Allowed::Listed { may_end } = self.allowed else { return true };
        for &id in stop_ids {
            self.ids.remove(id);
        }
        let others = !self.ids.is_empty();
        if may_end && others && !early {
            stop_ids.iter().for_each(|id| self.ids.insert(*id));
        }
        others
    }
}

/// Turns a panic of a constraint into an error, which ends only its own sequence.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let broken = |_| Err("the constraint broke".to_owned());
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(broken)
}

/// The thread that computes masks. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Masks {
    wanted: Option<Sender<Box<ConstraintState>>>,
    ready: Receiver<Box<ConstraintState>>,
    thread: Option<JoinHandle<()>>,
}

impl Masks {
    pub fn start() -> Self {
        let (wanted, jobs) = channel::<Box<ConstraintState>>();
        let (done, ready) = channel();
        let work = move || {
            for mut constraint in jobs {
                constraint.compute();
                if done.send(constraint).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("gannet-masks".into());
        let thread = thread.spawn(work).expect("cannot start the mask thread");
        Self { wanted: Some(wanted), ready, thread: Some(thread) }
    }

    /// Sends a state to have the masks of the next step computed.
    pub fn request(&self, constraint: Box<ConstraintState>) {
        let wanted = self.wanted.as_ref().expect("taken on drop only");
        wanted.send(constraint).expect("the mask thread lives as long as this");
    }

    /// Receives the oldest state that was sent, with its masks.
    fn next(&self) -> Box<ConstraintState> {
        self.ready.recv().expect("the mask thread lives as long as this")
    }
}

impl Drop for Masks {
    fn drop(&mut self) {
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
