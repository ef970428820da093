"""ControllerRegistration, version 0, on the controllers' listener (KIP-919): NOT_CONTROLLER unless this one is active.

UNSUPPORTED_VERSION while the cluster's metadata.version has no place for it; the controller is a voter all the same.
"""

from __future__ import annotations

from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import CONTROLLER, service
from ottla.controller.controllers import register_controller
from ottla.controller.decided import Recorded
from ottla.errors import KafkaError
from ottla.messages.acl_codes import Operation
from ottla.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from ottla.metadata.image import ClusterImage, ControllerImage
from ottla.metadata.members import endpoints_of, features_of


async def handle(parts: Parts, context: RequestContext, request: ControllerRegistrationRequest) -> ControllerRegistrationResponse:
    wanted = ControllerImage(request.controller_id, request.incarnation_id, endpoints_of(request.listeners), features_of(request.features))

    def decide(image: ClusterImage) -> Recorded:
        return register_controller(image, wanted)

    try:
        [result] = await parts.controller.decide([decide], is_followed=False)
    except KafkaError as error:
        result = error
    if isinstance(result, KafkaError):
        return ControllerRegistrationResponse(error_code=result.code, error_message=result.message)
    return ControllerRegistrationResponse()


SERVICE = service(ControllerRegistrationRequest, handle, roles=CONTROLLER, needs=Operation.CLUSTER_ACTION)
