"""A client of Holdfast in one file, without generated code: copy it and begin.

The messages are learned from the server by reflection, so there is no protoc, no build step and no package of ours. It needs
grpcio, grpcio-reflection and protobuf; the transaction is yours, over any driver (the example uses psycopg):

    holdfast = Outbox(grpc.insecure_channel("127.0.0.1:50551"), "orders", token=os.environ["TOKEN"])

    with psycopg.connect(DATABASE_URL) as connection:      # commits at its end, rolls back on an exception
        connection.execute("INSERT INTO orders (id) VALUES ('o-1')")
        ticket = stage_ticket(connection)
        holdfast.stage_in_tx(ticket, [event("order.placed", {"total": "9.90"}, subject="o-1")])
    holdfast.confirm_staged(ticket)                        # optional: saves the events a moment

The events are delivered if, and only if, that transaction commits. What the calls promise and refuse is documented in
proto/holdfast/v1/outbox_service.proto. A service that calls often generates its code from there instead.
"""

import json
import uuid

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

# Also what the server sends with every failure, see proto/holdfast/v1/error_reason.proto.
ERROR_DOMAIN = "holdfast.v1"


def stage_ticket(connection):
    """Takes a ticket for the transaction (or the savepoint) that is open on a psycopg connection."""
    return connection.execute("SELECT holdfast.stage_ticket()").fetchone()[0]


def event(event_type, data, **fields):
    """An event with JSON data and an id made here: whatever is sent again is then the same event."""
    return {"id": str(uuid.uuid4()), "type": event_type, "json": json.dumps(data), **fields}


class HoldfastError(Exception):
    """A call failed; what the server said about it, as plain values."""

    def __init__(self, code, message, reason, metadata, violations):
        super().__init__(f"{code.name} ({reason}): {message}")
        self.code = code
        # An ErrorReason without its prefix; None if it was not Holdfast that answered.
        self.reason = reason
        # [(field, description), …] of an INVALID_ARGUMENT, such as ("events[0].type", "…").
        self.violations = violations
        # Whether surely nothing was written. False: nobody on this side knows.
        self.certainly_not_applied = metadata.get("applied") == "no"


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Sends an access token along with every call."""

    def __init__(self, token):
        self._authorization = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation, call, request):
        return continuation(self._authorized(call), request)

    def intercept_stream_stream(self, continuation, call, requests):
        return continuation(self._authorized(call), requests)

    def _authorized(self, call):
        authorized = _Call()
        authorized.method, authorized.timeout = call.method, call.timeout
        authorized.metadata = [*(call.metadata or ()), self._authorization]
        authorized.credentials, authorized.compression = call.credentials, call.compression
        authorized.wait_for_ready = call.wait_for_ready
        return authorized


class _Call(grpc.ClientCallDetails):
    """grpcio's own is read only."""


class Service:
    """Calls of one of Holdfast's gRPC services, for one service of yours."""

    # The full name, as the contract has it.
    GRPC = None

    def __init__(self, channel, service, token=None, deadline=10.0):
        """`token`: an access token, without "Bearer ". `deadline`: seconds a call may take."""
        # Asking what messages there are needs the token, too.
        self._channel = grpc.intercept_channel(channel, _Bearer(token)) if token else channel
        self._service = service
        self._deadline = deadline
        self._pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(self._channel))

    def _call(self, method, **fields):
        described = self._pool.FindServiceByName(self.GRPC).FindMethodByName(method)
        request = message_factory.GetMessageClass(described.input_type)
        response = message_factory.GetMessageClass(described.output_type)
        send = self._channel.unary_unary(
            f"/{self.GRPC}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return send(request(service=self._service, **fields), timeout=self._deadline)
        except grpc.RpcError as error:
            raise self._told(error) from error

    def _told(self, error):
        """What the server put into the trailers of its refusal: a google.rpc.Status with typed details."""
        reason, metadata, violations = None, {}, []
        trailers = dict(error.trailing_metadata() or ())
        if "grpc-status-details-bin" in trailers:
            status = self._message("google.rpc.Status").FromString(trailers["grpc-status-details-bin"])
            for detail in status.details:
                said = self._message(detail.TypeName()).FromString(detail.value)
                if detail.TypeName() == "google.rpc.ErrorInfo" and said.domain == ERROR_DOMAIN:
                    reason, metadata = said.reason, dict(said.metadata)
                elif detail.TypeName() == "google.rpc.BadRequest":
                    violations = [(broken.field, broken.description) for broken in said.field_violations]
        return HoldfastError(error.code(), error.details(), reason, metadata, violations)

    def _message(self, name):
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def _enum(self, name, number):
        return self._pool.FindEnumTypeByName(name).values_by_number[number].name


class Outbox(Service):
    """The outbox of one service."""

    GRPC = "holdfast.v1.OutboxService"

    def stage_in_tx(self, ticket, events):
        """Stages events for the open transaction that the ticket names. Answers [(id, outcome), …]."""
        return self._staged(self._call("StageInTx", ticket=ticket, events=events))

    def stage_now(self, events):
        """Stages events bound to no transaction. Answers [(id, outcome), …]."""
        return self._staged(self._call("StageNow", events=events))

    def confirm_staged(self, ticket):
        """Says that the ticket's transaction has ended. A hint, which may fail without any effect."""
        self._call("ConfirmStaged", ticket=ticket)

    def get_event(self, event_id):
        """Where an event is: (state, why)."""
        found = self._call("GetEvent", id=event_id)
        return self._enum("holdfast.v1.EventState", found.state), found.why

    def _staged(self, response):
        return [(one.id, self._enum("holdfast.v1.Outcome", one.outcome)) for one in response.events]
