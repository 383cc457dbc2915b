package mesh

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/logstore"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/doubles/memjournal"
)

// life is one run of an agent, between a start and a crash. Its goroutines exist for a moment after
// the crash; nothing that they do may have an effect outside.
type life struct {
	dead chan struct{} // closed by the crash

	mu     sync.Mutex
	thawed chan struct{} // nil: not frozen; closed at the thaw
}

var errDead = errors.New("simulation: this process was killed")

func newLife() *life { return &life{dead: make(chan struct{})} }

func (l *life) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

func (l *life) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed == nil {
		l.thawed = make(chan struct{})
	}
}

func (l *life) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed != nil {
		close(l.thawed)
		l.thawed = nil
	}
}

func (l *life) frozen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thawed != nil
}

// moving waits for as long as the process is frozen.
func (l *life) moving() error {
	l.mu.Lock()
	c := l.thawed
	l.mu.Unlock()
	if c != nil {
		select {
		case <-c:
		case <-l.dead:
		}
	}
	if l.isDead() {
		return errDead
	}
	return nil
}

// sleep waits like a process that may be killed, frozen or cancelled. Time
// that passes while it is frozen counts, as it does for a clock.
func (l *life) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.dead:
		return errDead
	case <-ctx.Done():
	}
	if err := l.moving(); err != nil {
		return err
	}
	return ctx.Err()
}

// network is the host's network as this life has it.
type network struct {
	wire.Network
	life *life
}

func (n network) Listen(addr string) (net.Listener, error) {
	if n.life.isDead() {
		return nil, errDead
	}
	return n.Network.Listen(addr)
}

func (n network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.life.isDead() {
		return nil, errDead
	}
	return n.Network.Dial(ctx, addr)
}

// gossip is the host's gossip port as this life has it.
type gossip struct {
	memberlist.NodeAwareTransport
	life *life
}

func (g gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (g gossip) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if g.life.isDead() {
		return time.Now(), errDead
	}
	return g.NodeAwareTransport.WriteToAddress(b, to)
}

func (g gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (g gossip) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if g.life.isDead() {
		return nil, errDead
	}
	return g.NodeAwareTransport.DialAddressTimeout(to, timeout)
}

// logs and stable are the disk as this life has it.
type logs struct {
	raft.LogStore
	life *life
}

func (s logs) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s logs) StoreLogs(list []*raft.Log) error {
	if s.life.isDead() {
		return errDead
	}
	return s.LogStore.StoreLogs(list)
}

func (s logs) DeleteRange(from, to uint64) error {
	if s.life.isDead() {
		return errDead
	}
	return s.LogStore.DeleteRange(from, to)
}

type stable struct {
	raft.StableStore
	life *life
}

func (s stable) Set(k, v []byte) error {
	if s.life.isDead() {
		return errDead
	}
	return s.StableStore.Set(k, v)
}

func (s stable) SetUint64(k []byte, v uint64) error {
	if s.life.isDead() {
		return errDead
	}
	return s.StableStore.SetUint64(k, v)
}

type snapshots struct {
	raft.SnapshotStore
	life *life
}

func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64,
	trans raft.Transport) (raft.SnapshotSink, error) {
	if s.life.isDead() {
		return nil, errDead
	}
	return s.SnapshotStore.Create(version, index, term, c, ci, trans)
}

// mark is the file of the watermark as this life has it.
type mark struct {
	logstore.MarkFile
	life *life
}

func (f mark) WriteAt(b []byte, at int64) (int, error) {
	if f.life.isDead() {
		return 0, errDead
	}
	return f.MarkFile.WriteAt(b, at)
}

// journal is the worker's journal as this life has it.
type journal struct {
	*memjournal.Journal
	life *life
}

func (j journal) Put(held ...*pb.Held) error {
	if j.life.isDead() {
		return errDead
	}
	return j.Journal.Put(held...)
}

func (j journal) Forget(keys ...worker.Key) error {
	if j.life.isDead() {
		return errDead
	}
	return j.Journal.Forget(keys...)
}

func (j journal) Check() error {
	if j.life.isDead() {
		return errDead
	}
	return j.Journal.Check()
}
