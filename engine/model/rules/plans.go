package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// checkPlans adds the faults of plans that do not depend on services.
func checkPlans(fs *model.Faults, plans []model.Plan) {
	unique := func(path string, first map[string]int, name string, i int) {
		if why := model.CheckName(name); why != "" {
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
		if p.Strategy != "" && !slices.Contains(model.PlanStrategies, p.Strategy) {
			fs.Addf(path+".strategy", "Unsupported plan strategy %q: it must be one of %s", words.Shorten(p.Strategy),
				words.And(model.PlanStrategies))
		}
		if len(p.Phases) == 0 {
			fs.Add(path+".phases", "is missing: a plan has a phase at least")
		}
		phases := map[string]int{}
		for k, ph := range p.Phases {
			at := fmt.Sprintf("%s.phases[%d]", path, k)
			unique(at, phases, ph.Name, k)
			checkPhase(fs, at, ph)
			checkAgent(fs, at, &p, &ph)
			if p.Custom() && len(ph.Steps) == 0 { // all actions would include those that remove the service
				fs.Addf(at+".steps", "is missing: say which actions of %s phase %s of plan %s runs", cmp.Or(ph.Service, "its service"), ph.Name, p.Name)
			}
		}
	}
}

func checkPhase(fs *model.Faults, path string, p model.PlanPhase) {
	if p.Service == "" {
		fs.Add(path+".service", "is missing: name the service whose nodes the phase is about")
	}
	batch := p.Strategy == "batch" || p.Strategy == "" && p.Batch != ""
	switch {
	case p.Strategy != "" && !slices.Contains(model.PhaseStrategies, p.Strategy):
		fs.Addf(path+".strategy", "Unsupported phase strategy %q: it must be one of %s", words.Shorten(p.Strategy),
			words.And(model.PhaseStrategies))
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
		} else if node != model.DefaultSteps && !s.OnAgent() {
			fs.Addf(at+".node", "Malformed step in phase: %q is neither the number of a node, from 0, nor \"default\" or \"agent\"",
				words.Shorten(s.Node))
			continue
		}
		if k, twice := first[node]; twice {
			fs.Addf(at+".node", "node %s already has its steps at steps[%d]", node, k)
		}
		first[node] = i
		if batch && len(s.Tasks) > 1 && !s.OnAgent() {
			fs.Addf(at+".tasks", "has %d steps, but in a batch a node has one: join them, or make each a phase", len(s.Tasks))
		}
		for k, tasks := range s.Tasks {
			if len(tasks) == 0 {
				fs.Addf(fmt.Sprintf("%s.tasks[%d]", at, k), "is empty: name an action of the service, or take it away")
			}
		}
	}
}

// checkAgent adds the faults of steps on an agent in places where there can be none.
func checkAgent(fs *model.Faults, path string, p *model.Plan, ph *model.PlanPhase) {
	for i := range ph.Steps {
		at := fmt.Sprintf("%s.steps[%d].node", path, i)
		switch {
		case !ph.Steps[i].OnAgent():
		case !p.Custom() || p.Recovers != nil:
			fs.Addf(at, "plan %s cannot have steps on an agent: name them in a plan that an operator starts", p.Name)
		case ph.Batch != "" || ph.Strategy != "" && !slices.Contains(model.PlanStrategies, ph.Strategy):
			fs.Add(at, "batches and canaries are of nodes: give the steps on an agent a phase of their own")
		}
	}
}

func batchSize(text string) bool {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 20)
	return err == nil && n > 0 && (!percent || n <= 100)
}
