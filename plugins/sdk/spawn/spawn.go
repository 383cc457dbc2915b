// Package spawn starts child processes that die with this process, and copies all that they write.
package spawn

import (
	"errors"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/coopr/coopr/internal/priority"
)

// ErrStopped is returned by Start after Stop.
var ErrStopped = errors.New("the spawner is stopped and starts no more processes")

// Spawner starts processes from one OS thread that lives as long as the Spawner: the kernel's
// signal on the parent's death is tied to the thread that created the child, not to the process. A
// process with a raised priority starts its children with the ordinary one.
type Spawner struct {
	requests chan request
	stopped  chan struct{}
	mu       sync.RWMutex
	stopping bool
}

type request struct {
	cmd   *exec.Cmd
	reply chan error
}

// New returns a Spawner and starts its thread.
func New() *Spawner {
	s := &Spawner{requests: make(chan request), stopped: make(chan struct{})}
	go func() {
		defer close(s.stopped)
		runtime.LockOSThread()
		err := priority.Ordinary()
		// An unlocked thread returns to the pool and lives on. If the thread ended, the kernel
		// would signal children that are still ending.
		defer runtime.UnlockOSThread()
		for r := range s.requests {
			if err != nil {
				r.reply <- err
				continue
			}
			r.reply <- r.cmd.Start()
		}
	}()
	return s
}

// Start starts cmd in a session and a process group of its own, so that it has no terminal. The kernel sends it sig when this process
// dies.
func (s *Spawner) Start(cmd *exec.Cmd, sig syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = sig
	cmd.SysProcAttr.Setsid = true // a group of its own, too
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.stopping {
		return ErrStopped
	}
	r := request{cmd: cmd, reply: make(chan error, 1)}
	s.requests <- r
	return <-r.reply
}

// Stop ends the Spawner and releases its thread. Processes that it has started continue.
func (s *Spawner) Stop() {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	s.mu.Unlock()
	if first {
		close(s.requests)
	}
	<-s.stopped
}
