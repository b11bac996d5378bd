//! Requests that are handed on to kubelets, pods and extension API servers: each takes a connection
//! to one, for as long as its client and that server like.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::User;

use super::limits::Limits;

/// The requests that are handed on at present.
#[derive(Debug)]
pub struct Outbound {
    /// Those of all users that are not privileged.
    max_all: usize,
    /// Those of all users that are not essential.
    max_ordinary: usize,
    /// Those of one user.
    max_user: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    ordinary: usize,
    by_user: HashMap<Arc<str>, usize>,
}

/// The place of such a request, given back on drop.
#[derive(Debug)]
pub struct OutboundPlace {
    outbound: Arc<Outbound>,
    user: Arc<str>,
    is_ordinary: bool,
}

impl Outbound {
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            max_all: limits.outbound,
            max_ordinary: limits.ordinary_outbound,
            max_user: limits.user_outbound,
            open: Mutex::default(),
        })
    }

    /// Takes a place for a user, unless it has as many as it may. Administrators and the control
    /// plane need none.
    ///
    /// # Errors
    /// There is none.
    pub fn admit(self: &Arc<Self>, user: &User) -> Result<Option<OutboundPlace>, NoPlace> {
        if user.is_privileged() {
            return Ok(None);
        }
        let is_ordinary = !user.is_essential();
        let open = &mut *self.open.lock();
        let own = open.by_user.get(user.name.as_str()).copied().unwrap_or(0);
        let is_full = open.all >= self.max_all
            || own >= self.max_user
            || is_ordinary && open.ordinary >= self.max_ordinary;
        if is_full {
            return Err(NoPlace);
        }
        let user: Arc<str> = user.name.as_str().into();
        *open.by_user.entry(user.clone()).or_default() += 1;
        open.all += 1;
        open.ordinary += usize::from(is_ordinary);
        Ok(Some(OutboundPlace {
            outbound: self.clone(),
            user,
            is_ordinary,
        }))
    }
}

/// A refusal for want of a place.
#[derive(Debug, PartialEq, Eq)]
pub struct NoPlace;

impl Drop for OutboundPlace {
    fn drop(&mut self) {
        let open = &mut *self.outbound.open.lock();
        open.all -= 1;
        open.ordinary -= usize::from(self.is_ordinary);
        if let Some(own) = open.by_user.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                open.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::MASTERS;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    #[test]
    fn users_have_shares_of_the_places() {
        let outbound = Outbound::new(&Limits {
            outbound: 5,
            ordinary_outbound: 4,
            user_outbound: 3,
            ..Limits::of_descriptors(1024)
        });
        let admit = |name: &str, group: &str| outbound.admit(&user(name, group));
        let mut alice: Vec<_> = (0..3).map(|_| admit("alice", "devs")).collect();
        assert!(alice.iter().all(|place| matches!(place, Ok(Some(_)))));
        assert_eq!(admit("alice", "devs").map(drop), Err(NoPlace));
        let bob = admit("bob", "devs");
        assert!(bob.is_ok() && admit("bob", "devs").is_err(), "all others");
        let node = admit("system:node:n", "system:nodes");
        assert!(node.is_ok() && admit("system:node:m", "system:nodes").is_err());
        assert!(matches!(admit("admin", MASTERS), Ok(None)), "no limit");
        alice.pop();
        assert!(admit("carol", "devs").is_ok());
        drop((alice, bob, node));
        let open = outbound.open.lock();
        assert_eq!((open.all, open.ordinary, open.by_user.len()), (0, 0, 0));
    }
}
