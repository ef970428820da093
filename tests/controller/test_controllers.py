"""Controllers that register: what is recorded, and what a feature's level has to respect."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from ottla.controller.controllers import REGISTRATION_SINCE, register_controller
from ottla.controller.features import METADATA_VERSION, FeatureUpdate, update_features
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.update_features import UpgradeType
from ottla.metadata.image import BrokerImage, ClusterImage, ControllerImage, EndpointImage
from ottla.metadata.replay import replay

ENDS = {"CONTROLLER": EndpointImage("CONTROLLER", "a", 9093)}
ONE = ControllerImage(1, b"i" * 16, ENDS, {METADATA_VERSION: (7, 30)})


def cluster(level: int = 30) -> ClusterImage:
    return ClusterImage(features={METADATA_VERSION: level})


def test_a_controller_that_registers_is_known_as_it_says_until_another_process_of_it_registers() -> None:
    image = cluster()
    image = replay(image, register_controller(image, ONE).records)
    assert image.controllers == {1: ONE}
    assert register_controller(image, ONE).records == ()
    later = replace(ONE, incarnation_id=b"j" * 16, endpoints={"CONTROLLER": EndpointImage("CONTROLLER", "b", 9094)})
    assert replay(image, register_controller(image, later).records).controllers == {1: later}


def test_an_older_cluster_has_no_place_for_controllers() -> None:
    image = cluster(REGISTRATION_SINCE - 1)
    with pytest.raises(KafkaError) as caught:
        register_controller(image, ONE)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("who", ["controller 1", "broker 2"])
def test_no_feature_has_a_level_that_a_registered_node_does_not_support(who: str) -> None:
    old = {METADATA_VERSION: (7, 29)}
    image = cluster(28)
    if who == "controller 1":
        image = dataclasses.replace(image, controllers={1: replace(ONE, features=old)})
    else:
        image = dataclasses.replace(image, brokers={2: BrokerImage(2, 5, {}, None, True, features=old)})
    wanted = [FeatureUpdate(METADATA_VERSION, 30, UpgradeType.UPGRADE)]
    with pytest.raises(KafkaError, match=who) as caught:
        update_features(image, wanted, supported={METADATA_VERSION: (7, 30)}, min_isr=1)
    assert caught.value.code == ErrorCode.INVALID_UPDATE_VERSION
    assert update_features(image, [replace(wanted[0], level=29)], supported={METADATA_VERSION: (7, 30)}, min_isr=1).records
