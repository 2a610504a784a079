"""What happens when a flow run ends otherwise than well: Prefect's hooks, also called by a worker whose run was killed."""

import logging
import re
from typing import Any

from prefect import get_client
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.states import Cancelled
from prefect.utilities.urls import url_for

log = logging.getLogger(__name__)
ALERTS = "anamnesis-alerts"  # what the notification blocks are called that are told: Slack, e-mail, a webhook ...
STOPPED = re.compile("aborted by an interrupt signal|aborted by a termination signal|aborted by Python system exit")


def was_stopped(state: Any) -> bool:
    """Whether a crashed run was stopped, by Ctrl-C, SIGTERM or a deadline."""
    return STOPPED.search(state.message or "") is not None


def cancelled(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001  Prefect's signature
    """A run that somebody stopped did not crash."""
    if was_stopped(state):
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(flow_run.id, Cancelled(message="Stopped by a signal."), force=True)


def alert(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001  Prefect's signature
    """Send a run's failure to every notification block called `anamnesis-alerts`. Only of deployed runs, which nobody
    watches; the stages that fail with one are not told apart.
    """
    if flow_run.deployment_id is None or was_stopped(state):
        return
    with get_client(sync_client=True) as client:
        called = [document.id for document in client.read_block_documents() if document.name == ALERTS]
        name = client.read_flow_run(flow_run.id).name  # a worker knows the one before the run named itself
    subject = f"{name} has {state.name.lower()}"
    body = f"{state.message or ''}\n{url_for(flow_run) or ''}".strip()
    for identifier in called:
        by = f"block {identifier}"
        try:
            block = Block.load_from_ref(identifier)
            by = type(block).__name__
            if isinstance(block, NotificationBlock):
                _ = block.notify(body, subject)  # no coroutine outside an event loop
        except Exception as error:  # noqa: BLE001  whatever the service raises, the next one is told
            log.error("the alert %r could not be sent by %s: %s", subject, by, error)
