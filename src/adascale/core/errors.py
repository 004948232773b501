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
    """An argument or file does not fit; the message says what would.

    For example:

        >>> try:
        ...     OODDetector(model, "react", percentile=120)
        ... except InputError as error:
        ...     print("percentile" in str(error))
        True
    """


class HeadNotFoundError(AdascaleError, LookupError):
    """No single linear layer produces the network's logits.

    For example:

        >>> try:
        ...     OODDetector(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Softmax(1))).fit(images)
        ... except HeadNotFoundError as error:
        ...     print("linear layer" in str(error))
        True
    """


class NotFittedError(AdascaleError, RuntimeError):
    """A detector was asked for scores before ``fit``, or after a parameter changed.

    For example:

        >>> try:
        ...     OODDetector(model)(images)
        ... except NotFittedError as error:
        ...     print("fit" in str(error))
        True
    """


class DetectorFileError(AdascaleError, ValueError):
    """A detector file is damaged, was not written by this library, or belongs to another network.

    For example:

        >>> written = Path("notes.safetensors").write_text("not a detector")
        >>> try:
        ...     OODDetector.load("notes.safetensors", model)
        ... except DetectorFileError as error:
        ...     print("notes.safetensors" in str(error))
        True
    """


class MissingExtraError(AdascaleError, ImportError):
    """An optional package is not installed; the message has the install line.

    For example:

        >>> issubclass(MissingExtraError, ImportError)  # `except ImportError` finds it, too
        True
    """


class AdascaleWarning(UserWarning):
    """Something works, but not in the way one might assume.

    For example:

        >>> import warnings
        >>> warnings.simplefilter("error", AdascaleWarning)  # for those who want to stop there
    """
