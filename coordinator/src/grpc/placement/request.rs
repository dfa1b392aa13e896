//! What a gateway asks, checked.

use tonic::Status;
use usher_placement::decision::{Failover, Request};
use usher_proto::{
    enums, error,
    fault::{cut, id},
    read, v1,
};
use usher_types::{FieldFault, GatewayId, PoolName, RequestId, ResourceId, Token, Zone};

/// Hosts that a request may name.
const MAX_NAMED_HOSTS: usize = 1024;
/// Longest name or id of a host in a request, bytes.
const MAX_HOST_BYTES: usize = 256;

/// A request, checked field by field, so that all faults are named at once.
struct Fields {
    faults: Vec<FieldFault>,
}

impl Fields {
    fn take<T>(&mut self, checked: Result<T, FieldFault>) -> Option<T> {
        checked.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn hosts(&mut self, field: &str, hosts: Vec<String>) -> Vec<String> {
        if hosts.len() > MAX_NAMED_HOSTS {
            let count = format!("{} hosts", hosts.len());
            self.faults.push(FieldFault::new(field, count, format!("at most {MAX_NAMED_HOSTS}")));
            return Vec::new();
        }
        if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
            let shown = cut(host.escape_debug().to_string(), 64);
            self.faults.push(FieldFault::new(field, format!("{shown:?}"), "names or ids of hosts"));
        }
        hosts
    }

    fn host(&mut self, field: &str, host: Option<String>) -> Option<String> {
        host.and_then(|host| self.hosts(field, vec![host]).pop())
    }

    fn done<T>(self, value: Option<T>) -> Result<T, Status> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => Err(error::invalid_fields(&self.faults)),
        }
    }
}

/// One attempt of a gateway is many of a coordinator, which counts each host that it asks. The gateway's next attempt, through
/// another coordinator, must stand above all of these: else a slow coordinator, when it gives up, takes back the place that
/// the other one has answered. A call asks for a second at most, a quarter of one for a silent host, and three may refuse.
const ATTEMPTS_OF_A_CALL: u32 = 16;

fn attempt_of(gateways: u32) -> u32 {
    read::attempt_or_first(gateways).saturating_mul(ATTEMPTS_OF_A_CALL)
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.len() <= MAX_HOST_BYTES && !host.chars().any(char::is_control)
}

pub(super) fn place_request(gateway: GatewayId, msg: v1::PlaceRequest) -> Result<Request, Status> {
    let mut fields = Fields { faults: Vec::new() };
    let request_id = fields.take(id::<RequestId>("request_id", &msg.request_id));
    let pool = fields.take(id::<PoolName>("pool", &msg.pool));
    let resource = msg.resource.map(|text| fields.take(id::<ResourceId>("resource", &text)));
    let zone = msg.client_zone.map(|text| fields.take(id::<Zone>("client_zone", &text)));
    let user = fields.take(read::user_or_none(msg.user));
    let cost = fields.take(read::cost_or_one(msg.cost));
    let exclude = fields.hosts("exclude", msg.exclude);
    let prefer_host = fields.host("prefer_host", msg.prefer_host);
    let request =
        request_id.zip(pool).zip(user).zip(cost).map(|(((request_id, pool), user), cost)| Request {
            token: Token { gateway, request_id },
            attempt: attempt_of(msg.attempt),
            pool,
            resource: resource.flatten(),
            user,
            client_zone: zone.flatten(),
            cost,
            exclude,
            prefer_host,
            dry_run: msg.dry_run,
            failover: None,
        });
    fields.done(request)
}

pub(super) fn failover_request(gateway: GatewayId, msg: v1::FailoverRequest) -> Result<Request, Status> {
    let mut fields = Fields { faults: Vec::new() };
    let from_host = fields.host("from_host", Some(msg.from_host));
    let tried = fields.hosts("tried", msg.tried);
    let failed_request =
        msg.failed_request_id.map(|text| fields.take(id::<RequestId>("failed_request_id", &text)));
    let cause = fields.take(enums::failure_cause("cause", msg.cause));
    let failed = failed_request.flatten();
    if failed.as_ref().is_some_and(|failed| failed.as_str() == msg.request_id) {
        let allowed = "another id than the failed request's";
        fields.faults.push(FieldFault::new("request_id", format!("{:?}", msg.request_id), allowed));
    }
    let place = v1::PlaceRequest {
        request_id: msg.request_id,
        attempt: msg.attempt,
        pool: msg.pool,
        resource: msg.resource,
        user: msg.user,
        client_zone: msg.client_zone,
        cost: msg.cost,
        ..v1::PlaceRequest::default()
    };
    let failover = from_host.zip(cause).map(|(from_host, cause)| Failover {
        from_host,
        failed_request: failed,
        tried,
        cause,
    });
    let failover = fields.done(failover)?;
    Ok(Request { failover: Some(failover), ..place_request(gateway, place)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_next_attempt_stands_above_all_hosts_that_were_asked_in_the_one_before() {
        assert_eq!(attempt_of(0), attempt_of(1));
        assert!(attempt_of(2) >= attempt_of(1) + 8, "no call asks so many hosts");
        assert_eq!(attempt_of(u32::MAX), u32::MAX);
    }
}
