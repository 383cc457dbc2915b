package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/raftgroup"
)

// TestSurvey loses the logs of voters in several ways. The survey of their data directories says which agent to recover
// from and whether it lacks entries, and it changes nothing. The recovery from the agent that it names brings
// everything back.
func TestSurvey(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"boltdb", "wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			surveyed(t, store)
		})
	}
}

func surveyed(t *testing.T, store string) {
	m := newMesh(t, "a", "b", "c")
	for _, a := range m.agents {
		a.env = []string{"COOPR_RAFT_STORE=" + store}
		a.start()
	}
	m.ready()
	m.must("token", "create", "early", "--role", "admin")
	behind := m.follower()
	m.await("all agents to have applied the same", func() error {
		last := uint64(0)
		for _, a := range m.agents {
			s, err := a.status()
			if err != nil {
				return err
			}
			if last != 0 && s.Applied != last {
				return errNotYet
			}
			last = s.Applied
		}
		return nil
	})
	behind.kill()
	var whole []*agent
	for _, a := range m.agents {
		if a != behind {
			whole = append(whole, a)
		}
	}
	m.must("token", "create", "late", "--role", "admin")
	for _, a := range whole {
		a.kill()
	}
	// forget takes an agent's log away. The file that shows how far it reached is kept.
	forget := func(a *agent) { rename(t, filepath.Join(a.data, "raft"), filepath.Join(m.dir, a.name+".raft")) }
	remember := func(a *agent) { rename(t, filepath.Join(m.dir, a.name+".raft"), filepath.Join(a.data, "raft")) }

	// Two of three are whole: no recovery is needed.
	forget(whole[1])
	v := m.survey(whole[0].data, whole[1].data, behind.data)
	if v.Best != whole[0].id() || !v.Complete || !v.Majority {
		t.Errorf("a majority is whole: %+v", v)
	}
	if out := m.surveyText(whole[0].data, whole[1].data, behind.data); !strings.Contains(out, "has no log") ||
		!strings.Contains(out, "start the agents, and do not recover") {
		t.Error(out)
	}

	// The only log that is left lacks entries, and the survey names them.
	end := v.Last.Index
	forget(whole[0])
	v = m.survey(whole[0].data, whole[1].data, behind.data)
	if v.Best != behind.id() || v.Complete || v.Majority || v.From != v.Last.Index+1 || v.To != end || v.Replaced {
		t.Errorf("both others forgot: %+v, and the log ended at %d", v, end)
	}
	text := m.surveyText(whole[0].data, whole[1].data, behind.data)
	if !strings.Contains(text, fmt.Sprintf("Verdict: entries %d to %d may be missing.", v.From, v.To)) {
		t.Error(text)
	}
	// The same from files that were written on other hosts.
	file := filepath.Join(m.dir, "report.json")
	s := m.daemon("recover", "--survey", "-o", "json", whole[0].data, whole[1].data)
	if err := os.WriteFile(file, []byte(s.out), 0o600); err != nil || s.code != 0 {
		t.Fatal(err, s)
	}
	if other := m.surveyText(file, behind.data); other != text {
		t.Errorf("with a file:\n%s\nand without:\n%s", other, text)
	}
	// Nobody knows what the disks held that are gone.
	v = m.survey(behind.data)
	if v.Best != behind.id() || v.Complete || v.To != 0 || len(v.Unknown) != 2 {
		t.Errorf("both others are gone: %+v", v)
	}
	if out := m.surveyText(behind.data); !strings.Contains(out, "how many is not known") || !strings.Contains(out, "not in this survey") {
		t.Error(out)
	}

	// A log that is damaged is not one to recover from.
	remember(whole[0])
	remember(whole[1])
	overwrite(t, newestLog(t, whole[1].data, store))
	forget(behind)
	v = m.survey(whole[0].data, whole[1].data, behind.data)
	if v.Best != whole[0].id() || !v.Complete || v.Majority {
		t.Errorf("one forgot, and one is damaged: %+v", v)
	}
	text = m.surveyText(whole[0].data, whole[1].data, behind.data)
	// A WAL whose first entries are unreadable is an empty one.
	if !strings.Contains(text, "Verdict: complete.") || store == "boltdb" && !strings.Contains(text, "Damage of "+whole[1].id()) {
		t.Error(text)
	}
	// The recovery is the command that the survey has printed.
	_, command, _ := strings.Cut(text, "  coopr-agent ")
	if s := m.daemon(append(strings.Fields(command), "--yes")...); s.code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", command, s.code, s.out, s.err)
	}
	whole[0].start()
	m.leader()
	// The others begin with empty folders, as the page says.
	for _, a := range []*agent{whole[1], behind} {
		if err := errors.Join(os.RemoveAll(filepath.Join(a.data, "raft")), os.Remove(filepath.Join(a.data, "raft-watermark"))); err != nil {
			t.Fatal(err)
		}
		a.start()
	}
	m.ready()
	m.await("three voters", func() error {
		peers, err := m.api().RaftPeers(m.context())
		n := 0
		for _, p := range peers {
			if p.Voter {
				n++
			}
		}
		if err == nil && n != 3 {
			err = fmt.Errorf("%d voters: %+v", n, peers)
		}
		return err
	})
	if out := m.must("token", "list"); !strings.Contains(out, "early") || !strings.Contains(out, "late") {
		t.Errorf("tokens:\n%s", out)
	}
	if s := m.daemon("recover", "--survey", behind.data); s.code != 1 || !strings.Contains(s.err, "must be stopped first") {
		t.Errorf("while the agent runs: %+v", s)
	}
	m.stop()
}

// survey compares data directories and returns the verdict. It checks that the files in them stay as they are.
func (m *mesh) survey(places ...string) raftgroup.Verdict {
	m.t.Helper()
	before := m.contents(places)
	s := m.daemon(append([]string{"recover", "--survey", "-o", "json"}, places...)...)
	var f struct{ Verdict raftgroup.Verdict }
	if err := json.Unmarshal([]byte(s.out), &f); err != nil || s.code != 0 {
		m.t.Fatalf("%v: exit code %d\n%s%s", err, s.code, s.out, s.err)
	}
	if after := m.contents(places); before != after {
		m.t.Errorf("the survey changed files:\n%s\n%s", before, after)
	}
	return f.Verdict
}

func (m *mesh) surveyText(places ...string) string {
	m.t.Helper()
	s := m.daemon(append([]string{"recover", "--survey"}, places...)...)
	if s.code != 0 {
		m.t.Fatalf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	return s.out
}

// contents returns names, sizes and times of the files that hold logs.
func (m *mesh) contents(dirs []string) string {
	m.t.Helper()
	out := ""
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(dir, "raft"), func(path string, d os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				out += fmt.Sprintln(path, info.Size(), info.ModTime())
			}
			return err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return out
}

func (a *agent) id() string {
	a.mesh.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.data, "agent-id"))
	if err != nil {
		a.mesh.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// newestLog returns the file with the newest entries of a log.
func newestLog(t *testing.T, data, store string) string {
	t.Helper()
	if store == "boltdb" {
		return filepath.Join(data, "raft", "raft.db")
	}
	segments, err := filepath.Glob(filepath.Join(data, "raft", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	return segments[len(segments)-1]
}

// overwrite replaces the beginning of a file.
func overwrite(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(strings.Repeat("garbage ", 8<<10)), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
