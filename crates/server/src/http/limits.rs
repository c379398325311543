//! Rate limits of callers: requests and tokens per minute, and concurrent requests.
//!
//! Invariant: memory is bounded. Callers beyond [`MAX_CALLERS`] share what one may take until
//! others have been idle for long enough to be forgotten.

mod bucket;

use crate::http::caller::Identity;
use bucket::Bucket;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most callers that are counted one by one.
const MAX_CALLERS: usize = 16_384;
/// Least time between two removals of idle callers.
const SWEEP: Duration = Duration::from_secs(1);

/// What each caller may take; `None` is no limit. Callers are identified by their keys, or by
/// their addresses where the server has no keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests per minute.
    pub requests: Option<u32>,
    /// Tokens of prompts and answers per minute. A request passes while any are left; what it
    /// takes beyond them is waited for by the next.
    pub tokens: Option<u32>,
    /// Requests that are answered at one time.
    pub concurrent: Option<u32>,
}

/// The limits and what all callers have taken. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    rates: RateLimits,
    accounts: Arc<Mutex<Accounts>>,
}

#[derive(Debug)]
struct Accounts {
    of: HashMap<Identity, Account>,
    swept: Instant,
}

/// What one caller has used.
#[derive(Clone, Debug)]
struct Account {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    running: u32,
}

/// How far a caller is from a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    pub limit: u64,
    pub remaining: u64,
    /// Time until all of it is there again.
    pub reset: Duration,
}

/// What remains of both limits per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaStatus {
    pub requests: Option<Quota>,
    pub tokens: Option<Quota>,
}

/// A request that exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateLimited {
    pub message: String,
    /// Time until another try can succeed.
    pub wait: Duration,
    pub quotas: QuotaStatus,
}

/// An admitted request.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// The charge for the request's tokens.
    pub charge: TokenCharge,
    pub quotas: QuotaStatus,
}

/// Charges tokens to the caller of a request. The request counts as running until the last clone
/// is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenCharge(Option<Arc<ConcurrencyPermit>>);

/// One of the concurrent requests of a caller.
#[derive(Debug)]
struct ConcurrencyPermit {
    limits: Limits,
    caller: Identity,
}

impl Limits {
    /// Limits of which nothing is used yet.
    pub fn new(rates: RateLimits) -> Self {
        let accounts = Accounts { of: HashMap::new(), swept: Instant::now() };
        Self { rates, accounts: Arc::new(Mutex::new(accounts)) }
    }

    /// Admits a request of `caller`.
    ///
    /// # Errors
    /// The limit that the request exceeds, with the time to wait.
    pub fn admit(&self, caller: Identity) -> Result<Admission, RateLimited> {
        if self.rates == RateLimits::default() {
            return Ok(Admission::default());
        }
        let now = Instant::now();
        let mut accounts = self.accounts();
        let caller = accounts.name(caller, now);
        let account = accounts.of.entry(caller).or_insert_with(|| Account::new(&self.rates, now));
        let quotas = account.admit(&self.rates, now)?;
        let permit = ConcurrencyPermit { limits: self.clone(), caller };
        Ok(Admission { charge: TokenCharge(Some(Arc::new(permit))), quotas })
    }

    /// Applies `change` to the account of an admitted caller.
    fn change(&self, caller: Identity, change: impl FnOnce(&mut Account)) {
        self.accounts().of.get_mut(&caller).map(change);
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    /// The name that `caller` is counted under: its own up to [`MAX_CALLERS`].
    fn name(&mut self, caller: Identity, now: Instant) -> Identity {
        let full = self.of.len() >= MAX_CALLERS;
        if full && now.saturating_duration_since(self.swept) >= SWEEP {
            self.swept = now;
            self.of.retain(|_, account| !account.is_idle(now));
        }
        let room = self.of.len() < MAX_CALLERS || self.of.contains_key(&caller);
        if room { caller } else { Identity::Others }
    }
}

impl Account {
    fn new(rates: &RateLimits, now: Instant) -> Self {
        let bucket = |per_minute| Bucket::new(per_minute, now);
        Self { requests: rates.requests.map(bucket), tokens: rates.tokens.map(bucket), running: 0 }
    }

    fn admit(&mut self, rates: &RateLimits, now: Instant) -> Result<QuotaStatus, RateLimited> {
        self.fill(now);
        if let Some(most) = rates.concurrent.filter(|&most| self.running >= most) {
            // When an answer ends is unknown; clients come back soon and then less often.
            let message = format!("{most} requests of yours are being answered, which is the most");
            return Err(self.rate_limited(message, Duration::from_secs(1)));
        }
        for (bucket, what) in [(self.requests, "requests"), (self.tokens, "tokens")] {
            if let Some(bucket) = bucket.filter(|bucket| bucket.remaining() == 0) {
                let message = format!("more than {} {what} in a minute", bucket.limit());
                return Err(self.rate_limited(message, bucket.until(1.0)));
            }
        }
        self.running += 1;
        if let Some(bucket) = &mut self.requests {
            bucket.take(1.0);
        }
        Ok(self.quotas())
    }

    fn fill(&mut self, now: Instant) {
        [&mut self.requests, &mut self.tokens].into_iter().flatten().for_each(|b| b.fill(now));
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.running == 0 && [self.requests, self.tokens].iter().flatten().all(Bucket::is_full)
    }

    fn rate_limited(&self, message: String, wait: Duration) -> RateLimited {
        RateLimited { message, wait, quotas: self.quotas() }
    }

    fn quotas(&self) -> QuotaStatus {
        let quota = |bucket: Bucket| Quota {
            limit: bucket.limit(),
            remaining: bucket.remaining(),
            reset: bucket.until_full(),
        };
        QuotaStatus { requests: self.requests.map(quota), tokens: self.tokens.map(quota) }
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let leave = |account: &mut Account| account.running = account.running.saturating_sub(1);
        self.limits.change(self.caller, leave);
    }
}

impl TokenCharge {
    /// Charges tokens of a prompt or an answer.
    pub fn spend(&self, tokens: usize) {
        let Some(permit) = &self.0 else { return };
        permit.limits.change(permit.caller, |account| {
            if let Some(bucket) = &mut account.tokens {
                bucket.fill(Instant::now());
                bucket.take(tokens as f64);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn caller(number: u32) -> Identity {
        Identity::Address(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn limits(requests: Option<u32>, tokens: Option<u32>, concurrent: Option<u32>) -> Limits {
        Limits::new(RateLimits { requests, tokens, concurrent })
    }

    #[test]
    fn callers_have_limits_of_their_own() {
        let limits = limits(Some(2), None, None);
        let quotas = limits.admit(caller(1)).unwrap().quotas;
        assert_eq!(quotas.requests.unwrap().remaining, 1);
        drop(limits.admit(caller(1)).unwrap());
        let rate_limited = limits.admit(caller(1)).unwrap_err();
        assert!(rate_limited.message.contains("2 requests in a minute"), "{rate_limited:?}");
        assert!((29..=30).contains(&rate_limited.wait.as_secs()), "{rate_limited:?}");
        assert!(limits.admit(caller(2)).is_ok());
    }

    #[test]
    fn places_are_free_again_when_answers_end() {
        let limits = limits(None, None, Some(2));
        let first = limits.admit(caller(1)).unwrap();
        let _second = limits.admit(caller(1)).unwrap();
        assert!(limits.admit(caller(1)).is_err());
        drop(first);
        assert!(limits.admit(caller(1)).is_ok());
    }

    #[test]
    fn tokens_are_counted_when_they_are_known() {
        let limits = limits(None, Some(60), None);
        let admission = limits.admit(caller(1)).unwrap();
        let charge = admission.charge.clone();
        drop(admission);
        charge.spend(180);
        let rate_limited = limits.admit(caller(1)).unwrap_err();
        assert!((120..=121).contains(&rate_limited.wait.as_secs()), "{rate_limited:?}");
        assert_eq!(rate_limited.quotas.tokens.unwrap().remaining, 0);
    }

    #[test]
    fn a_refused_request_takes_nothing() {
        let limits = limits(Some(2), None, Some(1));
        let admission = limits.admit(caller(1)).unwrap();
        for _ in 0..5 {
            assert!(limits.admit(caller(1)).is_err());
        }
        drop(admission);
        assert!(limits.admit(caller(1)).is_ok());
    }

    #[test]
    fn memory_is_bounded_however_many_call() {
        let limits = limits(Some(1), None, None);
        for number in 0..MAX_CALLERS as u32 {
            limits.admit(caller(number)).unwrap();
        }
        assert!(limits.admit(caller(u32::MAX)).is_ok());
        assert!(limits.admit(caller(u32::MAX - 1)).is_err(), "they share what one may take");
        assert!(limits.accounts().of.len() <= MAX_CALLERS + 1);
    }

    #[test]
    fn callers_that_are_idle_are_forgotten() {
        let limits = limits(Some(1), None, None);
        for number in 0..MAX_CALLERS as u32 {
            limits.admit(caller(number)).unwrap();
        }
        let _answered = limits.admit(caller(0));
        let later = Instant::now() + Duration::from_secs(120);
        let name = limits.accounts().name(caller(u32::MAX), later);
        assert_eq!(name, caller(u32::MAX));
        assert_eq!(limits.accounts().of.len(), 0);
    }
}
