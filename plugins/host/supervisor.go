package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

var (
	errClosed  = errors.New("the agent is closing its plugins")
	errIdle    = errors.New("the plugin was closed because it was idle")
	errRetired = errors.New("the plugin was closed because its file or the types that it serves have changed")
)

// supervisor keeps the process of one version of a plugin's file running.
type supervisor struct {
	host *Host
	path string
	sum  string // SHA-256 in hex; identifies the version

	mu       sync.Mutex
	cur      *process
	starting chan struct{} // closed when the current start has ended
	retired  bool          // a newer version has replaced this one
	crashes  int           // consecutive crashes without a completed task
	notUntil time.Time     // end of the back-off
	last     error         // of the last start or crash
}

// acquire returns a live process, which it starts if needed, and holds it until release. An error
// means that nothing was done.
func (s *supervisor) acquire(ctx context.Context) (*process, error) {
	for {
		s.mu.Lock()
		if p := s.cur; p != nil && p.alive() {
			p.users.Add(1)
			s.mu.Unlock()
			return p, nil
		}
		if s.host.ctx.Err() != nil || s.retired {
			s.mu.Unlock()
			if s.host.ctx.Err() != nil {
				return nil, errClosed
			}
			return nil, errRetired
		}
		if s.cur != nil {
			s.died(s.cur)
		}
		wait := time.Until(s.notUntil)
		switch {
		case s.starting != nil:
		case wait <= 0:
			s.starting = make(chan struct{})
			s.host.tasks.Go(s.start)
		case s.crashes >= s.host.cfg.BreakAfter:
			err := fmt.Errorf("plugin %s failed %d times in a row; the next attempt to start it is in %s: %w", filepath.Base(s.path), s.crashes,
				wait.Round(time.Millisecond), s.last)
			s.mu.Unlock()
			return nil, err
		}
		starting := s.starting
		s.mu.Unlock()

		var backoff <-chan time.Time
		if starting == nil {
			t := time.NewTimer(wait)
			defer t.Stop()
			backoff = t.C
		}
		select {
		case <-starting:
			s.mu.Lock()
			p, err := s.cur, s.last
			s.mu.Unlock()
			if p == nil && err != nil {
				return nil, err
			}
		case <-backoff:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for plugin %s: %w", filepath.Base(s.path), context.Cause(ctx))
		case <-s.host.ctx.Done():
			return nil, errClosed
		}
	}
}

// release ends a hold on the process.
func (s *supervisor) release(p *process) {
	p.idleSince.Store(time.Now().UnixNano())
	if p.users.Add(-1) > 0 {
		return
	}
	s.mu.Lock()
	drained := s.retired && s.cur == p && p.users.Load() == 0
	if drained {
		s.cur = nil
	}
	s.mu.Unlock()
	if drained {
		s.host.tasks.Go(func() { p.close(errRetired) })
	}
}

// start starts a process and makes it the current one.
func (s *supervisor) start() {
	p, err := s.launch()
	s.mu.Lock()
	close(s.starting)
	s.starting = nil
	if err != nil {
		s.crashed(err)
		s.mu.Unlock()
		s.host.cfg.Logger.Error("plugin did not start", "plugin", s.path, "error", err)
		return
	}
	if s.retired {
		s.mu.Unlock()
		p.close(errRetired)
		return
	}
	s.cur, s.last = p, nil
	s.mu.Unlock()
	s.host.cfg.Logger.Info("plugin started", "plugin", s.path, "pid", p.run.cmd.Process.Pid)
	s.host.tasks.Go(func() { s.watch(p) })
}

// died counts the crash of a dead process, unless that was done or the process was given up before. mu is held.
func (s *supervisor) died(p *process) {
	if s.cur != p {
		return
	}
	if time.Since(p.born) > steady || p.useful() {
		s.crashes = 0
	}
	reason := p.why()
	s.crashed(reason)
	s.host.cfg.Logger.Error("plugin died", "plugin", s.path, "error", reason)
}

// crashed records a failure and sets the back-off. mu is held.
func (s *supervisor) crashed(err error) {
	s.cur, s.last = nil, err
	wait := s.host.cfg.BackoffMax
	if s.crashes < 30 {
		wait = min(wait, s.host.cfg.Backoff<<s.crashes)
	}
	s.crashes++
	s.host.crashes.Add(1)
	s.notUntil = time.Now().Add(wait)
}

// launch starts the file if its checksum is still that of the version.
func (s *supervisor) launch() (*process, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", filepath.Base(s.path), err)
	}
	sum, err := hashFile(f)
	if err == nil && sum != s.sum {
		err = fmt.Errorf("the file has changed: its SHA-256 is %s, not %s", sum, s.sum)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("plugin %s was not started: %w", s.path, err)
	}
	return s.host.start(s.path, f)
}

func hashFile(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// steady is the age from which a crash counts as the first one. A process that has completed a task
// counts as steady as well.
const steady = time.Minute

// watch supervises a process until its end: it closes an idle one, kills one that does not respond,
// and counts a crash that acquire has not counted.
func (s *supervisor) watch(p *process) {
	cfg := &s.host.cfg
	tick := time.NewTicker(min(cfg.IdleTimeout/4+1, cfg.HealthEvery))
	defer tick.Stop()
	silent := 0
	for {
		select {
		case <-p.dead:
			s.mu.Lock()
			s.died(p)
			s.mu.Unlock()
			p.close(p.reason)
			return
		case <-s.host.ctx.Done():
			p.close(errClosed)
			return
		case <-tick.C:
		}
		now := time.Now().UnixNano()
		s.mu.Lock()
		idle := p.users.Load() == 0 && now-p.idleSince.Load() >= int64(cfg.IdleTimeout)
		if idle && s.cur == p {
			s.cur, s.crashes = nil, 0
		}
		s.mu.Unlock()
		if idle {
			p.close(errIdle)
			cfg.Logger.Info("plugin closed because it was idle", "plugin", s.path)
			return
		}
		if p.users.Load() == 0 || now-p.heard.Load() < int64(cfg.HealthEvery) {
			silent = 0
			continue
		}
		ctx, cancel := context.WithTimeout(s.host.ctx, cfg.HealthEvery)
		err := p.ping(ctx)
		cancel()
		switch {
		case err == nil:
			silent = 0
			p.heard.Store(time.Now().UnixNano())
		case s.host.ctx.Err() == nil:
			if silent++; silent == 2 {
				p.fail(fmt.Errorf("plugin %s was killed: it did not respond for %s: %w", filepath.Base(s.path),
					time.Duration(now-p.heard.Load()).Round(time.Millisecond), err))
			}
		}
	}
}

// retire closes the process once its tasks are done; new tasks go to the new version.
func (s *supervisor) retire() {
	s.mu.Lock()
	s.retired = true
	p := s.cur
	idle := p != nil && p.users.Load() == 0
	if idle {
		s.cur = nil
	}
	s.mu.Unlock()
	if idle {
		s.host.tasks.Go(func() { p.close(errRetired) })
	}
}
