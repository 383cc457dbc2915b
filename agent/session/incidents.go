package session

import (
	"strings"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// reportable are the types of incidents that a follower may report: refusals, and reads that it answers from its copy of the state.
var reportable = map[string]bool{
	model.IncidentRefused: true, model.IncidentTokenRefused: true, model.IncidentLoginRefused: true,
	"audit.exported": true, "definitions.exported": true, "snapshot.saved": true, "resource.read": true,
	"agent.inspected": true, model.IncidentUnlocked: true, model.IncidentUnlockRefused: true,
}

const (
	// longestText bounds the texts of a report, in bytes, and longestObject that of an object.
	longestText, longestObject = 200, 500
	// mostReported bounds the number of requests in a report.
	mostReported = 1 << 20
)

// reported returns the incident that an agent reports, or false if agents report none like it. The leader cannot know whether it
// happened. So the record has the agent's name, no type that only the leader decides on, and no tenant that does not exist.
func reported(v *state.View, agent string, m *pb.Incident) (model.Incident, bool) {
	i := logformat.DecodeIncident(m)
	if _, exists := v.Tenant(i.Tenant); !reportable[i.Type] || i.Tenant != "" && !exists {
		return model.Incident{}, false
	}
	i.Agent, i.Count = agent, min(max(i.Count, 1), mostReported)
	for _, text := range []*string{&i.Actor, &i.Action, &i.Source, &i.Agent, &i.Request} {
		*text = clip(*text, longestText)
	}
	i.Object = clip(i.Object, longestObject)
	if i.Counted() {
		i.Object = ""
	}
	return i, true
}

// clip returns the beginning of a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// Unlocks returns the incidents that an agent reports of the passphrases that it was given for its keyring, before it could report
// anything. name is the agent's.
func Unlocks(store keyring.Store, name string) (out []*pb.Incident) {
	p, ok := store.(*keyring.Passphrase)
	if !ok {
		return nil
	}
	opened, wrong := p.Unlocks()
	if wrong > 0 {
		out = append(out, &pb.Incident{Type: model.IncidentUnlockRefused, Action: unlockAction, Count: int64(wrong)})
	}
	if opened {
		out = append(out, &pb.Incident{Type: model.IncidentUnlocked, Action: unlockAction, Object: name})
	}
	return out
}

// unlockAction is the action of incidents about passphrases of keyrings.
const unlockAction = "unlock"
