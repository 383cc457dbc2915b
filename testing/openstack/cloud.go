package openstack

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/coopr/coopr/testing/lab"
)

// cacheVar is the environment variable with the folder of layers: OpenStack's packages, the
// installations that setup.sh made, and the system that servers boot from.
const cacheVar = "COOPR_TEST_OPENSTACK"

// Wanted reports whether tests run with a real OpenStack.
func Wanted() bool { return os.Getenv(cacheVar) != "" }

// Need skips a test unless tests run with a real OpenStack.
func Need(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("a real OpenStack is an opt-in tier: make test-openstack")
	}
}

// Cloud is an OpenStack with one project, its user, and the image, flavor and network for servers.
type Cloud struct {
	Lab      *lab.Lab
	Keystone string // its URL
	Host     string // the address of all services
	Project  string // the id of Project

	user    string // the id of User
	t       testing.TB
	cache   string
	machine *lab.Machine
	booted  time.Time

	// Clients that are logged in as the administrator.
	nova, neutron, identity, glance *gophercloud.ServiceClient
}

//go:embed setup.sh
var setup string

// Start starts an OpenStack, which ends with the test. It skips the test unless tests run with a
// real OpenStack. Servers get addresses of pool, a part of network.
func Start(t testing.TB, l *lab.Lab, network, pool netip.Prefix) *Cloud {
	t.Helper()
	Need(t)
	c := &Cloud{Lab: l, t: t, cache: os.Getenv(cacheVar)}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	layers := []string{filepath.Join(c.cache, "packages")}
	ready := filepath.Join(c.cache, fmt.Sprintf("ready-%.6x", sha256.Sum256([]byte(setup))))
	_, err := os.Stat(ready)
	isSetUp := err == nil
	if isSetUp {
		layers = append([]string{ready}, layers...)
	}
	c.booted = time.Now()
	if c.machine, err = l.Start(ctx, lab.Spec{Name: "openstack", Systemd: true, Layers: layers}); err != nil {
		t.Fatal(err)
	}
	c.Host = c.machine.Addr.String()
	c.Keystone = "http://" + c.Host + ":5000/v3"
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.machine.Run(context.Background(), "sh", "-c",
				"systemctl --failed --no-legend; tail -n 30 /var/log/nova/*.log /var/log/neutron/*.log")
			t.Logf("---- OpenStack's logs:\n%s", out)
		}
	})
	if !isSetUp {
		c.setUp(ctx, ready)
	}
	c.await(ctx, "systemd", c.systemd)
	// Bridges are not kept on disk; the agent waits for this one.
	c.run(ctx, "ip link add brphys type bridge 2>/dev/null; ip link set brphys up; systemctl restart neutron-linuxbridge-agent; "+
		"systemctl start --no-block "+units)
	c.await(ctx, "the APIs", func(ctx context.Context) error {
		for _, port := range []int{5000, 8774, 9696, 9292, 8778} {
			if err := answers(ctx, fmt.Sprintf("http://%s:%d/", c.Host, port)); err != nil {
				return err
			}
		}
		return nil
	})
	c.fill(ctx, network, pool)
	t.Logf("OpenStack is ready after %.0f s", time.Since(c.booted).Seconds())
	return c
}

// units are the services that setup.sh sets up. Not all of them start by themselves.
const units = "keystone glance-api placement-api neutron-api neutron-rpc-server nova-api nova-conductor nova-scheduler nova-compute"

// setUp sets OpenStack up from its packages, saves the result as a layer, and boots it again.
func (c *Cloud) setUp(ctx context.Context, ready string) {
	c.t.Helper()
	c.await(ctx, "systemd", c.systemd)
	c.run(ctx, "cat >/root/setup.sh <<'SETUP'\n"+setup+"\nSETUP\nbash /root/setup.sh "+c.Host+
		" >/root/setup.log 2>&1 || { tail -n 50 /root/setup.log; exit 1; }")
	c.run(ctx, "systemctl stop 'nova-*' 'neutron-*' glance-api placement-api keystone mariadb rabbitmq-server; sync")
	c.t.Logf("OpenStack is set up after %.0f s", time.Since(c.booted).Seconds())
	if err := errors.Join(c.machine.Crash(), c.machine.Save(ready)); err != nil {
		c.t.Fatal(err)
	}
	c.booted = time.Now()
	if err := c.machine.Boot(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// systemd returns an error if systemd has not reached basic.target yet. From then on systemd accepts
// commands. The end of the boot is not required, because services that are not set up yet fail and
// restart.
func (c *Cloud) systemd(ctx context.Context) error {
	_, err := c.machine.Run(ctx, "systemctl", "is-active", "basic.target")
	return err
}

// run runs a script in the machine.
func (c *Cloud) run(ctx context.Context, script string) {
	c.t.Helper()
	if out, err := c.machine.Run(ctx, "/bin/bash", "-c", script); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
}

func (c *Cloud) await(ctx context.Context, what string, ask func(context.Context) error) {
	c.t.Helper()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("waited for %s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// plain keeps no connections, because tests check that none are left.
var plain = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// answers returns nil if a service answers with any status below 500.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := plain.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
