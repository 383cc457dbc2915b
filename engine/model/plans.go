package model

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
	// for all nodes without an entry of their own, or "agent": these steps are done once, on an agent's machine
	// (docs/decisions/095-steps-on-no-node.md).
	Node  string     `json:"node"`
	Tasks [][]string `json:"tasks,omitempty"`
}

// DefaultSteps is the Node of the steps for all nodes without steps of their own.
const DefaultSteps = "default"

// AgentSteps is the Node of the steps that are done once, on an agent's machine.
const AgentSteps = "agent"

// The strategies of plans and phases.
var (
	PlanStrategies  = []string{"serial", "parallel"}
	PhaseStrategies = []string{"serial", "parallel", "canary", "serial-canary", "parallel-canary", "batch"}
)

// OnAgent reports whether these steps are done on an agent's machine, and not on nodes.
func (s *PlanSteps) OnAgent() bool { return s.Node == AgentSteps }

// Custom reports whether an operator starts the plan, and no operation takes it by itself.
func (p *Plan) Custom() bool {
	switch p.Name {
	case "deploy", "update", RecoveryPlan, DecommissionPlan:
		return false
	}
	return true
}
