"""A stand-in for the HDFS datanode: it keeps blocks, and tells the namenode which.

    PUT, GET /blocks/BLOCK
"""
import os
import time

from shape import DATANODE, NAMENODE, Refused, ask, call, ended, every, host, ready, serve, settings, until

site = settings()
NAMENODE_HOST = host(site["core_site"]["fs.defaultFS"])
ADDRESS = site["hdfs_site"]["dfs.datanode.hostname"]
DIR = "blocks/"


def put(block, body):
    with open(DIR + block + ".new", "wb") as file:
        file.write(body)
    os.replace(DIR + block + ".new", DIR + block)
    return {}


def get(block):
    try:
        with open(DIR + block, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise Refused(404, f"block {block} is not here")


def heartbeat():
    blocks = [b for b in os.listdir(DIR) if not b.endswith(".new")]
    said = ask("POST", NAMENODE_HOST, NAMENODE, "datanodes/" + ADDRESS, {"blocks": blocks, "leaving": ended.is_set()})
    for order in said["orders"]:
        if "copy" in order:
            call("PUT", order["to"], DATANODE, "blocks/" + order["copy"], get(order["copy"]))
        elif os.path.exists(DIR + order["delete"]):
            os.remove(DIR + order["delete"])
    return said["may_leave"]


def answer(method, path, body):
    match method, path:
        case "GET", []:
            return {"namenode": NAMENODE_HOST, "blocks": len(os.listdir(DIR))}
        case "PUT", ["blocks", block]:
            return put(block, body)
        case "GET", ["blocks", block]:
            return get(block)
    raise Refused(404, "nothing is here")


os.makedirs(DIR, exist_ok=True)
serve(DATANODE, answer)
until(f"the namenode {NAMENODE_HOST}", heartbeat)
ready.set()
every(0.5, heartbeat)
# What only this one has is copied to others first. Without a namenode there is nobody to ask.
refused = 0
while refused < 5:
    try:
        if heartbeat():
            break
    except OSError as e:
        refused += 1
        print(e, flush=True)
    time.sleep(0.5)
