"""Every failure a user can meet, one class each; a message names the value, the limit and the way out."""


class GflowError(Exception):
    """Base of all errors that gflow raises on purpose; `str(error)` is one line fit for a terminal."""

    exit_status: int = 1


class InputError(GflowError, ValueError):
    """A value, flag, key or file given by the user is not acceptable (exit status 2)."""

    exit_status = 2


class OutputError(GflowError, OSError):
    """An output cannot be written: it exists, the folder is missing or read-only, the disk is full (exit status 2)."""

    exit_status = 2


class TokenLawError(InputError):
    """A token law is not a probability law, or lacks what the loss needs."""


class TableError(GflowError):
    """An overlap table cannot be built to its accuracy on the range asked for."""


class SolveError(GflowError):
    """`solve(..., throw=True)` did not finish; the partial trajectory is in `.trajectory`."""

    def __init__(self, message: str, trajectory: object = None) -> None:
        super().__init__(message)
        self.trajectory = trajectory


class StoreError(OutputError):
    """The store of a sweep could not be written to any further (exit status 1); what is in it stays, to be resumed."""

    exit_status = 1


class WorkerError(GflowError):
    """The processes that compute a sweep cannot be started, or were lost; what is in the store stays."""
