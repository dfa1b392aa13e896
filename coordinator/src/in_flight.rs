//! Requests that are being decided: a second call under the same id waits for the first and gets the same answer.

use std::sync::Arc;

use tokio::sync::OnceCell;
use tonic::Status;
use usher_proto::v1;
use usher_types::{KeyHasher, Token};

/// The content hash of the request that was decided, and what it came to.
type Decided = (u64, Result<v1::Placement, Status>);

type Requests = papaya::HashMap<Token, Arc<OnceCell<Decided>>, KeyHasher>;

/// Who holds the cell of a call that nobody else waits for: the map, and the call.
const ALONE: usize = 2;

/// Requests that are being decided, by token.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    requests: Requests,
}

impl InFlight {
    /// What `decide` comes to, or what another call with this token that is under way comes to. If the call that
    /// decides goes away, one of those that wait decides.
    pub(crate) async fn once(&self, token: &Token, decide: impl Future<Output = Decided>) -> Decided {
        let cell = self.requests.pin().get_or_insert_with(token.clone(), Arc::default).clone();
        // Forgotten when this call ends, even if its caller goes away: from then on the ledger knows the request, or
        // nobody does.
        let _forget = Forget { requests: &self.requests, token, cell: &cell };
        let decided = cell.get_or_try_init(|| async {
            let decided = decide.await;
            // Who waits gets a copy. One that comes only now, and finds nothing, asks the ledger.
            if Arc::strong_count(&cell) > ALONE { Ok(decided) } else { Err(decided) }
        });
        decided.await.map_or_else(|own| own, Clone::clone)
    }
}

struct Forget<'a> {
    requests: &'a Requests,
    token: &'a Token,
    cell: &'a Arc<OnceCell<Decided>>,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // One that gives up waiting leaves the others where they wait together.
        if self.cell.initialized() || Arc::strong_count(self.cell) <= ALONE {
            let _ = self.requests.pin().remove_if(self.token, |_, current| Arc::ptr_eq(current, self.cell));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use usher_types::{GatewayId, RequestId};

    use super::*;

    fn token() -> Token {
        Token { gateway: GatewayId::new("g1").unwrap(), request_id: RequestId::new("R7").unwrap() }
    }

    #[tokio::test]
    async fn calls_at_the_same_time_decide_once_and_later_ones_anew() {
        let (in_flight, decisions) = (InFlight::default(), AtomicU32::new(0));
        let call = || async {
            let decide = async {
                tokio::task::yield_now().await;
                let number = decisions.fetch_add(1, Ordering::Relaxed);
                (u64::from(number), Ok(v1::Placement::default()))
            };
            in_flight.once(&token(), decide).await.0
        };
        assert_eq!(tokio::join!(call(), call(), call()), (0, 0, 0));
        assert_eq!(call().await, 1);
        assert_eq!(in_flight.requests.len(), 0);
    }

    #[tokio::test]
    async fn one_that_gives_up_waiting_does_not_let_a_third_decide_beside_the_first() {
        let (in_flight, token) = (InFlight::default(), token());
        let (go, gone) = tokio::sync::oneshot::channel();
        let decide = async {
            gone.await.unwrap();
            (1, Ok(v1::Placement::default()))
        };
        let mut first = Box::pin(in_flight.once(&token, decide));
        assert!(futures::poll!(&mut first).is_pending());
        let mut waits = Box::pin(in_flight.once(&token, std::future::pending()));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(waits);
        let mut third = Box::pin(in_flight.once(&token, async { (3, Ok(v1::Placement::default())) }));
        assert!(futures::poll!(&mut third).is_pending());
        go.send(()).unwrap();
        assert_eq!((first.await.0, third.await.0), (1, 1));
        assert_eq!(in_flight.requests.len(), 0);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_leaves_the_decision_to_one_that_waits() {
        let in_flight = InFlight::default();
        let token = token();
        let mut gone = Box::pin(in_flight.once(&token, std::future::pending()));
        assert!(futures::poll!(&mut gone).is_pending());
        let mut waits = Box::pin(in_flight.once(&token, async { (5, Err(Status::unavailable("nobody"))) }));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(gone);
        assert_eq!(waits.await.0, 5);
        assert_eq!(in_flight.requests.len(), 0);
    }
}
