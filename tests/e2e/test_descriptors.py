"""Callers can't use up the process's open files: HTTP answers, and so do those who were there before."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.transport.certificates import authority, issued_by
from tests.support.headgate import serve
