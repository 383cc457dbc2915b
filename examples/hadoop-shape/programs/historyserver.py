"""A stand-in for the MapReduce history server: it keeps what the resource manager says of jobs.

    POST /jobs   a job that has ended
    GET /        all of them
"""
import json
import os
import threading

from shape import Refused, ended, keep, ready, serve, settings

FILE = "jobs.json"
PORT = int(settings()["mapred_site"]["mapreduce.jobhistory.address"].split(":")[1])

lock = threading.Lock()
jobs = []


def answer(method, path, body):
    match method, path:
        case "GET", []:
            return jobs
        case "POST", ["jobs"]:
            with lock:
                jobs.append(json.loads(body))
                keep(FILE, jobs)
            return {}
    raise Refused(404, "nothing is here")


if os.path.exists(FILE):
    with open(FILE) as file:
        jobs = json.load(file)
serve(PORT, answer)
ready.set()
ended.wait()
