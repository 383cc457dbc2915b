package state_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// foundMesh is the command that writes the identity of a new mesh, whose first agent is n1.
func foundMesh(tokens ...*record.JoinToken) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_FoundMesh{FoundMesh: &pb.FoundMesh{
		Mesh: "m", Ca: []byte("ca"), SealedCa: []byte("sealed key"), SealedGossip: []byte("sealed gossip"), RootHash: []byte("hash"),
		First:  &record.AgentIdentity{Agent: "n1", Role: "voter", Api: true, Keys: []string{"key 1"}},
		Tokens: tokens,
	}}}
}

func putJoinToken(id string, uses int64, expires int64) *pb.Command {
	return &pb.Command{Actor: "ann", Change: &pb.Command_PutJoinToken{PutJoinToken: &pb.PutJoinToken{Token: &record.JoinToken{
		Id: id, Hash: []byte("hash of " + id), Role: "worker", Zone: "z", Uses: uses, Expires: expires,
	}}}}
}

func admit(token, agent, key string) *pb.Command {
	return &pb.Command{Actor: "agent " + agent, Change: &pb.Command_AdmitAgent{AdmitAgent: &pb.AdmitAgent{
		Token: token, Hash: []byte("hash of " + token), Agent: agent, Key: key,
	}}}
}

// births are the commands of a mesh's birth, for the fixture of the format.
func births() []*pb.Command {
	return []*pb.Command{
		foundMesh(&record.JoinToken{Id: "born", Hash: []byte("hash of born"), Role: "voter", Uses: 2, Expires: 1 << 50}),
		putJoinToken("t1", 2, 1<<50), putJoinToken("t2", 1, 1<<50), admit("t1", "n2", "key 2"),
		{Actor: "coopr", Change: &pb.Command_RecordKeys{RecordKeys: &pb.RecordKeys{Keys: map[string]string{"n2": "key 3"}, Issued: map[string]int64{"n2": 1 << 50}}}},
		{Actor: "ann", Change: &pb.Command_DeleteJoinToken{DeleteJoinToken: &pb.DeleteJoinToken{Id: "t2"}}},
	}
}

// A join token admits as many agents as it says, each once, until its end. An agent that asks again with its key is the same use.
func TestAdmission(t *testing.T) {
	c := newClinic(t)
	first := func(cmd *pb.Command) error { return c.do(cmd).Err }
	code := problem.CodeOf
	if err := first(putJoinToken("early", 1, 1<<50)); code(err) != problem.Conflict {
		t.Error("a join token of a mesh without an identity:", err)
	}
	for _, cmd := range []*pb.Command{foundMesh(), putJoinToken("t1", 2, 1<<50), putJoinToken("brief", 1, c.now+1000)} {
		if err := first(cmd); err != nil {
			t.Fatal(err)
		}
	}
	if err := first(admit("t1", "n2", "key")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := first(admit("t1", "n2", "key")); err != nil {
			t.Error("asked again:", err)
		}
	}
	left := func(id string) int {
		for _, x := range c.m.View().JoinTokens() {
			if x.ID == id {
				return x.Uses
			}
		}
		return -1
	}
	if left("t1") != 1 {
		t.Errorf("%d uses are left", left("t1"))
	}
	if err := first(admit("t1", "n2", "another key")); code(err) != problem.Conflict {
		t.Error("with another key:", err)
	}
	wrong := admit("t1", "n3", "key")
	wrong.GetAdmitAgent().Hash = []byte("guess")
	if err := first(wrong); code(err) != problem.Unauthorized {
		t.Error("with a wrong secret:", err)
	}
	if err := first(admit("nothing", "n3", "key")); code(err) != problem.Unauthorized {
		t.Error("with an unknown token:", err)
	}
	if err := first(admit("t1", "n3", "key")); err != nil {
		t.Error(err)
	}
	if err := first(admit("t1", "n4", "key")); code(err) != problem.Unauthorized {
		t.Error("with a token that is used up:", err)
	}
	c.now += 2000
	if err := first(admit("brief", "n4", "key")); code(err) != problem.Unauthorized {
		t.Error("with a token that has ended:", err)
	}
	who, ok := c.m.View().Identity("n2")
	if !ok || who.Role != roster.Worker || who.Zone != "z" || who.Token != "t1" || !slices.Equal(who.Keys, []string{"key"}) {
		t.Errorf("%+v", who)
	}
	if err := first(foundMesh()); err != nil || c.m.View().MeshIdentity().Mesh != "m" {
		t.Error("founded twice:", err)
	}
}

// TestFoundingRecord checks that what the audit log says about a mesh's birth, which goes to sinks, has no key and no hash of a token.
func TestFoundingRecord(t *testing.T) {
	c := newClinic(t)
	if err := c.do(foundMesh(&record.JoinToken{Id: "born", Hash: []byte("hash of born"), Role: "voter", Uses: 2})).Err; err != nil {
		t.Fatal(err)
	}
	found := ""
	err := c.m.View().Audit().Each(&audit.Filter{Types: []string{"mesh.founded"}}, false, audit.Cursor{}, func(r audit.Record) bool {
		found += string(r.After)
		return true
	})
	if want := `{"ca_sha256":"6959097001d10501ac7d54c0bdb8db61420f658f2922cc26e46d536119a31126","mesh":"m"}`; err != nil || found != want {
		t.Errorf("%s, %v", found, err)
	}
}

// An agent that was removed, or that nobody has admitted, opens no session, is not admitted again and gets no further key. What an
// agent says about its role and its zone does not count.
func TestAgentsNeedAnIdentity(t *testing.T) {
	c := newClinic(t)
	open := func(agent string) error {
		return c.do(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s-" + agent, Agent: agent,
			Record: logtest.Agent(model.Agent{ID: agent, Name: agent, Zone: "own", Eligible: true})}}}).Err
	}
	for _, cmd := range []*pb.Command{foundMesh(), putJoinToken("t1", 5, 1<<50), admit("t1", "n2", "key 2")} {
		if err := c.do(cmd).Err; err != nil {
			t.Fatal(err)
		}
	}
	if err := open("n1"); err != nil {
		t.Fatal(err)
	}
	if err := open("n2"); err != nil {
		t.Fatal(err)
	}
	if err := open("stranger"); err == nil {
		t.Error("an agent that nobody has admitted opened a session")
	}
	if a, _ := c.m.View().Agent("n1"); !a.Eligible || a.Zone != "own" {
		t.Errorf("the voter: %+v", a)
	}
	if a, _ := c.m.View().Agent("n2"); a.Eligible || a.Zone != "z" {
		t.Errorf("the worker: %+v", a)
	}
	c.do(&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "n2", Revoke: true}}})
	if a, ok := c.m.View().Agent("n2"); !ok || a.Session == "" {
		t.Error("its record is gone, though it may still work")
	}
	c.do(&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "n2"}}})
	if got := c.m.View().RemovedAgents(); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("removed are %v", got)
	}
	c.do(&pb.Command{Change: &pb.Command_RecordKeys{RecordKeys: &pb.RecordKeys{Keys: map[string]string{"n2": "key 9", "n1": "key 9"},
		Issued: map[string]int64{"n2": c.now, "n1": c.now}}}})
	if who, _ := c.m.View().Identity("n2"); who.Newest() == "key 9" {
		t.Error("a removed agent has got a key")
	}
	if who, _ := c.m.View().Identity("n1"); !slices.Equal(who.Keys, []string{"key 1", "key 9"}) {
		t.Errorf("keys are %v", who.Keys)
	}
	c.do(&pb.Command{Change: &pb.Command_RecordKeys{RecordKeys: &pb.RecordKeys{Keys: map[string]string{"n1": "key 10"},
		Issued: map[string]int64{"n1": c.now}}}})
	c.do(&pb.Command{Change: &pb.Command_RecordKeys{RecordKeys: &pb.RecordKeys{Keys: map[string]string{"n1": "late"},
		Issued: map[string]int64{"n1": 1}}}})
	if who, _ := c.m.View().Identity("n1"); !slices.Equal(who.Keys, []string{"key 9", "key 10"}) {
		t.Errorf("keys are %v", who.Keys)
	}
	if err := open("n2"); err == nil {
		t.Error("a removed agent opened a session")
	}
	if err := c.do(admit("t1", "n2", "key 2")).Err; err == nil {
		t.Error("a removed agent was admitted again")
	}
}

// An archive brings no identity: CA, agents and tombstones stay those of the mesh that restores it.
func TestRestoreKeepsIdentity(t *testing.T) {
	old := newClinic(t)
	for _, cmd := range []*pb.Command{foundMesh(), putJoinToken("old", 1, 1<<50), putJoinToken("t1", 1, 1<<50), admit("t1", "n2", "key 2")} {
		old.do(cmd)
	}
	now := newClinic(t)
	other := foundMesh()
	other.GetFoundMesh().Mesh, other.GetFoundMesh().RootHash = "new", []byte("new root")
	for _, cmd := range []*pb.Command{other, putJoinToken("new", 1, 1<<50), putJoinToken("t1", 2, 1<<50), admit("t1", "n3", "key 3"),
		{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "n3"}}}} {
		now.do(cmd)
	}
	v, err := state.Restored(bytes.NewReader(dump(t, old.m)), func(string) bool { return true }, time.UnixMilli(now.now), now.m.View(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if id := v.MeshIdentity(); id.Mesh != "new" || string(id.RootHash) != "new root" {
		t.Errorf("the identity is the archive's: %+v", id)
	}
	if _, ok := v.Identity("n2"); ok {
		t.Error("an agent of the archive is in the mesh")
	}
	if got := v.RemovedAgents(); !slices.Equal(got, []string{"n3"}) {
		t.Errorf("removed are %v", got)
	}
	for _, x := range v.JoinTokens() {
		if x.ID == "old" {
			t.Error("a join token of the archive is good")
		}
	}
}
