package planner

import "github.com/coopr/coopr/engine/model"

// stage is how far a service has come on its node.
type stage uint8

const (
	absent stage = iota
	installed
	configured
	initialized // and may have been started and stopped since
	started
)

// way returns the actions that lead a service to a stage.
func (s stage) way() mask {
	return [...]mask{
		absent:      0,
		installed:   maskOf(model.Install),
		configured:  maskOf(model.Install, model.Configure),
		initialized: maskOf(model.Install, model.Configure, model.Initialize),
		started:     maskOf(model.Install, model.Configure, model.Initialize, model.Start),
	}[s]
}

// unclear ends the state of an action that may be half done.
const unclear = "?"

// standing is what a service's state says (Node.States, DiffService.State).
type condition struct {
	reached stage // for sure
	there   bool  // something of the service may be on the node
	runs    bool  // for sure
	mayRun  bool
	asked   stage // as the state that is to be
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

// standingOf reads a state; one that nobody knows may be anything.
func conditionOf(state string) condition {
	if s, ok := conditions[state]; ok {
		return s
	}
	return condition{there: true, mayRun: true}
}
