package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Action is the kind of a task on a node (docs/spec/planner.md, "Operations").
type Action uint8

// The actions, in the order of a node's life. Barrier is not a task: it is a vertex of a
// plan's graph that is done as soon as everything before it is done.
const (
	Barrier Action = iota
	Create
	Confirm
	Bootstrap
	Install
	Configure
	Initialize
	Start
	Stop
	Remove
	Delete
	Check
	// Run runs a step of a program (docs/spec/profiles.md).
	Run
)

var actionNames = [...]string{"BARRIER", "CREATE", "CONFIRM", "BOOTSTRAP", "INSTALL", "CONFIGURE", "INITIALIZE", "START", "STOP",
	"REMOVE", "DELETE", "CHECK", "RUN"}

// String returns the action's name as Coopr writes it: "CREATE".
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("ACTION(%d)", uint8(a))
}

// Key returns the action's key in a service's provisioner.actions: "install".
func (a Action) Key() string { return strings.ToLower(a.String()) }

// ServiceActions are the standard keys that a service's provisioner.actions may have.
var ServiceActions = []string{"install", "remove", "initialize", "configure", "start", "stop", "check"}

// OwnAction returns the entry of a graph's services that stands for an action of a service's own, such as "drain", which a Run carries
// out. SplitAction is its inverse. No name has a colon.
func OwnAction(service, key string) string { return service + ":" + key }

// SplitAction returns the service of an entry of a graph's services, and the key of the action of its own that it stands for, or "".
func SplitAction(entry string) (service, key string) {
	service, key, _ = strings.Cut(entry, ":")
	return service, key
}

// OwnActions returns the keys of a service's actions that no operation carries out by itself, sorted. The steps of plans may name them.
func (s *Service) OwnActions() []string {
	standard := func(key string) bool { return slices.Contains(ServiceActions, key) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Provisioner.Actions)), standard)
}

// agentAutomators are the automators that need no machine of a cluster: they run a program where their plugin is.
var agentAutomators = []string{"shell"}

// CannotRunOnAgent returns why an action that the service has cannot be a step on an agent, or "".
func (s *Service) CannotRunOnAgent(key string) string {
	if a := s.Provisioner.Actions[key]; !slices.Contains(agentAutomators, a.Type) {
		return fmt.Sprintf("action %s of %s is of automator %s, which works on a node only: a step on an agent needs an action of "+
			"automator %s", key, s.Name, a.Type, strings.Join(agentAutomators, ", "))
	}
	return ""
}

// ParseAction reads an action's name in any case.
func ParseAction(s string) (Action, error) {
	for i, n := range actionNames {
		if strings.EqualFold(n, s) {
			return Action(i), nil
		}
	}
	return 0, fmt.Errorf("unknown action %q: it must be one of %s", s, strings.Join(actionNames[1:], ", "))
}

// Hardware reports whether a provider, not an automator, carries the action out.
func (a Action) Hardware() bool { return a == Create || a == Confirm || a == Delete }

// PerNode reports whether the action concerns the whole node, not one service.
func (a Action) PerNode() bool { return a.Hardware() || a == Bootstrap }

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the action's name.
func (a *Action) UnmarshalText(b []byte) error {
	v, err := ParseAction(string(b))
	if err == nil {
		*a = v
	}
	return err
}
