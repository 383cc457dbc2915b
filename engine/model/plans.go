package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// Plan is one of a template's plans. "deploy" orders the tasks that create and change a
// cluster, and "update" takes its place once the cluster exists. An operator starts plans with
// other names (docs/spec/plans.md §13).
//
// In a definition, plans and phases may also be objects whose keys are the names, as in the
// DC/OS SDK.
type Plan struct {
	Name string `json:"name"`
	// Strategy is "serial" (the default) or "parallel".
	Strategy string      `json:"strategy,omitempty"`
	Phases   []PlanPhase `json:"phases,omitempty"`
	// Recovers makes the plan the pattern by which recovery replaces or restarts a service on a node; nil: it is no pattern.
	Recovers *Recovers `json:"recovers,omitempty"`
	// Others is OthersRestart if the service is restarted on all other nodes after a replacement, one after the other.
	Others string `json:"others,omitempty"`
}

// Recovers names the recovery that a plan is the pattern for.
type Recovers struct {
	// Service is the service that is recovered.
	Service string `json:"service"`
	// When is RecoversReplace if its node is replaced, or RecoversRestart if it is restarted where it is.
	When string `json:"when"`
}

// The values of Recovers.When, and of Plan.Others.
const (
	RecoversReplace = "replace"
	RecoversRestart = "restart"
	OthersRestart   = "restart"
)

// PlanPhase is a sequence of steps on the nodes that carry a service.
type PlanPhase struct {
	Name string `json:"name"`
	// Service is the service of the phase (also read as "pod").
	Service string `json:"service"`
	// Strategy is one of PhaseStrategies; "" is serial, or batch if Batch is set.
	Strategy string `json:"strategy,omitempty"`
	// Batch is the number of nodes worked on at once: "3", or "25%" of them.
	Batch string `json:"batch,omitempty"`
	// MaxFailures is how many nodes may fail while the others go on. If one more fails, no further
	// batch of the phase begins.
	MaxFailures int `json:"max_failures,omitempty"`
	// Timeout is the longest duration of the phase; 0: no limit.
	Timeout Millis `json:"timeout,omitempty"`
	// Steps are the steps on each node. Without them, all actions of the service form one
	// step.
	Steps []PlanSteps `json:"steps,omitempty"`
}

// PlanSteps are the steps on one node of a phase, in order. Each has actions of the service
// that begin together. In a definition they may also be an object with one key, the node, and
// the steps as its value.
type PlanSteps struct {
	// Node is the number of a node among those that carry the service, from 0, or "default"
	// for all nodes without an entry of their own.
	Node  string     `json:"node"`
	Tasks [][]string `json:"tasks,omitempty"`
}

// DefaultSteps is the Node of the steps for all nodes without steps of their own.
const DefaultSteps = "default"

// The strategies of plans and phases.
var (
	PlanStrategies  = []string{"serial", "parallel"}
	PhaseStrategies = []string{"serial", "parallel", "canary", "serial-canary", "parallel-canary", "batch"}
)

// Custom reports whether an operator starts the plan, and no operation takes it by itself.
func (p *Plan) Custom() bool {
	switch p.Name {
	case "deploy", "update", RecoveryPlan, DecommissionPlan:
		return false
	}
	return true
}

// checkPlans adds the faults of plans that do not depend on services.
func checkPlans(fs *Faults, plans []Plan) {
	unique := func(path string, first map[string]int, name string, i int) {
		if why := CheckName(name); why != "" {
			fs.Add(path+".name", why)
		} else if at, twice := first[name]; twice {
			fs.Addf(path+".name", "%s is already the name of [%d]: give each its own", name, at)
		} else {
			first[name] = i
		}
	}
	first := map[string]int{}
	for i, p := range plans {
		path := fmt.Sprintf("plans[%d]", i)
		unique(path, first, p.Name, i)
		if p.Strategy != "" && !slices.Contains(PlanStrategies, p.Strategy) {
			fs.Addf(path+".strategy", "Unsupported plan strategy %q: it must be one of %s", words.Shorten(p.Strategy), words.And(PlanStrategies))
		}
		if len(p.Phases) == 0 {
			fs.Add(path+".phases", "is missing: a plan has a phase at least")
		}
		phases := map[string]int{}
		for k, ph := range p.Phases {
			at := fmt.Sprintf("%s.phases[%d]", path, k)
			unique(at, phases, ph.Name, k)
			checkPhase(fs, at, ph)
			if p.Custom() && len(ph.Steps) == 0 { // all actions would include those that remove the service
				fs.Addf(at+".steps", "is missing: say which actions of %s phase %s of plan %s runs", cmp.Or(ph.Service, "its service"), ph.Name, p.Name)
			}
		}
	}
}

func checkPhase(fs *Faults, path string, p PlanPhase) {
	if p.Service == "" {
		fs.Add(path+".service", "is missing: name the service whose nodes the phase is about")
	}
	batch := p.Strategy == "batch" || p.Strategy == "" && p.Batch != ""
	switch {
	case p.Strategy != "" && !slices.Contains(PhaseStrategies, p.Strategy):
		fs.Addf(path+".strategy", "Unsupported phase strategy %q: it must be one of %s", words.Shorten(p.Strategy), words.And(PhaseStrategies))
	case batch && !batchSize(p.Batch):
		fs.Addf(path+".batch", "must be a number of nodes from 1 on, or 1%% to 100%% of them, but is %q", words.Shorten(p.Batch))
	case !batch && p.Batch != "":
		fs.Addf(path+".batch", "has no meaning for the strategy %s: take one of the two away", p.Strategy)
	case !batch && p.MaxFailures != 0:
		fs.Add(path+".max_failures", "is of batches: add \"batch\", or take it away")
	}
	if p.MaxFailures < 0 {
		fs.Add(path+".max_failures", "must not be negative")
	}
	if p.Timeout < 0 {
		fs.Add(path+".timeout", "must not be negative")
	}
	first := map[string]int{}
	for i, s := range p.Steps {
		at := fmt.Sprintf("%s.steps[%d]", path, i)
		node := s.Node
		if n, err := strconv.Atoi(node); err == nil && n >= 0 {
			node = strconv.Itoa(n)
		} else if node != DefaultSteps {
			fs.Addf(at+".node", "Malformed step in phase: %q is neither the number of a node, from 0, nor \"default\"", words.Shorten(s.Node))
			continue
		}
		if k, twice := first[node]; twice {
			fs.Addf(at+".node", "node %s already has its steps at steps[%d]", node, k)
		}
		first[node] = i
		if batch && len(s.Tasks) > 1 {
			fs.Addf(at+".tasks", "has %d steps, but in a batch a node has one: join them, or make each a phase", len(s.Tasks))
		}
		for k, tasks := range s.Tasks {
			if len(tasks) == 0 {
				fs.Addf(fmt.Sprintf("%s.tasks[%d]", at, k), "is empty: name an action of the service, or take it away")
			}
		}
	}
}

func batchSize(text string) bool {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 20)
	return err == nil && n > 0 && (!percent || n <= 100)
}
