package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
)

// outcome is the behaviour of an agent with a damaged file.
type outcome string

const (
	// whole: the agent has the state and votes, with a new file if the old one cannot be used.
	whole outcome = "whole"
	// waits: the agent moves nothing, as the file may be good, and works without its part of the group. When the file
	// can be read again, it becomes whole.
	waits outcome = "waits"
	// idle: the agent has the state and votes, and takes no tasks.
	idle outcome = "idle"
	// refuses: the agent ends.
	refuses outcome = "refuses"
)

// A damage of a file. undo is nil if the file cannot be restored.
type damage struct {
	name string
	do   func(path string) error
	undo func(path string) error
}

var damages = []damage{
	{"truncated", func(path string) error {
		used, err := usedBytes(path)
		return errors.Join(err, os.Truncate(path, used/2))
	}, nil},
	{"zeroed", func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return errors.Join(os.Truncate(path, 0), os.Truncate(path, info.Size()))
	}, nil},
	{"one flipped byte", func(path string) error {
		used, err := usedBytes(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		var b [1]byte
		_, err = f.ReadAt(b[:], used/2)
		b[0] ^= 0x10
		_, werr := f.WriteAt(b[:], used/2)
		return errors.Join(err, werr, f.Close())
	}, nil},
	{"missing", os.Remove, nil},
	{"unreadable", func(path string) error { return os.Chmod(path, 0) }, func(path string) error { return os.Chmod(path, 0o600) }},
	{"in a read-only directory", func(path string) error { return os.Chmod(filepath.Dir(path), 0o500) },
		func(path string) error { return os.Chmod(filepath.Dir(path), 0o700) }},
}

// A file of an agent, and what the agent does with each damage, in the order of damages. Where there is no outcome,
// there is no test.
type file struct {
	name     string
	path     func(data string) (string, error)
	outcomes [6]outcome
	says     string // in place of the file's name
}

func at(name string) func(string) (string, error) {
	return func(data string) (string, error) {
		path := filepath.Join(data, name)
		_, err := os.Stat(path)
		return path, err
	}
}

// newest returns the newest of the files that match a pattern, without those of a snapshot that is damaged or was never
// finished.
func newest(pattern string) func(string) (string, error) {
	return func(data string) (string, error) {
		files, err := filepath.Glob(filepath.Join(data, pattern))
		files = slices.DeleteFunc(files, func(path string) bool {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "meta.json"))
			return strings.Contains(pattern, "snapshots") && (err != nil || !json.Valid(text) || strings.HasSuffix(filepath.Dir(path), ".tmp"))
		})
		if err != nil || len(files) == 0 {
			return "", errors.Join(err, fmt.Errorf("%s: %w", pattern, fs.ErrNotExist))
		}
		slices.SortFunc(files, func(a, b string) int {
			i, errA := os.Stat(a)
			j, errB := os.Stat(b)
			if errA != nil || errB != nil {
				return 0
			}
			return i.ModTime().Compare(j.ModTime())
		})
		return files[len(files)-1], nil
	}
}

var (
	snapshotFiles = []file{
		{"snapshot's data", newest("raft/snapshots/*/state.bin"), [6]outcome{whole, whole, whole, whole, waits, whole}, "snapshot"},
		{"snapshot's description", newest("raft/snapshots/*/meta.json"), [6]outcome{whole, whole, whole, whole, waits, whole}, "snapshot"},
	}
	boltFiles = []file{
		{"log", at("raft/raft.db"), [6]outcome{whole, whole, whole, whole, waits, whole}, "raft"},
	}
	walFiles = []file{
		{"segment", newest("raft/wal/*.wal"), [6]outcome{whole, whole, whole, whole, waits, whole}, "wal"},
		{"index of segments", at("raft/wal/wal-meta.db"), [6]outcome{whole, whole, whole, whole, waits, whole}, "wal"},
	}
	agentFiles = []file{
		{"watermark", at("raft-watermark"), [6]outcome{whole, whole, whole, whole, waits, whole}, "raft-watermark"},
		{"journal", at("journal"), [6]outcome{whole, whole, whole, whole, idle, whole}, "journal"},
		{"addresses", at("known-agents.json"), [6]outcome{whole, whole, whole, whole, whole, whole}, "known-agents.json"},
		{"identity", at("identity"), [6]outcome{refuses, refuses, refuses, refuses, refuses, whole}, "identity"},
		{"id", at("agent-id"), [6]outcome{refuses, refuses, refuses, "", refuses, whole}, "agent-id"},
	}
)

// TestDamagedFiles damages the files of a voter in each way, one after the other, while the two others lead, and its log
// also while they do not run. Files that do not depend on the log's store are damaged with one store only. The agent never
// panics, names the file, and does what the table says.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for store, files := range map[string][]file{
		"boltdb": slices.Concat(boltFiles, agentFiles, snapshotFiles), "wal": walFiles,
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t, "a", "b", "c")
			m.found()
			for _, a := range m.agents {
				a.config(m.voterToken(), "raft: {store: "+store+", snapshot_interval: 500ms, snapshot_threshold: 8, trailing_logs: 4}")
				a.runWeak()
			}
			m.ready()
			m.vote()
			hurt := m.agents[2]
			for _, f := range files {
				for i, d := range damages {
					if want := f.outcomes[i]; want != "" {
						hurt.suffers(f, d, want)
					}
				}
			}
			hurt.suffers(file{"snapshot", snapshotFiles[0].path, [6]outcome{}, "upgrade this agent"},
				ofNewerBuild(), waits)
			hurt.suffers(file{"snapshot", snapshotFiles[0].path, [6]outcome{}, "snapshot"},
				damage{"that the state refuses", func(path string) error { return replaceSnapshots(path, []byte("nonsense")) }, nil}, whole)
			hurt.suffersAlone(map[string]string{"boltdb": "raft/raft.db", "wal": "raft/wal/wal-meta.db"}[store])
			m.stop()
		})
	}
}

// suffersAlone damages the log while no other agent runs. The files stay where they are, as they may hold the only copy
// of an entry, until the others are back.
func (a *agent) suffersAlone(name string) {
	m := a.mesh
	m.t.Helper()
	m.whole(a, "before the others end")
	for _, other := range m.agents {
		other.kill()
	}
	path := filepath.Join(a.data, name)
	if err := damages[1].do(path); err != nil {
		m.t.Fatal(err)
	}
	kept, err := os.ReadDir(filepath.Join(a.data, "quarantine"))
	if err != nil {
		m.t.Fatal(err)
	}
	before := len(a.tail(1 << 30))
	a.runWeak()
	m.await("the agent to leave the files where they are", func() error {
		if log := a.tail(1 << 30)[before:]; !strings.Contains(log, "the damaged Raft log stays as it is") || !strings.Contains(log, path) {
			return errNotYet
		}
		return nil
	})
	if now, err := os.ReadDir(filepath.Join(a.data, "quarantine")); err != nil || len(now) != len(kept) {
		m.t.Errorf("in quarantine were %d files and are %d, %v", len(kept), len(now), err)
	}
	if b, err := os.ReadFile(path); err != nil || len(bytes.Trim(b, "\x00")) > 0 {
		m.t.Errorf("the damaged file was changed: %v", err)
	}
	for _, other := range m.agents {
		if other != a {
			other.runWeak()
		}
	}
	m.whole(a, "the others are back")
}

// suffers kills the agent, damages a file, starts the agent and waits for the outcome. Then it makes the agent whole.
func (a *agent) suffers(f file, d damage, want outcome) {
	m := a.mesh
	m.t.Helper()
	what := fmt.Sprintf("%s %s", f.name, d.name)
	goal := m.whole(a, what)
	m.await("a snapshot", func() error {
		if _, err := newest("raft/snapshots/*/state.bin")(a.data); err != nil {
			m.must("token", "create", "more", "--role", "read")
			return err
		}
		return nil
	})
	a.kill()
	writeJournal(m.t, filepath.Join(a.data, "journal"))
	path, err := f.path(a.data)
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	kept, err := os.ReadFile(path)
	if err == nil {
		err = d.do(path)
	}
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	undo := func() {
		if d.undo == nil {
			err = os.WriteFile(path, kept, 0o600)
		} else {
			err = d.undo(path)
		}
		if err != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
	}
	before := len(a.tail(1 << 30))
	since := func() string { return a.tail(1 << 30)[before:] }
	m.must("token", "create", "meanwhile", "--role", "read")
	a.runWeak()
	began := time.Now()
	got := a.becomes(want, goal, since)
	took := time.Since(began).Round(100 * time.Millisecond)
	if got != want {
		m.t.Errorf("%s: the agent %s, and should be: %s\n%s", what, got, want, since())
	}
	if got != whole {
		if !strings.Contains(since(), f.says) {
			m.t.Errorf("%s: the log does not name %s:\n%s", what, f.says, since())
		}
		undo()
	} else if d.undo != nil {
		undo()
	}
	if !a.alive() {
		a.runWeak()
	}
	m.whole(a, what, goal)
	log := since()
	if found := regexp.MustCompile(`(?m)^(panic|fatal error|goroutine \d|unexpected fault|SIG\w+).*`).FindString(log); found != "" {
		m.t.Errorf("%s: the agent panicked: %s", what, found)
	}
	if strings.Contains(log, "put aside") && !strings.Contains(log, f.says) {
		m.t.Errorf("%s: the file is not named:\n%s", what, log)
	}
	m.t.Logf("%s: %s after %s; %s", what, got, took, notable(log))
}

// becomes waits until the agent does what it is to do, or something else that it does not leave by itself. It returns
// what the agent does.
func (a *agent) becomes(want outcome, goal uint64, since func() string) (got outcome) {
	over := time.After(patience)
	for {
		s, err := a.status()
		switch {
		case !a.alive():
			return refuses
		case err != nil:
			got = "does not answer"
		case s.Voter && s.Session != "" && s.Leader != "" && s.Applied >= goal:
			if got = whole; strings.Contains(since(), "this agent takes no new tasks") {
				got = idle
			}
			if got == want || want == waits || want == refuses {
				return got
			}
		case s.Session != "" && s.Applied == 0 && strings.Contains(since(), "the Raft member stopped"):
			got = waits
		default:
			got = outcome(fmt.Sprintf("has the status %+v", s))
		}
		if got == want {
			return got
		}
		select {
		case <-over:
			return got
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// notable returns the last line of the log that is a warning or an error, for people.
func notable(log string) string {
	last := ""
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "coopr-agent:") {
			if last == "" || strings.Contains(line, "aside") || strings.HasPrefix(line, "coopr-agent:") {
				last = line
			}
		}
	}
	return strings.TrimSpace(last)
}

// whole waits until the agent runs, votes, works and has applied what the leader had, and all entries up to those
// that are given. It returns the last one.
func (m *mesh) whole(a *agent, what string, goals ...uint64) (goal uint64) {
	m.t.Helper()
	m.await(what+": the agent to be whole", func() error {
		if !a.alive() {
			m.t.Fatalf("%s: the agent has ended\n%s", what, a.tail(20))
		}
		s, err := m.leader().status()
		if err != nil {
			return err
		}
		goal = max(goal, s.Applied)
		for _, g := range goals {
			goal = max(goal, g)
		}
		switch s, err = a.status(); {
		case err != nil:
			return err
		case !s.Voter || s.Session == "" || s.Applied < goal || s.Leader == "":
			return fmt.Errorf("its status is %+v, and the leader has applied %d", s, goal)
		}
		return nil
	})
	return goal
}

// runWeak starts the agent. If root runs the test, the agent has no right to read files against their modes.
func (a *agent) runWeak() {
	a.mesh.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if os.Geteuid() == 0 {
			for _, right := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); err != nil {
					a.mesh.t.Errorf("drop a right: %v", err)
				}
			}
		}
		a.run("run", "--config", filepath.Join(a.mesh.dir, a.name+".yaml"))
	}()
	<-done
}

// writeJournal writes a journal of an agent that was killed during tasks.
func writeJournal(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	j := worker.OpenFile(path, slog.New(slog.DiscardHandler))
	var err error
	for i := range uint64(3) {
		err = errors.Join(err, j.Put(&pb.Held{Task: fmt.Sprintf("0000009%d-001/1", i), Fence: i + 1, Started: true}))
	}
	if err := errors.Join(err, j.Close()); err != nil {
		t.Fatal(err)
	}
}

// usedBytes returns the size of a file without the zeros at its end.
func usedBytes(path string) (int64, error) {
	b, err := os.ReadFile(path)
	return int64(len(bytes.TrimRight(b, "\x00"))), err
}

// ofNewerBuild returns the damage that replaces all snapshots by some with a format that this build does not know. Its undo
// brings every file back: the agent would wait for ever if one of them remained.
func ofNewerBuild() damage {
	head, _ := proto.Marshal(&pb.SnapshotHeader{Format: 99, FeatureLevel: 99}) // it never fails
	var kept string
	dir := func(path string) string { return filepath.Dir(filepath.Dir(path)) }
	return damage{"of a newer build", func(path string) error {
		kept = filepath.Join(filepath.Dir(dir(path)), "kept-snapshots")
		return errors.Join(os.CopyFS(kept, os.DirFS(dir(path))),
			replaceSnapshots(path, append(binary.BigEndian.AppendUint32(nil, uint32(len(head))), head...)))
	}, func(path string) error {
		return errors.Join(os.RemoveAll(dir(path)), os.Rename(kept, dir(path)))
	}}
}

// replaceSnapshots replaces the data of all snapshots of an agent, and the checksums, where path is the data of one.
func replaceSnapshots(path string, data []byte) error {
	list, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(path)), "*", "state.bin"))
	for _, path := range list {
		if text, gone := os.ReadFile(filepath.Join(filepath.Dir(path), "meta.json")); gone != nil || !json.Valid(text) {
			continue // damaged before
		}
		err = errors.Join(err, replaceSnapshot(path, data))
	}
	return err
}

// replaceSnapshot replaces the data of a snapshot, and its checksum.
func replaceSnapshot(path string, data []byte) error {
	meta := filepath.Join(filepath.Dir(path), "meta.json")
	text, err := os.ReadFile(meta)
	if err != nil {
		return err
	}
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return err
	}
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = sum.Write(data) // it never fails
	m["CRC"], m["Size"] = sum.Sum(nil), len(data)
	if text, err = json.Marshal(m); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, data, 0o600), os.WriteFile(meta, text, 0o600),
		os.RemoveAll(filepath.Join(filepath.Dir(path), "meta.crc")))
}
