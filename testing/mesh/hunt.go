package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Hunt returns the places in an agent's stores that have a word: its log, its snapshots, its copy of the state, and the
// journal of its tasks.
func (a *Agent) Hunt(word string) (found []string) {
	a.m.T.Helper()
	check := func(err error) {
		if err != nil {
			a.m.T.Fatal(err)
		}
	}
	probe := func(data []byte, format string, args ...any) {
		if bytes.Contains(data, []byte(word)) {
			found = append(found, a.Name+": "+fmt.Sprintf(format, args...))
		}
	}
	first, err := a.content.FirstIndex()
	check(err)
	last, err := a.content.LastIndex()
	check(err)
	for i := first; i <= last && first > 0; i++ {
		var l raft.Log
		check(a.content.GetLog(i, &l))
		probe(l.Data, "log entry %d", i)
	}
	list, err := a.content.Snapshots().List()
	check(err)
	for _, s := range list {
		_, in, err := a.content.Snapshots().Open(s.ID)
		check(err)
		data, err := io.ReadAll(in)
		check(err)
		probe(data, "snapshot %s", s.ID)
	}
	held, err := a.journal.Load()
	check(err)
	for _, h := range held {
		data, err := proto.Marshal(h)
		check(err)
		probe(data, "the journal of task %s", h.Task)
	}
	if v := a.View(); v != nil {
		var state bytes.Buffer
		check(v.Write(&state))
		probe(state.Bytes(), "its state")
	}
	return found
}

// PutClearSecret writes a secret as builds did that kept it in the clear.
func PutClearSecret(m *Mesh, tenant, name, value string) {
	m.T.Helper()
	put := &pb.PutSetting{Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: name, Order: pb.SettingOrder_SETTING_ORDER_PUT,
		Value: &pb.PutSetting_Secret{Secret: []byte(value)}, UsableBy: []string{profile.Everybody}}
	answers, err := m.AwaitLeader().agent.Replica().Propose(context.Background(), &pb.Command{Tenant: tenant, Actor: "dev",
		Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: put}}}})
	if err != nil || answers[0].Err != nil {
		m.T.Fatal(err, answers)
	}
}
