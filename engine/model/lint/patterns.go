package lint

import (
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// recovers adds the faults of what plans say about the recovery that they are patterns for.
func (j *judge) recovers(plans []model.Plan) {
	first := map[model.Recovers]string{}
	for i, p := range plans {
		path := fmt.Sprintf("plans[%d]", i)
		if p.Others != "" && p.Others != model.OthersRestart {
			j.fault(path+".others", "must be %q, but is %q", model.OthersRestart, words.Shorten(p.Others))
		}
		r := p.Recovers
		if p.Others != "" && (r == nil || r.When != model.RecoversReplace) {
			j.fault(path+".others", "has a meaning only with recovers.when %q: take it away, or change that", model.RecoversReplace)
		}
		if r == nil {
			continue
		}
		if !p.Custom() {
			j.fault(path+".recovers", "plan %s is not started for a single node: make a plan with a name of its own", p.Name)
		}
		if r.Service == "" {
			j.fault(path+".recovers.service", "is missing: name the service that is recovered")
		}
		if r.When != model.RecoversReplace && r.When != model.RecoversRestart {
			j.fault(path+".recovers.when", "must be %q or %q, but is %q", model.RecoversReplace, model.RecoversRestart, words.Shorten(r.When))
		}
		if len(p.Phases) > 1 {
			j.fault(path+".phases", "are %d, but a recovery by a plan of one's own is one phase: join them", len(p.Phases))
		}
		if other, twice := first[*r]; twice {
			j.fault(path+".recovers", "plan %s is already the pattern for this: keep one of the two", other)
		}
		first[*r] = p.Name
	}
}

// recovering adds the faults of a phase of a plan that is a pattern for recovery. Its steps are built into the recovery of one node,
// where each action has its place and happens once.
func (j *judge) recovering(path string, p *model.Plan, ph model.PlanPhase) {
	r := p.Recovers
	if r == nil {
		return
	}
	if r.Service != "" && ph.Service != "" && ph.Service != r.Service {
		j.fault(path+".service", "is %s, but the plan recovers %s: its phases are about that service", ph.Service, r.Service)
	}
	order := []model.Action{model.Install, model.Configure, model.Initialize, model.Start} // nothing runs on a new machine
	if r.When == model.RecoversRestart {
		order = []model.Action{model.Stop, model.Install, model.Configure, model.Start}
	}
	if ph.Strategy != "" && ph.Strategy != "serial" || ph.Batch != "" {
		j.fault(path+".strategy", "has no meaning in the recovery of one node, whose steps follow each other: take strategy and batch away")
	}
	for i, s := range ph.Steps {
		at, starts := 0, len(s.Tasks) == 0
		for k, tasks := range s.Tasks {
			for _, task := range tasks {
				place := slices.IndexFunc(order, func(a model.Action) bool { return a.Key() == task })
				switch where := fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k); {
				case place < 0:
					j.fault(where, "%q is not part of a recovery by %s: it may have %s", words.Shorten(task), r.When, keysOf(order))
				case place < at:
					j.fault(where, "%s comes too late, or twice: the order is %s", task, keysOf(order))
				default:
					at, starts = place+1, starts || task == model.Start.Key()
				}
			}
		}
		if !starts {
			j.fault(fmt.Sprintf("%s.steps[%d]", path, i), "does not start %s: a recovery ends with %s", r.Service, model.Start.Key())
		}
	}
}

// decommission adds the faults of a phase of the plan that removes nodes. Actions of a service's own come before it is stopped.
func (j *judge) decommission(path string, s *model.Service, ph model.PlanPhase) {
	own := s.OwnActions()
	for i, s := range ph.Steps {
		ended := ""
		for k, tasks := range s.Tasks {
			for _, task := range tasks {
				switch where := fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k); {
				case task == model.Stop.Key(), task == model.Remove.Key():
					ended = task
				case !slices.Contains(own, task):
					j.fault(where, "%s is not part of the removal of a node: name %s, %s, or actions of the service's own", task, model.Stop.Key(),
						model.Remove.Key())
				case ended != "":
					j.fault(where, "%s comes too late: an action of the service's own comes before %s", words.Shorten(task), ended)
				}
			}
		}
	}
}

// keysOf lists actions for a message.
func keysOf(actions []model.Action) string {
	keys := make([]string, len(actions))
	for i, a := range actions {
		keys[i] = a.Key()
	}
	return words.And(keys)
}
