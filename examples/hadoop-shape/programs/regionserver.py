"""A stand-in for the HBase region server: it has regions of the table, and keeps them in HDFS.

    PUT, GET /table/KEY   a value of one of its regions
    POST /regions         the master says which regions are its own
"""
import json
import threading
import time
import urllib.error

import hbase
from shape import MASTER, NAMENODE, REGIONSERVER, Refused, call, ended, every, ready, serve, until

lock = threading.Lock()
regions = {}  # its own -> keys and values, None until they are needed
known = 0.0  # since when ZooKeeper has known this server without a break


def own(key):
    """The region of a key, read from HDFS when it is new here."""
    n = hbase.region(key)
    # Silent for longer it may have lost its regions to others without knowing.
    if n not in regions or time.monotonic() - known > hbase.LEASE:
        raise Refused(503, f"region {n} is not here")
    if regions[n] is None:
        try:
            regions[n] = json.loads(call("GET", hbase.NAMENODE_HOST, NAMENODE, f"files/{hbase.FOLDER}/region-{n}"))
        except urllib.error.HTTPError as e:
            if e.code != 404:
                raise
            regions[n] = {}
    return n


def put(key, value):
    """Written means: it is in HDFS."""
    with lock:
        n = own(key)
        changed = regions[n] | {key: value.decode()}
        regions[n] = None  # unknown, if this fails
        call("PUT", hbase.NAMENODE_HOST, NAMENODE, f"files/{hbase.FOLDER}/region-{n}", changed)
        regions[n] = changed
        return {}


def get(key):
    with lock:
        values = regions[own(key)]
    if key not in values:
        raise Refused(404, "no such key")
    return values[key].encode()


def mine(now):
    """What is being written is written before a region goes."""
    with lock:
        for n in set(regions) - set(now):
            del regions[n]
        for n in now:
            regions.setdefault(n, None)
    return {}


def answer(method, path, body):
    match method, path:
        case "GET", []:
            return {"regions": sorted(regions)}
        case "POST", ["regions"]:
            return mine(json.loads(body))
        case "PUT", ["table", key]:
            return put(key, body)
        case "GET", ["table", key]:
            return get(key)
    raise Refused(404, "nothing is here")


def here():
    global known
    now = time.monotonic()
    hbase.here("rs/" + hbase.ADDRESS)
    known = now


def master():
    return call("GET", json.loads(hbase.zookeeper("GET", "master")), MASTER, "")


serve(REGIONSERVER, answer)
until("the HBase master", master)
until("ZooKeeper", here)
ready.set()
every(0.5, here)
mine([])
try:
    hbase.zookeeper("DELETE", "rs/" + hbase.ADDRESS)
except OSError as e:
    print(e)  # it forgets this server by itself
