"""A stand-in for the HDFS namenode: which blocks a file has, and which datanodes have them.

    PUT, GET, DELETE /files/PATH   a file
    GET /files                     their names
    GET /blocks/PATH               a file's blocks, and where they are
    GET /                          how things stand
    POST /datanodes/ADDRESS        a datanode's heartbeat: what it has; the answer says what it is to do
"""
import json
import os
import random
import sys
import threading
import time

from shape import DATANODE, NAMENODE, Refused, call, ended, keep, ready, serve, settings

DEAD = 5  # seconds without a heartbeat

hdfs = settings()["hdfs_site"]
COPIES, BLOCKSIZE = int(hdfs["dfs.replication"]), int(hdfs["dfs.blocksize"])
IMAGE = "image.json"

lock = threading.RLock()
files = {}  # path -> its blocks; kept in the image
unfinished = set()  # blocks of files that are being written
datanodes = {}  # address -> Datanode; learnt from heartbeats alone
began = time.monotonic()


class Datanode:
    def __init__(self):
        self.seen, self.blocks, self.leaving = 0, set(), False
        self.written = {}  # block -> when it was written; a heartbeat may be older than that

    def forget(self, block):
        self.blocks.discard(block)
        self.written.pop(block, None)

    def lives(self):
        return time.monotonic() - self.seen < DEAD


def holders(block, staying=False):
    return [a for a, d in datanodes.items() if block in d.blocks and d.lives() and not (staying and d.leaving)]


def staying():
    """Datanodes that can take blocks, the emptiest first."""
    some = [a for a, d in datanodes.items() if d.lives() and not d.leaving]
    random.shuffle(some)
    return sorted(some, key=lambda a: len(datanodes[a].blocks))


def safe():
    """Whether all datanodes have had the time to say what they have. Before that nobody
    can tell what has too few copies."""
    return time.monotonic() - began > DEAD


def heartbeat(address, blocks, leaving):
    with lock:
        d = datanodes.setdefault(address, Datanode())
        d.seen, d.leaving = time.monotonic(), leaving
        d.written = {b: at for b, at in d.written.items() if d.seen - at < DEAD}
        d.blocks = set(blocks) | set(d.written)
        used = {b for blocks in files.values() for b in blocks}
        orders = []
        for block in sorted(d.blocks) if safe() else []:
            there, all_there = holders(block, staying=True), holders(block)
            if block not in used:
                if block not in unfinished:
                    orders.append({"delete": block})
                    d.forget(block)
            elif len(there) > COPIES and address == max(there, key=lambda a: (len(datanodes[a].blocks), a)):
                orders.append({"delete": block})
                d.forget(block)
            elif (len(all_there) < COPIES or not there) and address == min(all_there):
                targets = [a for a in staying() if a not in all_there]
                orders += [{"copy": block, "to": a} for a in targets[:1]]
        # It may go when nothing would be missed, or when nobody stays. It may come back,
        # so nothing more is copied before it is dead.
        others = [b for b in d.blocks & (used | unfinished) if not holders(b, staying=True)]
        return {"orders": orders, "may_leave": not others or not staying()}


def pieces(body):
    """Cuts a file into blocks. A block ends with a line where it can, so that who counts
    words needs no other block."""
    while len(body) > BLOCKSIZE:
        end = body.rfind(b"\n", 0, BLOCKSIZE) + 1 or BLOCKSIZE
        yield body[:end]
        body = body[end:]
    yield body


def write(path, body):
    mine = []
    try:
        for piece in pieces(body):
            block = f"{time.time_ns():x}-{random.getrandbits(32):08x}"
            with lock:
                unfinished.add(block)
                mine.append(block)
                targets = staying()
            stored = 0
            for address in targets:
                if stored == COPIES:
                    break
                try:
                    call("PUT", address, DATANODE, "blocks/" + block, piece, timeout=2)
                except OSError:
                    continue
                stored += 1
                with lock:
                    datanodes[address].blocks.add(block)
                    datanodes[address].written[block] = time.monotonic()
            # One copy is enough to go on, the others are made later.
            if not stored:
                raise Refused(503, f"{path}: no datanode takes a block")
        with lock:
            keep(IMAGE, files | {path: mine})
            files[path] = mine
    finally:
        with lock:
            unfinished.difference_update(mine)
    return {"blocks": len(mine)}


def fetch(block, where):
    for address in where:
        try:
            return call("GET", address, DATANODE, "blocks/" + block, timeout=2)
        except OSError:
            continue
    raise Refused(503, f"no datanode gives block {block}")


def read(path):
    end = time.monotonic() + DEAD
    while True:
        try:
            return b"".join(fetch(block, where) for block, where in places(path))
        except Refused as e:
            # Somebody may be writing the file anew, or a datanode not be heard of yet.
            if e.status == 404 or time.monotonic() > end:
                raise
        time.sleep(0.2)


def places(path):
    with lock:
        if path not in files:
            raise Refused(404, f"{path} is not there")
        return [(b, sorted(holders(b), key=lambda a: -datanodes[a].seen)) for b in files[path]]


def delete(path):
    with lock:
        rest = {p: blocks for p, blocks in files.items() if p != path}
        keep(IMAGE, rest)
        files.pop(path, None)
    return {}


def state():
    with lock:
        copies = [len(holders(b, staying=True)) for blocks in files.values() for b in blocks]
        return {
            "datanodes": {a: {"blocks": len(d.blocks), "leaving": d.leaving} for a, d in sorted(datanodes.items()) if d.lives()},
            "files": len(files),
            "blocks": len(copies),
            "missing": copies.count(0),
            "too_few_copies": sum(n < min(COPIES, len(staying())) for n in copies),
            "safe_mode": not safe(),
        }


def answer(method, path, body):
    match method, path:
        case "GET", []:
            return state()
        case "POST", ["datanodes", address]:
            return heartbeat(address, **json.loads(body))
        case "GET", ["files"]:
            return sorted(files)
        case "PUT", ["files", *name]:
            return write("/".join(name), body)
        case "GET", ["files", *name]:
            return read("/".join(name))
        case "DELETE", ["files", *name]:
            return delete("/".join(name))
        case "GET", ["blocks", *name]:
            return places("/".join(name))
    raise Refused(404, "nothing is here")


if sys.argv[1:] == ["initialize"]:
    # A file system that is there is not made again.
    if not os.path.exists(IMAGE):
        keep(IMAGE, {})
    sys.exit()
with open(IMAGE) as file:
    files = json.load(file)
serve(NAMENODE, answer)
ready.set()
ended.wait()
