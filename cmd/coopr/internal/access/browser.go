package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"

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
	if err != nil || p.URL == "" {
		return t, false, err
	}
	ctx, cancel := context.WithDeadline(ctx, time.UnixMilli(p.Ends))
	defer cancel()
	if p.Code != "" {
		out.Notef("Log in at %s\nand confirm the code %s.\n", p.URL, p.Code)
		t, err = waitForPerson(ctx, c, p)
		return t, true, err
	}
	out.Notef("Log in at %s\n", p.URL)
	if err := show(p.URL); err != nil {
		out.Notef("No browser could be started (%v). Open the address yourself on this machine, or use --device.\n", err)
	}
	select {
	case q := <-back.came:
		if q.Code == "" {
			return t, true, fmt.Errorf("not logged in: the identity provider says: %s", q.fault)
		}
		f, err := c.FinishLogin(ctx, api.FinishLogin{Login: p.Login, State: q.State, Code: q.Code})
		if err == nil && f.Token == nil {
			err = fmt.Errorf("not logged in: the mesh has no answer of the identity provider")
		}
		if err != nil {
			return t, true, err
		}
		return *f.Token, true, nil
	case <-ctx.Done():
		return t, true, fmt.Errorf("nobody has logged in: %w", ctx.Err())
	}
}

// waitForPerson asks for the session until somebody has logged in.
func waitForPerson(ctx context.Context, c *client.Client, p api.LoginPrompt) (t api.IssuedToken, err error) {
	tick := time.NewTicker(time.Duration(p.Interval) * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, fmt.Errorf("nobody has logged in: %w", ctx.Err())
		}
		f, err := c.FinishLogin(ctx, api.FinishLogin{Login: p.Login})
		switch {
		case err != nil:
			return t, err
		case f.Token != nil:
			return *f.Token, nil
		}
	}
}

// callback is a server on this machine to which a browser comes back after a login.
type callback struct {
	url  string
	came chan answer
	http *http.Server
}

// answer is what the browser came back with.
type answer struct {
	api.FinishLogin
	fault string
}

func listen() (*callback, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &callback{url: "http://" + l.Addr().String() + "/callback", came: make(chan answer, 1)}
	b.http = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(b.serve)}
	go func() { _ = b.http.Serve(l) }() // ends with close
	return b, nil
}

func (b *callback) close() { _ = b.http.Close() }

func (b *callback) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a := answer{api.FinishLogin{State: q.Get("state"), Code: q.Get("code")}, q.Get("error") + " " + q.Get("error_description")}
	if r.URL.Path != "/callback" || a.State == "" {
		http.NotFound(w, r)
		return
	}
	select {
	case b.came <- a:
	default: // a browser that comes twice
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "You can close this page and go back to the terminal.")
}

// show opens a page in the browser of this machine.
func show(url string) error {
	name := "xdg-open"
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "linux":
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" && os.Getenv("BROWSER") == "" {
			return fmt.Errorf("there is no display")
		}
	}
	cmd := exec.Command(name, url)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
