"""Events of AWS name instances by id."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cluster_models.errors import InvalidInput
from tests.app.events.reports import read, shown

ONE, TWO = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"


def health(code: str, *instances: str, status: str = "open", service: str = "EC2", **detail: Any) -> dict[str, Any]:
    """An event of AWS Health."""
    return {
        "version": "0",
        "id": "e1",
        "detail-type": "AWS Health Event",
        "source": "aws.health",
        "time": "2026-03-01T11:00:00Z",
        "resources": list(instances),
        "detail": {
            "eventArn": f"arn:aws:health:eu-west-1::event/{code}",
            "service": service,
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "statusCode": status,
            "startTime": "Sun, 01 Mar 2026 20:00:00 GMT",
            "eventDescription": [{"language": "en_US", "latestDescription": "It will be stopped."}],
            "affectedEntities": [{"entityValue": instance, "entityArn": "-"} for instance in instances],
            **detail,
        },
    }


def notice(kind: str, **detail: str) -> dict[str, Any]:
    """A notice of EC2."""
    return {"id": "e2", "detail-type": kind, "source": "aws.ec2", "time": "2026-03-01T11:00:00Z", "detail": detail}


RETIRED = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"


@pytest.mark.parametrize(
    ("event", "reports"),
    [
        (health(RETIRED, ONE, TWO), [f"node {ONE} draining {RETIRED}", f"node {TWO} draining {RETIRED}"]),
        (health(RETIRED, ONE, status="closed"), [f"node {ONE} recovered {RETIRED}"]),
        (health(RETIRED, f"arn:aws:ec2:eu-west-1:1:instance/{ONE}"), [f"node {ONE} draining {RETIRED}"]),
        (
            health("AWS_EC2_INSTANCE_STOP_SCHEDULED", ONE),
            [f"node {ONE} draining AWS_EC2_INSTANCE_STOP_SCHEDULED"],
        ),
        (health("AWS_EC2_OPERATIONAL_ISSUE", ONE), [f"node {ONE} suspected AWS_EC2_OPERATIONAL_ISSUE"]),
        (health("AWS_S3_ISSUE", service="S3"), []),
        (
            notice("EC2 Spot Instance Interruption Warning", **{"instance-id": ONE, "instance-action": "stop"}),
            [f"node {ONE} draining spot interruption"],
        ),
        (
            notice("EC2 Instance Rebalance Recommendation", **{"instance-id": ONE}),
            [f"node {ONE} suspected rebalance"],
        ),
        (
            notice("EC2 Instance State-change Notification", **{"instance-id": ONE, "state": "terminated"}),
            [f"node {ONE} failed"],
        ),
        (
            notice("EC2 Instance State-change Notification", **{"instance-id": ONE, "state": "pending"}),
            [],
        ),
    ],
)
def test_an_event_becomes_reports_on_its_instances(event: dict[str, Any], reports: list[str]) -> None:
    assert shown(read("aws_health", event)) == reports
    wrapped = {"Type": "Notification", "Message": json.dumps(event)}
    assert read("aws_health", wrapped) == read("aws_health", event)


def test_a_retirement_says_until_when_the_instance_works() -> None:
    """Jobs need not leave before; one that is over has no such time."""
    begins = {"startTime": "Sat, 14 Mar 2026 10:00:00 GMT"}
    (event,) = read("aws_health", health(RETIRED, ONE, **begins)).events
    assert (event.state, event.leave_by) == ("draining", datetime(2026, 3, 14, 10, tzinfo=UTC))
    (over,) = read("aws_health", health(RETIRED, ONE, status="closed", **begins)).events
    assert (over.state, over.leave_by) == ("recovered", None)


def test_what_names_no_instance_is_shown() -> None:
    (unread,) = read("aws_health", health("AWS_EC2_OPERATIONAL_ISSUE")).unread
    assert unread.field == "detail.affectedEntities"
    (unread,) = read("aws_health", notice("Some Other Notice")).unread
    assert unread.field == "detail-type"
    assert read("aws_health", notice("EC2 Spot Instance Interruption Warning")).unread != ()


@pytest.mark.parametrize("body", [{}, [], 7, {"Type": "Notification", "Message": "{"}, {"detail": {}}])
def test_other_payloads_are_refused(body: object) -> None:
    with pytest.raises(InvalidInput):
        read("aws_health", body)
