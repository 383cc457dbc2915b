package host

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// The operations of a provider that are no actions of tasks.
const (
	callList     = "LIST"
	callRemove   = "REMOVE"
	callValidate = "VALIDATE"
	callOther    = "OTHER" // an action that this agent does not know
)

// Call is a kind of calls of a provider's plugin.
type Call struct {
	Provider  string // the provider type, which a plugin of this agent offers or offered
	Operation string // an action of tasks, such as CREATE, or LIST, REMOVE, VALIDATE
	Outcome   string // of the plugin's answer, such as "succeeded" or "retryable"
}

// Calls are the number of calls of one kind, and how long they took altogether.
type Calls struct {
	Count int64
	Time  time.Duration
}

// Stats are figures of a host since its start.
type Stats struct {
	Running int   // programs of plugins that run now
	Crashes int64 // how often a plugin's process has died or has not started
	// Calls are the calls of providers' plugins that have ended.
	Calls map[Call]Calls
}

// Stats returns the figures of the host.
func (h *Host) Stats() Stats {
	return Stats{Running: len(h.meter.running()), Crashes: h.crashes.Load(), Calls: h.tally.all()}
}

// tally counts the calls of providers' plugins that have ended.
type tally struct {
	mu    sync.Mutex
	calls map[Call]Calls
}

// all returns the calls so far.
func (t *tally) all() map[Call]Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.calls)
}

// task counts an attempt at a task, unless its plugin is an automator's.
func (t *tally) task(p *plug, action string, begun time.Time, o proto.Outcome) {
	operation := callOther
	if a, err := model.ParseAction(action); err == nil {
		operation = a.String()
	}
	outcome := strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
	t.count(p, operation, begun, strings.ReplaceAll(outcome, "_", "-"))
}

// call counts a call, which has failed if *err is an error.
func (t *tally) call(p *plug, operation string, begun time.Time, err *error) {
	outcome := "succeeded"
	if *err != nil {
		outcome = "failed"
	}
	t.count(p, operation, begun, outcome)
}

func (t *tally) count(p *plug, operation string, begun time.Time, outcome string) {
	if p.Kind != model.KindProviderType {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[Call]Calls{}
	}
	key := Call{p.Name, operation, outcome}
	c := t.calls[key]
	t.calls[key] = Calls{c.Count + 1, c.Time + time.Since(begun)}
}
