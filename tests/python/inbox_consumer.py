"""A consumer whose effects happen once: RabbitMQ by pika, the service's database by psycopg, the inbox by Holdfast. Copy it, with
outbox_client.py, and begin.

    inbox = Inbox(grpc.insecure_channel("127.0.0.1:50551"), "payments", token=os.environ["TOKEN"])

    def settle(connection, message):                # runs in a transaction that it must neither commit nor roll back
        connection.execute("INSERT INTO payments (id) VALUES (%s)", (message.id,))

    Consumer(inbox, AMQP_URL, "payments.orders", DATABASE_URL, settle).run()

The queue is one of the service's `consumer_queues` in Holdfast's configuration; see docs/consumers.md for its arguments, and for
what each answer means. An exception of the handler is an error, counted and tried again; `Never` is a dead letter at once.

One message at a time. pika answers the broker's heartbeats only between two messages: a handler must end well within two of them
(a minute each), or the connection is lost and the message comes again, to be found processed.
"""

import random
import time
import uuid
from datetime import datetime, timezone
from decimal import Decimal

import grpc
import pika
import psycopg

from outbox_client import HoldfastError, Service, stage_ticket


class Never(Exception):
    """A handler's: no repetition will help."""


class Inbox(Service):
    """The inbox of one service."""

    GRPC = "holdfast.v1.InboxService"

    def begin(self, queue, envelope_id, ticket, **told):
        """Begins a message in the transaction of the ticket. The answer: (outcome, its message)."""
        answer = self._call("BeginConsume", consumer_queue=queue, envelope_id=envelope_id, ticket=ticket, **told)
        return _one_of(answer, "outcome")

    def fail(self, queue, envelope_id, generation, error, kind):
        """Says that a start came to nothing. What comes next: (name, its message)."""
        answer = self._call(
            "FailConsume",
            consumer_queue=queue,
            envelope_id=envelope_id,
            generation=generation,
            error=error,
            kind=kind,
        )
        return _one_of(answer, "next")

    def surface_dead_letter(self, token, message):
        """Has a message published to the dead-letter exchange."""
        self._call(
            "SurfaceDeadLetter",
            token=token,
            body=message.body,
            properties=_properties(message.properties),
            exchange=message.method.exchange,
            routing_key=message.method.routing_key,
        )


class Message:
    """A delivery."""

    def __init__(self, method, properties, body):
        self.method, self.properties, self.body = method, properties, body
        # Raises ValueError for what is no UUID.
        self.id = str(uuid.UUID(properties.message_id or ""))

    def told(self):
        """What BeginConsume is told of it."""
        headers = self.properties.headers or {}
        return {
            "source_service": self.properties.app_id or "",
            "event_type": self.properties.type or "",
            "redelivered": self.method.redelivered,
            "replay_id": headers.get("x-holdfast-replay", ""),
            "cycle": headers.get("x-holdfast-cycle", 0),
        }


class Consumer:
    """Consumes one queue. `backoff`: the first and the longest wait between two attempts, in seconds."""

    def __init__(self, inbox, amqp_url, queue, database_url, handler, backoff=(1.0, 60.0)):
        self._inbox, self._queue, self._handler = inbox, queue, handler
        self._amqp, self._database, self._backoff = pika.URLParameters(amqp_url), database_url, backoff
        self._broker = None

    def run(self):
        """Consumes for ever. Whatever is not acked when a connection ends is delivered again."""
        failures = 0
        while True:
            try:
                with pika.BlockingConnection(self._amqp) as self._broker:
                    channel = self._broker.channel()
                    channel.basic_qos(prefetch_count=1)
                    failures = 0
                    for method, properties, body in channel.consume(self._queue):
                        self._deliver(channel, method, properties, body)
            except pika.exceptions.AMQPError:
                failures += 1
                # No connection to wait on, whose heartbeats would have to be answered.
                time.sleep(self._wait(failures))

    def settled(self, channel, message, how):
        """The last act: the effect is on disk, or the message is a dead letter, or is to be made one by the broker."""
        if how == "rejected":
            channel.basic_reject(message.method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(message.method.delivery_tag)

    def _deliver(self, channel, method, properties, body):
        try:
            message = Message(method, properties, body)
        except ValueError:
            # No inbox can know it again; the queue's own dead-lettering keeps it.
            channel.basic_reject(method.delivery_tag, requeue=False)
            return
        failures = 0
        while True:
            try:
                how, after = self._attempt(message)
            except (psycopg.Error, HoldfastError):
                # Nobody knows, or what is needed is away: the next beginning tells. No leave to ack.
                how, after = None, None
            if how:
                self.settled(channel, message, how)
                return
            if after is None:
                failures += 1
                after = self._wait(failures)
            # Answers the broker's heartbeats; raises once the connection is lost.
            self._broker.sleep(after)

    def _attempt(self, message):
        """(how it is settled, None), or (None, seconds to wait; None: a back-off)."""
        with psycopg.connect(self._database) as connection:
            ticket = stage_ticket(connection)
            # An ack is built on the COMMIT: it waits for the disk, whatever the role's default; a stronger default stays.
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') IN ('off', 'local')"
            )
            outcome, said = self._inbox.begin(self._queue, message.id, ticket, **message.told())
            if outcome != "process":
                # Whatever was begun by a call whose answer was lost must not be committed.
                connection.rollback()
            if outcome == "duplicate":
                return "duplicate", None
            if outcome == "in_progress":
                return None, said.retry_after.seconds + said.retry_after.nanos / 1e9
            if outcome == "dead_letter":
                return self._dead(message, said), None
            if outcome != "process":
                # Of a later release: neither run nor ack.
                return None, None
            try:
                self._handler(connection, message)
                if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                    # Its COMMIT would be a rollback without an error.
                    raise psycopg.errors.InFailedSqlTransaction("a statement of the handler failed")
                connection.commit()
                return "processed", None
            except Exception as error:  # whatever a handler, or the COMMIT, may raise
                broken = error
                if not connection.closed:
                    connection.rollback()
        kind = "FAIL_KIND_DEAD_LETTER" if isinstance(broken, Never) else "FAIL_KIND_ERROR"
        # The name of what was raised, and no values: everybody who may read the service is shown it.
        following, said = self._inbox.fail(self._queue, message.id, said.generation, type(broken).__name__, kind)
        if following == "duplicate":
            # The COMMIT had gone through; only its reply was lost.
            return "processed", None
        if following == "dead_letter":
            return self._dead(message, said), None
        return None, None

    def _dead(self, message, letter):
        if not letter.already_surfaced:
            try:
                self._inbox.surface_dead_letter(letter.token, message)
            except HoldfastError as error:
                if error.code not in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT):
                    raise
                # No letter of the server's can hold it. The queue's own dead-lettering can.
                return "rejected"
        return "dead_lettered"

    def _wait(self, failures):
        first, longest = self._backoff
        # At least half of the step: what failed together does not come back together.
        return min(longest, first * 2 ** min(failures - 1, 30)) * random.uniform(0.5, 1)


def _one_of(answer, name):
    which = answer.WhichOneof(name)
    return which, which and getattr(answer, which)


def _properties(properties):
    """pika's properties as the contract has them."""
    names = (
        "content_type content_encoding delivery_mode priority correlation_id reply_to expiration message_id timestamp type "
        "user_id app_id cluster_id"
    ).split()
    there = {name: getattr(properties, name) for name in names if getattr(properties, name) is not None}
    return {**there, "headers": {name: _value(value) for name, value in (properties.headers or {}).items()}}


def _value(value):
    """One value of an AMQP table."""
    match value:
        case None:
            return {}
        case bool():
            return {"flag": value}
        case int():
            return {"number": value}
        case float() | Decimal():
            return {"real": float(value)}
        case str():
            return {"text": value}
        case datetime():
            return {"timestamp": int(value.replace(tzinfo=timezone.utc).timestamp())}
        case list():
            return {"list": {"values": [_value(one) for one in value]}}
        case dict():
            return {"table": {"entries": {name: _value(one) for name, one in value.items()}}}
        case _:
            return {"binary": bytes(value)}
