package chaos

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/coopr/coopr/testing/lab"
)

// fault is a kind of fault: begin makes it happen to agent x, and end ends it.
type fault struct {
	place      place
	begin, end func(ctx context.Context, m *mesh, x int) error
}

// place is where a fault happens. Two faults at a time have different places, so that neither ends the other.
type place int

// The places, in the order in which faults end: an agent starts again once its disk and its wire are whole.
const (
	disk place = iota
	wire
	program
)

// faults are all kinds of faults. Clients reach every agent that runs at any time, so that they ask agents that
// are cut off from the others, too.
var faults map[string]fault

func init() {
	faults = map[string]fault{
		"kill":      {program, killed, booted},
		"kill-all":  {program, allKilled, allBooted},
		"freeze":    {program, signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT)},
		"isolate":   {wire, cut(isolated), healed},
		"flap":      {wire, flapping, still},
		"deaf":      {wire, cut(func(x, _, to, _ int) bool { return to == x }), healed},
		"mute":      {wire, cut(func(x, from, _, _ int) bool { return from == x }), healed},
		"halves":    {wire, cut(func(x, from, to, n int) bool { return half(x, from, n) != half(x, to, n) }), healed},
		"bridge":    {wire, cut(func(x, from, to, n int) bool { return from != x && to != x && half(x+1, from, n) != half(x+1, to, n) }), healed},
		"slow-wire": {wire, slowWire, healed},
		"slow-disk": {disk, synced(2*time.Second, 0), synced(0, 0)},
		"slowest":   {disk, synced(5*time.Second, 0), synced(0, 0)},
		"sick-disk": {disk, synced(0, syscall.EIO), synced(0, 0)},
		"full-disk": {disk, fullDisk, roomyDisk},
		"two-full":  {disk, both(fullDisk), both(roomyDisk)},
		"lost-log":  {program, damaged(lostLog), booted},
		"torn":      {program, damaged(torn), booted},
		"flip":      {program, damaged(flippedLog), booted},
		"snapshot":  {program, damaged(flippedSnapshot), booted},
		"journal":   {program, damaged(brokenJournal), booted},
	}
}

// half reports whether agent i is in the smaller half of n agents that begins with agent x.
func half(x, i, n int) bool { return (i-x+n)%n < n/2 }

func killed(_ context.Context, m *mesh, x int) error   { return m.agents[x].machine.Crash() }
func booted(ctx context.Context, m *mesh, x int) error { return m.agents[x].machine.Boot(ctx) }

func allKilled(_ context.Context, m *mesh, _ int) (err error) {
	for _, a := range m.agents {
		err = errors.Join(err, a.machine.Crash())
	}
	return err
}

func allBooted(ctx context.Context, m *mesh, _ int) (err error) {
	for _, a := range m.agents {
		err = errors.Join(err, a.machine.Boot(ctx))
	}
	return err
}

func signalled(s syscall.Signal) func(context.Context, *mesh, int) error {
	return func(_ context.Context, m *mesh, x int) error { return m.agents[x].signal(s) }
}

// cut cuts the wire from one agent to another for every pair that lost selects.
func cut(lost func(x, from, to, n int) bool) func(context.Context, *mesh, int) error {
	return func(_ context.Context, m *mesh, x int) error {
		n := len(m.agents)
		for i, from := range m.agents {
			for j, to := range m.agents {
				if i != j && lost(x, i, j, n) {
					m.lab.Net.Set(from.addr, to.addr, lab.Fault{Cut: true})
				}
			}
		}
		return nil
	}
}

func healed(_ context.Context, m *mesh, _ int) error {
	m.lab.Net.Heal()
	return nil
}

func isolated(x, from, to, _ int) bool { return from == x || to == x }

// flapping cuts agent x off and lets it back again and again, each time for another while.
func flapping(ctx context.Context, m *mesh, x int) error {
	ctx, m.still = context.WithCancel(ctx)
	m.flaps.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if n%2 == 0 {
				m.lab.Net.Heal()
			} else {
				_ = cut(isolated)(ctx, m, x) // it returns no error
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(1+n*7%10) * 100 * time.Millisecond):
			}
		}
	})
	return nil
}

// still ends flapping.
func still(ctx context.Context, m *mesh, x int) error {
	m.still()
	m.flaps.Wait()
	return healed(ctx, m, x)
}

// slowWire delays and loses what agent x sends to the others and hears from them.
func slowWire(_ context.Context, m *mesh, x int) error {
	slow := lab.Fault{Delay: 100 * time.Millisecond, Jitter: 100 * time.Millisecond, Loss: .05}
	for i, other := range m.agents {
		if i != x {
			m.lab.Net.Set(m.agents[x].addr, other.addr, slow)
			m.lab.Net.Set(other.addr, m.agents[x].addr, slow)
		}
	}
	return nil
}

// synced delays or refuses what agent x writes to its disk.
func synced(delay time.Duration, fails syscall.Errno) func(context.Context, *mesh, int) error {
	return func(_ context.Context, m *mesh, x int) error {
		m.agents[x].machine.SetSync(delay, fails)
		return nil
	}
}

// fullDisk fills the disk of agent x to the last byte.
func fullDisk(_ context.Context, m *mesh, x int) error {
	f, err := os.Create(filepath.Join(m.agents[x].data, "fill"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}

// both applies a step of a fault to agent x and to the one after it.
func both(one func(ctx context.Context, m *mesh, x int) error) func(context.Context, *mesh, int) error {
	return func(ctx context.Context, m *mesh, x int) error {
		return errors.Join(one(ctx, m, x), one(ctx, m, (x+1)%len(m.agents)))
	}
}

func roomyDisk(_ context.Context, m *mesh, x int) error {
	return os.Remove(filepath.Join(m.agents[x].data, "fill"))
}

// damaged kills agent x and damages its files.
func damaged(how func(a *agent) error) func(context.Context, *mesh, int) error {
	return func(_ context.Context, m *mesh, x int) error {
		return errors.Join(m.agents[x].machine.Crash(), how(m.agents[x]))
	}
}

func lostLog(a *agent) error { return os.RemoveAll(filepath.Join(a.data, "raft")) }

// log returns the file with the newest entries of the agent's log. A segment of a WAL is as long as it may
// become, and its newest entries are where its zeros begin.
func (a *agent) log() (path string, used int64, err error) {
	path = filepath.Join(a.data, "raft", "raft.db")
	if a.mesh.store == "wal" {
		segments, err := filepath.Glob(filepath.Join(a.data, "raft", "wal", "*.wal"))
		if err != nil || len(segments) == 0 {
			return "", 0, errors.Join(err, os.ErrNotExist)
		}
		path = slices.Max(segments) // their names begin with their first index
	}
	b, err := os.ReadFile(path)
	if a.mesh.store == "wal" {
		b = bytes.TrimRight(b, "\x00")
	}
	return path, int64(len(b)), err
}

// torn cuts off the end of the log's file.
func torn(a *agent) error {
	path, used, err := a.log()
	if err != nil {
		return err
	}
	return os.Truncate(path, used-used/4)
}

func flippedLog(a *agent) error {
	path, used, err := a.log()
	if err != nil {
		return err
	}
	return flip(path, used/2)
}

// flippedSnapshot damages the newest snapshot, if there is one.
func flippedSnapshot(a *agent) error {
	snapshots, err := filepath.Glob(filepath.Join(a.data, "raft", "snapshots", "*", "state.bin"))
	if err != nil || len(snapshots) == 0 {
		return err
	}
	newest, changed := "", time.Time{}
	for _, path := range snapshots {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(changed) {
			newest, changed = path, info.ModTime()
		}
	}
	return flipMiddle(newest)
}

func brokenJournal(a *agent) error { return flipMiddle(filepath.Join(a.data, "journal")) }

// flipMiddle changes a bit in the middle of a file, unless it is empty.
func flipMiddle(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	return flip(path, info.Size()/2)
}

// flip changes a bit of the byte at an offset. A hole in a file on a full disk has no byte that could change, and stays.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		return err
	}
	one[0] ^= 0x10
	if _, err = f.WriteAt(one, at); errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
