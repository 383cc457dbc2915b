package site

import (
	"fmt"

	"github.com/coopr/coopr/engine/change/object"
)

// Overview is a site in a list.
type Overview struct {
	Name string `json:"name"`
	// Generation is in force everywhere; 0 while the first is on its way.
	Generation uint64 `json:"generation"`
	// Next is on its way; absent where none is.
	Next    uint64 `json:"next,omitempty"`
	Objects int    `json:"objects"`
	Hosts   int    `json:"hosts"`
	// Settled counts the objects that are where they prefer to be.
	Settled int `json:"settled"`
}

// ObjectStatus is an object as it is shown.
type ObjectStatus struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	Type      string `json:"type"`
	State     string `json:"state"`
	Target    string `json:"target"`
	Preferred string `json:"preferred"`
	// Phase is "resting", "checking", "moving", "backoff", or "unheard" where no
	// home answers for the object.
	Phase string `json:"phase"`
	// To is where an object that moves goes.
	To string `json:"to,omitempty"`
	// Agent is the name of the agent that runs it.
	Agent       string   `json:"agent,omitempty"`
	Settled     bool     `json:"settled"`
	Removing    bool     `json:"removing,omitempty"`
	Stuck       bool     `json:"stuck,omitempty"`
	Oscillating bool     `json:"oscillating,omitempty"`
	Waits       []string `json:"waits,omitempty"`
	Failures    int      `json:"failures,omitempty"`
	Drifts      int      `json:"drifts,omitempty"`
	// Until is when a backoff ends, in Unix milliseconds.
	Until       int64  `json:"until,omitempty"`
	Message     string `json:"message,omitempty"`
	Incarnation uint32 `json:"incarnation"`
	Generation  uint64 `json:"generation"`
}

// Standing is a site as its homes report it.
type SiteStatus struct {
	Overview
	// Revision changes with everything that is reported.
	Revision uint64 `json:"revision"`
	// Converged is true if the generation is in force on every host, and that there was a
	// moment at which all of its objects were where they should be; it ends when one of them is
	// not any more.
	Converged bool `json:"converged"`
	// Switching are the hosts that do not follow Next yet.
	Switching []string       `json:"switching,omitempty"`
	Items     []ObjectStatus `json:"items"`
}

// TransitionStep is one transition of a plan.
type TransitionStep struct {
	Object string `json:"object"`
	Host   string `json:"host"`
	From   string `json:"from"`
	To     string `json:"to"`
	Action string `json:"action"`
}

// ChangePreview is what applying a document would do (rule 22).
type ChangePreview struct {
	Site string `json:"site"`
	// Generation is the number it would have, Base the one it was compared to (0:
	// none).
	Generation uint64   `json:"generation"`
	Base       uint64   `json:"base"`
	Added      []string `json:"added"`
	Changed    []string `json:"changed"`
	Removed    []string `json:"removed"`
	// Rewired have other dependencies or another preferred state.
	Rewired []string `json:"rewired"`
	Same    int      `json:"same"`
	// Rounds is a possible order of the transitions; those of a round can happen
	// at the same time.
	Rounds [][]TransitionStep `json:"rounds"`
	// Hosts is the order in which hosts switch; those of a group together.
	Hosts [][]string `json:"hosts"`
	// Stuck are objects that would not get where they should; Trouble says what
	// would go wrong by itself.
	Stuck   []string `json:"stuck,omitempty"`
	Trouble []string `json:"trouble,omitempty"`
}

// Reason is one link of an explanation's chain.
type Reason struct {
	Object string `json:"object"`
	Text   string `json:"text"`
}

// Finding is what a check that changes nothing found of an object.
type Finding struct {
	Object string `json:"object"`
	Host   string `json:"host"`
	// Known is the state that the object was known to be in, Found the true one.
	Known   string `json:"known"`
	Found   string `json:"found"`
	Drifted bool   `json:"drifted"`
	Message string `json:"message,omitempty"`
}

// PastGeneration is a generation in a site's history.
type PastGeneration struct {
	Number  uint64 `json:"number"`
	Time    int64  `json:"time"`
	Actor   string `json:"actor"`
	Objects int    `json:"objects"`
	Reverts uint64 `json:"reverts,omitempty"`
	// State is "in force", "on its way" or "past".
	State string `json:"state"`
}

// WaitText returns what a wait is about, such as "waits for db/svc in down".
func WaitText(w object.Wait, self *object.Def, peer *object.Def) string {
	name := "an object"
	if peer != nil {
		name = peer.Name
	}
	switch {
	case w.Why == object.Silence:
		return name + " has not said what it holds"
	case w.Why == object.Lock && peer != nil && int(w.State) < len(peer.Type.States):
		return fmt.Sprintf("waits for %s in %s", name, peer.Type.States[w.State])
	case int(w.State) < len(self.Type.States):
		return fmt.Sprintf("held in %s by %s", self.Type.States[w.State], name)
	}
	return "waits for " + name
}
