"""The command for one's own data: a CSV file in, a posterior and a verdict on it out."""

from jaxbnn.cli.command import main

__all__ = ["main"]
