//! What gateways ask, what people look at, and the coordinators that answer.

use usher_types::{GatewayId, Outcome, RequestId, ResourceId, Zone};

use super::{
    args::Args,
    statement::{Call, Failover, Place, Statement},
    value::{self, CAUSES, choice, id},
};

const COORDINATOR: &str = "the name of a coordinator";
const LABEL: &str = "the label of a placement";
const HOST: &str = "the name of a host";

fn call(args: &mut Args) -> Option<Call> {
    let label = args.label();
    let pool = args.next("the name of a pool", id);
    let user = args.get("user", value::text);
    let resource = args.get("resource", id::<ResourceId>);
    let request = args.get("request", id::<RequestId>);
    let zone = args.get("zone", id::<Zone>);
    let cost = args.get("cost", value::whole_u32);
    let attempt = args.get("attempt", value::whole_u32);
    let gateway = args.get("gateway", id::<GatewayId>);
    let deadline = args.get("deadline", value::duration);
    Some(Call { pool: pool?, user, resource, request, zone, cost, attempt, gateway, deadline, label })
}

pub(super) fn place(args: &mut Args) -> Option<Statement> {
    let dry_run = args.flag("dry_run");
    let call = call(args);
    let exclude = args.get("exclude", value::names).unwrap_or_default();
    let prefer = args.get("prefer", value::name);
    args.finish()?;
    Some(Statement::Place(Box::new(Place { call: call?, exclude, prefer, dry_run })))
}

pub(super) fn failover(args: &mut Args) -> Option<Statement> {
    let call = call(args);
    let from = args.take("from");
    if from.is_none() {
        args.missing("from=, the host that does not work out");
    }
    let from = from.and_then(|text| match value::name(&text) {
        Ok(name) => Some(name),
        Err(error) => {
            args.fault(error);
            None
        }
    });
    let tried = args.get("tried", value::names).unwrap_or_default();
    let cause = args.get("cause", |text| choice(text, "cause", &CAUSES));
    let failed = args.get("failed", id);
    args.finish()?;
    Some(Statement::Failover(Box::new(Failover { call: call?, from: from?, tried, cause, failed })))
}

pub(super) fn outcome(args: &mut Args) -> Option<Statement> {
    let outcomes = [
        ("connected", Outcome::Connected),
        ("failed", Outcome::Failed),
        ("cancelled", Outcome::Cancelled),
        ("ended", Outcome::Ended),
    ];
    let label = args.next(LABEL, value::name);
    let outcome =
        args.next("connected, failed, cancelled or ended", |text| choice(text, "outcome", &outcomes));
    let has_cause = outcome.is_none_or(|outcome| outcome == Outcome::Failed);
    let cause = if has_cause { args.get("cause", |text| choice(text, "cause", &CAUSES)) } else { None };
    let gateway = args.get("gateway", id);
    args.finish()?;
    Some(Statement::Outcome { label: label?, outcome: outcome?, cause, gateway })
}

/// A verb of one name and nothing else.
fn one_name(args: &mut Args, what: &str) -> Option<String> {
    let name = args.next(what, value::name);
    args.finish()?;
    name
}

pub(super) fn tally(args: &mut Args) -> Option<Statement> {
    one_name(args, LABEL).map(Statement::Tally)
}

pub(super) fn show(args: &mut Args) -> Option<Statement> {
    one_name(args, HOST).map(Statement::Show)
}

pub(super) fn explain(args: &mut Args) -> Option<Statement> {
    one_name(args, LABEL).map(Statement::Explain)
}

pub(super) fn coordinator(args: &mut Args) -> Option<Statement> {
    one_name(args, COORDINATOR).map(Statement::Coordinator)
}

pub(super) fn restart(args: &mut Args) -> Option<Statement> {
    one_name(args, COORDINATOR).map(Statement::Restart)
}

pub(super) fn cut(args: &mut Args) -> Option<Statement> {
    let coordinator = args.next(COORDINATOR, value::name);
    let host = args.next(HOST, value::host);
    args.finish()?;
    Some(Statement::Cut { coordinator: coordinator?, host: host? })
}

pub(super) fn join(args: &mut Args) -> Option<Statement> {
    let coordinator = args.next(COORDINATOR, value::name);
    let host = args.next(HOST, value::host);
    args.finish()?;
    Some(Statement::Join { coordinator: coordinator?, host: host? })
}

pub(super) fn freeze(args: &mut Args) -> Option<Statement> {
    let coordinator = args.next(COORDINATOR, value::name);
    let duration = args.next("a duration", value::duration);
    args.finish()?;
    Some(Statement::Freeze { coordinator: coordinator?, duration: duration? })
}

pub(super) fn clock(args: &mut Args) -> Option<Statement> {
    args.next("wall", |text| choice(text, "clock", &[("wall", ())]));
    let offset_ms = args.next("a jump such as +1d or -9h", value::offset_ms);
    args.finish()?;
    Some(Statement::ClockWall { offset_ms: offset_ms? })
}
