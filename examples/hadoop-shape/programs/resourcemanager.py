"""A stand-in for the YARN resource manager: it counts words with the help of the node managers.

    POST /jobs   {"input": PATH, "output": PATH}, both in HDFS; answered when the job has ended
    GET /jobs    those that have ended
    GET /        how things stand
    POST /nodes/ADDRESS   a node manager's heartbeat: what it has done; the answer says what it is to do
"""
import json
import sys
import threading
import time
import urllib.error

from shape import NAMENODE, RESOURCEMANAGER, Refused, ask, call, ended, host, ready, serve, settings, until

DEAD = 5  # seconds without a heartbeat
PATIENCE = 1  # seconds that a task waits for a node that has its block
ATTEMPTS = 20
JOBS = "files/yarn/jobs.json"

site = settings()
NAMENODE_HOST = host(site["core_site"]["fs.defaultFS"])
HISTORY = site["mapred_site"]["mapreduce.jobhistory.address"]

lock = threading.Condition()
nodes = {}  # address -> when it was heard of
tasks = {}  # number -> Task, of all jobs under way
done = []  # jobs that have ended; in HDFS, too
numbers = iter(range(1, 1 << 62))


class Task:
    def __init__(self, work, at=()):
        self.work, self.at = work, at
        self.node, self.result, self.attempts, self.ready = None, None, 0, time.monotonic()


def heartbeat(address, results, leaving):
    now = time.monotonic()
    with lock:
        nodes[address] = now
        for number, result in results.items():
            task = tasks.get(number)
            if not task or task.node != address:
                continue  # it was given to another
            if "error" in result and task.attempts < ATTEMPTS:
                print(f"task {number} on {address}: {result['error']}", flush=True)
                task.node, task.ready = None, now
            else:
                task.result = result
        lock.notify_all()
        for number, task in tasks.items():
            lost = task.node and now - nodes[task.node] > DEAD
            if task.node and not task.result and (lost or task.node == address):
                task.node, task.ready = None, now
        if leaving:
            del nodes[address]
            return {}
        free = [n for n, t in tasks.items() if not t.node and not t.result]
        near = [n for n in free if address in tasks[n].at] or [n for n in free if now - tasks[n].ready > PATIENCE]
        for number in near[:1]:
            tasks[number].node = address
            tasks[number].attempts += 1
            return {number: tasks[number].work}
        return {}


def run(work):
    """Has tasks done, and gives them when they are."""
    mine = {}
    with lock:
        for task in work:
            mine[str(next(numbers))] = task
        tasks.update(mine)
        try:
            if not lock.wait_for(lambda: all(t.result for t in mine.values()), timeout=60):
                raise Refused(503, f"tasks are not done: node managers are {sorted(nodes)}")
        finally:
            for number in mine:
                del tasks[number]
    for task in mine.values():
        if "error" in task.result:
            raise Refused(500, task.result["error"])
    return list(mine.values())


def job(input, output):
    blocks = ask("GET", NAMENODE_HOST, NAMENODE, "blocks/" + input.strip("/"))
    maps = run([Task({"map": block, "at": at}, at) for block, at in blocks])
    [reduce] = run([Task({"reduce": [t.result["counts"] for t in maps], "output": output.strip("/")})])
    with lock:
        ran = {
            "job": len(done) + 1, "input": input, "output": output, "words": reduce.result["words"],
            "maps": len(maps), "maps_where_their_block_is": sum(t.node in t.at for t in maps),
            "nodes": sorted({t.node for t in maps}),
        }
        call("PUT", NAMENODE_HOST, NAMENODE, JOBS, done + [ran])
        done.append(ran)
    # The macro stays as it is where the cluster has no history server.
    if "%" not in HISTORY:
        try:
            call("POST", *HISTORY.split(":"), "jobs", ran)
        except OSError as e:
            print(f"history server: {e}", flush=True)
    return ran


def answer(method, path, body):
    match method, path:
        case "GET", []:
            now = time.monotonic()
            with lock:
                return {"nodes": sorted(a for a, seen in nodes.items() if now - seen < DEAD), "tasks": len(tasks), "jobs": len(done)}
        case "POST", ["nodes", address]:
            return heartbeat(address, **json.loads(body))
        case "POST", ["jobs"]:
            return job(**json.loads(body))
        case "GET", ["jobs"]:
            return done
    raise Refused(404, "nothing is here")


def jobs():
    return ask("GET", NAMENODE_HOST, NAMENODE, JOBS)


def initialize():
    try:
        jobs()
    except urllib.error.HTTPError as e:
        if e.code != 404:
            raise
        call("PUT", NAMENODE_HOST, NAMENODE, JOBS, [])


if sys.argv[1:] == ["initialize"]:
    until(f"the namenode {NAMENODE_HOST}", initialize)
    sys.exit()
done = until(f"the list of jobs in HDFS of {NAMENODE_HOST}", jobs)
serve(RESOURCEMANAGER, answer)
ready.set()
ended.wait()
