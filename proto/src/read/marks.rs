//! What does an admin say of a host, or of its copy of a resource? Strict: a setting that is half wrong is not made.

use usher_types::{Change, FieldFault, HostMarks, HostMarksChange, UserLimit};

use super::settings::user_limit;
use crate::{
    enums,
    fault::{Faults, id, name, shown},
    requests::MarkReplica,
    v1,
};

/// The settings that can be taken back, as requests name them.
const CLEARABLE: &str = "capacity, max_users, threshold_percent or range";

/// A host's name or id, in `field`. Whether there is such a host is asked elsewhere.
///
/// # Errors
/// The fault, if it is empty, longer than 256 bytes, or holds a control character.
pub fn host_text(field: &str, text: String) -> Result<String, FieldFault> {
    name(field, text)
}

/// The settings of a host that a coordinator holds.
///
/// # Errors
/// Every field that is refused.
pub fn host_marks(msg: v1::HostMarks) -> Result<HostMarks, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let busy = Some(msg.busy);
    let change = HostMarksChange { busy, ..set(&mut faults, msg) };
    let mut faults = faults.into_vec();
    match change.apply_to(&HostMarks::default()) {
        Ok(marks) if faults.is_empty() => Ok(marks),
        Ok(_) => Err(faults),
        Err(refused) => {
            faults.extend(refused);
            Err(faults)
        }
    }
}

/// The host, by name or id, and what an admin changes of its settings.
///
/// Numbers pass as they are, NaN too: [`HostMarksChange::apply_to`] refuses them.
///
/// # Errors
/// Every field that is no value at all, that is both set and taken back, or that cannot be taken back.
pub fn host_marks_change(msg: v1::SetHostMarksRequest) -> Result<(String, HostMarksChange), Vec<FieldFault>> {
    let mut faults = Faults::default();
    let host = faults.ok(host_text("host", msg.host));
    let marks = msg.marks.unwrap_or_default();
    if marks.busy && msg.busy != Some(true) {
        // The flag of the message cannot say "as it is", so that a request has one of its own.
        faults.push(FieldFault::new("marks.busy", true, "false in a request, which says it in busy"));
    }
    let mut change = HostMarksChange { busy: msg.busy, ..set(&mut faults, marks) };
    for field in msg.clear {
        let result = clear(&mut change, &field);
        faults.ok(result);
    }
    let faults = faults.into_vec();
    match host {
        Some(host) if faults.is_empty() => Ok((host, change)),
        _ => Err(faults),
    }
}

fn set(faults: &mut Faults, msg: v1::HostMarks) -> HostMarksChange {
    let limit = msg.max_users.and_then(|limit| faults.ok(user_limit("max_users", limit)));
    HostMarksChange {
        capacity: to(msg.capacity),
        max_users: to::<UserLimit>(limit),
        threshold: to(msg.threshold_percent),
        range: to(msg.range),
        busy: None,
    }
}

fn to<T>(value: Option<T>) -> Change<T> {
    value.map_or(Change::Keep, Change::Set)
}

fn clear(change: &mut HostMarksChange, field: &str) -> Result<(), FieldFault> {
    match field {
        "capacity" => take_back(field, &mut change.capacity),
        "max_users" => take_back(field, &mut change.max_users),
        "threshold_percent" => take_back(field, &mut change.threshold),
        "range" => take_back(field, &mut change.range),
        other => Err(FieldFault::new("clear", shown(other), CLEARABLE)),
    }
}

fn take_back<T>(field: &str, change: &mut Change<T>) -> Result<(), FieldFault> {
    if matches!(change, Change::Set(_)) {
        return Err(FieldFault::new("clear", field, "what is not set by the same request"));
    }
    *change = Change::Clear;
    Ok(())
}

/// Whether one host's copy of a resource is in service.
///
/// # Errors
/// Every field that is refused.
pub fn mark_replica(msg: v1::MarkReplicaRequest) -> Result<MarkReplica, Vec<FieldFault>> {
    let mut faults = Faults::default();
    let host = faults.ok(host_text("host", msg.host));
    let resource = faults.ok(id("resource", &msg.resource));
    let mark = msg.mark.and_then(|number| faults.ok(enums::replica_mark("mark", number)));
    let faults = faults.into_vec();
    match host.zip(resource) {
        Some((host, resource)) if faults.is_empty() => Ok(MarkReplica { host, resource, mark }),
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests {
    use usher_types::{Percent, ReplicaMark};

    use super::*;
    use crate::write;

    fn request(marks: v1::HostMarks, clear: &[&str]) -> v1::SetHostMarksRequest {
        v1::SetHostMarksRequest {
            host: "app1".to_owned(),
            marks: Some(marks),
            clear: clear.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }
    }

    fn refused(msg: v1::SetHostMarksRequest) -> Vec<String> {
        host_marks_change(msg).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn marks_come_back_as_they_were_sent() {
        let marks = HostMarks {
            capacity: Some(2.5),
            max_users: Some(UserLimit::Unlimited),
            threshold: Some(Percent::new(0.0).unwrap()),
            range: Some(6.0),
            busy: true,
        };
        assert_eq!(host_marks(write::host_marks(&marks)), Ok(marks));
        assert_eq!(host_marks(v1::HostMarks::default()), Ok(HostMarks::default()));
    }

    #[test]
    fn case_148_every_wrong_mark_is_named() {
        let faults = host_marks(v1::HostMarks {
            capacity: Some(0.0),
            max_users: Some(v1::UserLimit { limit: None }),
            threshold_percent: Some(f64::NAN),
            range: Some(120.0),
            busy: false,
        })
        .unwrap_err();
        let fields: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["max_users", "capacity", "threshold_percent", "range"]);
    }

    #[test]
    fn what_a_request_does_not_say_is_kept() {
        let (host, change) = host_marks_change(request(v1::HostMarks::default(), &["range"])).unwrap();
        let expected = HostMarksChange { range: Change::Clear, ..HostMarksChange::default() };
        assert_eq!((host.as_str(), change), ("app1", expected));
        let bare = v1::SetHostMarksRequest { host: "app1".to_owned(), ..Default::default() };
        assert_eq!(host_marks_change(bare).unwrap().1, HostMarksChange::default());
    }

    #[test]
    fn a_setting_cannot_be_made_and_taken_back_at_once() {
        let capacity = v1::HostMarks { capacity: Some(2.0), ..Default::default() };
        assert_eq!(
            refused(request(capacity, &["capacity", "busy"])),
            [
                "clear = capacity: allowed what is not set by the same request",
                "clear = \"busy\": allowed capacity, max_users, threshold_percent or range",
            ]
        );
    }

    #[test]
    fn busy_is_said_once() {
        let busy = v1::HostMarks { busy: true, ..Default::default() };
        for said in [None, Some(false)] {
            let msg = v1::SetHostMarksRequest { busy: said, ..request(busy, &[]) };
            assert!(refused(msg)[0].starts_with("marks.busy = true"));
        }
        let msg = v1::SetHostMarksRequest { busy: Some(true), ..request(busy, &[]) };
        assert_eq!(host_marks_change(msg).unwrap().1.busy, Some(true));
    }

    #[test]
    fn a_change_comes_back_as_it_was_sent() {
        let change = HostMarksChange {
            capacity: Change::Set(3.0),
            max_users: Change::Clear,
            threshold: Change::Set(10.0),
            range: Change::Keep,
            busy: Some(false),
        };
        let msg = write::host_marks_change("app1", &change);
        assert_eq!(host_marks_change(msg), Ok(("app1".to_owned(), change)));
    }

    #[test]
    fn a_replica_without_a_mark_is_in_service_and_an_unknown_mark_is_refused() {
        let msg =
            |mark| v1::MarkReplicaRequest { host: "app1".to_owned(), resource: "mail".to_owned(), mark };
        assert_eq!(mark_replica(msg(None)).unwrap().mark, None);
        assert_eq!(mark_replica(msg(Some(2))).unwrap().mark, Some(ReplicaMark::PendingDelete));
        for wrong in [0, 9] {
            assert_eq!(mark_replica(msg(Some(wrong))).unwrap_err()[0].field, "mark");
        }
        let fields = mark_replica(v1::MarkReplicaRequest::default()).unwrap_err();
        assert_eq!((fields[0].field.as_str(), fields[1].field.as_str()), ("host", "resource"));
    }
}
