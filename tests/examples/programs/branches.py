"""Parallel branches with a join: three checks of one order at the same time, and a verdict over all of them.

The join takes each branch's value by the branch's name, and runs once, when all of them have ended. One of the checks
may fail without harm: `on_error="skip"` leaves its edge out, and its parameter is None then.
"""

from __future__ import annotations

from pydantic import BaseModel

from graphrt import END, START, Workflow


class Order(BaseModel):
    """What a customer wants."""

    item: str
    amount: int
    customer: str


order_check = Workflow("order check", input=Order, output=str)

STOCK = {"chair": 12, "table": 1}
DEBTORS = {"mallory"}


@order_check.node
async def stock(order: Order) -> bool:
    """Look whether there is enough."""
    return STOCK.get(order.item, 0) >= order.amount


@order_check.node
async def credit(order: Order) -> bool:
    """Look whether the customer pays."""
    return order.customer not in DEBTORS


@order_check.node(on_error="skip")
async def delivery(order: Order) -> int:
    """Ask how many days it will take; without an answer the order goes on."""
    if order.item == "table":
        raise ConnectionError("nobody answers")
    return 3


@order_check.node
async def verdict(stock: bool, credit: bool, delivery: int | None) -> str:
    """Decide."""
    if not stock:
        return "refused: out of stock"
    if not credit:
        return "refused: no credit"
    return f"accepted, in {delivery} days" if delivery is not None else "accepted"


for check in (stock, credit, delivery):
    order_check.chain(START, check, verdict)
order_check.edge(verdict, END)


def main() -> str:
    """Run it once."""
    return str(order_check.run_sync(Order(item="chair", amount=2, customer="ann")).output)
