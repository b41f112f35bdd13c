"""A model served in a thread of this process."""

import threading
import time
from contextlib import contextmanager

from crbc_lab.model_server.server import address, bind, server


@contextmanager
def serving(policy, name="model", **options):
    """Context manager: serves at a free port, and gives the URL."""
    with bind("127.0.0.1", 0, False) as sock:
        served = server(policy, name, **options)
        thread = threading.Thread(target=served.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        while not served.started:
            time.sleep(0.005)
        try:
            yield address(sock)
        finally:
            served.should_exit = True
            thread.join()
