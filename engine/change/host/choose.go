package host

import "hash/fnv"

// Choose returns the agent that runs the objects of a host without an agent of its own
// ("node:CLUSTER/NODE"), or "" if there are no agents. It uses rendezvous hashing: when an
// agent dies, only its own hosts move, and they spread over all other agents.
func Choose(host string, agents []Name) Name {
	best, most := "", uint64(0)
	for _, a := range agents {
		h := fnv.New64a()
		h.Write([]byte(a))
		h.Write([]byte{0})
		h.Write([]byte(host))
		// FNV mixes its last bytes badly into the high bits, so mix once more.
		v := h.Sum64()
		v ^= v >> 33
		v *= 0xff51afd7ed558ccd
		v ^= v >> 33
		if best == "" || v > most || v == most && a < best {
			best, most = a, v
		}
	}
	return best
}
