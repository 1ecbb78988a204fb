"""Every exception that gem_ma raises on purpose, as one tree. A class is named after the part that
failed.

GemMaError
  ConfigError(ValueError)           a config, an option or a name is wrong       exit 2
  DataError(ValueError)             a data or model folder is missing, damaged   exit 2
  ScenarioError                     `play()` raised, or broke a kernel's rule
    ReplayError                     a replay asks something else than its record
  ActionError(ValueError)           no action, or one of an agent not asked
  CallError                         outside work (`Call`) raised
  ProgramError                      a program in a seat (`serve`) left
  EngineError                       sampling failed
    EndpointError                   wrong key, no quota, no server               exit 3
      ModelNotFound(DataError)      the server has no such model                 exit 2
    BudgetError                     `limits:` allows no further request          exit 1
  StoreError(OSError)               the run folder refused, or is damaged        exit 1
    SchemaError                     it was written by a newer gem_ma             exit 2
  ConformanceError(AssertionError)  `check_scenario` has findings                exit 1

A ConfigError names file, line, key and what to do, a StoreError file and line. Live and replayed
plays see the same CallError. `EngineError.retryable` tells whether asking again can help. An
EndpointError ends a run, a BudgetError stops it; both can be resumed.

A model's bad output is none of these: it is data, and the scenario answers it.
"""


class GemMaError(Exception):
    """Base of all errors that gem_ma raises on purpose."""


class ConfigError(GemMaError, ValueError):
    """Wrong usage: one line per fault, `file:line: key: what (did you mean ...)`."""


class DataError(GemMaError, ValueError):
    """Data or a model that the user named is missing or damaged."""


class ScenarioError(GemMaError):
    """The scenario's own code raised, or broke a rule of the kernel; the cause is chained."""


class ReplayError(ScenarioError):
    """A replayed play differs from its record: the scenario is not a pure function of its
    inputs."""


class ActionError(GemMaError, ValueError):
    """The caller gave no action for an agent that was asked, or one for an agent that was not."""


class CallError(GemMaError):
    """The function of a `Call` effect raised or ran out of time."""


class ProgramError(GemMaError):
    """A program that plays an agent from outside has left, or was silent for too long."""


class EngineError(GemMaError):
    """An engine could not give a reply."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable

    # pickle calls a class with its `args` alone, so that a keyword would be lost on the way from
    # another process; the same below
    def __reduce__(self) -> tuple[object, ...]:
        return (_engine_error, (str(self), self.retryable))


def _engine_error(message: str, retryable: bool) -> EngineError:
    return EngineError(message, retryable=retryable)


class EndpointError(EngineError):
    """A model cannot be reached by anybody: wrong key, no quota, wrong address, no server. Ends
    a run, which can be resumed."""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self),))


# Both: it ends a run like a server that is down, and has the exit code of a path that is wrong.
class ModelNotFound(EndpointError, DataError):
    """The server is there and has no model of this name."""


class BudgetError(EngineError):
    """What `limits:` allows is spent. Ends a run after what is under way; its episodes count as
    interrupted."""

    def __reduce__(self) -> tuple[object, ...]:
        return (BudgetError, (str(self),))


# An OSError too: whoever writes files expects one, and code of others catches it.
class StoreError(GemMaError, OSError):
    """The run folder could not be read or written."""


class SchemaError(StoreError):
    """The run folder's schema number is newer than this version of gem_ma."""


# An AssertionError too: pytest shows it as a failed test, not as an error of the test itself.
class ConformanceError(GemMaError, AssertionError):
    """A scenario or a view breaks rules of the kit; `.findings` lists every one."""

    def __init__(self, findings: tuple[object, ...]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings

    def __reduce__(self) -> tuple[object, ...]:
        return (ConformanceError, (self.findings,))
