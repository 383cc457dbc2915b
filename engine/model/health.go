package model

import (
	"slices"
	"strconv"
	"strings"
)

// Probe configures how a service's check action tests its health or its readiness
// (docs/spec/plans.md §7). Absent values mean the defaults.
type Probe struct {
	// Interval is the time from the end of one check to the next; default 30s, for readiness
	// 5s.
	Interval Millis `json:"interval,omitempty"`
	// Timeout is the longest duration of a check; default 20s.
	Timeout Millis `json:"timeout,omitempty"`
	// Delay is the time after a start before the first check; default 0.
	Delay Millis `json:"delay,omitempty"`
	// Grace is the time after a start during which failures do not count; default 10s. Not for
	// readiness.
	Grace Millis `json:"grace-period,omitempty"`
	// Failures is how many failures in a row make a service unhealthy; default 3. Not for
	// readiness.
	Failures Int `json:"max-consecutive-failures,omitempty"`
	// Off disables automatic checks of the service.
	Off bool `json:"off,omitempty"`
}

// The goals of a service (docs/spec/plans.md §7).
const (
	// GoalRunning: the started service keeps running, and recovery restarts it if it fails.
	GoalRunning = "RUNNING"
	// GoalFinish: the start action does the work and ends. A new configuration starts it
	// again.
	GoalFinish = "FINISH"
	// GoalOnce: like FINISH, but a new configuration does not start it again.
	GoalOnce = "ONCE"
)

// Goals lists all goals.
var Goals = []string{GoalRunning, GoalFinish, GoalOnce}

// Runs reports whether the service keeps running once it is started.
func (s *Service) Runs() bool { return s.Goal == "" || s.Goal == GoalRunning }

// IsEssential reports whether the whole node is restarted when the service fails.
func (s *Service) IsEssential() bool { return s.Essential == nil || *s.Essential }

// Watched returns how the service's health is checked, and false if it is not.
func (s *Service) Watched() (Probe, bool) {
	if _, ok := s.Provisioner.Actions["check"]; !ok || !s.Runs() {
		return Probe{}, false
	}
	p := Probe{}
	if s.HealthCheck != nil {
		p = *s.HealthCheck
	}
	if p.Off {
		return p, false
	}
	return p.withDefaults(), true
}

// Readiness returns how a started service is checked until it is ready, and false if it is
// not.
func (s *Service) Readiness() Probe {
	p := Probe{Interval: 5_000}
	if s.ReadinessCheck != nil {
		p = *s.ReadinessCheck
		if p.Interval == 0 {
			p.Interval = 5_000
		}
	}
	return p.withDefaults()
}

func (p Probe) withDefaults() Probe {
	or := func(m *Millis, d Millis) {
		if *m == 0 {
			*m = d
		}
	}
	or(&p.Interval, 30_000)
	or(&p.Timeout, 20_000)
	or(&p.Grace, 10_000)
	if p.Failures == 0 {
		p.Failures = 3
	}
	return p
}

// RecoveryPolicy configures automatic recovery of a cluster (docs/spec/plans.md §8). Absent
// values mean the defaults.
type RecoveryPolicy struct {
	// Off disables automatic recovery.
	Off bool `json:"off,omitempty"`
	// Replace selects the nodes to replace: "gone" (the default: those whose provider reports
	// that the machine no longer exists), "failing" (also those that restarts did not repair
	// for PermanentAfter), or "never".
	Replace string `json:"replace,omitempty"`
	// PermanentAfter is how long a node may fail before it is replaced, with Replace
	// "failing"; default 20m.
	PermanentAfter Millis `json:"permanent-failure-timeout,omitempty"`
	// MinReplaceDelay is the least time between two replacements in a cluster; default 0.
	MinReplaceDelay Millis `json:"min-replace-delay,omitempty"`
	// AtOnce bounds the nodes under recovery at a time: "2", or "10%" of all nodes (the
	// default), and at least one.
	AtOnce string `json:"max-at-once,omitempty"`
	// Attempts is the number of attempts in a row before recovery gives up; default 10.
	Attempts Int `json:"max-attempts,omitempty"`
	// Backoff is the pause after the first attempt (default 60s). Each further pause is 1.15
	// times as long, up to MaxBackoff (default 5m). After a node has been healthy for
	// MaxBackoff, the count starts again.
	Backoff    Millis `json:"backoff,omitempty"`
	MaxBackoff Millis `json:"max-backoff,omitempty"`
}

// The values of RecoveryPolicy.Replace.
const (
	ReplaceGone    = "gone"
	ReplaceFailing = "failing"
	ReplaceNever   = "never"
)

// RecoveryPolicy returns the template's policy with the defaults filled in.
func (t *ClusterTemplate) RecoveryPolicy() RecoveryPolicy {
	p := RecoveryPolicy{}
	if t.Recovery != nil {
		p = *t.Recovery
	}
	or := func(m *Millis, d Millis) {
		if *m == 0 {
			*m = d
		}
	}
	or(&p.PermanentAfter, 20*60_000)
	or(&p.Backoff, 60_000)
	or(&p.MaxBackoff, max(5*60_000, p.Backoff))
	if p.Replace == "" {
		p.Replace = ReplaceGone
	}
	if p.AtOnce == "" {
		p.AtOnce = "10%"
	}
	if p.Attempts == 0 {
		p.Attempts = 10
	}
	return p
}

// Most returns how many of the given number of nodes may be under recovery at a time.
func (p *RecoveryPolicy) Most(nodes int) int {
	digits, percent := strings.CutSuffix(p.AtOnce, "%")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1 // the template was checked when it was written
	}
	if percent {
		n = nodes * n / 100
	}
	return max(1, n)
}

// Pause returns the time in milliseconds between the n-th attempt (from 1) and the next.
func (p *RecoveryPolicy) Pause(n int) int64 {
	pause := float64(p.Backoff)
	for ; n > 1 && pause < float64(p.MaxBackoff); n-- {
		pause *= 1.15
	}
	return int64(min(pause, float64(p.MaxBackoff)))
}

// HealthStatus is the result of the checks of a service.
type HealthStatus string

// The health statuses. A service without one has not been checked since it last changed.
const (
	Healthy   HealthStatus = "healthy"
	Unhealthy HealthStatus = "unhealthy"
)

// ServiceHealth is the health of a service on a node.
type ServiceHealth struct {
	Status HealthStatus `json:"status"`
	// Since is when it got the status, in Unix milliseconds.
	Since int64 `json:"since"`
	// Message is the output of the last check or restart.
	Message string `json:"message,omitempty"`
}

// MachineGone is the value of NodeHealth.Machine for a machine that its provider no longer
// has.
const MachineGone = "gone"

// The values of NodeHealth.Paused, named as in the DC/OS SDK.
const (
	Pausing  = "PAUSING"
	Paused   = "PAUSED"
	Resuming = "STARTING"
)

// NodeHealth is the health of a node and the state of its recovery. It exists from the first
// check result on.
type NodeHealth struct {
	Tenant  string `json:"tenant"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Services are the healths of services, by name.
	Services map[string]ServiceHealth `json:"services,omitempty"`
	// Machine is MachineGone since GoneSince (Unix milliseconds), or "".
	Machine   string `json:"machine,omitempty"`
	GoneSince int64  `json:"goneSince,omitempty"`
	// Paused are the services that an operator paused, with the progress of that. They are
	// neither checked nor recovered.
	Paused map[string]string `json:"paused,omitempty"`
	// Attempts counts the recoveries in a row. The next one does not start before Next (Unix
	// milliseconds). Operation is the latest recovery, and Replaced is true if that was a
	// replacement.
	Attempts  int    `json:"attempts,omitempty"`
	Next      int64  `json:"next,omitempty"`
	Operation string `json:"operation,omitempty"`
	Replaced  bool   `json:"replaced,omitempty"`
	// GaveUp is true if recovery has stopped trying.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Waits is set for readers only: why recovery does nothing at the moment.
	Waits string `json:"waits,omitempty"`
}

// Failing returns the services whose check or restart failed, sorted.
func (h *NodeHealth) Failing() []string {
	if h == nil {
		return nil
	}
	var out []string
	for s, v := range h.Services {
		if v.Status == Unhealthy {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// Status returns the status of the node in a word: "gone", "unhealthy", "paused", "healthy",
// or "".
func (h *NodeHealth) Status() string {
	switch {
	case h == nil:
		return ""
	case h.Machine == MachineGone:
		return MachineGone
	case len(h.Failing()) > 0:
		return string(Unhealthy)
	case len(h.Paused) > 0:
		return "paused"
	case len(h.Services) > 0:
		return string(Healthy)
	}
	return ""
}

// Abandoned reports whether recovery has stopped trying on a node that fails.
func (h *NodeHealth) Abandoned() bool {
	return h != nil && h.GaveUp && (h.Machine == MachineGone || len(h.Failing()) > 0)
}

// HealthOf returns the health of a cluster in a word: "unhealthy" if a node is unhealthy or gone, or else "paused" if a
// service is paused, "healthy", or "" if nothing was checked.
func HealthOf(nodes []*Node) (health string) {
	for _, n := range nodes {
		health = HealthWith(health, n.Health.Status())
	}
	return health
}

// HealthWith returns the health of a cluster, as HealthOf does, with one more node.
func HealthWith(health, node string) string {
	switch {
	case health == string(Unhealthy), node == MachineGone, node == string(Unhealthy):
		return string(Unhealthy)
	case node == "paused", health == "":
		return node
	}
	return health
}

// RecoveryPause records that the recovery of a cluster is paused.
type RecoveryPause struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	// At is in Unix milliseconds.
	At int64 `json:"at"`
}
