"""A stand-in for the YARN node manager: it does tasks of the resource manager, one at a time."""
import collections
import json

from shape import DATANODE, NAMENODE, NODEMANAGER, RESOURCEMANAGER, Refused, ask, call, ended, every, host, ready, serve, settings, until

site = settings()
MANAGER = site["yarn_site"]["yarn.resourcemanager.hostname"]
NAMENODE_HOST = host(site["core_site"]["fs.defaultFS"])
ADDRESS = site["hdfs_site"]["dfs.datanode.hostname"]  # the datanode's, which shares the node


def count(map, at):
    """The words of one block, from this node's disk if it is there."""
    for address in sorted(at, key=lambda a: a != ADDRESS):
        try:
            text = call("GET", address, DATANODE, "blocks/" + map).decode(errors="replace")
            return {"counts": collections.Counter(text.split())}
        except OSError as e:
            why = e
    raise OSError(f"block {map}: {why if at else 'it is nowhere'}")


def total(reduce, output):
    """The words of all blocks, as a file in HDFS."""
    sums = collections.Counter()
    for counts in reduce:
        sums.update(counts)
    text = "".join(f"{word}\t{n}\n" for word, n in sorted(sums.items()))
    call("PUT", NAMENODE_HOST, NAMENODE, "files/" + output, text.encode())
    return {"words": sum(sums.values())}


def heartbeat(results={}):
    # Who sends one does no task: what it was given before and has no result is given anew.
    return ask("POST", MANAGER, RESOURCEMANAGER, "nodes/" + ADDRESS, {"results": results, "leaving": ended.is_set()})


def work():
    given = heartbeat()
    while given:
        [(number, task)] = given.items()
        try:
            result = (count if "map" in task else total)(**task)
        except OSError as e:
            result = {"error": str(e)}
        given = heartbeat({number: result})


def answer(method, path, body):
    if (method, path) == ("GET", []):
        return {"resourcemanager": MANAGER}
    raise Refused(404, "nothing is here")


serve(NODEMANAGER, answer)
until(f"the resource manager {MANAGER}", heartbeat)
ready.set()
every(0.3, work)
