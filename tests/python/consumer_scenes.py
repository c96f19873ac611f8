"""Plays one scene of tests/e2e/hands_on/python_consumer.rs: consumer_scenes.py SCENE ADDRESS DATABASE_URL AMQP_URL QUEUE MESSAGES, and
an access token in TOKEN.

Consumes until so many messages are settled, and prints [[id, how], …] as one line of JSON.
"""

import json
import os
import signal
import sys

import grpc
import psycopg

from inbox_consumer import Consumer, Inbox, Never


class Enough(Exception):
    """All messages are settled."""


class Counting(Consumer):
    def __init__(self, *arguments, messages, **named):
        super().__init__(*arguments, backoff=(0.02, 0.2), **named)
        self._messages, self.saw = messages, []

    def settled(self, channel, message, how):
        super().settled(channel, message, how)
        self.saw.append([message.id, how])
        if len(self.saw) == self._messages:
            # The connection is closed on the way out, in order: the acks come first.
            raise Enough


class Dying(Counting):
    """Is killed between the commit and the ack."""

    def settled(self, channel, message, how):
        os.kill(os.getpid(), signal.SIGKILL)


def effect(connection, message):
    row = "INSERT INTO app_rows (id, note) VALUES (gen_random_uuid(), %s)"
    connection.execute(row, (message.id,))


def broken(connection, message):
    effect(connection, message)
    raise ValueError("not today")


def hopeless(connection, message):
    effect(connection, message)
    raise Never


def swallowing(connection, message):
    effect(connection, message)
    try:
        connection.execute("SELECT 1/0")
    except psycopg.Error:
        pass


def noting(connection, message):
    effect(connection, message)
    setting = connection.execute("SHOW synchronous_commit").fetchone()[0]
    connection.execute("INSERT INTO app_rows (id, note) VALUES (gen_random_uuid(), %s)", (f"synchronous_commit {setting}",))


SCENES = {
    "consume": (Counting, effect),
    "die": (Dying, effect),
    "broken": (Counting, broken),
    "hopeless": (Counting, hopeless),
    "swallowing": (Counting, swallowing),
    "noting": (Counting, noting),
}

if __name__ == "__main__":
    name, address, database_url, amqp_url, queue, messages = sys.argv[1:]
    kind, handler = SCENES[name]
    with grpc.insecure_channel(address) as channel:
        inbox = Inbox(channel, "orders", token=os.environ["TOKEN"])
        consumer = kind(inbox, amqp_url, queue, database_url, handler, messages=int(messages))
        try:
            consumer.run()
        except Enough:
            print(json.dumps(consumer.saw))
