package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// daemon is the address of a libvirt daemon, HOST:PORT or the path of a socket, and the zone of its
// machines, which is "" for a single daemon.
type daemon struct {
	zone, address string
	guard         *instance.Guard
}

// daemonsOf parses the fields daemons, host and socket.
func daemonsOf(f *instance.Fields) []daemon {
	socket, host, hosts := f.Text("socket", defaultSocket), f.Text("host", ""), f.List("daemons")
	if !strings.HasPrefix(socket, "/") {
		f.Faults.Add("socket", fmt.Sprintf("%q is not an absolute path", socket))
	}
	switch {
	case len(hosts) == 0 && host == "":
		return []daemon{{address: socket}}
	case len(hosts) == 0:
		checkAddress(f, "host", host)
		return []daemon{{address: host, guard: f.Guard}}
	case host != "":
		f.Faults.Add("host", "cannot be combined with daemons")
	}
	if len(f.List("zones")) == 0 {
		f.Faults.Add("zones", "is missing: list the zones of the daemons that nodes may use")
	}
	var out []daemon
	for _, h := range hosts {
		zone, address, _ := strings.Cut(h, "=")
		if zone == "" || slices.ContainsFunc(out, func(d daemon) bool { return d.zone == zone }) {
			f.Faults.Add("daemons", fmt.Sprintf("%q needs a zone of its own: ZONE=HOST:PORT", h))
		}
		checkAddress(f, "daemons", address)
		out = append(out, daemon{zone, address, f.Guard})
	}
	return out
}

func checkAddress(f *instance.Fields, field, address string) {
	if _, _, err := net.SplitHostPort(address); err != nil && !strings.HasPrefix(address, "/") {
		f.Faults.Add(field, fmt.Sprintf("%q is not HOST:PORT", address))
	}
}

// at returns the daemon of a zone.
func (c *cloud) at(zone string) (daemon, error) {
	for _, d := range c.daemons {
		if d.zone == zone {
			return d, nil
		}
	}
	if c.daemons[0].zone == "" {
		return c.daemons[0], nil // a single daemon serves every zone
	}
	return daemon{}, instance.Faultf(instance.Invalid, "the field daemons has no daemon for zone %q", zone)
}

// with connects to the daemon while fn runs. A connection takes about a millisecond, and a new one
// cannot be stale.
func (d daemon) with(ctx context.Context, uri string, fn func(*lv.Libvirt) error) (err error) {
	line := &line{daemon: d, ctx: ctx}
	defer line.end()
	defer func() {
		if ctx.Err() != nil && err != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	l := lv.NewWithDialer(line)
	if err := l.ConnectToURI(lv.ConnectURI(uri)); err != nil {
		return fault(fmt.Errorf("connect to the libvirt daemon (%s, %s): %w", d.address, uri, err))
	}
	defer func() { _ = l.Disconnect() }()
	return fn(l)
}

// line is a dialer whose connection is closed when a context is done. The library waits for the
// daemon's answer to every request, including the last one, and has no other way to stop.
type line struct {
	daemon
	ctx  context.Context
	stop func() bool
}

// Dial implements the library's dialer.
func (l *line) Dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	network, dial := "tcp", l.guard.DialContext
	if strings.HasPrefix(l.address, "/") {
		network, dial = "unix", new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, l.address)
	if err == nil {
		l.stop = context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	}
	return conn, err
}

func (l *line) end() {
	if l.stop != nil {
		l.stop()
	}
}
