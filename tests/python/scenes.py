"""Plays one scene of tests/e2e/hands_on/python.rs against a running server: scenes.py SCENE ADDRESS DATABASE_URL, and an
access token in TOKEN.

Prints what it did and saw as one line of JSON. What must hold is said by the test.
"""

import json
import os
import sys
import time

import grpc
import psycopg

from outbox_client import HoldfastError, Outbox, event, stage_ticket

# Key order and white space are not kept in an event's data, values and text are.
BODY = {"total": "9.90", "items": [1, 2.50, None, True], "customer": {"name": "Zoë \U0001f980", "note": "a\nb"}}


class Undo(Exception):
    """Ends a transaction or a savepoint by a rollback."""


def row(connection, note):
    connection.execute("INSERT INTO app_rows (id, note) VALUES (gen_random_uuid(), %s)", (note,))


def staged(outbox, connection, event_type="order.placed"):
    """Stages one event in what is open on the connection; its id."""
    placed = event(event_type, BODY, subject="o-1")
    answer = outbox.stage_in_tx(stage_ticket(connection), [placed])
    assert answer == [(placed["id"], "OUTCOME_STAGED")], answer
    return placed["id"]


def committed(outbox, database):
    with psycopg.connect(database) as connection:
        row(connection, "committed")
        placed = event("order.placed", BODY, subject="o-1")
        ticket = stage_ticket(connection)
        answer = outbox.stage_in_tx(ticket, [placed])
        before, _ = outbox.get_event(placed["id"])
    outbox.confirm_staged(ticket)
    return {"id": placed["id"], "answer": answer, "before": before, "body": BODY}


def rolled_back(outbox, database):
    try:
        with psycopg.connect(database) as connection:
            row(connection, "rolled back")
            gone = staged(outbox, connection)
            raise Undo
    except Undo:
        pass
    # Nothing was said to the server: it finds out by itself.
    while True:
        try:
            outbox.get_event(gone)
            time.sleep(0.02)
        except HoldfastError as error:
            return {"id": gone, "code": error.code.name, "reason": error.reason}


def savepoint(outbox, database):
    with psycopg.connect(database) as connection:
        kept = staged(outbox, connection)
        try:
            with connection.transaction():  # inside of a transaction: a savepoint
                undone = staged(outbox, connection)
                raise Undo
        except Undo:
            pass
        with connection.transaction():
            released = staged(outbox, connection)
    return {"kept": [kept, released], "undone": undone}


def duplicate(outbox, database):
    with psycopg.connect(database) as connection:
        ticket = stage_ticket(connection)
        placed = event("order.placed", BODY)
        answers = [outbox.stage_in_tx(ticket, [placed]) for _ in range(2)]
    return {"id": placed["id"], "outcomes": [answer[0][1] for answer in answers]}


def refusals(outbox, database):
    """What is wrong is read from the trailers."""
    with psycopg.connect(database) as connection:
        ticket = stage_ticket(connection)
        wrong = [event("", {}), event("order.placed", {}) | {"json": "{"}]
        told = [refused(outbox, ticket, wrong)]
    told.append(refused(outbox, ticket, [event("order.placed", {})]))
    return told


def refused(outbox, ticket, events):
    try:
        outbox.stage_in_tx(ticket, events)
    except HoldfastError as error:
        return {
            "code": error.code.name,
            "reason": error.reason,
            "fields": [field for field, _ in error.violations],
            "certainly_not_applied": error.certainly_not_applied,
        }
    raise AssertionError("was staged")


SCENES = [committed, rolled_back, savepoint, duplicate, refusals]

if __name__ == "__main__":
    name, address, database_url = sys.argv[1:]
    scene = {scene.__name__: scene for scene in SCENES}[name]
    with grpc.insecure_channel(address) as channel:
        print(json.dumps(scene(Outbox(channel, "orders", token=os.environ["TOKEN"]), database_url)))
