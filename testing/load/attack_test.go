package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// caller sends requests with a token from an address of this machine.
type caller struct {
	url, token string
	http       *http.Client
}

// caller returns a client whose connections come from an address of 127.0.0.0/8.
func (a *target) caller(token, from string) *caller {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	t := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64, DisableCompression: true}
	a.t.Cleanup(t.CloseIdleConnections)
	return &caller{a.url, token, &http.Client{Transport: t}}
}

// ask sends a request. The status is 0 if there was no answer.
func (c *caller) ask(method, path, body string) (status int, answer string) {
	return c.send(context.Background(), method, path, strings.NewReader(body))
}

func (c *caller) send(ctx context.Context, method, path string, body io.Reader) (status int, answer string) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return 0, err.Error()
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, b.String()
}

// attack is the load of a hostile tenant and of strangers. It counts the answers by status.
type attack struct {
	a        *target
	ctx      context.Context
	stop     func()
	running  sync.WaitGroup
	statuses [600]atomic.Int64
	opened   atomic.Int64 // connections of strangers that were accepted and used
}

func newAttack(a *target) *attack {
	x := &attack{a: a}
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x
}

// repeat calls fn again and again on so many goroutines until the attack ends.
func (x *attack) repeat(goroutines int, fn func(i int) (status int)) {
	for range goroutines {
		x.running.Go(func() {
			for i := 0; x.ctx.Err() == nil; i++ {
				x.statuses[fn(i)].Add(1)
			}
		})
	}
}

// tenant does what a user with a valid token can do to hurt others, all of it at full speed.
func (x *attack) tenant(token string) {
	c := x.a.caller(token, "127.0.0.9")
	ask := func(method, path string, body io.Reader) int {
		status, _ := c.send(x.ctx, method, path, body)
		return status
	}
	// Reads.
	x.repeat(32, func(int) int { return ask("GET", "/v1/services", nil) })
	x.repeat(8, func(int) int { return ask("GET", "/v1/tenants/hostile", nil) })
	// Large and many documents, in many versions.
	text := strings.Repeat("a text that fills a document. ", 5000)
	var n atomic.Int64
	x.repeat(16, func(i int) int {
		name := fmt.Sprint("s", n.Add(1)%3000)
		return ask("PUT", "/v1/services/"+name, strings.NewReader(fmt.Sprintf(`{"name":%q,"description":"%d %s"}`, name, i, text)))
	})
	// Bodies as large as a body may be, with nothing in them.
	huge := bytes.Repeat([]byte("[1,"), 5<<20)
	x.repeat(8, func(int) int { return ask("POST", "/v1/clusters", bytes.NewReader(huge)) })
	// Readers that wait, twice as many as may.
	for range 2000 {
		x.running.Go(func() {
			for x.ctx.Err() == nil {
				status := x.stream(token)
				x.statuses[status].Add(1)
				select {
				case <-x.ctx.Done():
				case <-time.After(time.Second): // a client that is not wanted tries again
				}
			}
		})
	}
}

// stream opens an event stream on a connection of its own, and reads from it until the attack ends.
func (x *attack) stream(token string) (status int) {
	conn := x.dial(fmt.Sprintf("127.0.1.%d", 1+x.opened.Add(1)%20))
	if conn == nil {
		return 0
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", token)
	return x.drain(conn)
}

// dial connects from an address. The connection is closed when the attack ends.
func (x *attack) dial(from string) net.Conn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(x.ctx, "tcp", x.a.addr)
	if err != nil {
		return nil
	}
	context.AfterFunc(x.ctx, func() { _ = conn.Close() })
	return conn
}

// drain reads a connection to its end and returns the status of the first answer.
func (x *attack) drain(conn net.Conn) (status int) {
	buf := make([]byte, 512)
	n, _ := conn.Read(buf)
	if _, err := fmt.Sscanf(string(buf[:n]), "HTTP/1.1 %d", &status); err != nil || status < 0 || status >= len(x.statuses) {
		return 0
	}
	for status == http.StatusOK {
		if _, err := conn.Read(buf); err != nil {
			return status
		}
	}
	return status
}

// strangers are connections without a valid token, half of them slow.
func (x *attack) strangers(n int) {
	for i := range n {
		from := fmt.Sprintf("127.0.2.%d", 1+i%5)
		x.running.Go(func() {
			for k := 0; x.ctx.Err() == nil; k++ {
				conn := x.dial(from)
				if conn == nil {
					continue
				}
				x.opened.Add(1)
				if i%2 == 0 {
					x.slow(conn)
				} else {
					x.fast(conn, i, k)
				}
				_ = conn.Close()
			}
		})
	}
}

// slow sends one header for as long as the agent reads.
func (x *attack) slow(conn net.Conn) {
	fmt.Fprintf(conn, "GET /v1/clusters HTTP/1.1\r\nHost: a\r\nX-Slow: ")
	buf := make([]byte, 1)
	for x.ctx.Err() == nil {
		if _, err := conn.Write([]byte("x")); err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Read(buf); errors.Is(err, io.EOF) {
			return
		}
	}
}

// fast sends requests without a token and with guessed ones, one after the other.
func (x *attack) fast(conn net.Conn, i, k int) {
	buf := make([]byte, 4096)
	for j := 0; x.ctx.Err() == nil; j++ {
		token := ""
		if j%2 == 0 {
			token = fmt.Sprintf("Authorization: Bearer guess-%d-%d-%d\r\n", i, k, j)
		}
		if _, err := fmt.Fprintf(conn, "GET /v1/clusters HTTP/1.1\r\nHost: a\r\n%s\r\n", token); err != nil {
			return
		}
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		status := 0
		if _, err := fmt.Sscanf(string(buf[:n]), "HTTP/1.1 %d", &status); err == nil && status > 0 && status < len(x.statuses) {
			x.statuses[status].Add(1)
		}
	}
}

// end ends the attack.
func (x *attack) end() {
	x.stop()
	x.running.Wait()
}

// String shows the answers by status.
func (x *attack) String() string {
	var b strings.Builder
	for status := range x.statuses {
		if n := x.statuses[status].Load(); n > 0 {
			fmt.Fprintf(&b, "%d: %d, ", status, n)
		}
	}
	return strings.TrimSuffix(b.String(), ", ")
}
