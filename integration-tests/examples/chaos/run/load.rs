//! What do gateways see?
//!
//! Two of them call at a steady pace, whatever is answered: one through usher's library, one with nothing but the .proto
//! files, which asks one coordinator once and takes that for an answer. Both give their places back after a moment. Every
//! hundred milliseconds as many calls begin as are due, so a slow answer does not make the load lighter.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Request;
use usher_client::{Config, Error, NoLocal, Outcome, TlsFiles};
use usher_integration_tests::{CertFiles, Client, Machine};
use usher_proto::error::{error_info, reason};
use usher_proto::v1;

use super::clock::now_ms;

const TICK: Duration = Duration::from_millis(100);
/// How long the raw caller waits for its one answer.
const RAW_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the library may take, all tries together.
const DEADLINE: Duration = Duration::from_secs(5);
/// One call of so many goes to the pool that is always about full.
const TIGHT_EACH: u64 = 10;
/// Reasons for which a full pool may refuse a login.
const FULL: [&str; 2] = [reason::MAX_USERS, reason::NO_CONSENT];
/// How long a place is held, milliseconds.
const HOLD_MS: std::ops::Range<u64> = 100..3000;

/// Who called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Caller {
    Library,
    Raw,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) enum End {
    /// A host, and until when the place was held.
    Placed { host: String, until_ms: u64, is_reserved: bool, is_local: bool, is_blind: bool },
    /// Everybody in the tight pool is full: an answer.
    Full,
    /// No answer that helps; the reason.
    Failed(String),
}

/// One call.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) request_id: String,
    pub(crate) began_ms: u64,
    pub(crate) answered_ms: u64,
    pub(crate) end: End,
    /// Who answered, and how often was asked.
    pub(crate) by: Option<String>,
    pub(crate) attempts: u32,
    /// What was said to a library that was refused, with what spoke against each host.
    pub(crate) why: Option<String>,
}

/// Calls a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) library: u32,
    pub(crate) raw: u32,
}

/// Where the callers are, whom they call, and as whom.
pub(crate) struct Callers {
    pub(crate) machine: Machine,
    pub(crate) coordinators: Vec<SocketAddr>,
    pub(crate) files: [CertFiles; 2],
    pub(crate) cache: std::path::PathBuf,
    pub(crate) rate: Rate,
    pub(crate) seed: u64,
}

/// A load that runs on a thread of its own, on the gateways' machine.
pub(crate) struct Load {
    stop: CancellationToken,
    calls: Arc<Mutex<Vec<Call>>>,
    thread: JoinHandle<()>,
}

impl Load {
    /// Begins to call.
    pub(crate) fn start(callers: Callers) -> Self {
        let (stop, calls) = (CancellationToken::new(), Arc::<Mutex<Vec<Call>>>::default());
        let (stopped, into) = (stop.clone(), Arc::clone(&calls));
        let machine = callers.machine.clone();
        // Threads that are made on a machine stay there, and so do their sockets.
        let run = move || {
            machine.within(|| {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                let runtime = builder.worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(call_all(callers, stopped, into));
            });
        };
        Self { stop, calls, thread: std::thread::spawn(run) }
    }

    /// Calls that have ended so far.
    pub(crate) fn ended(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Stops, waits until each call has ended and has given back what it held, and tells all of them.
    pub(crate) fn finish(self) -> Vec<Call> {
        self.stop.cancel();
        self.thread.join().expect("the load ends");
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn call_all(callers: Callers, stop: CancellationToken, into: Arc<Mutex<Vec<Call>>>) {
    let library = Arc::new(Library::new(&callers));
    let raw = Arc::new(Raw::new(&callers));
    let mut rng = Pcg64Mcg::seed_from_u64(callers.seed);
    let tasks = TaskTracker::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut number = 0_u64;
    let each = |per_second: u32| u64::from(per_second) * u64::try_from(TICK.as_millis()).unwrap() / 1000;
    while !stop.is_cancelled() {
        ticks.tick().await;
        for index in 0..each(callers.rate.library) + each(callers.rate.raw) {
            number += 1;
            let asked = Asked {
                request_id: format!("{number:08}"),
                pool: if number.is_multiple_of(TIGHT_EACH) { "tight" } else { "desk" },
                user: rng.random_bool(0.5).then(|| format!("user{number}")),
                hold: Duration::from_millis(rng.random_range(HOLD_MS)),
                // Spread over the tick, or a burst would be what is measured.
                wait: TICK.mul_f64(rng.random_range(0.0..1.0)),
            };
            let into = Arc::clone(&into);
            let note = move |call| into.lock().unwrap_or_else(PoisonError::into_inner).push(call);
            if index < each(callers.rate.library) {
                let library = Arc::clone(&library);
                tasks.spawn(async move { note(library.call(asked).await) });
            } else {
                let raw = Arc::clone(&raw);
                tasks.spawn(async move { note(raw.call(asked).await) });
            }
        }
    }
    tasks.close();
    tasks.wait().await;
    library.0.flush(Duration::from_secs(5)).await;
}

/// One login.
struct Asked {
    request_id: String,
    pool: &'static str,
    user: Option<String>,
    hold: Duration,
    wait: Duration,
}

impl Asked {
    /// A no. In the tight pool one is right if it says that everybody is full, or that nobody had room who was asked.
    fn refused(&self, reason: &str) -> End {
        let is_full = FULL.contains(&reason);
        if self.pool == "tight" && is_full { End::Full } else { End::Failed(reason.to_owned()) }
    }
}

fn is_flagged(flags: &[String], flag: &str) -> bool {
    flags.iter().any(|one| one == flag)
}

/// usher's library.
struct Library(usher_client::Client);

impl Library {
    fn new(callers: &Callers) -> Self {
        let files = &callers.files[0];
        let tls = TlsFiles { cert: files.cert.clone(), key: files.key.clone(), ca: files.ca.clone() };
        let addresses = callers.coordinators.iter().map(ToString::to_string);
        let config = Config::new(addresses).tls(tls).deadline(DEADLINE).cache(&callers.cache);
        Self(usher_client::Client::connect(config).unwrap())
    }

    async fn call(&self, asked: Asked) -> Call {
        tokio::time::sleep(asked.wait).await;
        let mut request = usher_client::Request::new(asked.pool).id(&asked.request_id);
        if let Some(user) = &asked.user {
            request = request.user(user);
        }
        let began_ms = now_ms();
        let answer = self.0.place(request).await;
        let answered_ms = now_ms();
        let (by, attempts) = answer.as_ref().map_or((None, 0), |placement| {
            (placement.coordinator().map(str::to_owned), placement.attempts())
        });
        let why = answer.as_ref().err().map(ToString::to_string);
        let end = match answer {
            Ok(placement) => {
                tokio::time::sleep(asked.hold).await;
                let until_ms = now_ms();
                self.0.report(&placement, Outcome::Cancelled);
                End::Placed {
                    host: placement.host_name().to_owned(),
                    until_ms,
                    is_reserved: placement.reserved_for().is_some(),
                    is_local: placement.is_local(),
                    is_blind: is_flagged(placement.flags(), "blind"),
                }
            }
            Err(Error::Refused(refusal)) => asked.refused(&refusal.reason),
            Err(Error::NoAnswer(none)) => match &none.local {
                // Its own no, by the farm as it was.
                NoLocal::Refused { reason, .. } => asked.refused(reason),
                _ => End::Failed(none.to_string()),
            },
            Err(error) => End::Failed(error.to_string()),
        };
        Call {
            caller: Caller::Library,
            request_id: asked.request_id,
            began_ms,
            answered_ms,
            end,
            by,
            attempts,
            why,
        }
    }
}

/// A gateway that has the .proto files and no patience.
struct Raw {
    coordinators: Vec<Client>,
    next: AtomicUsize,
}

impl Raw {
    fn new(callers: &Callers) -> Self {
        let client = |address: &SocketAddr| callers.files[1].client_on(&callers.machine, *address);
        Self { coordinators: callers.coordinators.iter().map(client).collect(), next: AtomicUsize::new(0) }
    }

    fn client(&self) -> Client {
        self.coordinators[self.next.fetch_add(1, Ordering::Relaxed) % self.coordinators.len()].clone()
    }

    async fn call(&self, asked: Asked) -> Call {
        tokio::time::sleep(asked.wait).await;
        let client = self.client();
        let request = v1::PlaceRequest {
            request_id: asked.request_id.clone(),
            pool: asked.pool.to_owned(),
            user: asked.user.clone(),
            ..Default::default()
        };
        let mut request = Request::new(request);
        request.set_timeout(RAW_TIMEOUT);
        let began_ms = now_ms();
        let mut placement = client.placement.clone();
        let answer = tokio::time::timeout(RAW_TIMEOUT, placement.place(request)).await;
        let answered_ms = now_ms();
        let end = match answer {
            Ok(Ok(answer)) => match answer.into_inner().placement {
                Some(placement) => self.hold(&asked, placement).await,
                None => End::Failed("an answer without a host".to_owned()),
            },
            Ok(Err(status)) => match error_info(&status) {
                Some(info) => asked.refused(&info.reason),
                None => End::Failed(format!("{:?}", status.code())),
            },
            Err(_) => End::Failed("no answer in time".to_owned()),
        };
        Call {
            caller: Caller::Raw,
            request_id: asked.request_id,
            began_ms,
            answered_ms,
            end,
            by: None,
            attempts: 1,
            why: None,
        }
    }

    async fn hold(&self, asked: &Asked, placement: v1::Placement) -> End {
        tokio::time::sleep(asked.hold).await;
        let until_ms = now_ms();
        // Three coordinators, and some are dead; what none of them hears ends by its time to live.
        for _ in 0..self.coordinators.len() {
            let client = self.client();
            let cancelled = client.outcome(&asked.request_id, v1::Outcome::Cancelled);
            if matches!(tokio::time::timeout(RAW_TIMEOUT, cancelled).await, Ok(Ok(true))) {
                break;
            }
        }
        End::Placed {
            host: placement.host_name,
            until_ms,
            is_reserved: placement.reservation.is_some(),
            is_local: false,
            is_blind: is_flagged(&placement.flags, "blind"),
        }
    }
}
