package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coopr/coopr/testing/lab"
)

// fault is a kind of fault: begin makes it happen to agent x, and end ends it.
type fault struct {
	begin, end func(ctx context.Context, m *mesh, x int) error
}

// faults are all kinds of faults. Clients reach every agent that runs at any time, so that they ask agents that
// are cut off from the others, too.
var faults map[string]fault

func init() {
	faults = map[string]fault{
		"kill":      {killed, booted},
		"kill-all":  {allKilled, allBooted},
		"freeze":    {signalled(syscall.SIGSTOP), signalled(syscall.SIGCONT)},
		"isolate":   {cut(func(x, from, to, _ int) bool { return from == x || to == x }), healed},
		"deaf":      {cut(func(x, _, to, _ int) bool { return to == x }), healed},
		"mute":      {cut(func(x, from, _, _ int) bool { return from == x }), healed},
		"halves":    {cut(func(x, from, to, n int) bool { return half(x, from, n) != half(x, to, n) }), healed},
		"bridge":    {cut(func(x, from, to, n int) bool { return from != x && to != x && half(x+1, from, n) != half(x+1, to, n) }), healed},
		"slow-wire": {slowWire, healed},
		"slow-disk": {synced(2*time.Second, 0), synced(0, 0)},
		"sick-disk": {synced(0, syscall.EIO), synced(0, 0)},
		"full-disk": {fullDisk, roomyDisk},
		"lost-log":  {damaged(lostLog), booted},
		"torn":      {damaged(torn), booted},
		"flip":      {damaged(flippedLog), booted},
		"journal":   {damaged(brokenJournal), booted},
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

// torn cuts off the end of the log's file.
func torn(a *agent) error {
	path := filepath.Join(a.data, "raft", "raft.db")
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-info.Size()/4)
}

func flippedLog(a *agent) error    { return flip(filepath.Join(a.data, "raft", "raft.db")) }
func brokenJournal(a *agent) error { return flip(filepath.Join(a.data, "journal")) }

// flip changes a bit in the middle of a file, unless it is empty.
func flip(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, info.Size()/2); err != nil {
		return err
	}
	one[0] ^= 0x10
	_, err = f.WriteAt(one, info.Size()/2)
	return err
}
