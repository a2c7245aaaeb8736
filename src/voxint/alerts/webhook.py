"""Posts one message to the operator's webhook: bounded in time, and its address never shown, as it is often a secret."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from voxint.gpu_phase.reasons import clean
from voxint.services.exchange import Ask, ExchangeError, exchange

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT = timedelta(seconds=4)
_ANSWER_BYTES = 64 * 1024


def send(url: str, document: Mapping[str, object]) -> str | None:
    """Post it. Gives why it was not taken, in words; None where it was.

    Args:
        url: the webhook's address.
        document: what is posted as JSON.
    """
    try:
        answer = exchange(Ask("POST", url, LIMIT, _ANSWER_BYTES, json=dict(document)))
    except ExchangeError as error:
        return clean(str(error)).replace(url, "the webhook")
    return None if 200 <= answer.status < 300 else f"the webhook answered {answer.status}"
