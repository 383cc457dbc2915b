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

// daemon is where a libvirt daemon listens, HOST:PORT or the path of a socket, and the
// zone that its machines are in; "" where it is the only one.
type daemon struct{ zone, address string }

// daemonsOf reads the fields daemons, host and socket.
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
		return []daemon{{address: host}}
	case host != "":
		f.Faults.Add("host", "does not go with daemons")
	}
	if len(f.List("zones")) == 0 {
		f.Faults.Add("zones", "is missing: which of the daemons nodes may be on")
	}
	var out []daemon
	for _, h := range hosts {
		zone, address, _ := strings.Cut(h, "=")
		if zone == "" || slices.ContainsFunc(out, func(d daemon) bool { return d.zone == zone }) {
			f.Faults.Add("daemons", fmt.Sprintf("%q has no zone of its own", h))
		}
		checkAddress(f, "daemons", address)
		out = append(out, daemon{zone, address})
	}
	return out
}

func checkAddress(f *instance.Fields, field, address string) {
	if _, _, err := net.SplitHostPort(address); err != nil && !strings.HasPrefix(address, "/") {
		f.Faults.Add(field, fmt.Sprintf("%q is not HOST:PORT", address))
	}
}

// at gives the daemon of a zone.
func (c *cloud) at(zone string) (daemon, error) {
	for _, d := range c.daemons {
		if d.zone == zone {
			return d, nil
		}
	}
	if c.daemons[0].zone == "" {
		return c.daemons[0], nil // the only one is everywhere
	}
	return daemon{}, instance.Faultf(instance.Invalid, "the provider's daemons have none for zone %q", zone)
}

// with connects to the daemon for as long as fn takes. A connection costs a
// thousandth of a second; none that is kept can be stale.
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

// line makes a connection that ends with a context. The library waits for the daemon's
// answer to everything, its parting words too, and knows no other end.
type line struct {
	daemon
	ctx  context.Context
	stop func() bool
}

// Dial is the library's.
func (l *line) Dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(l.address, "/") {
		network = "unix"
	}
	conn, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(l.ctx, network, l.address)
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
