"""EndTxn, versions 0-5: a transaction is committed or aborted. v5 returns the id and epoch that the producer goes on with (KIP-890).

NONE says that it is decided: the decision is committed, and whatever happens all partitions get the same end. It need not be readable
everywhere yet.
"""

from __future__ import annotations

from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Need, service
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.transactions.commands import EndTransaction

NEXT_EPOCH_SINCE = 5


async def handle(parts: Parts, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    transactional_id, version = request.transactional_id, context.version

    def command(token: int) -> EndTransaction:
        return EndTransaction(
            token, transactional_id, request.producer_id, request.producer_epoch, request.committed,
            transaction_version=2 if version >= NEXT_EPOCH_SINCE else 0,
        )  # fmt: skip

    if not transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        result = await parts.transactions.ask(transactional_id, command)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    code = code_for("EndTxn", version, result.error_code)
    if code or version < NEXT_EPOCH_SINCE:
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)


SERVICE = service(EndTxnRequest, handle, needs=Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"))
