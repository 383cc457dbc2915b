package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// lintPlans checks the references of plans to services: they must exist, and the template's
// clusters must be able to have them.
func (j *judge) lintPlans(t *model.ClusterTemplate) {
	j.recovers(t.Plans)
	for i, p := range t.Plans {
		if r := p.Recovers; r != nil && r.Service != "" && j.Known != nil {
			if _, ok := model.Find[model.Service](j.all, model.KindService, r.Service); !ok {
				j.fault(fmt.Sprintf("plans[%d].recovers.service", i), "%s",
					j.missing(model.KindService, r.Service, fmt.Sprintf("plan %s is the pattern of no recovery", p.Name)))
			}
		}
		for k, ph := range p.Phases {
			path := fmt.Sprintf("plans[%d].phases[%d]", i, k)
			j.recovering(path, &p, ph)
			s, ok := model.Find[model.Service](j.all, model.KindService, ph.Service)
			switch {
			case ok:
				j.planTasks(path, &p, ph, s)
			case j.Known != nil && ph.Service != "":
				j.fault(path+".service", "Unable to find pod %q referenced by phase %q: %s", ph.Service, ph.Name,
					j.missing(model.KindService, ph.Service, ""))
			}
			named := slices.ContainsFunc(t.Defaults.Services, func(s model.DefaultService) bool { return s.Name == ph.Service })
			if c := t.Compatibility.Services; ok && !named && len(c) > 0 && !slices.Contains(c, ph.Service) {
				j.warn(path+".service", "%s is neither a default service nor in compatibility.services, so this phase will never have a node",
					ph.Service)
			}
		}
	}
}

func (j *judge) planTasks(path string, p *model.Plan, ph model.PlanPhase, s *model.Service) {
	own := s.OwnActions()
	if p.Name == model.DecommissionPlan {
		j.decommission(path, s, ph)
	}
	actions := slices.Sorted(maps.Keys(s.Provisioner.Actions))
	for i, steps := range ph.Steps {
		for k, tasks := range steps.Tasks {
			for _, task := range tasks {
				if slices.Contains(own, task) && !p.Custom() && p.Name != model.DecommissionPlan {
					j.fault(fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k), "%q is an action of %s's own, which plan %s cannot have: name it in "+
						"%s, or in a plan that an operator starts", task, s.Name, p.Name, model.DecommissionPlan)
				}
				if !slices.Contains(actions, task) {
					j.fault(fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k),
						"Malformed step: step refers to a task that does not exist: %q is not an action of %s%s",
						words.Shorten(task), s.Name, words.DidYouMean(task, actions))
				} else if why := s.CannotRunOnAgent(task); steps.OnAgent() && why != "" {
					j.fault(fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k), "Malformed step: %s", why)
				}
			}
		}
	}
}
