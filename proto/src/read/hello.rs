//! Who is this host? Strict: a host that cannot say it correctly is not let in, and learns every fault at once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use usher_types::{Endpoint, FieldFault, Hello, Zone};

use crate::{
    PROTOCOL_VERSION,
    fault::{Faults, MAX_NAME_BYTES, id, name, nested, required, whole},
    v1,
};

/// More ways to reach one host than this are a mistake, and each travels with every placement.
const MAX_ENDPOINTS: usize = 32;
/// The protocol's own limit.
const MAX_LABELS: usize = 64;

/// Who a host is.
///
/// # Errors
/// Every field that is refused; the stream must not go on then.
pub fn hello(msg: v1::Hello) -> Result<Hello, Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.ok(whole("protocol_version", msg.protocol_version, PROTOCOL_VERSION..=PROTOCOL_VERSION));
    let agent_version = faults.ok(name("agent_version", msg.agent_version));
    let host_id = faults.ok(id("host_id", &msg.host_id));
    let boot_id = faults.ok(id("boot_id", &msg.boot_id));
    let host_name = faults.ok(id("host_name", &msg.host_name));
    let endpoints = endpoints(&mut faults, msg.endpoints);
    let labels = labels(&mut faults, msg.labels);
    let pool = faults.ok(id("pool", &msg.pool));
    let zone = msg.zone.and_then(|zone| faults.ok(id::<Zone>("zone", &zone)));
    let cores = msg.cores.and_then(|cores| faults.ok(whole("cores", cores, 1..=u32::MAX)));
    let memory_bytes =
        msg.memory_bytes.and_then(|bytes| faults.ok(whole("memory_bytes", bytes, 1..=u64::MAX)));
    let cpu_model = msg.cpu_model.and_then(|model| faults.ok(name("cpu_model", model)));
    let report_ms = faults.ok(whole("report_interval_ms", msg.report_interval_ms, 100..=3_600_000));
    let period_ms = faults.ok(whole("latency_period_ms", msg.latency_period_ms, 100..=300_000));

    let faults = faults.into_vec();
    match (agent_version, host_id, boot_id, host_name, pool, report_ms, period_ms) {
        (
            Some(agent_version),
            Some(host_id),
            Some(boot_id),
            Some(host_name),
            Some(pool),
            Some(report_ms),
            Some(period_ms),
        ) if faults.is_empty() => Ok(Hello {
            agent_version,
            host_id,
            boot_id,
            stream_epoch: msg.stream_epoch,
            incarnation_ms: msg.incarnation_ms,
            host_name,
            endpoints,
            labels,
            pool,
            zone,
            cores,
            memory_bytes,
            cpu_model,
            report_interval: Duration::from_millis(report_ms.into()),
            latency_period: Duration::from_millis(period_ms.into()),
            is_virtual: msg.r#virtual,
            is_reporter: msg.reporter,
        }),
        _ => Err(faults),
    }
}

/// Where clients reach a host.
///
/// # Errors
/// The first field that is refused.
pub fn endpoint(msg: v1::Endpoint) -> Result<Endpoint, FieldFault> {
    let kind = name("kind", msg.kind)?;
    let address = name("address", msg.address)?;
    match u16::try_from(msg.port) {
        Ok(port) if port > 0 => Ok(Endpoint { kind, address, port }),
        _ => Err(FieldFault::new("port", msg.port, "1..=65535")),
    }
}

/// The endpoint of a place.
pub(super) fn required_endpoint(msg: Option<v1::Endpoint>) -> Result<Endpoint, FieldFault> {
    endpoint(required("endpoint", msg)?).map_err(|fault| nested(fault, "endpoint"))
}

fn endpoints(faults: &mut Faults, mut list: Vec<v1::Endpoint>) -> Vec<Endpoint> {
    if list.is_empty() {
        faults.push(FieldFault::new("endpoints", "none", format!("1..={MAX_ENDPOINTS}")));
    }
    faults.cut_list("endpoints", &mut list, MAX_ENDPOINTS);
    faults.entries("endpoints", list, endpoint)
}

fn labels(faults: &mut Faults, labels: HashMap<String, String>) -> BTreeMap<String, String> {
    if labels.len() > MAX_LABELS {
        let count = format!("{} labels", labels.len());
        faults.push(FieldFault::new("labels", count, format!("at most {MAX_LABELS}")));
        return BTreeMap::new();
    }
    let mut taken = BTreeMap::new();
    for (key, value) in labels {
        let Some(key) = faults.ok(name("labels", key)) else { continue };
        if value.len() > MAX_NAME_BYTES || value.chars().any(char::is_control) {
            let shown = format!("a value of {} bytes", value.len());
            let allowed = "0..=256 bytes without control characters";
            faults.push(FieldFault::new(format!("labels.{key}"), shown, allowed));
        } else {
            taken.insert(key, value);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> v1::Hello {
        v1::Hello {
            protocol_version: PROTOCOL_VERSION,
            agent_version: "0.1.0".to_owned(),
            host_id: "6d0f6f5e-0000-4000-8000-000000000001".to_owned(),
            boot_id: "b1".to_owned(),
            host_name: "app1.example".to_owned(),
            endpoints: vec![v1::Endpoint {
                kind: "ssh".to_owned(),
                address: "10.0.0.1".to_owned(),
                port: 22,
            }],
            pool: "desk".to_owned(),
            report_interval_ms: 5000,
            latency_period_ms: 60_000,
            ..Default::default()
        }
    }

    fn refused(change: impl FnOnce(&mut v1::Hello)) -> Vec<String> {
        let mut msg = valid();
        change(&mut msg);
        hello(msg).unwrap_err().into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn a_hello_with_the_required_fields_is_taken() {
        let taken = hello(valid()).unwrap();
        assert_eq!(taken.report_interval, Duration::from_secs(5));
        assert_eq!((taken.cores, taken.memory_bytes, &taken.zone), (None, None, &None));
        assert_eq!(crate::write::hello(&taken), valid());
    }

    #[test]
    fn case_161_a_host_name_that_is_a_script_is_refused_at_registration() {
        let fields = refused(|msg| msg.host_name = "<img src=x onerror=alert(1)>".to_owned());
        assert_eq!(fields, ["host_name"]);
    }

    #[test]
    fn every_fault_of_a_hello_is_named() {
        let fields = hello(v1::Hello::default()).unwrap_err().into_iter().map(|fault| fault.field);
        let expected = [
            "protocol_version",
            "agent_version",
            "host_id",
            "boot_id",
            "host_name",
            "endpoints",
            "pool",
            "report_interval_ms",
            "latency_period_ms",
        ];
        assert_eq!(fields.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn bounds_of_a_hello_are_held() {
        assert_eq!(refused(|msg| msg.protocol_version = 2), ["protocol_version"]);
        assert_eq!(refused(|msg| msg.report_interval_ms = 99), ["report_interval_ms"]);
        assert_eq!(refused(|msg| msg.report_interval_ms = 3_600_001), ["report_interval_ms"]);
        assert_eq!(refused(|msg| msg.latency_period_ms = 300_001), ["latency_period_ms"]);
        assert_eq!(refused(|msg| msg.cores = Some(0)), ["cores"]);
        assert_eq!(refused(|msg| msg.memory_bytes = Some(0)), ["memory_bytes"]);
        assert_eq!(refused(|msg| msg.endpoints[0].port = 65536), ["endpoints[0].port"]);
        assert_eq!(refused(|msg| msg.endpoints[0].port = 0), ["endpoints[0].port"]);
        assert_eq!(refused(|msg| msg.endpoints[0].address = "a\n".to_owned()), ["endpoints[0].address"]);
        assert_eq!(refused(|msg| msg.endpoints = vec![msg.endpoints[0].clone(); 33]), ["endpoints"]);
        let many = |msg: &mut v1::Hello| {
            msg.labels = (0..65).map(|i| (i.to_string(), String::new())).collect();
        };
        assert_eq!(refused(many), ["labels"]);
        let long = |msg: &mut v1::Hello| msg.labels = [("rack".to_owned(), "x".repeat(257))].into();
        assert_eq!(refused(long), ["labels.rack"]);
    }
}
