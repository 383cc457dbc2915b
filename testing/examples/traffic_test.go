package examples

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// traffic is a set of clients that send requests until they are stopped.
type traffic struct {
	t    *testing.T
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	asked  int
	failed []error
}

// clients starts clients that ask, each again and again with a short pause.
func clients(t *testing.T, n int, ask func(context.Context) error) *traffic {
	ctx, stop := context.WithCancel(t.Context())
	f := &traffic{t: t, stop: stop}
	for range n {
		f.wg.Go(func() {
			for ctx.Err() == nil {
				err := ask(ctx)
				if ctx.Err() != nil {
					return
				}
				f.mu.Lock()
				f.asked++
				if err != nil {
					f.failed = append(f.failed, err)
				}
				f.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(f.end)
	return f
}

// end stops the clients.
func (f *traffic) end() {
	f.stop()
	f.wg.Wait()
}

// during runs do, and counts the requests of clients and the failed ones among them. It makes sure
// that clients send requests before, during and after do.
func (f *traffic) during(what string, do func()) (failed int) {
	f.t.Helper()
	f.quiet()
	f.mu.Lock()
	asked, before := f.asked, len(f.failed)
	f.mu.Unlock()
	begin := time.Now()
	do()
	f.quiet()
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := f.failed[before:]
	f.t.Logf("%-40s %6d requests, %d failed, %.1f s", what, f.asked-asked, len(failures), time.Since(begin).Seconds())
	for i, err := range failures {
		if i == 5 {
			f.t.Logf("    and %d more", len(failures)-i)
			break
		}
		f.t.Logf("    %v", err)
	}
	return len(failures)
}

// none is during for what clients must not notice. Where the machine is busy with
// other tests one request in a hundred may be too slow for the services' own limits.
func (f *traffic) none(what string, do func()) {
	f.t.Helper()
	f.mu.Lock()
	asked := f.asked
	f.mu.Unlock()
	failed := f.during(what, do)
	f.mu.Lock()
	asked = f.asked - asked
	f.mu.Unlock()
	if failed > 0 && (every || failed*100 > asked) {
		f.t.Errorf("%s: %d of %d requests failed", what, failed, asked)
	}
}

// quiet waits until every client has asked some times more.
func (f *traffic) quiet() {
	f.mu.Lock()
	want := f.asked + 20
	f.mu.Unlock()
	for {
		f.mu.Lock()
		done := f.asked >= want
		f.mu.Unlock()
		if done || f.t.Context().Err() != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// get asks for a page, over a connection of its own, and returns it.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", resp.StatusCode, b)
	}
	return string(b), err
}
