"""A stand-in for ZooKeeper: names with values, which go when their owners are silent.

    PUT /NAME      {"value": …, "seconds": how long it stays unless it is put again}
    GET /NAME      the value; GET /NAME/* all values below, by the last part of their names
    DELETE /NAME

All is in memory: owners put what is theirs again every second.
"""
import json
import threading
import time

from shape import ZOOKEEPER, Refused, ended, ready, serve

lock = threading.Lock()
names = {}  # name -> (value, until when)


def answer(method, path, body):
    now = time.monotonic()
    with lock:
        for name in [n for n, (_, until) in names.items() if until < now]:
            del names[name]
        match method, path:
            case "GET", []:
                return {"/".join(name): value for name, (value, _) in sorted(names.items())}
            case "GET", [*above, "*"]:
                return {name[-1]: value for name, (value, _) in names.items() if list(name[:-1]) == above}
            case "GET", name if tuple(name) in names:
                return names[tuple(name)][0]
            case "PUT", name if name:
                said = json.loads(body)
                names[tuple(name)] = said["value"], now + said["seconds"]
                return {}
            case "DELETE", name:
                names.pop(tuple(name), None)
                return {}
    raise Refused(404, "no such name")


serve(ZOOKEEPER, answer)
ready.set()
ended.wait()
