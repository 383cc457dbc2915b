package profile

// minute is the unit of node-minutes, in milliseconds.
const minute = 60_000

// NodeMinutes returns the node-minutes of n nodes that were up between from and to. Each node
// counts with whole minutes; the remainder is dropped. If over is true, the nodes have ended: then
// a remainder of half a minute or more counts as a minute, and each node counts with at least one
// (docs/spec/profiles.md §9).
func NodeMinutes(n int, from, to int64, over bool) int64 {
	if from == 0 || to < from {
		return 0
	}
	minutes, rest := (to-from)/minute, (to-from)%minute
	if over && (minutes == 0 || rest >= minute/2) {
		minutes++
	}
	return minutes * int64(n)
}

// Usage is a sum over runs.
type Usage struct {
	Runs      int64 `json:"runs"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Killed    int64 `json:"killed"`
	Rejected  int64 `json:"rejected"`
	// ProvisioningFailed counts the failed runs that had no cluster to run on.
	ProvisioningFailed int64 `json:"provisioningFailed"`
	NodeMinutes        int64 `json:"nodeMinutes"`
	// Provisioned counts the clusters that came up. ProvisioningMillis is the total time of
	// that.
	Provisioned        int64 `json:"provisioned"`
	ProvisioningMillis int64 `json:"provisioningMillis"`
	// NodesUp and Active are current values.
	NodesUp int64 `json:"nodesUp"`
	Active  int64 `json:"active"`
}

// Add adds a run, as it is at a time in Unix milliseconds.
func (u *Usage) Add(r *Run, now int64) {
	u.Runs++
	switch r.Status {
	case Completed:
		u.Completed++
	case Failed:
		u.Failed++
	case Killed:
		u.Killed++
	case Rejected:
		u.Rejected++
	default:
		u.Active++
	}
	if r.Failure == FailedProvisioning {
		u.ProvisioningFailed++
	}
	c := r.Cluster
	if c.Up == 0 {
		return
	}
	u.Provisioned++
	u.ProvisioningMillis += c.Up - r.Created
	over, to := c.Down > 0, now
	if over {
		to = c.Down
	} else {
		u.NodesUp += int64(r.Nodes())
	}
	u.NodeMinutes += NodeMinutes(r.Nodes(), c.Up, to, over)
}

// Plus adds another sum.
func (u *Usage) Plus(o Usage) {
	u.Runs += o.Runs
	u.Completed += o.Completed
	u.Failed += o.Failed
	u.Killed += o.Killed
	u.Rejected += o.Rejected
	u.ProvisioningFailed += o.ProvisioningFailed
	u.NodeMinutes += o.NodeMinutes
	u.Provisioned += o.Provisioned
	u.ProvisioningMillis += o.ProvisioningMillis
	u.NodesUp += o.NodesUp
	u.Active += o.Active
}
