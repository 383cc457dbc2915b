package state_test

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// The plugin types that only a removed agent offered are gone with it.
func TestRemovedAgentsPluginTypes(t *testing.T) {
	m := fresh(t)
	open := func(agent string, names ...string) *pb.Command {
		a := model.Agent{ID: agent, Name: agent, Plugins: map[string]string{}}
		var types []*record.PluginType
		for _, name := range names {
			a.Plugins["provider/"+name] = "1"
			types = append(types, logtest.PluginType(model.PluginType{Base: model.Base{Name: name}, Class: "provider"}))
		}
		return &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s-" + agent, Agent: agent,
			Record: logtest.Agent(a), Types: types}}}
	}
	for _, a := range do(t, m, entry(1, 1, open("a", "both", "only-a"), open("b", "both", "only-b"),
		&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "a", WithTypes: true}}})) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	var got []string
	for _, p := range m.View().PluginTypes() {
		got = append(got, p.Name)
	}
	if want := []string{"both", "only-b"}; !slices.Equal(got, want) {
		t.Errorf("plugin types %v, not %v", got, want)
	}
}
