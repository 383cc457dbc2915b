// Package rest is a client for clouds' JSON APIs over HTTP. It waits when the API throttles it,
// repeats requests that can be repeated, and classifies failures.
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

// Client is the client of one API.
type Client struct {
	// Base is the API's address without a trailing slash.
	Base string
	// HTTP sends the requests. nil means NewHTTP(nil).
	HTTP *http.Client
	// Sign adds credentials to a request.
	Sign func(context.Context, *http.Request) error
	// Judge returns the cloud's message in the body of a refusal, and the kind of the failure if
	// the status alone does not determine it (instance.KindOfStatus).
	Judge func(status int, body []byte) (message string, kind instance.Kind)
}

// maxBody bounds an answer, in bytes.
const maxBody = 64 << 20

// Do sends a request with in as its JSON body, unless it is nil, and decodes the answer into out,
// unless it is nil.
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
		// The endpoint may be no cloud at all, so only a cloud's message is reported of the body.
		kind, message := instance.KindOfStatus(resp.StatusCode), ""
		if c.Judge != nil {
			said, k := c.Judge(resp.StatusCode, b)
			message, kind = said, cmp.Or(k, kind)
		}
		return instance.Faultf(kind, "%s (HTTP %d)", cmp.Or(message, "no reason given"), resp.StatusCode)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		// The error may quote the answer.
		return instance.Faultf(instance.Unclear, "%s %s: the answer is not the JSON of this API", method, req.URL.Path)
	}
	return nil
}

var patient = NewHTTP(nil)

// NewHTTP returns a client that sends its requests patiently to the addresses that g allows.
func NewHTTP(g *instance.Guard) *http.Client {
	return &http.Client{Transport: &Patient{Next: g.Transport()}}
}

// Patient is a transport that waits and repeats requests. If the API throttles a request, Patient
// waits as long as the answer says. If the API fails or cannot be reached, Patient repeats only
// requests that change nothing.
type Patient struct {
	// Next sends the requests; nil: http.DefaultTransport.
	Next http.RoundTripper
	// Tries is the maximum number of attempts at one request; default 6.
	Tries int
	// Pause is the first pause, doubled each time; default half a second. Longest bounds a pause
	// that the API demands; default 30 seconds.
	Pause, Longest time.Duration
}

// RoundTrip sends a request, and repeats it where necessary.
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
		again := err != nil && instance.KindOf(err) != instance.Invalid && reads && r.Context().Err() == nil || err == nil &&
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

// after returns how long the API asks the client to wait, or 0. Retry-After has a number of seconds
// or a date. Without it, RateLimit-Reset has the Unix time at which the limit is reset.
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
