package member

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/consensus/state"
)

// tally counts what was committed while this agent led. So a sum over all agents counts everything once, and entries
// that an agent reads again when it starts do not count.
type tally struct {
	tasks, operations, recoveries *prometheus.CounterVec
	givenUp                       prometheus.Counter
}

func newTally() *tally {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &tally{
		tasks: vec("coopr_task_ended_total", "Attempts of tasks that ended while this agent led, by action and outcome.",
			"action", "outcome"),
		operations: vec("coopr_operation_ended_total", "Operations that ended while this agent led, by type and outcome.",
			"type", "outcome"),
		recoveries: vec("coopr_recovery_started_total", "Operations that recovery started while this agent led, by type.", "type"),
		givenUp: prometheus.NewCounter(prometheus.CounterOpts{Name: "coopr_recovery_given_up_total",
			Help: "Nodes that recovery gave up while this agent led."}),
	}
}

func (t *tally) add(b state.Tally) {
	for end, n := range b.Tasks {
		t.tasks.WithLabelValues(end.Action.String(), end.Outcome).Add(float64(n))
	}
	for end, n := range b.Operations {
		t.operations.WithLabelValues(string(end.Type), string(end.Status)).Add(float64(n))
	}
	for kind, n := range b.Recoveries {
		t.recoveries.WithLabelValues(string(kind)).Add(float64(n))
	}
	t.givenUp.Add(float64(b.GivenUp))
}

// Counters returns the counters of what was committed while this agent led.
func (s *Supervisor) Counters() []prometheus.Collector {
	return []prometheus.Collector{s.tally.tasks, s.tally.operations, s.tally.recoveries, s.tally.givenUp}
}
