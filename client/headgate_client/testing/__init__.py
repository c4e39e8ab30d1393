"""What tests of services need: Headgate without a server, on a clock that the test moves.

```python
server = FakeServer()
server.limit("edge", "2/minute", user="*")
limiter = server.client("edge")
assert limiter.check(user="alice") and limiter.check(user="alice") and not limiter.check(user="alice")
server.clock.advance(60)
```

The clients are the real ones, with their deadlines, breakers and memory; only the network is missing, and the server
behind it keeps real limits. With `pytest_plugins = ["headgate_client.testing.fixtures"]` in
`conftest.py`, tests have it as the fixture `headgate_server`.
"""

from headgate_client.testing.clock import FakeClock
from headgate_client.testing.server import FakeAsyncHeadgate, FakeHeadgate, FakeServer

__all__ = ["FakeAsyncHeadgate", "FakeClock", "FakeHeadgate", "FakeServer"]
