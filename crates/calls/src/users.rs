//! What uses a server and ends with it.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError, Weak};

/// Something that uses a server, such as a sequence that its caller leads.
pub trait ServerUser: Debug + Send + Sync {
    /// Ends its use of the server.
    fn end(&self);
}

/// The users of a server, as long as they are not dropped.
#[derive(Debug)]
pub struct ServerUsers {
    /// `None` once they were ended.
    users: Mutex<Option<Vec<Weak<dyn ServerUser>>>>,
}

impl Default for ServerUsers {
    fn default() -> Self {
        Self { users: Mutex::new(Some(Vec::new())) }
    }
}

impl ServerUsers {
    /// Adds a user. Returns whether it may use the server: not once the users were ended.
    #[must_use]
    pub fn add(&self, user: Weak<dyn ServerUser>) -> bool {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(users) = users.as_mut() else { return false };
        // Those that were dropped give way before there is need for more memory.
        if users.len() == users.capacity() {
            users.retain(|user| user.strong_count() > 0);
        }
        users.push(user);
        true
    }

    /// Ends all users, and refuses others from now on.
    pub fn end(&self) {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner).take();
        users.iter().flatten().filter_map(Weak::upgrade).for_each(|user| user.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    struct Counter(AtomicUsize);

    impl ServerUser for Counter {
        fn end(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn weak(user: &Arc<Counter>) -> Weak<dyn ServerUser> {
        let user: Weak<Counter> = Arc::downgrade(user);
        user
    }

    #[test]
    fn users_end_once_and_later_ones_are_refused() {
        let (users, user) = (ServerUsers::default(), Arc::new(Counter::default()));
        assert!(users.add(weak(&user)));
        for _ in 0..1000 {
            assert!(users.add(weak(&Arc::default())));
        }
        let held = users.users.lock().unwrap().as_ref().map_or(0, Vec::len);
        assert!(held < 10, "{held} that were dropped are held");
        users.end();
        users.end();
        assert_eq!(user.0.load(Ordering::Relaxed), 1);
        assert!(!users.add(weak(&user)));
    }
}
