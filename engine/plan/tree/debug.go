package tree

import (
	"errors"
	"fmt"
)

// Debug is an overview of all plans of a cluster (docs/spec/plans.md §5, debug/plans).
type Debug struct {
	// State is DEPLOYING, RECOVERING, DECOMMISSIONING, RUNNING (a custom plan) or
	// DEPLOYED.
	State  string      `json:"schedulerState"`
	Active []string    `json:"activePlans"`
	Plans  []DebugPlan `json:"plans"`
}

// DebugPlan is a plan in Debug.
type DebugPlan struct {
	Name      string      `json:"name"`
	Status    string      `json:"status"`
	Strategy  string      `json:"strategy"`
	Phases    []PhaseInfo `json:"phases"`
	Total     int         `json:"totalSteps"`
	Completed int         `json:"completedSteps"`
}

// DebugOf returns an overview of plans, filtered by the names or ids of a plan, a phase and a
// step; "" does not filter. The error names what does not exist.
func DebugOf(plans []*View, plan, phase, step string) (*Debug, error) {
	if step != "" && phase == "" || phase != "" && plan == "" {
		return nil, errors.New("a step is looked for in a phase, and a phase in a plan: name them too")
	}
	if plan != "" && Find(plans, plan) < 0 {
		return nil, fmt.Errorf("plan %s not found", plan)
	}
	d := &Debug{State: "DEPLOYED", Active: []string{}, Plans: []DebugPlan{}}
	for _, v := range plans {
		status := v.Status()
		if status.Running() {
			d.Active = append(d.Active, v.Name)
		}
		if d.State == "DEPLOYED" && status != Complete {
			switch {
			case v.Name == "deploy":
				d.State = "DEPLOYING"
			case v.Name == "recovery":
				d.State = "RECOVERING"
			case v.Name == "decommission":
				d.State = "DECOMMISSIONING"
			case status.Running():
				d.State = "RUNNING"
			}
		}
		if plan != "" && v.Name != plan {
			continue
		}
		p, err := v.debug(phase, step)
		if err != nil {
			return nil, err
		}
		d.Plans = append(d.Plans, p)
	}
	return d, nil
}

func (v *View) debug(phase, step string) (DebugPlan, error) {
	info := v.Info()
	out := DebugPlan{Name: v.Name, Status: info.Status, Strategy: info.Strategy, Phases: []PhaseInfo{}, Total: len(v.Steps)}
	for i := range v.Steps {
		if v.Steps[i].Status == Complete {
			out.Completed++
		}
	}
	some := false
	for _, p := range info.Phases {
		if phase != "" && p.Name != phase && p.ID != phase {
			continue
		}
		if step != "" {
			var steps []StepInfo
			for _, s := range p.Steps {
				if s.Name == step || s.ID == step {
					steps = append(steps, s)
				}
			}
			p.Steps = steps
		}
		some = some || step == "" || len(p.Steps) > 0
		out.Phases = append(out.Phases, p)
	}
	switch {
	case phase != "" && len(out.Phases) == 0:
		return out, fmt.Errorf("phase %s not found", phase)
	case step != "" && !some:
		return out, fmt.Errorf("step %s not found", step)
	}
	return out, nil
}
