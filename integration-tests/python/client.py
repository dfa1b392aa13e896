"""A gateway in another language: made from the .proto files and public packages, sharing no code with usher.

Called with the folder of the .proto files, a folder for what is generated from them, and a coordinator's address.
Prints one JSON document of what it saw; whoever called it judges that.
"""

import json
import pathlib
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc

PACKAGE = pathlib.Path("usher/v1")
GATEWAY = (("usher-gateway", "python"),)
TIMEOUT_S = 20

# What the library's own packages for health and reflection would bring, in the few fields that are needed.
HEALTH_PROTO = """
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }
"""
REFLECTION_PROTO = """
syntax = "proto3";
package grpc.reflection.v1;
message ServerReflectionRequest {
  string host = 1;
  oneof message_request { string file_containing_symbol = 4; string list_services = 7; }
}
message FileDescriptorResponse { repeated bytes file_descriptor_proto = 1; }
message ServiceResponse { string name = 1; }
message ListServiceResponse { repeated ServiceResponse service = 1; }
message ServerReflectionResponse {
  oneof message_response {
    FileDescriptorResponse file_descriptor_response = 4;
    ListServiceResponse list_services_response = 6;
  }
}
service ServerReflection {
  rpc ServerReflectionInfo(stream ServerReflectionRequest) returns (stream ServerReflectionResponse);
}
"""


def generate(protos: pathlib.Path, out: pathlib.Path) -> None:
    """Makes Python of the .proto files, as any user of grpcio-tools would."""
    (out / "health.proto").write_text(HEALTH_PROTO)
    (out / "reflection.proto").write_text(REFLECTION_PROTO)
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    files = [str(path.relative_to(protos)) for path in sorted((protos / PACKAGE).glob("*.proto"))]
    code = protoc.main(
        ["protoc", f"-I{protos}", f"-I{out}", f"-I{well_known}", f"--python_out={out}", f"--grpc_python_out={out}"]
        + files
        + ["health.proto", "reflection.proto"]
    )
    if code != 0:
        raise SystemExit(f"protoc failed with {code}")
    sys.path.insert(0, str(out))


def typed_error(error: grpc.RpcError) -> dict:
    """What an error says to a program."""
    found = {"code": error.code().name, "message": error.details()}
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            found |= {"domain": info.domain, "reason": info.reason, "metadata": dict(info.metadata)}
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(retry):
            found["retry_s"] = retry.retry_delay.ToTimedelta().total_seconds()
        refused = error_details_pb2.BadRequest()
        if detail.Unpack(refused):
            found["fields"] = [violation.field for violation in refused.field_violations]
    return found


def refused(call) -> dict:
    """The error of a call that must not succeed."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return typed_error(error)
    raise SystemExit(f"not refused: {answer}")


def ask(channel: grpc.Channel) -> dict:
    """Everything that is asked of the coordinator."""
    import health_pb2
    import health_pb2_grpc
    import reflection_pb2
    import reflection_pb2_grpc
    from usher.v1 import common_pb2, directory_pb2, directory_pb2_grpc, placement_pb2, placement_pb2_grpc

    options = {"timeout": TIMEOUT_S, "metadata": GATEWAY}
    directory = directory_pb2_grpc.DirectoryServiceStub(channel)
    placement = placement_pb2_grpc.PlacementServiceStub(channel)

    hosts = directory.ListHosts(directory_pb2.ListHostsRequest(), **options).hosts
    request = placement_pb2.PlaceRequest(request_id="from-python", pool="desk", user="alice")
    placed = placement.Place(request, **options).placement
    again = placement.Place(request, **options).placement
    explained = placement.Explain(placement_pb2.ExplainRequest(decision_id=placed.decision_id), **options).explanation
    unknown = placement_pb2.PlaceRequest(request_id="from-python-2", pool="nowhere")
    empty = placement_pb2.PlaceRequest(pool="desk", cost=0)

    health = health_pb2_grpc.HealthStub(channel)
    names = ["", "usher.v1.PlacementService", "usher.v1.AgentService"]
    statuses = [health.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S).status for name in names]
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    questions = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="usher.v1.PlacementService"),
    ]
    answers = list(reflection.ServerReflectionInfo(iter(questions), timeout=TIMEOUT_S))

    return {
        "hosts": [
            {
                "name": host.host_name,
                "state": common_pb2.HostState.Name(host.state),
                "cpu_percent": host.cpu_percent if host.HasField("cpu_percent") else None,
                "users": host.users if host.HasField("users") else None,
                "availability_index": host.availability_index if host.HasField("availability_index") else None,
            }
            for host in hosts
        ],
        "placed": {
            "host": placed.host_name,
            "endpoint": [placed.endpoints[0].kind, placed.endpoints[0].address, placed.endpoints[0].port],
            "reason": placement_pb2.PlacementReason.Name(placed.reason),
            "gateway": placed.reservation.gateway,
            "weighted_load": placed.weighted_load,
        },
        "again": again.host_id == placed.host_id and again.reservation == placed.reservation,
        "explained": [host.host_name for host in explained.hosts],
        "unknown_pool": refused(lambda: placement.Place(unknown, **options)),
        "wrong_fields": refused(lambda: placement.Place(empty, **options)),
        "health": [health_pb2.HealthCheckResponse.ServingStatus.Name(status) for status in statuses],
        "services": sorted(service.name for service in answers[0].list_services_response.service),
        "described": len(answers[1].file_descriptor_response.file_descriptor_proto),
    }


def main() -> None:
    protos, out, address = sys.argv[1:]
    generate(pathlib.Path(protos), pathlib.Path(out))
    with grpc.insecure_channel(address) as channel:
        print(json.dumps(ask(channel)))


if __name__ == "__main__":
    main()
