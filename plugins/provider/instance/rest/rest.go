// Package rest talks to clouds' APIs that are JSON over HTTP: it waits where it is
// told that it asks too much, asks again what can be asked again, and tells
// failures apart.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// Client is one API.
type Client struct {
	// Base is the API's address without a slash at its end.
	Base string
	// HTTP carries the requests; nil: a Patient transport.
	HTTP *http.Client
	// Sign adds credentials to a request.
	Sign func(context.Context, *http.Request) error
	// Judge reads a refusal's body: what the cloud says, and of which kind it is
	// where the status alone does not tell (instance.KindOfStatus).
	Judge func(status int, body []byte) (message string, kind instance.Kind)
}

// maxBody bounds an answer, in bytes.
const maxBody = 64 << 20

// Do sends a request with a body of JSON (nil: none) and reads the answer into out
// (nil: it is not wanted).
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	url := path
	if !strings.HasPrefix(path, "http") {
		url = c.Base + path
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "coopr")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Sign != nil {
		if err := c.Sign(ctx, req); err != nil {
			return err
		}
	}
	resp, err := cmp.Or(c.HTTP, patient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return &instance.Fault{Kind: instance.Unclear, Err: fmt.Errorf("%s %s: %w", method, req.URL.Path, err)}
	}
	if resp.StatusCode >= 300 {
		kind, message := instance.KindOfStatus(resp.StatusCode), strings.TrimSpace(string(b[:min(len(b), 300)]))
		if c.Judge != nil {
			said, k := c.Judge(resp.StatusCode, b)
			message, kind = cmp.Or(said, message), cmp.Or(k, kind)
		}
		return instance.Faultf(kind, "%s (HTTP %d)", cmp.Or(message, "no reason was given"), resp.StatusCode)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return &instance.Fault{Kind: instance.Unclear, Err: fmt.Errorf("%s %s: the answer cannot be read: %w", method, req.URL.Path, err)}
	}
	return nil
}

var patient = &http.Client{Transport: &Patient{}}

// Patient is a transport that waits and asks again: where the API throttles it, as
// long as the answer says; and, for requests that change nothing, where the API
// fails or cannot be reached.
type Patient struct {
	// Next carries the requests; nil: http.DefaultTransport.
	Next http.RoundTripper
	// Tries bounds how often one request is sent; default 6.
	Tries int
	// Pause is the first pause, doubled each time; default half a second. Longest
	// bounds one that the API asks for; default 30 seconds.
	Pause, Longest time.Duration
}

// RoundTrip sends a request as often as need be.
func (p *Patient) RoundTrip(r *http.Request) (*http.Response, error) {
	pause, longest := cmp.Or(p.Pause, 500*time.Millisecond), cmp.Or(p.Longest, 30*time.Second)
	var next http.RoundTripper = http.DefaultTransport
	if p.Next != nil {
		next = p.Next
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	for try := 1; ; try++ {
		req := r
		if try > 1 {
			req = r.Clone(r.Context())
			if r.GetBody != nil {
				body, err := r.GetBody()
				if err != nil {
					return nil, err
				}
				req.Body = body
			}
		}
		resp, err := next.RoundTrip(req)
		again := err != nil && reads && r.Context().Err() == nil || err == nil &&
			(resp.StatusCode == http.StatusTooManyRequests || reads && resp.StatusCode >= 500)
		if !again || try >= cmp.Or(p.Tries, 6) || r.Body != nil && r.GetBody == nil {
			return resp, err
		}
		wait := pause
		if err == nil {
			if s := after(resp.Header, time.Now()); s > 0 {
				wait = s
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
			_ = resp.Body.Close()
		}
		pause *= 2
		timer := time.NewTimer(min(wait, longest))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return nil, context.Cause(r.Context())
		}
	}
}

// after reads how long an API asks to be left alone: Retry-After in seconds or as
// a time, or the time in seconds at which a limit begins anew.
func after(h http.Header, now time.Time) time.Duration {
	if v := h.Get("Retry-After"); v != "" {
		if s, err := strconv.Atoi(v); err == nil {
			return time.Duration(s) * time.Second
		}
		if t, err := http.ParseTime(v); err == nil {
			return t.Sub(now)
		}
	}
	if s, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64); err == nil {
		return time.Unix(s, 0).Sub(now)
	}
	return 0
}
