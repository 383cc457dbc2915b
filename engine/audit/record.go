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

// Record is one change as people and programs read it. The changes that one
// log entry made to tasks of one plan share a sequence number and a hash; each
// is an item of it.
type Record struct {
	// Seq counts the chain's records from 1, without gaps.
	Seq uint64 `json:"seq" doc:"Number in the chain, without gaps"`
	// Item and Items say which of how many changes of tasks this is, from 1.
	Item  int `json:"item,omitempty" doc:"Which of the changes of tasks under this number, from 1"`
	Items int `json:"items,omitempty" doc:"How many changes of tasks this number has"`
	// Index is that of the log entry, Time when it was proposed, Unix milliseconds.
	Index uint64 `json:"index" doc:"Index of the log entry"`
	Time  int64  `json:"time" doc:"Unix milliseconds"`
	// Type is such as "operation.changed" or "task.finished".
	Type      string `json:"type"`
	Tenant    string `json:"tenant,omitempty"`
	Actor     string `json:"actor,omitempty" doc:"Who did it; coopr: the mesh itself"`
	Request   string `json:"request,omitempty" doc:"The request's id"`
	Cluster   string `json:"cluster,omitempty"`
	Operation string `json:"operation,omitempty"`
	Task      string `json:"task,omitempty"`
	Node      string `json:"node,omitempty"`
	Service   string `json:"service,omitempty"`
	Action    string `json:"action,omitempty"`
	Subject   string `json:"subject,omitempty" doc:"What was changed, where no other field names it"`
	// Before and After hold what differs, without secrets; absent: was, or is, not there.
	Before  json.RawMessage `json:"before,omitempty" doc:"What was, as far as it differs; secrets are redacted"`
	After   json.RawMessage `json:"after,omitempty" doc:"What is, as far as it differs; secrets are redacted"`
	Message string          `json:"message,omitempty"`
	// Hash ties the record to all before it, in hexadecimal.
	Hash string `json:"hash" doc:"SHA-256 over the record and the hash before it"`
}

// Change is a record of a change to anything but tasks, before it has its place.
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
	Before    json.RawMessage // as Canonical gives it
	After     json.RawMessage
}

// texts are the fields that are texts, in the order in which they are hashed and kept.
func (c *Change) texts() []*string {
	return []*string{&c.Type, &c.Tenant, &c.Actor, &c.Request, &c.Cluster, &c.Operation, &c.Node, &c.Subject, &c.Message}
}

// Plan names the tasks of an operation's graph for as long as there are records
// of them; its slices are the graph's own.
type Plan struct {
	// ID tells it from every other plan there ever was.
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

// Tasks are changes of many tasks of one plan by one log entry.
type Tasks struct {
	Plan    *Plan
	Index   uint64
	Time    int64
	Actor   string
	Request string
	Items   []TaskChange
}

// TaskChange is one step of one task. Attempt, Fence and Agent are those of the
// attempt that begins, goes on or ends with it; zero where there is none.
type TaskChange struct {
	Vertex   uint32
	From, To model.TaskStatus
	Attempt  uint8
	Fence    uint64
	Agent    string // its name
	// End says how an attempt ended that did not simply succeed.
	End *End
}

// End is how an attempt ended.
type End struct {
	Outcome string
	Message string
}

// Type returns the record's type: what a step means to its reader.
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

// taskState is what Before and After of a task's record hold; the fields stand
// in the order of their names, as Canonical has them.
type taskState struct {
	Agent   string           `json:"agent,omitempty"`
	Attempt uint8            `json:"attempt,omitempty"`
	Fence   uint64           `json:"fence,omitempty"`
	Outcome string           `json:"outcome,omitempty"`
	Status  model.TaskStatus `json:"status"`
}

// record returns a change as it is read.
func (c *Change) record(at Place) Record {
	return Record{
		Seq: at.Seq, Index: c.Index, Time: c.Time, Type: c.Type, Tenant: c.Tenant, Actor: c.Actor, Request: c.Request, Cluster: c.Cluster,
		Operation: c.Operation, Node: c.Node, Subject: c.Subject, Before: c.Before, After: c.After, Message: c.Message, Hash: at.Hash.String(),
	}
}

// record returns item i of a batch as it is read.
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

// describe fills in what a step itself says.
func (t *TaskChange) describe(r *Record) {
	after := taskState{Agent: t.Agent, Attempt: t.Attempt, Fence: t.Fence, Status: t.To}
	if t.End != nil {
		after.Outcome, r.Message = t.End.Outcome, t.End.Message
	}
	r.Type = t.Type()
	r.Task = string(model.OperationID(r.Operation).Task(t.Vertex))
	r.Before, _ = json.Marshal(taskState{Status: t.From}) // texts and numbers: no error
	r.After, _ = json.Marshal(after)
}

// Hash is a SHA-256. It reads and writes as hexadecimal.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads hexadecimal in lower case.
func (h *Hash) UnmarshalText(b []byte) error {
	raw, err := hex.DecodeString(string(b))
	if err != nil || len(raw) != len(h) || strings.ToLower(string(b)) != string(b) {
		return fmt.Errorf("%q is no hash: it must be 64 hexadecimal digits", b)
	}
	copy(h[:], raw)
	return nil
}

// Place is a place in the chain: a record's number and its hash. The zero Place
// stands before the first record.
type Place struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"`
}

// Cursor is a place between records, to go on from.
type Cursor struct {
	Seq  uint64
	Item int
}

// CursorOf returns the place of a record.
func CursorOf(r *Record) Cursor { return Cursor{r.Seq, r.Item} }

// IsZero reports whether nothing has been read yet.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// String returns "17" or "17.3".
func (c Cursor) String() string {
	if c.Item == 0 {
		return strconv.FormatUint(c.Seq, 10)
	}
	return strconv.FormatUint(c.Seq, 10) + "." + strconv.Itoa(c.Item)
}

// ParseCursor reads what String gives; "" is the zero Cursor.
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

// Filter says which records are wanted; what is empty does not matter.
type Filter struct {
	Tenant    string
	Cluster   string
	Operation string
	Node      string
	Actor     string
	// Types are such as "operation.changed"; "task.*" means all of tasks.
	Types []string
	// Since and Until are Unix milliseconds, both included; Until 0 has no end.
	Since, Until int64
}

// Whole reports whether the filter leaves out nothing but other tenants' records.
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

func fits(want, have string) bool { return want == "" || want == have }

// wants is all that can be said without looking at node and type.
func (f *Filter) wants(tenant, cluster, operation, actor string, at int64) bool {
	return fits(f.Tenant, tenant) && fits(f.Cluster, cluster) && fits(f.Operation, operation) && fits(f.Actor, actor) && f.period(at, at)
}

func (f *Filter) period(first, last int64) bool {
	return last >= f.Since && (f.Until == 0 || first <= f.Until)
}
