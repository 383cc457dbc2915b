package model

// AuditSink is how far a sink of the audit log has come, as the leader knows it.
type AuditSink struct {
	Name   string `json:"name"`
	Type   string `json:"type" doc:"file, syslog, webhook or mail"`
	Target string `json:"target" doc:"Where it sends records, without secrets"`
	Number uint64 `json:"number" doc:"Number of the last record of the chain that it has taken"`
	Behind uint64 `json:"behind" doc:"How many numbers of the chain it has not taken"`
	Oldest int64  `json:"oldest,omitempty" doc:"Time of the oldest record that it has not taken, Unix milliseconds"`
	Fault  string `json:"fault,omitempty" doc:"Why the latest attempt failed; absent if it succeeded"`
	Failed int64  `json:"failed,omitempty" doc:"Since when attempts fail, Unix milliseconds, though not before this leader's term"`
	// Restored is when the place was read anew.
	Restored int64  `json:"restored,omitempty" doc:"When the audit log was replaced in this leader's term, Unix milliseconds"`
	Lost     uint64 `json:"lost,omitempty" doc:"How many numbers were removed in this leader's term before it took them. The records audit.pruned have all of them"`
}
