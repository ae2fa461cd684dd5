"""The answers of an offering process to a claim, and the errors that stand for them."""

from __future__ import annotations

from typing import Final

from xsem.errors import BadArgumentError
from xsem.ipc.tickets import Fields, is_running

__all__ = ["FORGED", "GRANTED", "OTHER_USER", "OVER", "SPENT", "absent", "ended", "refusal"]

# A message follows GRANTED, and nothing follows the others.
GRANTED: Final = 0
OTHER_USER: Final = 1
FORGED: Final = 2
OVER: Final = 3
SPENT: Final = 4


def absent(fields: Fields) -> BadArgumentError:
    """Return the error for an offer that is not served any more."""
    if not is_running(fields):
        return ended(fields)
    return refusal(OVER if fields.expired else SPENT)


def ended(fields: Fields) -> BadArgumentError:
    """Return the error for an offer whose process has ended."""
    return BadArgumentError(f"process {fields.pid}, which offered the ticket, has ended: it must live until the "
                            "ticket is claimed", reason="sender_ended")


def refusal(verdict: int) -> BadArgumentError:
    """Return the error for an answer other than GRANTED."""
    if verdict == OTHER_USER:
        return BadArgumentError("the ticket belongs to another user: only processes of the user that offered it can "
                                "claim it. In a user namespace of Linux, both need a mapping of this user "
                                "(/proc/self/uid_map)", reason="other_user")
    if verdict == FORGED:
        return BadArgumentError("the offering process did not write this ticket, or the text was changed on its way",
                                reason="ticket_forged")
    if verdict == OVER:
        return BadArgumentError("the lifetime of the ticket is over: offer with a longer lifetime_s",
                                reason="ticket_expired")
    return BadArgumentError("the ticket was claimed as often as it was offered: offer with more claims. With "
                            "at=, the claim must name the directory of the offer", reason="ticket_spent")
