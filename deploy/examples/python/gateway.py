"""A login gateway in Python, over plain gRPC: asks where a login goes, connects, goes elsewhere if a host does not want it,
and says what became of it.

    pip install grpcio grpcio-tools grpcio-status googleapis-common-protos
    python -m grpc_tools.protoc -I proto --python_out=OUT --grpc_python_out=OUT proto/usher/v1/*.proto
    PYTHONPATH=OUT python gateway.py --coordinators c1.example:7443,c2.example:7443 --pool desk --user alice \\
        --cert gateway.pem --key gateway.key --ca ca.pem

It prints where it connected and the first line that the server says. Exit code 1: no host, and why.
"""

import argparse
import itertools
import socket
import sys
import time
import uuid

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from usher.v1 import agent_pb2, placement_pb2, placement_pb2_grpc

CONNECT_S = 3.0
BETWEEN_ROUNDS_S = 0.2
# A coordinator that is back is found at once, not after minutes.
CHANNEL = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
# Nobody answered, or whoever did cannot tell yet. Every other no is one that all would give, but for room that is theirs.
ASK_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
Outcome = agent_pb2.Outcome
Cause = agent_pb2.FailoverCause


def details(error, kind):
    """What a refusal carries of this kind, or None: ErrorInfo has its reason, RetryInfo when to ask again."""
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        found = kind()
        if detail.Unpack(found):
            return found
    return None


class Usher:
    """Several coordinators, which are all equal: any answer is right, whoever gives it."""

    def __init__(self, addresses, deadline_s=5.0, credentials=None, gateway="python-example"):
        open_channel = lambda address: (
            grpc.secure_channel(address, credentials, CHANNEL) if credentials else grpc.insecure_channel(address, CHANNEL)
        )
        self.stubs = [placement_pb2_grpc.PlacementServiceStub(open_channel(address)) for address in addresses]
        self.answering = 0
        self.deadline_s = deadline_s
        # On plain loopback this names the gateway; elsewhere its certificate does.
        self.metadata = [("usher-gateway", gateway)]

    def call(self, method, request, deadline_s):
        """Asks one after the other until one answers, at most this long in all. The request id stays the same and the
        attempt is counted, so that a place given in an answer that was lost is found again, not given twice."""
        deadline, last, first = time.monotonic() + deadline_s, None, self.answering
        for attempt in itertools.count():
            number = (first + attempt) % len(self.stubs)
            left_s = deadline - time.monotonic()
            if last and left_s < 0.05:
                raise last
            if hasattr(request, "attempt"):
                request.attempt = attempt + 1
            try:
                # Half of what is left: one that hangs does not use up the time of the others.
                answer = getattr(self.stubs[number], method)(request, timeout=left_s / 2, metadata=self.metadata)
                # Whoever answers is asked first from now on.
                self.answering = number
                return answer
            except grpc.RpcError as error:
                info = details(error, error_details_pb2.ErrorInfo)
                if error.code() not in ASK_AGAIN and not (info and "kept_hosts" in info.metadata):
                    raise
                last = error
            if (attempt + 1) % len(self.stubs) == 0:
                retry = details(last, error_details_pb2.RetryInfo)
                wait_s = retry.retry_delay.ToTimedelta().total_seconds() if retry else BETWEEN_ROUNDS_S
                time.sleep(max(0.0, min(wait_s, deadline - time.monotonic() - 0.1)))

    def place(self, request):
        return self.call("Place", request, self.deadline_s).placement

    def failover(self, request):
        return self.call("Failover", request, self.deadline_s).placement

    def report(self, request_id, outcome, cause=None):
        """Best effort: the login went as it did, whoever hears of it."""
        try:
            request = placement_pb2.ReportOutcomeRequest(request_id=request_id, outcome=outcome, cause=cause)
            self.call("ReportOutcome", request, 1.0)
        except grpc.RpcError as error:
            print(f"outcome not reported: {error.details()}", file=sys.stderr)


def log_in(usher, pool, user):
    """A connection to the host that takes this login, with the id that its outcomes go by."""
    login = {"pool": pool, "user": user}
    request_id = str(uuid.uuid4())
    placement = usher.place(placement_pb2.PlaceRequest(request_id=request_id, **login))
    tried = []
    while True:
        try:
            endpoint = placement.endpoints[0]
            connection = socket.create_connection((endpoint.address, endpoint.port), timeout=CONNECT_S)
            connection.settimeout(None)
            usher.report(request_id, Outcome.OUTCOME_CONNECTED)
            return connection, request_id, placement
        except ConnectionRefusedError:
            cause = Cause.FAILOVER_CAUSE_REFUSED
        except (OSError, IndexError):
            cause = Cause.FAILOVER_CAUSE_UNREACHABLE
        # A failover is a request of its own; it gives the failed place back, and answers no host twice.
        tried.append(placement.host_id)
        failed, request_id = request_id, str(uuid.uuid4())
        again = {"from_host": placement.host_id, "failed_request_id": failed, "tried": tried, "cause": cause}
        placement = usher.failover(placement_pb2.FailoverRequest(request_id=request_id, **again, **login))


def main():
    parser = argparse.ArgumentParser(description="Connects a login to the host that suits it best.")
    parser.add_argument("--coordinators", required=True, help="host:port of each, separated by commas")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--user")
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds for one question, all attempts together")
    for name in ("cert", "key", "ca"):
        parser.add_argument(f"--{name}", help="PEM file; all three, or none on plain loopback")
    options = parser.parse_args()
    read = lambda path: open(path, "rb").read()
    tls = options.cert and grpc.ssl_channel_credentials(read(options.ca), read(options.key), read(options.cert))
    usher = Usher(options.coordinators.split(","), options.deadline, tls)
    try:
        connection, request_id, placement = log_in(usher, options.pool, options.user)
    except grpc.RpcError as error:
        info = details(error, error_details_pb2.ErrorInfo)
        sys.exit(f"no host: {info.reason if info else error.code().name}: {error.details()}")
    try:
        with connection, connection.makefile(errors="replace") as server:
            print(f"connected to {placement.host_name}: {server.readline().strip()}")
    except OSError as error:
        sys.exit(f"the connection to {placement.host_name} broke: {error}")
    finally:
        usher.report(request_id, Outcome.OUTCOME_ENDED)


if __name__ == "__main__":
    main()
