//! What happens to the farm: its pools and hosts, what they report, and the clock.

use usher_types::{
    Change, DrainMode, Goodbye, HostMarksChange, HostName, OperationName, PolicyChange, PoolName, Profile,
    ReplicaMark, SettingError,
};

use super::{
    args::Args,
    error::{LONGEST_WORD, SyntaxError, nearest},
    statement::{Calls, NewHost, Report, SessionChange, Statement},
    token::Text,
    value::{self, YES_NO, choice, id, list, number},
};

const HOST: &str = "the name of a host";

pub(super) fn seed(args: &mut Args) -> Option<Statement> {
    let seed = args.next("a whole number", value::whole_u64);
    args.finish()?;
    seed.map(Statement::Seed)
}

/// `pool NAME ...`, `pool apply NAME ...`
pub(super) fn pool(args: &mut Args) -> Option<Statement> {
    let is_new = !args.next_is_second_word("apply");
    let pool = args.next("the name of a pool", id::<PoolName>);
    let version = if is_new { None } else { args.get("version", value::whole_u64) };
    let change = policy(args);
    args.finish()?;
    let (pool, change) = (pool?, Box::new(change));
    Some(if is_new {
        Statement::Pool { pool, change }
    } else {
        Statement::PoolApply { pool, change, version }
    })
}

/// The settings of a pool: a profile first, wherever it stands, then the fields.
fn policy(args: &mut Args) -> PolicyChange {
    let profiles = Profile::ALL.map(|profile| (profile.as_str(), profile));
    let profile = args.get("profile", |text| choice(text, "profile", &profiles));
    let mut change = profile.map(Profile::change).unwrap_or_default();
    for (key, value) in args.every_key() {
        if args.has_enough_faults() {
            break;
        }
        if let Err(error) = setting(&mut change, &key, &value) {
            args.fault(error);
        }
    }
    change
}

fn setting(change: &mut PolicyChange, key: &Text, value: &Text) -> Result<(), SyntaxError> {
    let known = || PolicyChange::setting_names().chain(["profile", "version"]);
    // Names are compared with every setting there is: not those that cannot be one.
    let is_sane = key.len() <= LONGEST_WORD;
    let name = if is_sane { key.to_string() } else { String::new() };
    match change.set(&name, &value.to_string()) {
        Ok(()) => Ok(()),
        Err(SettingError::Unknown { suggestion, .. }) => {
            let fault = format!("unknown setting {} of a pool", key.quoted());
            let suggestion = nearest(&name, known()).or(suggestion.map(str::to_owned).filter(|_| is_sane));
            Err(SyntaxError { suggestion, ..key.fault(fault, known().collect::<Vec<_>>().join(", ")) })
        }
        Err(SettingError::Value { name, expected, .. }) => {
            let fault = format!("{} is no value of {name}", value.quoted());
            let suggestion =
                nearest(&value.to_string(), expected.split([' ', ',']).filter(|word| word.len() > 3));
            Err(SyntaxError { suggestion, ..value.fault(fault, expected) })
        }
    }
}

/// `host NAME ...`, `host set NAME ...`
pub(super) fn host(args: &mut Args) -> Option<Statement> {
    if args.next_is_second_word("set") {
        return host_set(args);
    }
    let host = args.next(HOST, value::host);
    let pool = args.get("pool", id);
    let zone = args.get("zone", id);
    let cores = args.get("cores", value::whole_u32);
    let memory_gib = args.get("memory_gib", value::whole_u32);
    let capacity = args.get("capacity", number);
    let max_users = args.get("max_users", value::user_limit);
    let threshold = args.get("threshold", number);
    let range = args.get("range", number);
    let host_id = args.get("id", id);
    let boot = args.get("boot", id);
    let cert = args.get("cert", value::text);
    let name = args.get("name", value::text);
    args.finish()?;
    let host = host?;
    let host = NewHost {
        host,
        name,
        pool,
        zone,
        id: host_id,
        boot,
        cert,
        cores,
        memory_gib,
        capacity,
        max_users,
        threshold,
        range,
    };
    Some(Statement::Host(Box::new(host)))
}

fn host_set(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let change = HostMarksChange {
        capacity: mark_of(args, "capacity", number),
        max_users: mark_of(args, "max_users", value::user_limit),
        threshold: mark_of(args, "threshold", number),
        range: mark_of(args, "range", number),
        busy: args
            .get("busy", |text| if is_cleared(text) { Ok(false) } else { choice(text, "value", &YES_NO) }),
    };
    args.finish()?;
    if change == HostMarksChange::default() {
        args.missing("something to set, such as capacity=2, or max_users=none to take it back");
        return None;
    }
    Some(Statement::HostSet { host: host?, change })
}

fn is_cleared(text: &Text) -> bool {
    text.is("none") || text.is("default")
}

fn mark_of<T>(
    args: &mut Args,
    key: &'static str,
    read: impl FnOnce(&Text) -> Result<T, SyntaxError>,
) -> Change<T> {
    let change = args.get(key, |text| match is_cleared(text) {
        true => Ok(Change::Clear),
        false => read(text).map(Change::Set),
    });
    change.unwrap_or(Change::Keep)
}

pub(super) fn report(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let cpu = args.get("cpu", number);
    let demand = args.get("demand", number);
    let logons = args.get("logons", number);
    let finished = args.get("finished", value::finished);
    let mem = args.get("mem", number);
    let users = args.get("users", number);
    let procs = args.get("procs", number);
    let ai = args.get("ai", number);
    let psi = args.get("psi", number);
    let mounts = args.get("mount", value::mounts).unwrap_or_default();
    let tokens = args.get("tokens", |text| match text.is("none") {
        true => Ok(Vec::new()),
        false => list(text)?.iter().map(id).collect(),
    });
    args.finish()?;
    let report =
        Report { host: host?, cpu, demand, logons, finished, mem, users, procs, ai, psi, mounts, tokens };
    Some(Statement::Report(Box::new(report)))
}

/// Separated by blanks or by commas.
pub(super) fn sessions(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let mut sessions = Vec::new();
    if args.next_is("none") {
        args.finish()?;
    }
    while args.has_next() && !args.has_enough_faults() {
        let some = args
            .next("a session", |text| list(text)?.iter().map(value::session).collect::<Result<Vec<_>, _>>());
        sessions.extend(some.into_iter().flatten());
    }
    args.finish()?;
    Some(Statement::Sessions { host: host?, sessions })
}

pub(super) fn session(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let mut changes = Vec::new();
    loop {
        changes.extend(args.next("+user for one that comes, or -user for one that goes", session_change));
        if !args.has_next() || args.has_enough_faults() {
            break;
        }
    }
    args.finish()?;
    Some(Statement::Session { host: host?, changes })
}

fn session_change(text: &Text) -> Result<SessionChange, SyntaxError> {
    let rest = text.skip(1);
    match text.first_bare() {
        Some('+') => value::session(&rest).map(SessionChange::Comes),
        Some('-') if !rest.is("") => Ok(SessionChange::Goes(rest.to_string())),
        _ => Err(text.fault(
            format!("{} neither comes nor goes", text.quoted()),
            "+user for one that comes, or -user for one that goes",
        )),
    }
}

pub(super) fn latency(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let operation = args.next("the name of an operation", id::<OperationName>);
    let samples = args.get("samples", value::samples);
    let calls = match samples {
        Some(samples) => Calls::Samples(samples),
        None => Calls::Aggregate {
            count: args.get("count", number),
            mean_us: args.get("mean", value::micros),
            min_us: args.get("min", value::micros),
            failed: args.get("failed", number),
            too_long: args.get("too_long", number),
            in_flight: args.get("inflight", number),
            oldest: args.get("oldest", value::duration),
        },
    };
    args.finish()?;
    let is_empty =
        matches!(&calls, Calls::Aggregate { count: None, failed: None, too_long: None, in_flight: None, .. });
    if is_empty {
        args.missing("calls: count=, failed=, too_long= or inflight=, or samples=");
        return None;
    }
    Some(Statement::Latency { host: host?, operation: operation?, calls })
}

pub(super) fn baseline(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let operation = args.next("the name of an operation", id::<OperationName>);
    let baseline = args.next("a duration", value::duration);
    args.finish()?;
    Some(Statement::Baseline { host: host?, operation: operation?, baseline: baseline? })
}

pub(super) fn replica(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let resource = args.next("the id of a resource", id);
    let path = args.get("path", value::text);
    let title = args.get("title", value::text);
    args.finish()?;
    Some(Statement::Replica { host: host?, resource: resource?, path, title })
}

pub(super) fn unreplica(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let resource = args.next("the id of a resource", id);
    args.finish()?;
    Some(Statement::Unreplica { host: host?, resource: resource? })
}

pub(super) fn mark(args: &mut Args) -> Option<Statement> {
    let marks = [
        (ReplicaMark::OutOfService.as_str(), Some(ReplicaMark::OutOfService)),
        (ReplicaMark::PendingDelete.as_str(), Some(ReplicaMark::PendingDelete)),
        ("in_service", None),
    ];
    let host = args.next(HOST, value::host);
    let resource = args.next("the id of a resource", id);
    let mark = args.next("out_of_service, pending_delete or in_service", |text| choice(text, "mark", &marks));
    args.finish()?;
    Some(Statement::Mark { host: host?, resource: resource?, mark: mark? })
}

pub(super) fn drain(args: &mut Args) -> Option<Statement> {
    let modes = [("until_restart", DrainMode::UntilRestart), ("persistent", DrainMode::Persistent)];
    let host = args.next(HOST, value::host);
    let mode = args.get("mode", |text| choice(text, "mode of a drain", &modes));
    let no_reconnect = args.flag("no_reconnect");
    let reason = args.get("reason", value::text);
    args.finish()?;
    Some(Statement::Drain { host: host?, mode: mode.unwrap_or_default(), no_reconnect, reason })
}

pub(super) fn ready(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let ready = args.next("yes or no", |text| choice(text, "answer", &YES_NO));
    let reason = if ready == Some(true) { None } else { args.get("reason", value::text) };
    args.finish()?;
    Some(Statement::Ready { host: host?, ready: ready?, reason })
}

pub(super) fn advance(args: &mut Args) -> Option<Statement> {
    let duration = args.next("a duration", value::duration);
    args.finish()?;
    duration.map(Statement::Advance)
}

/// `every 5s s1,s2 report`, `every 5s report s1,s2`, `every off s1,s2`, `every s1,s2 off`
pub(super) fn every(args: &mut Args) -> Option<Statement> {
    let repeats = args.flag("report");
    if args.flag("off") {
        let hosts = args.next("the names of hosts", value::hosts);
        if repeats {
            args.missing("either report or off");
        }
        args.finish()?;
        return Some(Statement::Every { hosts: hosts?, interval: None });
    }
    let interval = args.next("an interval such as 5s, or off", value::interval);
    let hosts = args.next("the names of hosts", value::hosts);
    args.finish()?;
    Some(Statement::Every { hosts: hosts?, interval: Some(interval?) })
}

pub(super) fn warming(args: &mut Args) -> Option<Statement> {
    let host = args.next(HOST, value::host);
    let lag = args.get("lag", value::duration);
    if lag.is_none() {
        args.next("lag=DURATION, or no", |text| choice(text, "word", &[("no", ())]));
    }
    args.finish()?;
    Some(Statement::Warming { host: host?, lag })
}

pub(super) fn goodbye(args: &mut Args) -> Option<Statement> {
    let whys = [("host_shutdown", Goodbye::HostShutdown), ("agent_stop", Goodbye::AgentStop)];
    let host = args.next(HOST, value::host);
    let why = args.next("host_shutdown or agent_stop", |text| choice(text, "goodbye", &whys));
    args.finish()?;
    Some(Statement::Goodbye { host: host?, why: why? })
}

pub(super) fn warmup(args: &mut Args) -> Option<Statement> {
    let (host, done) = host_and_answer(args, "yes or no", &YES_NO)?;
    Some(Statement::Warmup { host, done })
}

pub(super) fn busy(args: &mut Args) -> Option<Statement> {
    let (host, busy) = host_and_answer(args, "yes or no", &YES_NO)?;
    Some(Statement::Busy { host, busy })
}

pub(super) fn door(args: &mut Args) -> Option<Statement> {
    let (host, open) = host_and_answer(args, "open or shut", &[("open", true), ("shut", false)])?;
    Some(Statement::Door { host, open })
}

fn host_and_answer(args: &mut Args, what: &str, answers: &[(&str, bool)]) -> Option<(HostName, bool)> {
    let host = args.next(HOST, value::host);
    let answer = args.next(what, |text| choice(text, "answer", answers));
    args.finish()?;
    Some((host?, answer?))
}

/// A verb of one host and nothing else.
fn one_host(args: &mut Args) -> Option<HostName> {
    let host = args.next(HOST, value::host);
    args.finish()?;
    host
}

pub(super) fn undrain(args: &mut Args) -> Option<Statement> {
    one_host(args).map(Statement::Undrain)
}

pub(super) fn disconnect(args: &mut Args) -> Option<Statement> {
    one_host(args).map(Statement::Disconnect)
}

pub(super) fn silence(args: &mut Args) -> Option<Statement> {
    one_host(args).map(Statement::Silence)
}

pub(super) fn reporter(args: &mut Args) -> Option<Statement> {
    one_host(args).map(Statement::Reporter)
}

pub(super) fn reconnect(args: &mut Args) -> Option<Statement> {
    let boot = args.get("boot", id);
    one_host(args).map(|host| Statement::Reconnect { host, boot })
}

pub(super) fn reboot(args: &mut Args) -> Option<Statement> {
    let boot = args.get("boot", id);
    one_host(args).map(|host| Statement::Reboot { host, boot })
}
