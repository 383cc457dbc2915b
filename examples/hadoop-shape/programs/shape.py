"""What the stand-ins have in common: settings, HTTP, and how they begin and end."""
import http.server
import json
import os
import signal
import sys
import threading
import time
import urllib.request

# The services' ports: those of the real ones' web pages.
NAMENODE, DATANODE, RESOURCEMANAGER, NODEMANAGER, ZOOKEEPER, MASTER, REGIONSERVER = 50070, 50075, 8088, 8042, 2181, 60010, 60030

ready = threading.Event()  # set once the service does its work: only then / answers
ended = threading.Event()  # set when the service is told to stop


def settings():
    """The service's part of the cluster's configuration, as its action `configure` wrote it.
    The service runs in its own folder."""
    with open("settings.json") as file:
        return json.load(file)


class Refused(Exception):
    """An answer that is not 200."""

    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def serve(port, answer):
    """Answers requests, in the background. answer(method, path, body) gives bytes, or what
    JSON can hold; path is a list, such as ["files", "a", "b"]."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def handle_any(self):
            path = [part for part in self.path.split("/") if part]
            status, body = 200, self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                if not path and not ready.is_set():
                    raise Refused(503, "not ready yet")
                out = answer(self.command, path, body)
            except Refused as e:
                status, out = e.status, {"error": str(e)}
            except OSError as e:  # somebody else does not answer
                status, out = 503, {"error": str(e)}
            if not isinstance(out, bytes):
                out = json.dumps(out, indent=1).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128

    threading.Thread(target=Server(("", port), Handler).serve_forever, daemon=True).start()


def call(method, host, port, path, body=None, timeout=5):
    """Asks another service and gives the answer's bytes. Raises OSError."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    request = urllib.request.Request(f"http://{host}:{port}/{path}", data=body, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return response.read()


def ask(*args, **keywords):
    """call, for answers in JSON."""
    return json.loads(call(*args, **keywords))


def until(what, do):
    """Tries until it works. A service whose neighbours do not answer does not start."""
    end = time.monotonic() + 30
    while not ended.is_set():
        try:
            return do()
        except OSError as e:
            if time.monotonic() > end:
                sys.exit(f"{what}: {e}")
            ended.wait(0.2)
    sys.exit("stopped")


def every(seconds, do):
    """Does something again and again until the service is told to stop."""
    while not ended.wait(seconds):
        try:
            do()
        except OSError as e:
            print(e, flush=True)


def host(url):
    """The host of hdfs://HOST/PATH."""
    return url.removeprefix("hdfs://").split("/")[0]


def keep(path, value):
    """Writes a file of JSON so that it is there as a whole or not at all."""
    with open(path + ".new", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


signal.signal(signal.SIGTERM, lambda *_: ended.set())
