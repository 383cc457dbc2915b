package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// vault is the controller of a leader with keys, which is not run.
type vault struct {
	*Controller
	t     *testing.T
	m     *state.Machine
	index uint64
}

func newVault(t *testing.T) *vault {
	t.Helper()
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := &vault{t: t, m: m}
	ring, err := keyring.Open(&memkeys.Store{})
	if err != nil {
		t.Fatal(err)
	}
	x.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: state.FeatureLevel, Mesh: "m"}}})
	box := sealed.NewBox(m, x.propose, ring)
	if err := errors.Join(ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}), box.MakeMeshKey(t.Context())); err != nil {
		t.Fatal(err)
	}
	x.do(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}})
	x.Controller = New(Config{Machine: m, Propose: x.propose, Logger: slog.New(slog.DiscardHandler), Box: box, Seal: box.SealObjects,
		Node: func(*state.View, string, string) (*site.Access, string, bool) { return nil, "", false }})
	return x
}

func (x *vault) propose(_ context.Context, cs ...*pb.Command) (out []state.Answer, err error) {
	x.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: int64(x.index),
		Commands: cs})
	if err != nil {
		return nil, err
	}
	for _, g := range x.m.Apply(&raft.Log{Type: raft.LogCommand, Index: x.index, Data: b}).([][]state.Answer) {
		out = append(out, g...)
	}
	return out, nil
}

func (x *vault) do(c *pb.Command) {
	x.t.Helper()
	if a, err := x.propose(x.t.Context(), c); err != nil || a[0].Err != nil {
		x.t.Fatal(a, err)
	}
}

// apply applies a document, and puts its generation into force.
func (x *vault) apply(doc *site.Document) Applied {
	x.t.Helper()
	a, err := x.Apply(x.t.Context(), model.Caller{Tenant: "t", Actor: "alice", Role: model.RoleAdmin}, doc)
	if err != nil {
		x.t.Fatal(err)
	}
	if r, _ := x.m.View().Site("t", doc.Name); r.Next != 0 {
		x.do(command(state.SiteKey{Tenant: "t", Name: doc.Name},
			&pb.ChangeSite{Site: doc.Name, Change: &pb.ChangeSite_Switch{Switch: &pb.SwitchGroups{Generation: r.Next, Groups: []uint32{0}}}}))
	}
	return a
}

// secretDocument returns a document of one script with a password.
func secretDocument(password string) *site.Document {
	return &site.Document{Name: "s", Objects: []site.Object{{Name: "a", Host: "agent:x", Type: "script",
		Content: map[string]any{"start": "true", "env": map[string]any{"DB_PASSWORD": password, "PLAIN": "plain"}},
		Actions: map[string]map[string]any{"start": {"api_token": password + "-token"}}}}}
}

// TestSecretsOfObjects checks that secrets in contents are encrypted in the state, that the same document changes nothing, that agents get
// the values, also of earlier generations, and that a document that is written back keeps them only where nothing else has changed.
func TestSecretsOfObjects(t *testing.T) {
	x := newVault(t)
	x.apply(secretDocument("canary-1"))
	var dump bytes.Buffer
	if err := x.m.View().Write(&dump); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(dump.Bytes(), []byte("PLAIN")) || bytes.Contains(dump.Bytes(), []byte("canary")) {
		t.Error("the state has the password in the clear")
	}
	if a := x.apply(secretDocument("canary-1")); !a.Unchanged {
		t.Error("the same document makes a new generation")
	}
	if unused := x.m.View().UnusedSealed(1<<60, 100); len(unused) > 0 {
		t.Errorf("%d values of the site would be removed", len(unused))
	}
	x.apply(secretDocument("canary-2"))

	v := x.m.View()
	r, _ := v.Site("t", "s")
	hosts := map[string]bool{"agent:x": true}
	x.mu.Lock()
	s := x.known(state.SiteKey{Tenant: "t", Name: "s"}, r)
	g, err := s.generation(v, r, r.Generation)
	x.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	part := g.Part(g.doc, hosts)
	if err := x.secrets.withValues(v, r, s, &part, hosts); err != nil {
		t.Fatal(err)
	}
	if got := part.Document.Objects[0].Content["env"].(map[string]any)["DB_PASSWORD"]; got != "canary-2" {
		t.Errorf("agents of older builds get %v", got)
	}
	text, _ := json.Marshal(part.Sealed)
	if strings.Contains(string(text), "canary") || len(model.SealedRefs(text)) != 2 {
		t.Errorf("agents write down %s", text)
	}
	values, _ := json.Marshal(part.Values)
	for _, want := range []string{`"canary-1"`, `"canary-1-token"`, `"canary-2"`, `"canary-2-token"`} {
		if !strings.Contains(string(values), want) {
			t.Errorf("agents do not get %s", want)
		}
	}
	if n, others := len(part.ValuesOf("agent:x")), len(part.ValuesOf("agent:y")); n != 4 || others != 0 {
		t.Errorf("the host has %d values, and another one %d", n, others)
	}
	others := map[string]bool{"agent:y": true}
	part = g.Part(g.doc, others)
	if err := x.secrets.withValues(v, r, s, &part, others); err != nil || len(part.Values) > 0 || part.Sealed != nil {
		t.Errorf("the agent of another host gets %v, %v", part.Values, err)
	}

	who := model.Caller{Tenant: "t", Actor: "bob"}
	shown := secretDocument(model.Redacted)
	shown.Objects[0].Actions["start"]["api_token"] = model.Redacted
	if a := x.apply(shown); !a.Unchanged {
		t.Error("what is written back as it was shown makes a new generation")
	}
	for name, change := range map[string]func(o *site.Object){
		"host":    func(o *site.Object) { o.Host = "agent:z" },
		"type":    func(o *site.Object) { o.Type = "service" },
		"content": func(o *site.Object) { o.Content["start"] = "echo $DB_PASSWORD" },
		"actions": func(o *site.Object) { o.Actions["stop"] = map[string]any{"x": "y"} },
		"name":    func(o *site.Object) { o.Name = "b" },
	} {
		doc := secretDocument(model.Redacted)
		doc.Objects[0].Actions["start"]["api_token"] = model.Redacted
		change(&doc.Objects[0])
		if _, err := x.Apply(t.Context(), who, doc); err == nil {
			t.Errorf("with another %s the stored values are kept", name)
		}
	}
	if _, err := x.Apply(t.Context(), who, secretDocument(g.doc.Objects[0].Refs()[0])); err == nil {
		t.Error("a user can name an encrypted value")
	}

	// A reference to a secret is read with the rights of the author.
	value, err := x.cfg.Box.Seal(t.Context(), "t", "id", 1, []byte("canary-3"))
	if err != nil {
		t.Fatal(err)
	}
	x.do(&pb.Command{Tenant: "t", Actor: "alice", Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{
		Put: &pb.PutSetting{Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: "pin", Order: pb.SettingOrder_SETTING_ORDER_PUT,
			Value: &pb.PutSetting_Sealed{Sealed: value}},
	}}}})
	refers := &site.Document{Name: "r", Objects: []site.Object{{Name: "a", Host: "agent:x", Type: "script",
		Content: map[string]any{"start": "echo ${secure(pin)}"}}}}
	x.apply(refers)
	if a := x.apply(refers); !a.Unchanged {
		t.Error("the same reference makes a new generation")
	}
	long := &site.Document{Name: "long", Objects: []site.Object{{Name: "a", Host: "agent:x", Type: "script",
		Content: map[string]any{"start": strings.Repeat("${secure(pin)}", 1<<17+1)}}}}
	if _, err := x.Preview(model.Caller{Tenant: "t", Actor: "alice", Role: model.RoleAdmin}, long); !errors.Is(err, problem.TooLarge) {
		t.Errorf("a text with more secrets than a document may have bytes: %v", err)
	}
	stored := latest(x.m.View(), "t", "r")["a"]
	if stored == nil {
		t.Fatal("the document has no reference")
	}
	opened, err := x.cfg.Box.OpenFields(x.m.View().SealedView, "t", stored.Content)
	if err != nil || opened["start"] != "echo canary-3" || len(stored.Refs()) != 1 {
		t.Errorf("the script is %v, %v", opened, err)
	}
	if _, err := x.Apply(t.Context(), model.Caller{Tenant: "t", Actor: "bob", Role: model.RoleUser}, refers); err == nil {
		t.Error("a user who must not use the secret refers to it")
	}
	refers.Objects[0].Type, refers.Objects[0].Content = "filetree", map[string]any{"root": "/x", "files": map[string]any{
		"a": map[string]any{"content": "${secure(pin)}"}}}
	if _, err := x.Apply(t.Context(), model.Caller{Tenant: "t", Actor: "alice", Role: model.RoleAdmin}, refers); err == nil {
		t.Error("a file tree refers to a secret")
	}

	// Only an administrator learns from a preview that a guess is right.
	for role, changed := range map[model.Role]int{model.RoleUser: 1, model.RoleAdmin: 0} {
		p, err := x.Preview(model.Caller{Tenant: "t", Actor: "bob", Role: role}, secretDocument("canary-2"))
		if err != nil || len(p.Changed) != changed {
			t.Errorf("%s: %v, %v", role, p.Changed, err)
		}
	}
	a, err := x.Revert(t.Context(), who, "s", 1)
	if err != nil || a.Answer.Err != nil {
		t.Error(err, a.Answer.Err)
	}
	if r, _ := x.m.View().Site("t", "s"); r.Last != 3 {
		t.Errorf("the latest generation is %d", r.Last)
	}
}

// TestOrdersWithoutKeys checks that a leader without the keys leaves an agent what it has, gives the agents of other hosts their orders,
// and sends what is missing once it has the keys.
func TestOrdersWithoutKeys(t *testing.T) {
	x := newVault(t)
	for _, name := range []string{"x", "y"} {
		x.do(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s" + name, Agent: name,
			Record: logtest.Agent(model.Agent{ID: name, Name: name})}}})
	}
	doc := secretDocument("canary")
	doc.Objects = append(doc.Objects, site.Object{Name: "b", Host: "agent:y", Type: "script", Content: map[string]any{"start": "true"}})
	if _, err := x.Apply(t.Context(), model.Caller{Tenant: "t", Actor: "alice", Role: model.RoleAdmin}, doc); err != nil {
		t.Fatal(err)
	}

	empty, err := keyring.Open(&memkeys.Store{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, k := x.cfg, state.SiteKey{Tenant: "t", Name: "s"}
	cfg.Box = sealed.NewBox(x.m, x.propose, empty)
	c := New(cfg)
	told := map[string][]*site.Orders{}
	for _, name := range []string{"x", "y"} {
		c.Join("s"+name, Runtime{Agent: name, Name: name, Process: "p", Send: func(m *pb.LeaderMessage) bool {
			for _, s := range m.Sites {
				o, err := logformat.DecodeOrders(s)
				if err != nil {
					t.Error(err)
				}
				told[name] = append(told[name], o)
			}
			return true
		}})
		c.welcome("s" + name)
	}
	finish := func() {
		t.Helper()
		for {
			commands, _ := c.advance(k)
			if len(commands) == 0 {
				return
			}
			if a, err := x.propose(t.Context(), commands...); err != nil || a[0].Err != nil {
				t.Fatal(a, err)
			}
		}
	}
	finish()
	last := func(name string) *site.Orders {
		t.Helper()
		for i := len(told[name]) - 1; i >= 0; i-- {
			if told[name][i].Site != "" {
				return told[name][i]
			}
		}
		t.Fatalf("the runtime of %s was told nothing", name)
		return nil
	}
	if r, _ := x.m.View().Site("t", "s"); r.Generation != 1 || r.Next != 0 {
		t.Errorf("generation %d is in force, %d on its way", r.Generation, r.Next)
	}
	if o := last("y"); len(o.Lives) != 1 {
		t.Errorf("the agent without secrets got %+v", o)
	}
	for _, o := range told["x"] {
		if len(o.Parts) > 0 {
			t.Errorf("the agent got %+v", o)
		}
	}
	if o := last("x"); len(o.Lives) != 1 || len(o.Mine) != 1 {
		t.Errorf("the agent whose values are missing got %+v", o)
	}
	if later(c, k).IsZero() {
		t.Error("the orders are not made again")
	}
	n := len(told["x"])
	if finish(); len(told["x"]) != n {
		t.Error("the same orders are sent again")
	}

	// An agent that comes back keeps what it runs of the site.
	c.Leave("sx")
	told["x"] = nil
	c.Join("sx", Runtime{Agent: "x", Name: "x", Process: "p", Send: c.sessions["sy"].Send})
	told["y"] = nil
	c.welcome("sx")
	if len(told["y"]) != 2 || told["y"][0].Site != "s" || len(told["y"][0].Lives) != 1 {
		t.Errorf("it is welcomed with %+v", told["y"])
	}

	c.secrets.box = x.cfg.Box
	told["y"] = nil
	finish()
	if o := last("y"); len(o.Parts) != 1 || o.Parts[0].Sealed == nil || len(o.Parts[0].Values) != 2 {
		t.Errorf("with the keys it gets %+v", o)
	}
	if !later(c, k).IsZero() {
		t.Error("the orders are made again, and nothing is missing")
	}
}
