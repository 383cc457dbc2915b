package site

import (
	"fmt"

	"github.com/coopr/coopr/engine/change/object"
)

// Overview is a site in a list.
type Overview struct {
	Name string `json:"name"`
	// Generation is in force everywhere; 0 while the first one is being rolled out.
	Generation uint64 `json:"generation"`
	// Next is being rolled out; absent if there is none.
	Next    uint64 `json:"next,omitempty"`
	Objects int    `json:"objects"`
	Hosts   int    `json:"hosts"`
	// ConvergedObjects counts the objects that are at rest in their preferred states.
	ConvergedObjects int `json:"convergedObjects"`
}

// ObjectStatus is an object as it is shown.
type ObjectStatus struct {
	Name      string `json:"name"`
	Host      string `json:"host"`
	Type      string `json:"type"`
	State     string `json:"state"`
	Target    string `json:"target"`
	Preferred string `json:"preferred"`
	// Phase is "resting", "checking", "moving", "backoff", or "unheard" if no agent reports on
	// the object.
	Phase string `json:"phase"`
	// To is the state that a moving object is going to.
	To string `json:"to,omitempty"`
	// Agent is the name of the agent that runs it.
	Agent string `json:"agent,omitempty"`
	// Converged is true if the object is at rest in the generation that its host should follow.
	Converged   bool     `json:"converged"`
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

// SiteStatus is a site with the reports of its agents.
type SiteStatus struct {
	Overview
	// Revision changes with every reported change.
	Revision uint64 `json:"revision"`
	// Converged is true if the generation is in force on every host and all of its objects
	// have been at rest at one moment since. It becomes false when one of them no longer is.
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

// ChangePreview is the predicted effect of applying a document (rule 22).
type ChangePreview struct {
	Site string `json:"site"`
	// Generation is the number that the document gets if it is applied. Base is the generation
	// that the preview compares it with; 0 means that there is none.
	Generation uint64   `json:"generation"`
	Base       uint64   `json:"base"`
	Added      []string `json:"added"`
	Changed    []string `json:"changed"`
	Removed    []string `json:"removed"`
	// Rewired have other dependencies or another preferred state.
	Rewired []string `json:"rewired"`
	Same    int      `json:"same"`
	// Rounds is a possible order of the transitions. Those of one round can happen at the same
	// time.
	Rounds [][]TransitionStep `json:"rounds"`
	// Hosts is the order in which hosts switch. The hosts of a group switch together.
	Hosts [][]string `json:"hosts"`
	// Stuck are objects that would not reach their states. Trouble describes faults of the
	// document that the rehearsal found.
	Stuck   []string `json:"stuck,omitempty"`
	Trouble []string `json:"trouble,omitempty"`
}

// Reason is one link of an explanation's chain.
type Reason struct {
	Object string `json:"object"`
	Text   string `json:"text"`
}

// Finding is the result of a check for drift for one object.
type Finding struct {
	Object string `json:"object"`
	Host   string `json:"host"`
	// Known is the last known state of the object, Found the true one.
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

// WaitText returns the description of a wait, such as "waits for db/svc in down".
func WaitText(w object.Wait, self *object.Def, peer *object.Def) string {
	name := "an object"
	if peer != nil {
		name = peer.Name
	}
	switch {
	case w.Why == object.Silence:
		return name + " has not reported the locks that it holds"
	case w.Why == object.Lock && peer != nil && int(w.State) < len(peer.Type.States):
		return fmt.Sprintf("waits for %s in %s", name, peer.Type.States[w.State])
	case int(w.State) < len(self.Type.States):
		return fmt.Sprintf("held in %s by %s", self.Type.States[w.State], name)
	}
	return "waits for " + name
}
