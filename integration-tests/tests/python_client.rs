//! Can a client of another make, that has only the .proto files, use the farm?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;
use usher_integration_tests::{Farm, LONG, proto_dir, python};

async fn seen_by_python(farm: &Farm) -> Value {
    let generated = farm.folder().join("generated");
    std::fs::create_dir(&generated).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/client.py");
    let mut command = Command::new(python());
    command.arg(script).arg(proto_dir()).arg(generated).arg(farm.coordinator.grpc.to_string());
    // A proxy of the machine's is not for calls to itself.
    command.env("no_proxy", "*").env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(LONG * 2, command.output()).await.expect("the client ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_python_client_made_from_the_proto_files_lists_places_and_reads_typed_errors() {
    let farm = Farm::start().await;
    let _agent = farm
        .agent("hosts")
        .host("s1", "cpu=35,mem=55,users=10,procs=70,ai-xf=8")
        .host("s2", "mem=45,users=14,procs=89")
        .await;
    let seen = seen_by_python(&farm).await;

    let [s1, s2] = [&seen["hosts"][0], &seen["hosts"][1]];
    assert_eq!((&s1["name"], &s1["state"]), (&json!("s1"), &json!("HOST_STATE_AVAILABLE")));
    assert_eq!((&s1["cpu_percent"], &s1["users"]), (&json!(35.0), &json!(10)));
    // What is not known is absent, in every language.
    assert_eq!((&s2["cpu_percent"], &s2["availability_index"]), (&Value::Null, &Value::Null));

    let placed = &seen["placed"];
    assert_eq!((&placed["host"], &placed["gateway"]), (&json!("s1"), &json!("python")));
    assert_eq!(placed["reason"], "PLACEMENT_REASON_LOWEST_LOAD");
    assert_eq!(placed["endpoint"], json!(["ssh", "127.0.0.1", 2201]));
    assert_eq!(seen["again"], true, "a retry is answered with the same place");
    assert_eq!(seen["explained"], json!(["s1", "s2"]));
    assert_eq!(farm.client().host("s1").await.unwrap().pending_places, 1);

    let unknown = &seen["unknown_pool"];
    assert_eq!((&unknown["code"], &unknown["domain"]), (&json!("NOT_FOUND"), &json!("usher.v1")));
    assert_eq!(
        (&unknown["reason"], &unknown["metadata"]["pool"]),
        (&json!("UNKNOWN_POOL"), &json!("nowhere"))
    );
    let wrong = &seen["wrong_fields"];
    assert_eq!((&wrong["code"], &wrong["reason"]), (&json!("INVALID_ARGUMENT"), &json!("INVALID_FIELD")));
    assert_eq!(wrong["fields"], json!(["request_id", "cost"]));

    assert_eq!(seen["health"], json!(["SERVING", "SERVING", "SERVING"]));
    for service in ["AdminService", "AgentService", "DirectoryService", "PlacementService"] {
        let name = json!(format!("usher.v1.{service}"));
        assert!(seen["services"].as_array().unwrap().contains(&name), "{}", seen["services"]);
    }
    assert!(seen["described"].as_u64().unwrap() >= 1);
}
