"""Run a command beside moto, which speaks S3, with a bucket ``flownet`` and an environment that says where it is."""

from __future__ import annotations

import http.client
import logging
import os
import subprocess
import sys

from moto.server import ThreadedMotoServer


def main() -> int:
    """Run the command of the arguments; its exit code."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/flownet")
        if connection.getresponse().status != 200:
            return 1
        settings = {
            "AWS_ENDPOINT": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
        return subprocess.run(sys.argv[1:], env={**os.environ, **settings}).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
