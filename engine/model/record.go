package model

import "encoding/json"

// Agent is the record of one control host, kept in the replicated state: the
// list of record against which every agent's gossip view is completed.
type Agent struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	PeerAddr   string `json:"peerAddr"`
	APIAddr    string `json:"apiAddr"`
	GossipAddr string `json:"gossipAddr,omitempty"`
	// Incarnation grows with every start of the agent's process, as gossip has it.
	Incarnation  uint64 `json:"incarnation"`
	Build        string `json:"build"`
	FeatureLevel uint32 `json:"featureLevel"`
	Zone         string `json:"zone,omitempty"`
	Class        string `json:"class,omitempty"`
	Slots        int    `json:"slots"`
	Eligible     bool   `json:"eligible"`
	// Session is the session the agent has with the leader; empty: none.
	Session string `json:"session,omitempty"`
	// Epoch is the index of the entry that opened the session.
	Epoch uint64 `json:"epoch,omitempty"`
	// Alive is true if the agent has a session.
	Alive bool `json:"alive"`
	// Left is true if the agent went away on purpose.
	Left bool `json:"left,omitempty"`
	// Plugins are the types the agent offers, "provider/local" and the version.
	Plugins map[string]string `json:"plugins,omitempty"`
	// Since is when Alive last changed, Unix milliseconds.
	Since int64 `json:"since"`
}

// Role is what a token's holder may do within its tenant.
type Role string

// The roles, the mightiest first. A superadmin acts in every tenant and is the
// only one to steer the mesh itself.
const (
	RoleSuperadmin Role = "superadmin"
	RoleAdmin      Role = "admin"
	RoleUser       Role = "user"
	RoleRead       Role = "read"
)

// Token is a credential's record; the token itself is shown once, when made.
type Token struct {
	ID      string `json:"id"`
	Actor   string `json:"actor"`
	Tenant  string `json:"tenant"`
	Role    Role   `json:"role"`
	Created int64  `json:"created"`
}

// Self is the actor of what the mesh does by itself.
const Self = "coopr"

// Caller is who makes a request: every request has one.
type Caller struct {
	Tenant string
	Actor  string
	Role   Role
	// Request is the request's id: the same id is done once. "" where the
	// caller gave none.
	Request string
}

// Task is one task of a plan as people and programs read it.
type Task struct {
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	Cluster   string     `json:"cluster"`
	Node      string     `json:"node"`
	Hostname  string     `json:"hostname,omitempty"`
	Service   string     `json:"service,omitempty"`
	Action    Action     `json:"action"`
	Status    TaskStatus `json:"status"`
	Attempt   int        `json:"attempt"`
	Fence     uint64     `json:"fence,omitempty"`
	Agent     string     `json:"agent,omitempty"`
	LeasedAt  int64      `json:"leased,omitempty"`
	EndedAt   int64      `json:"ended,omitempty"`
	RetryAt   int64      `json:"retryAt,omitempty"`
	Message   string     `json:"message,omitempty"`
	Adopted   bool       `json:"adopted,omitempty"`
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

// Event is one change of the state, as the event stream tells it.
type Event struct {
	// Index is that of the log entry; several events may share one.
	Index  uint64 `json:"index"`
	Time   int64  `json:"time"`
	Tenant string `json:"tenant,omitempty"`
	// Type is such as "operation.changed", "task.changed", "cluster.changed",
	// "node.changed", "definition.changed", "agent.changed".
	Type    string `json:"type"`
	Cluster string `json:"cluster,omitempty"`
	// Operation, Task and Subject say what it is about; Status what became of it.
	Operation string `json:"operation,omitempty"`
	Task      string `json:"task,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Status    string `json:"status,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Message   string `json:"message,omitempty"`
}

// StoredDefinition is one version of a definition as the state keeps it.
type StoredDefinition struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Version int             `json:"version"`
	Body    json.RawMessage `json:"body"`
	// Index is that of the entry that wrote it.
	Index uint64 `json:"index"`
}

// Key returns the name by which agents offer a plugin type: "provider/local" or
// "automator/shell".
func (t PluginType) Key() string { return t.Class + "/" + t.Name }

// SetVersion sets the version inside a definition's value, in place.
func (d Definition) SetVersion(version int) {
	if b := d.base(); b != nil {
		b.Version = version
	}
}
