"""The errors a user can meet. Each message says what was given, the rule, and what to do."""


class AdascaleError(Exception):
    """Base of every error this library raises on purpose.

    For example:

        >>> try:
        ...     OODDetector(model, "scal")
        ... except AdascaleError as error:
        ...     print(type(error).__name__, "did you mean" in str(error))
        InputError True
    """


class InputError(AdascaleError, ValueError):
    """An argument or file does not fit; the message says what would."""


class HeadNotFoundError(AdascaleError, LookupError):
    """No single linear layer produces the network's logits."""


class NotFittedError(AdascaleError, RuntimeError):
    """A detector was asked for scores before ``fit``, or after a parameter changed."""


class DetectorFileError(AdascaleError, ValueError):
    """A detector file is damaged, was not written by this library, or belongs to another network."""


class MissingExtraError(AdascaleError, ImportError):
    """An optional package is not installed; the message has the install line."""


class AdascaleWarning(UserWarning):
    """Something works, but not in the way one might assume."""
