"""The one error type of the clinic: something a user gave it cannot be used."""


class ClinicError(ValueError):
    """A clinic file, case set or setting is unusable; the message names file, value and fix."""
