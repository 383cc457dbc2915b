package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// pool is the list of web servers with their states, which it owns. The checker and the requests
// report what they observe.
type pool struct {
	log    *slog.Logger
	client *http.Client

	mu   sync.Mutex
	list []*backend
	next int // index at which the next round begins
}

// backend is one web server. fault is the reason why it is skipped, or "" if it is alive.
type backend struct{ url, fault string }

// notChecked is the fault of a web server before its first check.
const notChecked = "not checked yet"

// set replaces the list. Web servers in both lists keep their state, so that a reload loses no
// request.
func (p *pool) set(urls []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := map[string]*backend{}
	for _, b := range p.list {
		old[b.url] = b
	}
	p.list = p.list[:0:0]
	for _, u := range urls {
		b := old[u]
		if b == nil {
			b = &backend{u, notChecked}
			old[u] = b
			p.list = append(p.list, b)
		} else if !slices.Contains(p.list, b) {
			p.list = append(p.list, b)
		}
	}
}

// pick returns the next web server that is alive and not in tried. Once none is left, it returns those that
// are skipped: what the last check observed may be over, and a request that fails is no worse than
// one that is refused.
func (p *pool) pick(tried map[string]bool) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, skipped := range []bool{false, true} {
		for i := range p.list {
			at := (p.next + i) % len(p.list)
			if b := p.list[at]; (b.fault != "") == skipped && !tried[b.url] {
				p.next = at + 1
				return b.url, true
			}
		}
	}
	return "", false
}

// mark records an observation of a web server; nil means alive.
func (p *pool) mark(url string, err error) {
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.list {
		if b.url != url {
			continue
		}
		switch {
		case fault == "" && b.fault != "":
			p.log.Info("web server is alive", "url", url)
		case fault != "" && (b.fault == "" || b.fault == notChecked):
			p.log.Warn("web server is skipped", "url", url, "why", fault)
		}
		b.fault = fault
	}
}

// count returns the number of live web servers and of all.
func (p *pool) count() (alive, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.list {
		if b.fault == "" {
			alive++
		}
	}
	return alive, len(p.list)
}

// check probes all web servers once, concurrently.
func (p *pool) check(ctx context.Context) {
	p.mu.Lock()
	list := slices.Clone(p.list)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, b := range list {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/health", nil)
			if err == nil {
				err = fetch(p.client, req, &health{})
			}
			if ctx.Err() == nil {
				p.mark(b.url, err)
			}
		})
	}
	wg.Wait()
}

// keepChecking checks at every tick, and immediately after each value from kick.
func (p *pool) keepChecking(ctx context.Context, every time.Duration, kick <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-tick.C:
		}
	}
}
