package planner

import "github.com/coopr/coopr/engine/model"

// stage is the progress of a service on its node.
type stage uint8

const (
	absent stage = iota
	installed
	configured
	initialized // the service may have been started and stopped since
	started
)

// way returns the actions that bring a service to a stage.
func (s stage) way() mask {
	return [...]mask{
		absent:      0,
		installed:   maskOf(model.Install),
		configured:  maskOf(model.Install, model.Configure),
		initialized: maskOf(model.Install, model.Configure, model.Initialize),
		started:     maskOf(model.Install, model.Configure, model.Initialize, model.Start),
	}[s]
}

// unclear is the last character of the state of an action that may be half done.
const unclear = "?"

// condition is the meaning of a service's state (Node.States, DiffService.State).
type condition struct {
	reached stage // certainly reached
	there   bool  // something of the service may be on the node
	runs    bool  // certainly runs
	mayRun  bool
	asked   stage // the stage that the state means in a target
}

var conditions = map[string]condition{
	"":            {},
	"REMOVE":      {},
	"REMOVE?":     {there: true},
	"INSTALL?":    {there: true, asked: installed},
	"INSTALL":     {there: true, asked: installed, reached: installed},
	"CONFIGURE?":  {there: true, asked: configured, reached: installed},
	"CONFIGURE":   {there: true, asked: configured, reached: configured},
	"INITIALIZE?": {there: true, asked: initialized, reached: configured},
	"INITIALIZE":  {there: true, asked: initialized, reached: initialized},
	"STOP?":       {there: true, asked: initialized, reached: initialized, mayRun: true},
	"STOP":        {there: true, asked: initialized, reached: initialized},
	"START?":      {there: true, asked: started, reached: initialized, mayRun: true},
	"START":       {there: true, asked: started, reached: started, mayRun: true, runs: true},
}

// conditionOf returns the condition of a state. For an unknown state the service may be there and
// may run.
func conditionOf(state string) condition {
	if s, ok := conditions[state]; ok {
		return s
	}
	return condition{there: true, mayRun: true}
}
