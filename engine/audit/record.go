package audit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Record is one change as people and programs read it. The changes of tasks of one plan in one
// log entry share a sequence number and a hash, and each is an item of them.
type Record struct {
	// Seq is the number of the record in the chain, from 1, without gaps.
	Seq uint64 `json:"seq" doc:"Number in the chain, without gaps"`
	// Item is the position of this change among the Items changes of tasks in one record, from
	// 1.
	Item  int `json:"item,omitempty" doc:"Which of the changes of tasks under this number, from 1"`
	Items int `json:"items,omitempty" doc:"How many changes of tasks this number has"`
	// Index is the index of the log entry. Time is when it was proposed, in Unix milliseconds.
	Index uint64 `json:"index" doc:"Index of the log entry"`
	Time  int64  `json:"time" doc:"Unix milliseconds"`
	// Type is the kind of change, such as "operation.changed" or "task.finished".
	Type      string `json:"type"`
	Tenant    string `json:"tenant,omitempty"`
	Actor     string `json:"actor,omitempty" doc:"Who did it; coopr: the mesh itself"`
	Request   string `json:"request,omitempty" doc:"The request's id"`
	Source    string `json:"source,omitempty" doc:"The address from which the request came"`
	Agent     string `json:"agent,omitempty" doc:"The agent that the client talked to"`
	Cluster   string `json:"cluster,omitempty"`
	Operation string `json:"operation,omitempty"`
	Task      string `json:"task,omitempty"`
	Node      string `json:"node,omitempty"`
	Service   string `json:"service,omitempty"`
	Action    string `json:"action,omitempty"`
	Subject   string `json:"subject,omitempty" doc:"The thing that was changed, if no other field names it"`
	// Before and After hold the differences, without secrets. They are absent if the changed
	// thing did not exist before, or does not exist after the change.
	Before  json.RawMessage `json:"before,omitempty" doc:"The values before the change, as far as they differ; secrets are redacted"`
	After   json.RawMessage `json:"after,omitempty" doc:"The values after the change, as far as they differ; secrets are redacted"`
	Message string          `json:"message,omitempty"`
	// Hash covers the record and the hash of the record before it, in hexadecimal.
	Hash string `json:"hash" doc:"SHA-256 over the record and the hash before it"`
	// ClusterName is set for readers. The log has the id alone, and the hash covers that.
	ClusterName string `json:"clusterName,omitempty" doc:"The cluster's name, as long as it is there"`
}

// Change is a change of anything but tasks, before it has a place in the chain.
type Change struct {
	Index     uint64
	Time      int64
	Type      string
	Tenant    string
	Actor     string
	Request   string
	Cluster   string
	Operation string
	Node      string
	Subject   string
	Message   string
	Source    string          // the address from which the request came
	Agent     string          // that the client talked to
	Before    json.RawMessage // in the form of Canonical
	After     json.RawMessage
}

// texts returns the text fields in the order in which they are hashed and stored. Those of where a request came from are last, and
// only records of the kind kindRequest have them.
func (c *Change) texts(kind byte) []*string {
	all := []*string{&c.Type, &c.Tenant, &c.Actor, &c.Request, &c.Cluster, &c.Operation, &c.Node, &c.Subject, &c.Message, &c.Source, &c.Agent}
	if kind == kindRequest {
		return all
	}
	return all[:len(all)-2]
}

// kind returns the kind of the record.
func (c *Change) kind() byte {
	if c.Source != "" || c.Agent != "" {
		return kindRequest
	}
	return kindChange
}

// Plan has the names of the tasks of an operation's graph. It is kept as long as there are
// records of these tasks. Its slices are those of the graph.
type Plan struct {
	// ID is unique among all plans that ever existed.
	ID        string
	Operation string
	Tenant    string
	Cluster   string
	Nodes     []string
	Services  []string
	Node      []int32
	Service   []int16
	Action    []model.Action
}

func (p *Plan) node(v uint32) string {
	if n := p.Node[v]; n >= 0 {
		return p.Nodes[n]
	}
	return ""
}

func (p *Plan) service(v uint32) string {
	if s := p.Service[v]; s >= 0 {
		return p.Services[s]
	}
	return ""
}

// Tasks are the changes of tasks of one plan by one log entry.
type Tasks struct {
	Plan    *Plan
	Index   uint64
	Time    int64
	Actor   string
	Request string
	Items   []TaskChange
}

// TaskChange is one step of one task. Attempt, Fence and Agent describe the attempt that this
// step starts, continues or ends. They are zero if there is none.
type TaskChange struct {
	Vertex   uint32
	From, To model.TaskStatus
	Attempt  uint8
	Fence    uint64
	Agent    string // its name
	// End describes the end of an attempt that did not simply succeed.
	End *End
}

// End is the end of an attempt.
type End struct {
	Outcome string
	Message string
}

// Type returns the type of the record for this step.
func (t *TaskChange) Type() string {
	switch {
	case t.To == model.TaskLeased:
		return "task.taken"
	case t.To == model.TaskRunning:
		return "task.started"
	case t.To.Ended():
		return "task.finished"
	case t.From.Held() && t.To != model.TaskBlocked:
		return "task.retry"
	case t.To == model.TaskBlocked:
		return "task.blocked"
	}
	return "task.queued"
}

// taskState is the content of Before and After in the record of a task. Its fields are sorted
// by name, as Canonical does it.
type taskState struct {
	Agent   string           `json:"agent,omitempty"`
	Attempt uint8            `json:"attempt,omitempty"`
	Fence   uint64           `json:"fence,omitempty"`
	Outcome string           `json:"outcome,omitempty"`
	Status  model.TaskStatus `json:"status"`
}

// record returns a change as a Record.
func (c *Change) record(at Place) Record {
	return Record{
		Seq: at.Seq, Index: c.Index, Time: c.Time, Type: c.Type, Tenant: c.Tenant, Actor: c.Actor, Request: c.Request,
		Source: c.Source, Agent: c.Agent, Cluster: c.Cluster, Operation: c.Operation, Node: c.Node, Subject: c.Subject, Before: c.Before,
		After: c.After, Message: c.Message, Hash: at.Hash.String(),
	}
}

// record returns item i of a batch as a Record.
func (b *Tasks) record(at Place, i int) Record {
	p, t := b.Plan, &b.Items[i]
	r := Record{
		Seq: at.Seq, Item: i + 1, Items: len(b.Items), Index: b.Index, Time: b.Time,
		Tenant: p.Tenant, Actor: b.Actor, Request: b.Request, Cluster: p.Cluster, Operation: p.Operation,
		Node: p.node(t.Vertex), Service: p.service(t.Vertex), Action: p.Action[t.Vertex].String(), Hash: at.Hash.String(),
	}
	t.describe(&r)
	return r
}

// describe fills in the fields that the step itself determines.
func (t *TaskChange) describe(r *Record) {
	after := taskState{Agent: t.Agent, Attempt: t.Attempt, Fence: t.Fence, Status: t.To}
	if t.End != nil {
		after.Outcome, r.Message = t.End.Outcome, t.End.Message
	}
	r.Type = t.Type()
	r.Task = string(model.OperationID(r.Operation).Task(t.Vertex))
	r.Before, _ = json.Marshal(taskState{Status: t.From}) // strings and numbers only: no error is possible
	r.After, _ = json.Marshal(after)
}

// Hash is a SHA-256. Its text form is hexadecimal.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads hexadecimal in lower case.
func (h *Hash) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(h) || strings.ToLower(string(b)) != string(b) {
		return fmt.Errorf("%q is not a hash: it must be 64 hexadecimal digits", b)
	}
	copy(h[:], raw)
	return nil
}

// Place is a place in the chain: the number and the hash of a record. The zero Place is before
// the first record.
type Place struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"`
}

// Cursor is a position between records, from which reading continues.
type Cursor struct {
	Seq  uint64
	Item int
}

// CursorOf returns the position of a record.
func CursorOf(r *Record) Cursor { return Cursor{r.Seq, r.Item} }

// IsZero reports whether the cursor is before the first record.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// String returns "17" or "17.3".
func (c Cursor) String() string {
	if c.Item == 0 {
		return strconv.FormatUint(c.Seq, 10)
	}
	return strconv.FormatUint(c.Seq, 10) + "." + strconv.Itoa(c.Item)
}

// ParseCursor parses the result of String; "" is the zero Cursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	seq, item, two := strings.Cut(s, ".")
	var c Cursor
	var err, err2 error
	c.Seq, err = strconv.ParseUint(seq, 10, 64)
	if two {
		c.Item, err2 = strconv.Atoi(item)
	}
	if err != nil || err2 != nil || c.Item < 0 {
		return Cursor{}, fmt.Errorf("must be a place such as 17 or 17.3, but is %q", s)
	}
	return c, nil
}

// Filter selects records. An empty field matches everything.
type Filter struct {
	Tenant    string
	Cluster   string
	Operation string
	Node      string
	Actor     string
	// Types are types such as "operation.changed"; "task.*" matches all types of tasks.
	Types []string
	// Since and Until are Unix milliseconds, both inclusive; Until 0 means no end.
	Since, Until int64
}

// Whole reports whether the filter selects by tenant only.
func (f *Filter) Whole() bool {
	return f.Cluster == "" && f.Operation == "" && f.Node == "" && f.Actor == "" && len(f.Types) == 0 && f.Since == 0 && f.Until == 0
}

func (f *Filter) wantsType(t string) bool {
	return len(f.Types) == 0 || slices.ContainsFunc(f.Types, func(w string) bool {
		if prefix, ok := strings.CutSuffix(w, "*"); ok {
			return strings.HasPrefix(t, prefix)
		}
		return t == w
	})
}

// Takes reports whether the filter selects a record.
func (f *Filter) Takes(r *Record) bool {
	return f.wants(r.Tenant, r.Cluster, r.Operation, r.Actor, r.Time) && fits(f.Node, r.Node) && f.wantsType(r.Type)
}

func fits(want, have string) bool { return want == "" || want == have }

// wants reports whether the filter can match, as far as that is known without node, type and
// item.
func (f *Filter) wants(tenant, cluster, operation, actor string, at int64) bool {
	return fits(f.Tenant, tenant) && fits(f.Cluster, cluster) && fits(f.Operation, operation) && fits(f.Actor, actor) && f.period(at, at)
}

func (f *Filter) period(first, last int64) bool {
	return last >= f.Since && (f.Until == 0 || first <= f.Until)
}
