package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// pool is the list of web servers with what is known of each. It owns their
// state; the checker and the requests tell it what they saw.
type pool struct {
	log    *slog.Logger
	client *http.Client

	mu   sync.Mutex
	list []*backend
	next int // where the round continues
}

// backend is one web server. fault is why it is skipped; "" means alive.
type backend struct{ url, fault string }

// notChecked is the fault of a web server that nobody has asked yet.
const notChecked = "not checked yet"

// set replaces the list. Those that stay keep their state, so that a reload
// drops no request.
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

// pick returns the next web server that is alive and not in tried.
func (p *pool) pick(tried map[string]bool) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.list {
		at := (p.next + i) % len(p.list)
		if b := p.list[at]; b.fault == "" && !tried[b.url] {
			p.next = at + 1
			return b.url, true
		}
	}
	return "", false
}

// mark notes what was seen of a web server: nil is alive.
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

// count returns how many web servers are alive, and of how many.
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

// faults says why no web server can be asked.
func (p *pool) faults() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return "no web servers are configured"
	}
	var out []string
	for _, b := range p.list {
		if b.fault != "" {
			out = append(out, fmt.Sprintf("%s (%s)", b.url, b.fault))
		}
	}
	return "none of the web servers answers: " + strings.Join(out, ", ")
}

// check asks every web server once, all at the same time.
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

// keepChecking checks at every tick, and at once whenever kick says so.
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
