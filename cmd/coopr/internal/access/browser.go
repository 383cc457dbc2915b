package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// byBrowser logs in on the pages of an identity provider. It returns false for a method with passwords. With device, the
// browser may be on another machine.
func byBrowser(ctx context.Context, c *client.Client, out *output.Printer, req api.BeginLogin, device bool) (t api.IssuedToken, ok bool,
	err error) {
	var back *callback
	if !device {
		if back, err = listen(); err != nil {
			return t, false, err
		}
		defer back.close()
		req.Redirect = back.url
	}
	p, err := c.BeginLogin(ctx, req)
	if err != nil || p.Login == "" {
		return t, false, err
	}
	page, err := url.Parse(p.URL)
	if err != nil || page.Scheme != "https" && page.Scheme != "http" || device != (p.Code != "") {
		return t, true, fmt.Errorf("the mesh has no page where to log in by %s", req.Method)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Lasts)*time.Millisecond)
	defer cancel()
	interval := max(time.Duration(p.Interval)*time.Millisecond, time.Second)
	if device {
		out.Notef("Log in at %s\nand confirm the code %s.\n", page, printable(p.Code))
		t, err = finish(ctx, c, api.FinishLogin{Login: p.Login}, interval)
		return t, true, err
	}
	out.Notef("Log in at %s\n", page)
	if err := show(page.String()); err != nil {
		out.Notef("No browser could be started (%v). Open the address yourself on this machine, or use --device.\n", err)
	}
	came, err := back.wait(ctx, page.Query().Get("state"))
	if err != nil {
		return t, true, err
	}
	came.Login = p.Login
	t, err = finish(ctx, c, came, interval)
	return t, true, err
}

// finish asks for the session until somebody has logged in. Errors that may pass do not end it: the person has done their part.
func finish(ctx context.Context, c *client.Client, req api.FinishLogin, interval time.Duration) (t api.IssuedToken, err error) {
	if req.Code == "" {
		if err := pause(ctx, interval); err != nil {
			return t, err
		}
	}
	for {
		f, err := c.FinishLogin(ctx, req)
		switch {
		case err == nil && f.Token != nil:
			return *f.Token, nil
		case err != nil && !mayPass(err):
			return t, fmt.Errorf("not logged in: %w", err)
		case f.Slower:
			interval += 5 * time.Second
		}
		if paused := pause(ctx, interval); paused != nil {
			return t, errors.Join(paused, err)
		}
	}
}

// pause waits. It fails if the login ends meanwhile.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nobody has logged in: %w", ctx.Err())
	}
}

// mayPass reports whether a login may go on after an error.
func mayPass(err error) bool {
	return slices.Contains([]problem.Code{problem.Busy, problem.Throttled, problem.NoLeader, problem.Timeout}, problem.CodeOf(err))
}

// printable returns a text of somebody else without what would change the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// callback is a server on this machine to which a browser comes back after a login.
type callback struct {
	url  string
	came chan url.Values
	http *http.Server
}

func listen() (*callback, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &callback{url: "http://" + l.Addr().String() + "/callback", came: make(chan url.Values)}
	b.http = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(b.serve)}
	go func() { _ = b.http.Serve(l) }() // ends with close
	return b, nil
}

// close ends the server once the browser has its page.
func (b *callback) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if b.http.Shutdown(ctx) != nil {
		_ = b.http.Close()
	}
}

func (b *callback) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/callback" {
		http.NotFound(w, r)
		return
	}
	select {
	case b.came <- r.URL.Query():
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "You can close this page and go back to the terminal.")
}

// wait returns what the browser came back with. Visits with another state are not of this login.
func (b *callback) wait(ctx context.Context, state string) (api.FinishLogin, error) {
	for {
		select {
		case q := <-b.came:
			if state == "" || q.Get("state") != state {
				continue
			}
			if q.Get("code") == "" {
				return api.FinishLogin{}, fmt.Errorf("not logged in: the identity provider says: %s",
					printable(q.Get("error")+" "+q.Get("error_description")))
			}
			return api.FinishLogin{State: state, Code: q.Get("code")}, nil
		case <-ctx.Done():
			return api.FinishLogin{}, fmt.Errorf("nobody has logged in: %w", ctx.Err())
		}
	}
}

// show opens a page in the browser of this machine.
func show(page string) error {
	name := "xdg-open"
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "linux":
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" {
			return fmt.Errorf("there is no display")
		}
	}
	cmd := exec.Command(name, page)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
