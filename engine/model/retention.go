package model

// Retention is how long an agent keeps records of what has ended.
type Retention struct {
	Clusters     Millis `json:"clusters" doc:"How long a terminated cluster is kept with its operations"`
	ClusterCount int    `json:"clusterCount" doc:"Largest number of terminated clusters"`
	Operations   Millis `json:"operations" doc:"How long the operations of other clusters are kept after their end"`
	Requests     Millis `json:"requests" doc:"How long request ids are remembered"`
	Logs         Millis `json:"logs" doc:"How long the output of tasks is kept on this agent"`
	LogSize      int64  `json:"logSize" doc:"Largest total size of this output, in bytes"`
}

// Sweep is a sweep of the leader's janitor over the state: when it was, and how many rows it removed.
type Sweep struct {
	// At is in Unix milliseconds; 0: there was none yet.
	At         int64 `json:"at"`
	Clusters   int   `json:"clusters"`
	Operations int   `json:"operations"`
	Requests   int   `json:"requests"`
	// Fault is the reason why the sweep is incomplete.
	Fault string `json:"fault,omitempty"`
}

// LogSweep is an agent's sweep over the output of its tasks: when it was, what it removed, and what was
// left.
type LogSweep struct {
	// At is in Unix milliseconds; 0: there was none yet.
	At      int64 `json:"at"`
	Removed int   `json:"removed"`
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`
	// Fault is the reason why the sweep is incomplete.
	Fault string `json:"fault,omitempty"`
}
