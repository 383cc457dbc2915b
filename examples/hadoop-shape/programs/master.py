"""A stand-in for the HBase master: it gives each region of the table to one region server.

    PUT, GET /table/KEY   a value; the region server is asked
    GET /                 who has which regions
"""
import json
import sys
import threading
import urllib.error
import zlib

import hbase
from shape import MASTER, NAMENODE, REGIONSERVER, Refused, call, ended, every, ready, serve, until

ID = f"files/{hbase.FOLDER}/hbase.id"

lock = threading.Lock()
given = {}  # region server -> its regions


def best(region, servers):
    """The server for a region: another one only when servers come or go."""
    return max(servers, key=lambda s: zlib.crc32(f"{region} {s}".encode()))


def tell(server, regions):
    call("POST", server, REGIONSERVER, "regions", sorted(regions), timeout=2)


def assign():
    hbase.here("master")
    servers = json.loads(hbase.zookeeper("GET", "rs/*"))
    wanted = {s: set() for s in servers}
    for region in range(hbase.REGIONS):
        if servers:
            wanted[best(region, servers)].add(region)
    # First everybody gives up what is another's: a region is never on two servers. Who does
    # not answer has it until ZooKeeper forgets who is silent.
    busy = {}
    for server in servers:
        try:
            tell(server, wanted[server] & given.get(server, set()))
        except OSError:
            busy[server] = given.get(server, set())
    held = set().union(*busy.values())
    now = {s: wanted[s] - held for s in servers if s not in busy} | busy
    with lock:
        given.clear()
        given.update(now)
    for server in servers:
        if server not in busy:
            tell(server, now[server])


def find(key):
    with lock:
        for server, regions in given.items():
            if hbase.region(key) in regions:
                return server
    raise Refused(503, f"region {hbase.region(key)} is on no region server")


def answer(method, path, body):
    match method, path:
        case "GET", []:
            with lock:
                return {"regionservers": {s: sorted(r) for s, r in sorted(given.items())}}
        case ("PUT" | "GET"), ["table", key]:
            try:
                return call(method, find(key), REGIONSERVER, "table/" + key, body or None)
            except urllib.error.HTTPError as e:
                raise Refused(e.code, e.read().decode())
    raise Refused(404, "nothing is here")


def root():
    """The table's folder, made when it is not there."""
    try:
        call("GET", hbase.NAMENODE_HOST, NAMENODE, ID)
    except urllib.error.HTTPError as e:
        if e.code != 404:
            raise
        call("PUT", hbase.NAMENODE_HOST, NAMENODE, ID, {"regions": hbase.REGIONS})


if sys.argv[1:] == ["initialize"]:
    until(hbase.ROOT, root)
    sys.exit()
until(hbase.ROOT, lambda: call("GET", hbase.NAMENODE_HOST, NAMENODE, ID))
serve(MASTER, answer)
until("ZooKeeper", lambda: hbase.here("master"))
ready.set()
every(0.5, assign)
