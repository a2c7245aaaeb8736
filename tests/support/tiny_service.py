"""A model service's outside in a few lines: a health answer, a slow or stubborn end. Started by the contract tests."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, required=True)
options.add_argument("--start-seconds", type=float, default=0.0)
options.add_argument("--stop-seconds", type=float, default=0.0)
options.add_argument("--ignore-term", action="store_true")
options.add_argument("--fail", default="")
options.add_argument("--child", action="store_true", help="leave a child behind that outlives this process")
args = options.parse_args()
since = time.monotonic()


class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        loading = time.monotonic() - since < args.start_seconds
        body = json.dumps({"status": "loading" if loading else "ok", "device": "cpu"}).encode()
        self.send_response(503 if loading else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def stop(_number, _frame):
    if not args.ignore_term:
        server.server_close()  # as uvicorn does: nobody is let in any more
        time.sleep(args.stop_seconds)
        os._exit(0)


if args.fail:
    print("loading", flush=True)
    print(args.fail, file=sys.stderr, flush=True)
    sys.exit(70)
server = ThreadingHTTPServer(("127.0.0.1", args.port), Health)
signal.signal(signal.SIGTERM, stop)
if args.child and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait(60)
    os._exit(0)
print("secrets seen:", [name for name in ("DATABASE_URL", "GPU_LEASE_TOKEN") if name in os.environ], flush=True)
server.serve_forever()
