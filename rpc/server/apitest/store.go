package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Store is the state that the agents of one test mesh share.
type Store struct {
	mu     sync.Mutex
	now    *state
	wake   chan struct{} // closed at every change
	events []model.Event
	floor  uint64 // events up to this index are dropped
	logs   map[string][]byte
	// The secrets of tokens are separate from the state, because the state of a real
	// mesh has their hashes only.
	secrets  map[string]string // secret → token id
	done     map[string]reply
	clock    int64
	plans    map[string]*audit.Plan // by operation
	runs     *runTables
	contents *shelf // nil: there are no plugin resources
}

// reply is the answer to a request with an id.
type reply struct {
	index   uint64
	started api.Started
}

// state is one state of the mesh. A state in use is never modified: a change creates a new one.
type state struct {
	Index    uint64
	Tenants  map[string]model.Tenant
	Tokens   map[string]model.Token
	Defs     map[string][]model.StoredDefinition // all versions, by defKey
	Clusters map[string]*model.Cluster
	Nodes    map[string][]*model.Node // by cluster
	Ops      []*model.Operation
	Tasks    map[string][]model.Task // by operation
	Types    []model.PluginType
	Agents   []model.Agent
	Past     map[string][]*model.Snapshot // by tenant/cluster
	log      *audit.Trail
	plans    []planned
	runView
}

func (s *state) clone() *state {
	c := *s
	c.Tenants, c.Tokens, c.Defs = maps.Clone(s.Tenants), maps.Clone(s.Tokens), maps.Clone(s.Defs)
	c.Clusters, c.Nodes, c.Tasks = maps.Clone(s.Clusters), maps.Clone(s.Nodes), maps.Clone(s.Tasks)
	c.Ops, c.Types, c.Agents = slices.Clone(s.Ops), slices.Clone(s.Types), slices.Clone(s.Agents)
	c.Past = maps.Clone(s.Past)
	return &c
}

func defKey(tenant string, kind model.Kind, name string) string {
	return tenant + "/" + string(kind) + "/" + name
}

// The tokens of a new store.
const (
	Super = "super-token" // root of tenant "main"
	Admin = "admin-token" // alice, admin of tenant "acme"
	User  = "user-token"  // bob, user of tenant "acme"
	Other = "other-token" // carol, user of tenant "acme"
	Guest = "guest-token" // dave, with read access to tenant "acme"
)

// Epoch is the time at which a store's clock starts, in Unix milliseconds.
const Epoch = 1_750_000_000_000

// NewStore returns a store with the tenants "main" and "acme" and their tokens.
func NewStore() *Store {
	s := &Store{wake: make(chan struct{}), logs: map[string][]byte{}, done: map[string]reply{}, plans: map[string]*audit.Plan{},
		secrets: map[string]string{}, clock: Epoch}
	s.now = &state{
		Index:   10,
		log:     &audit.Trail{},
		Tenants: map[string]model.Tenant{"main": {Name: "main"}, "acme": {Name: "acme", MaxClusters: 3, MaxNodes: 12000}},
		Tokens:  map[string]model.Token{}, Defs: map[string][]model.StoredDefinition{}, Clusters: map[string]*model.Cluster{},
		Nodes: map[string][]*model.Node{}, Tasks: map[string][]model.Task{},
		Agents: []model.Agent{{ID: "id-a", Name: "a", APIAddr: "127.0.0.1:55054", Build: "test", Alive: true, Slots: 4}},
		Types: []model.PluginType{{
			Base: model.Base{Name: "cloud", Description: "Machines of a cloud"}, Class: "provider", Plugin: "1.0",
			Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
				"region": {Label: "Region", Type: "text"}, "pin": {Label: "PIN", Type: "password"},
				"key": {Label: "Key", Type: "text", Sensitive: true},
			}}},
		}},
	}
	s.runs = newRunTables([]string{"main", "acme"}, s.now.Types)
	s.now.runView = s.runs.machine.View()
	s.floor = s.now.Index
	for secret, t := range map[string]model.Token{
		Super: {ID: "t1", Actor: "root", Tenant: "main", Role: model.RoleSuperadmin},
		Admin: {ID: "t2", Actor: "alice", Tenant: "acme", Role: model.RoleAdmin},
		User:  {ID: "t3", Actor: "bob", Tenant: "acme", Role: model.RoleUser},
		Other: {ID: "t4", Actor: "carol", Tenant: "acme", Role: model.RoleUser},
		Guest: {ID: "t5", Actor: "dave", Tenant: "acme", Role: model.RoleRead},
	} {
		t.Created = Epoch
		s.now.Tokens[t.ID] = t
		s.secrets[secret] = t.ID
	}
	return s
}

// change creates the next state, once for each request id.
func (s *Store) change(who model.Caller, fn func(*state) ([]model.Event, error)) (api.Written, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeLocked(who, fn)
}

func (s *Store) changeLocked(who model.Caller, fn func(*state) ([]model.Event, error)) (api.Written, error) {
	id := who.Tenant + "/" + who.Actor + "/" + who.Request
	if r, ok := s.done[id]; ok && who.Request != "" {
		return api.Written{Index: r.index, Repeated: true}, nil
	}
	next := s.now.clone()
	next.Index++
	s.clock += 1000
	events, err := fn(next)
	if err != nil {
		return api.Written{}, err
	}
	for i := range events {
		events[i].Index, events[i].Time = next.Index, s.clock
		events[i].Actor = who.Actor
		if events[i].Tenant == "" {
			events[i].Tenant = who.Tenant
		}
	}
	s.events = append(s.events, events...)
	s.record(s.now, next, who, events)
	s.now = next
	if who.Request != "" {
		s.done[id] = reply{index: next.Index}
	}
	close(s.wake)
	s.wake = make(chan struct{})
	return api.Written{Index: next.Index}, nil
}

// Index returns the index of the present state.
func (s *Store) Index() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Index
}

// Requests returns the number of requests with an id that were carried out.
func (s *Store) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done)
}

// Forget drops all events so far, as a full buffer does.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.floor = nil, s.now.Index
}

// Touch creates a new state that differs only in its index, with events, and returns the index.
func (s *Store) Touch(events ...model.Event) uint64 {
	w, _ := s.change(model.Caller{}, func(*state) ([]model.Event, error) { return events, nil })
	return w.Index
}

// Log appends text to a task's log.
func (s *Store) Log(task, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[task] = append(s.logs[task], text...)
	close(s.wake)
	s.wake = make(chan struct{})
}

// Report sets the status of a task. The end of the last task also ends the operation and
// sets the status of its cluster.
func (s *Store) Report(task string, status model.TaskStatus, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.changeLocked(model.Caller{Actor: "worker"}, func(st *state) ([]model.Event, error) {
		for op, tasks := range st.Tasks {
			i := slices.IndexFunc(tasks, func(t model.Task) bool { return t.ID == task })
			if i < 0 {
				continue
			}
			tasks = slices.Clone(tasks)
			st.Tasks[op] = tasks
			t := &tasks[i]
			if status.Held() && t.Attempt == 0 || status.Ended() && t.Attempt == 0 {
				t.Attempt, t.LeasedAt, t.Agent = 1, s.clock, "a"
			}
			t.Status, t.Message = status, message
			if status.Ended() {
				t.EndedAt = s.clock
				t.Attempts = append(slices.Clone(t.Attempts),
					model.TaskAttempt{Number: t.Attempt, Agent: t.Agent, Outcome: status.String(), Message: message, Leased: t.LeasedAt, Ended: s.clock})
			}
			events := []model.Event{{Tenant: tenantOf(st, op), Type: "task.changed", Task: task, Operation: op, Cluster: t.Cluster,
				Status: status.String(), Message: message}}
			for _, p := range st.plans {
				if p.view.Scope == op {
					st.setPlan(p.follow(tasks))
				}
			}
			return append(events, s.settle(st, op)...), nil
		}
		return nil, fmt.Errorf("no task %q", task)
	})
	if err != nil {
		panic(err)
	}
}

func tenantOf(st *state, op string) string {
	for _, o := range st.Ops {
		if o.ID == op {
			return o.Tenant
		}
	}
	return ""
}

// settle finishes an operation if all its tasks have ended.
func (s *Store) settle(st *state, id string) []model.Event {
	i := slices.IndexFunc(st.Ops, func(o *model.Operation) bool { return o.ID == id })
	failed := ""
	for _, t := range st.Tasks[id] {
		if !t.Status.Ended() {
			return nil
		}
		if t.Status == model.TaskFailed {
			failed = t.Message
		}
	}
	op := *st.Ops[i]
	cl := *st.Clusters[op.Cluster]
	op.Status, op.EndedAt, op.Version = model.OpSucceeded, s.clock, st.Index
	cl.Status = model.ClusterActive
	if op.Type == model.OpDelete {
		cl.Status = model.ClusterTerminated
		st.Nodes[cl.ID] = nil
	}
	if failed != "" {
		op.Status, op.Message = model.OpFailed, failed
		cl.Status = model.ClusterIncomplete
	}
	st.Ops[i], st.Clusters[cl.ID] = &op, &cl
	return []model.Event{
		{Tenant: op.Tenant, Type: "operation.changed", Operation: id, Subject: id, Cluster: cl.ID, Status: string(op.Status)},
		{Tenant: op.Tenant, Type: "cluster.changed", Cluster: cl.ID, Subject: cl.ID, Status: string(cl.Status)},
	}
}

// Tasks returns the tasks of an operation.
func (s *Store) Tasks(op string) []model.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Tasks[op]
}

// save returns a snapshot: the state as JSON.
func (s *Store) save() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.now)
}

func (s *Store) restore(data []byte) error {
	var st state
	if err := json.Unmarshal(data, &st); err != nil {
		return model.Faults{{Message: "this is no snapshot: " + err.Error()}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Index, st.log, st.runView = s.now.Index+1, s.now.log, s.now.runView
	s.now, s.events, s.floor = &st, nil, st.Index
	close(s.wake)
	s.wake = make(chan struct{})
	return nil
}
