"""What the server answers where it does not do what was asked: one line, a status, and a code that
the libraries of chat completions know."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that is not done. `param` is the field that is wrong."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request_error",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param

    @property
    def body(self) -> dict[str, Any]:
        """As chat completions write an error."""
        return {
            "error": {
                "message": self.message,
                "type": self.code,
                "code": self.code,
                "param": self.param,
            }
        }
