package model

import "encoding/json"

// Agent is the record of one agent in the replicated state. The agents known by gossip are
// completed with these records.
type Agent struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	PeerAddr   string `json:"peerAddr"`
	APIAddr    string `json:"apiAddr"`
	GossipAddr string `json:"gossipAddr,omitempty"`
	// Incarnation grows with every start of the agent's process, as in gossip.
	Incarnation  uint64 `json:"incarnation"`
	Build        string `json:"build"`
	FeatureLevel uint32 `json:"featureLevel"`
	Zone         string `json:"zone,omitempty"`
	Class        string `json:"class,omitempty"`
	Slots        int    `json:"slots"`
	Eligible     bool   `json:"eligible"`
	// Session is the agent's session with the leader; empty: none.
	Session string `json:"session,omitempty"`
	// Epoch is the index of the log entry that opened the session.
	Epoch uint64 `json:"epoch,omitempty"`
	// Alive is true if the agent has a session.
	Alive bool `json:"alive"`
	// Left is true if the agent left on purpose.
	Left bool `json:"left,omitempty"`
	// Plugins are the types that the agent offers, such as "provider/local", with their
	// versions.
	Plugins map[string]string `json:"plugins,omitempty"`
	// Since is when Alive last changed, in Unix milliseconds.
	Since int64 `json:"since"`
}

// Task is one task of a plan as people and programs see it.
type Task struct {
	ID        string `json:"id"`
	Operation string `json:"operation"`
	Cluster   string `json:"cluster"`
	Node      string `json:"node"`
	Hostname  string `json:"hostname,omitempty"`
	Service   string `json:"service,omitempty"`
	Action    Action `json:"action"`
	// Own is the key of the action if it is one of the service's own, such as "drain". Action is then Run.
	Own      string     `json:"own,omitempty"`
	Status   TaskStatus `json:"status"`
	Attempt  int        `json:"attempt"`
	Fence    uint64     `json:"fence,omitempty"`
	Agent    string     `json:"agent,omitempty"`
	LeasedAt int64      `json:"leased,omitempty"`
	EndedAt  int64      `json:"ended,omitempty"`
	RetryAt  int64      `json:"retryAt,omitempty"`
	Message  string     `json:"message,omitempty"`
	Adopted  bool       `json:"adopted,omitempty"`
	// Attempts are all attempts, the latest last.
	Attempts []TaskAttempt `json:"attempts,omitempty"`
}

// TaskAttempt is one attempt at a task.
type TaskAttempt struct {
	Number  int    `json:"attempt"`
	Fence   uint64 `json:"fence"`
	Agent   string `json:"agent"`
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`
	Log     string `json:"log,omitempty"`
	Leased  int64  `json:"leased"`
	Ended   int64  `json:"ended,omitempty"`
}

// Progress counts an operation's tasks by status.
type Progress struct {
	Total  int            `json:"total"`
	Done   int            `json:"done"`
	Counts map[string]int `json:"counts"`
}

// Event is one change of the state in the event stream.
type Event struct {
	// Index is the index of the log entry. Several events may share one.
	Index  uint64 `json:"index"`
	Time   int64  `json:"time"`
	Tenant string `json:"tenant,omitempty"`
	// Type is the type of change, such as "operation.changed", "task.changed",
	// "cluster.changed", "node.changed", "definition.changed" or "agent.changed".
	Type    string `json:"type"`
	Cluster string `json:"cluster,omitempty"`
	// Operation, Task and Subject identify what changed. Status is the new status.
	Operation string `json:"operation,omitempty"`
	Task      string `json:"task,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Status    string `json:"status,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Message   string `json:"message,omitempty"`
}

// StoredDefinition is one version of a definition in the state.
type StoredDefinition struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Version int             `json:"version"`
	Body    json.RawMessage `json:"body"`
	// Index is the index of the log entry that wrote it.
	Index uint64 `json:"index"`
	// Author is who wrote it. HostExec is set if the author had the right host:exec then.
	Author   string `json:"author,omitempty"`
	HostExec bool   `json:"host_exec,omitempty"`
}

// Key returns the name under which agents offer a plugin type: "provider/local" or
// "automator/shell".
func (t PluginType) Key() string { return t.Class + "/" + t.Name }

// SetOrigin sets the version, the author and the author's right inside a definition's value, in place.
func (d Definition) SetOrigin(s StoredDefinition) {
	if b := d.base(); b != nil {
		b.Version, b.Author, b.HostExec = s.Version, s.Author, s.HostExec
	}
}
