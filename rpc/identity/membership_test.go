package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const threeID = "00000000-0000-4000-8000-000000000003"

// founded is a mesh of one voter, which signs for everybody.
type founded struct {
	t     testing.TB
	ca    *Authority
	mesh  string
	first *Identity
	root  string
}

func found(t testing.TB) *founded {
	t.Helper()
	m, root, err := Found()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := LoadAuthority(m.Birth.CAKey, m.CAs[0])
	if err != nil {
		t.Fatal(err)
	}
	first, err := Open("", oneID, []string{"one.example.org"}, Lifetime, m)
	if err != nil {
		t.Fatal(err)
	}
	return &founded{t: t, ca: ca, mesh: m.Mesh, first: first, root: root}
}

// sign answers a request of an agent.
func (f *founded) sign(id string, role Role, request []byte, names ...string) *Admission {
	f.t.Helper()
	certs, err := f.ca.Issue(Subject{Mesh: f.mesh, Role: role, ID: id, Names: names}, request, nil, time.Now(), Lifetime)
	if err != nil {
		f.t.Fatal(err)
	}
	return &Admission{Mesh: f.mesh, Role: role, Certificates: certs, CAs: [][]byte{f.ca.Certificate()}, Gossip: []byte("key of gossip"),
		Peers: []string{"10.0.0.1:55055"}}
}

// admit returns the identity of an agent that has joined, with its membership in dir.
func (f *founded) admit(dir, id string, role Role) *Identity {
	f.t.Helper()
	m := NewMembership()
	request, err := Request(m.Key)
	if err != nil {
		f.t.Fatal(err)
	}
	m, err = m.Admit(f.sign(id, role, request))
	if err == nil && dir != "" {
		err = m.Save(dir)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	i, err := Open(dir, id, nil, Lifetime, m)
	if err != nil {
		f.t.Fatal(err)
	}
	return i
}

// The certificate of an agent names its mesh, its role and its id, and others see them.
func TestRolesInCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		worker := f.admit("", twoID, Worker)
		server, client, serverErr, clientErr := shake(t, f.first.ServerConfig(), worker.ClientConfig(oneID))
		if serverErr != nil || clientErr != nil {
			t.Fatal(serverErr, clientErr)
		}
		if server != twoID || client != oneID {
			t.Errorf("they see %s and %s", server, client)
		}
		cert, _ := worker.agent()
		if p, err := agentOf(cert.Leaf); err != nil || p.Role != Worker {
			t.Error(p, err)
		}
		if got, want := cert.Leaf.URIs[0].String(), "coopr://"+f.mesh+"/worker/"+twoID; got != want {
			t.Errorf("%s instead of %s", got, want)
		}
		if _, _, _, err := shake(t, f.first.ServerConfig(), worker.ClientConfig(threeID)); !errors.Is(err, ErrWrongPeer) {
			t.Error("another agent than the expected one:", err)
		}
		stranger := found(t).admit("", threeID, Voter)
		if _, _, _, err := shake(t, stranger.ServerConfig(), worker.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("an agent of another mesh:", err)
		}
	})
}

// An agent that was removed is refused, by its certificate and whatever it presents.
func TestRemovedAgentsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		worker := f.admit("", twoID, Worker)
		if err := f.first.Store().Change(func(m *Membership) { m.Removed = []string{twoID} }); err != nil {
			t.Fatal(err)
		}
		if _, _, err, _ := shake(t, f.first.ServerConfig(), worker.ClientConfig("")); !errors.Is(err, ErrRemoved) {
			t.Error("as a client:", err)
		}
		if _, _, _, err := shake(t, worker.ServerConfig(), f.first.ClientConfig("")); !errors.Is(err, ErrRemoved) {
			t.Error("as a server:", err)
		}
	})
}

// A newcomer knows the CA by the token's fingerprint, and talks to voters only.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		token, err := NewJoinToken(f.ca.Certificate(), []string{"10.0.0.1:55055"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, serverErr, err := shake(t, f.first.ServerConfig(), token.DoorConfig()); err != nil || serverErr != nil && !errors.Is(serverErr, ErrNoAgent) {
			t.Error(serverErr, err)
		}
		worker := f.admit("", twoID, Worker)
		if _, _, _, err := shake(t, worker.ServerConfig(), token.DoorConfig()); !errors.Is(err, ErrWrongPeer) {
			t.Error("a worker answers:", err)
		}
		if _, _, _, err := shake(t, found(t).first.ServerConfig(), token.DoorConfig()); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("an agent of another mesh answers:", err)
		}
		if _, _, _, err := shake(t, f.first.ServerConfig(), worker.Store().DoorConfig()); err != nil {
			t.Error("a renewal:", err)
		}
		// An agent whose mesh shares a secret lets nobody in without a certificate.
		old := mustNew(t, mustSecret(t), oneID)
		if _, _, err, _ := shake(t, old.ServerConfig(), token.DoorConfig()); err == nil {
			t.Error("an agent of an older mesh lets anybody in")
		}
	})
}

// A certificate is renewed with a new key. A renewal whose answer was lost is repeated with the same key.
func TestRenewalOfCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		dir := t.TempDir()
		k := f.admit(dir, twoID, Worker).Store()
		if until := time.Until(k.RenewAt(0)); until != 16*time.Hour {
			t.Error("is renewed after", until)
		}
		first, old := mustRenewal(t, k), k.Membership().Certificate
		reopened, err := LoadMembership(dir)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, twoID, nil, Lifetime, reopened)
		if err != nil {
			t.Fatal(err)
		}
		second := mustRenewal(t, again.Store())
		a, errA := RequestedKey(first.Request)
		b, errB := RequestedKey(second.Request)
		if !a.Equal(b) || errA != nil || errB != nil {
			t.Error("a repeated renewal has another key:", errA, errB)
		}
		asker, err := second.Verify([][]byte{f.ca.Certificate()}, time.Now())
		if err != nil || asker.Peer != (Peer{twoID, Worker, f.ca.cert.Subject.CommonName}) || asker.Key == KeyID(b) || time.Since(asker.Issued) != 0 {
			t.Error(asker, err)
		}
		if err := again.Store().Renewed(f.sign(twoID, Worker, second.Request)); err != nil {
			t.Fatal(err)
		}
		now, err := LoadMembership(dir)
		if err != nil || slices.Equal(now.Certificate, old) || now.NextKey != nil {
			t.Error("the disk has the old certificate:", err)
		}
		if err := again.Store().Renewed(f.sign(twoID, Worker, second.Request)); err == nil {
			t.Error("an answer that nobody asked for was installed")
		}
	})
}

func mustRenewal(t testing.TB, k *Store) *Renewal {
	t.Helper()
	r, err := k.Renewal()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A renewal needs a certificate of the mesh, its private key, and at most ninety days since its end.
func TestRefusedRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		k := f.admit("", twoID, Worker).Store()
		r := mustRenewal(t, k)
		cas := [][]byte{f.ca.Certificate()}
		if _, err := r.Verify([][]byte{found(t).ca.Certificate()}, time.Now()); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("another mesh:", err)
		}
		forged := *r
		forged.Signature = mustRenewal(t, f.admit("", threeID, Voter).Store()).Signature
		if _, err := forged.Verify(cas, time.Now()); err == nil {
			t.Error("a signature of another key was accepted")
		}
		other := *r
		other.Request = mustRenewal(t, f.admit("", threeID, Voter).Store()).Request
		if _, err := other.Verify(cas, time.Now()); err == nil {
			t.Error("a signature over another request was accepted")
		}
		api := *r
		api.Certificate = k.Membership().APICertificate
		if _, err := api.Verify(cas, time.Now()); err == nil {
			t.Error("the certificate of an API was accepted")
		}
		for after, good := range map[time.Duration]bool{0: true, 25 * time.Hour: true, 90 * 24 * time.Hour: true, 92 * 24 * time.Hour: false} {
			if _, err := r.Verify(cas, time.Now().Add(after)); (err == nil) != good {
				t.Errorf("after %s: %v", after, err)
			}
		}
		for _, bad := range []*Renewal{{}, {Certificate: []byte("x")}, {Certificate: r.Certificate}} {
			if _, err := bad.Verify(cas, time.Now()); err == nil {
				t.Error("a renewal without its parts was accepted")
			}
		}
	})
}

func TestMembershipFile(t *testing.T) {
	f := found(t)
	dir := t.TempDir()
	if _, err := LoadMembership(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	f.admit(dir, twoID, Worker)
	path := filepath.Join(dir, "identity")
	m, err := LoadMembership(dir)
	if err != nil || m.Role != Worker || m.Mesh != f.mesh {
		t.Fatal(m, err)
	}
	if _, err := Open(dir, threeID, nil, Lifetime, m); err == nil {
		t.Error("a membership of another agent was accepted")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadMembership(dir); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Error("a file that others can read:", err)
	}
	whole, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	noKey, noRole, noCA := *m, *m, *m
	noKey.Key, noRole.Role, noCA.CAs = noKey.Key[1:], "owner", nil
	for name, content := range map[string]string{
		"empty": "", "cut": string(whole[:len(whole)/2]), "flipped": strings.Replace(string(whole), "worker", "vorker", 1),
		"no key": encoded(t, &noKey), "no role": encoded(t, &noRole), "no CA": encoded(t, &noCA),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadMembership(dir)
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(m.Key)) {
			t.Errorf("%s: the error quotes the key", name)
		}
	}
}

func encoded(t testing.TB, m *Membership) string {
	t.Helper()
	raw, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The first agent gets its certificates on its own machine, and a name of its API with them.
// A membership that could not be written is written later.
func TestUnwrittenMembership(t *testing.T) {
	f := found(t)
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := f.admit(dir, twoID, Worker).Store()
	if written, err := s.Retry(); written || err != nil {
		t.Error("written again without a reason:", written, err)
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Change(func(m *Membership) { m.Removed = []string{threeID} }); err == nil {
		t.Error("written without a folder")
	}
	if written, err := s.Retry(); written || err == nil {
		t.Error("written without a folder:", written)
	}
	own, err := s.Renewal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Renewed(f.sign(twoID, Worker, own.Request)); !errors.Is(err, ErrUnwritten) || s.Membership().NextKey != nil {
		t.Error("a renewal that cannot be written counts all the same:", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if written, err := s.Retry(); !written || err != nil {
		t.Error("not written:", err)
	}
	m, err := LoadMembership(dir)
	if err != nil || !slices.Equal(m.Removed, []string{threeID}) {
		t.Error("the file lacks the change:", m.Removed, err)
	}
}

func TestFirstAgent(t *testing.T) {
	dir := t.TempDir()
	m, root, err := Found()
	if err == nil {
		err = m.Save(dir)
	}
	if err != nil || len(root) < 30 {
		t.Fatal(root, err)
	}
	if m, err = LoadMembership(dir); err != nil {
		t.Fatal(err)
	}
	i, err := Open(dir, oneID, []string{"one.example.org", "10.0.0.1"}, Lifetime, m)
	if err != nil {
		t.Fatal(err)
	}
	if k := i.Store(); !k.Names([]string{"one.example.org", "10.0.0.1", "localhost"}) || k.Names([]string{"two.example.org"}) {
		t.Error("the API's certificate has other names")
	}
	after, err := LoadMembership(dir)
	if err != nil || after.Certificate == nil || after.Birth == nil {
		t.Fatal("the certificates are not on the disk:", err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "identity"))
	if err != nil || strings.Contains(string(raw), root) {
		t.Error("the root token is on the disk:", err)
	}
}

// An admission for another key, or from a CA that it does not name, is not installed.
func TestForgedAdmissions(t *testing.T) {
	f := found(t)
	m, other := NewMembership(), NewMembership()
	request, err := Request(other.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Admit(f.sign(twoID, Worker, request)); err == nil {
		t.Error("a certificate for another key was accepted")
	}
	if request, err = Request(m.Key); err != nil {
		t.Fatal(err)
	}
	a := f.sign(twoID, Worker, request)
	a.CAs = [][]byte{found(t).ca.Certificate()}
	if _, err := m.Admit(a); err == nil {
		t.Error("a certificate of another CA was accepted")
	}
	if _, err := m.Admit(&Admission{}); err == nil {
		t.Error("an empty admission was accepted")
	}
}

func TestJoinTokens(t *testing.T) {
	ca := found(t).ca.Certificate()
	token, err := NewJoinToken(ca, []string{"10.0.0.1:55055", "[2001:db8::1]:55055"})
	if err != nil {
		t.Fatal(err)
	}
	text := token.Text()
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(len("coopr-join-2-"), len(text)-1).Draw(t, "at")
		to := rapid.SampledFrom([]byte("abcdefghijklmnopqrstuvwxyz234567")).Draw(t, "to")
		got, err := ParseJoinToken(text[:at] + string(to) + text[at+1:])
		if to == text[at] != (err == nil) {
			t.Fatalf("at %d: %v", at, err)
		}
		if err == nil && (got.ID() != token.ID() || !slices.Equal(got.Addrs(), token.Addrs()) || !slices.Equal(got.Hash(), token.Hash())) {
			t.Fatal("another token")
		}
	})
	if _, err := ParseJoinToken(" " + strings.ToUpper(text) + "\n"); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]string{"empty": "", "short": text[:40], "cut": text[:len(text)-1], "long": text + "a", "old": mustSecret(t).Token()} {
		if _, err := ParseJoinToken(bad); err == nil || strings.Contains(err.Error(), text[30:60]) {
			t.Errorf("%s: %v", name, err)
		}
		if !IsJoinToken(bad) != (name == "empty" || name == "old") {
			t.Errorf("%s: taken for another kind of token", name)
		}
	}
	for _, addrs := range [][]string{nil, {"10.0.0.1"}, {"a:1,b:2"}} {
		if _, err := NewJoinToken(ca, addrs); err == nil {
			t.Errorf("%q was accepted", addrs)
		}
	}
}

// FuzzJoinToken reads any text without a panic. What it accepts is written in the same way.
func FuzzJoinToken(f *testing.F) {
	token, err := NewJoinToken([]byte("a CA"), []string{"10.0.0.1:55055"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token.Text())
	f.Add("coopr-join-2-aaaa")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseJoinToken(text); err == nil && got.Text() != strings.ToLower(strings.TrimSpace(text)) {
			t.Errorf("%q is read as %q", text, got.Text())
		}
	})
}

// FuzzMembership reads any file without a panic.
func FuzzMembership(f *testing.F) {
	m, _, err := Found()
	if err != nil {
		f.Fatal(err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"key":""}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		raw := append([]byte(membershipHead+hex.EncodeToString(sum[:])+"\n"), body...)
		if m, err := decodeMembership(raw); err == nil && m.Mesh != "" {
			_, _ = Open("", oneID, nil, Lifetime, m)
		}
	})
}

// The keys of gossip are replaced by newer ones only, are on the disk, and must be whole.
func TestGossipRing(t *testing.T) {
	m, _, err := Found()
	if err != nil {
		t.Fatal(err)
	}
	key := func(c string) []byte { return []byte(strings.Repeat(c, gossipKeySize)) }
	first := m.Gossip
	if r := m.GossipRing(); r.Version != 0 || len(r.Keys) != 1 || string(r.Keys[0]) != string(first) {
		t.Errorf("%+v", r)
	}
	for _, bad := range []Ring{{Version: 5}, {Version: 5, Keys: [][]byte{key("a"), []byte("short")}}} {
		if err := m.Follow(bad); err == nil || m.GossipRing().Version != 0 {
			t.Error("taken:", bad)
		}
	}
	for _, r := range []Ring{{Version: 5, Keys: [][]byte{key("a"), first}}, {Version: 4, Keys: [][]byte{key("b")}}, {Version: 5, Keys: [][]byte{key("b")}}} {
		if err := m.Follow(r); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	again, err := LoadMembership(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r := again.GossipRing(); r.Version != 5 || len(r.Keys) != 2 || string(r.Keys[0]) != string(key("a")) || string(again.Gossip) != string(key("a")) {
		t.Errorf("%+v", r)
	}
	m.Ring.Keys[1] = []byte("short")
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadMembership(dir); err == nil {
		t.Error("keys that are not whole are read")
	}
}
