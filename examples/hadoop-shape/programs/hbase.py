"""What the HBase master and the region servers have in common."""
import urllib.error
import zlib

from shape import call, host, settings

LEASE = 3  # seconds that ZooKeeper keeps a name for a server that is silent
REGIONS = 8

site = settings()["hbase_site"]
ROOT = site["hbase.rootdir"]  # hdfs://NAMENODE/hbase
NAMENODE_HOST, FOLDER = host(ROOT), ROOT.removeprefix("hdfs://" + host(ROOT) + "/")
ADDRESS = site["hbase.regionserver.hostname"]


def region(key):
    return zlib.crc32(key.encode()) % REGIONS


def zookeeper(method, name, body=None):
    """Asks the first server of the quorum that answers."""
    for server in site["hbase.zookeeper.quorum"].split(","):
        try:
            return call(method, *server.split(":"), "hbase/" + name, body, timeout=1)
        except urllib.error.HTTPError:
            raise
        except OSError as e:
            why = e
    raise why


def here(name):
    """Says in ZooKeeper that this server is there."""
    zookeeper("PUT", name, {"value": ADDRESS, "seconds": LEASE})
