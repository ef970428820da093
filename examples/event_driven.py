"""An event-driven service: orders come in, each one is charged once, and what happened goes out as events of its own.

    python examples/event_driven.py localhost:9092

Several copies may run at the same time: they share the orders' partitions, and the orders of one customer stay in order. A copy
commits what it has handled only when the events that follow from it are stored, so none is lost when it dies. An order that is
handled again after a crash is known by its number.
"""

from __future__ import annotations

import json
import sys

from ottla.sync import Admin, Consumer, NewTopic, Producer

ORDERS, PAYMENTS = "shop.orders", "shop.payments"
IDLE_POLLS_MAX = 5


def place_orders(bootstrap: str, count: int) -> None:
    """What a web shop would do: one event for each order, keyed by the customer."""
    with Producer(bootstrap) as producer:
        for number in range(count):
            customer = f"customer-{number % 7}"
            order = {"order": number, "customer": customer, "cents": 100 * (number + 1)}
            producer.send(ORDERS, json.dumps(order).encode(), key=customer.encode())


def charge(bootstrap: str) -> int:
    """Handles orders until none has come for a while; how many were charged."""
    charged: set[int] = set()
    idle = 0
    with (
        Producer(bootstrap) as producer,
        Consumer(bootstrap, group_id="payments", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe([ORDERS])
        while idle < IDLE_POLLS_MAX:
            records = consumer.poll(1000)
            idle = 0 if records else idle + 1
            for record in records:
                order = json.loads(record.value or b"{}")
                if order["order"] not in charged:
                    charged.add(order["order"])
                    payment = {"order": order["order"], "charged": order["cents"]}
                    producer.send(PAYMENTS, json.dumps(payment).encode(), key=record.key)
            if records:
                producer.flush()
                consumer.commit()
    return len(charged)


def main() -> None:
    bootstrap = sys.argv[1]
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(ORDERS, 3), NewTopic(PAYMENTS, 3)])
    place_orders(bootstrap, 100)
    print(f"{charge(bootstrap)} orders charged")


if __name__ == "__main__":
    main()
