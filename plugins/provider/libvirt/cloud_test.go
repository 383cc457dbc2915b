package libvirt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"go.uber.org/goleak"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDomains runs all tests against libvirt's test driver: a real daemon and its protocol, with
// simulated domains.
func TestDomains(t *testing.T) {
	socket := daemonFor(t)
	// The driver forgets everything when its last connection is closed.
	l := lv.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
	if err := l.ConnectToURI("test:///default"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Disconnect() }()
	pool, err := l.StoragePoolLookupByName("default-pool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.StorageVolCreateXML(pool, "<volume><name>debian-12</name><capacity>1000000</capacity><target><format "+
		"type='qcow2'/></target></volume>", 0); err != nil {
		t.Fatal(err)
	}
	before, _, err := l.ConnectListAllDomains(1, 0)
	if err != nil || len(before) == 0 {
		t.Fatalf("the driver's own domain: %v %v", before, err)
	}
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	fields := map[string]any{"uri": "test:///default", "socket": socket, "domain_type": "test", "pool": "default-pool", "seed": "none"}
	(&providertest.Instances{Provider: p, Fields: fields, Flavor: "1x64", Image: "debian-12"}).Try(t)

	// A machine that ends before it is ready is started again; as it has no address, it is never ready.
	silent := maps.Clone(fields)
	silent["ready_within"] = "1h"
	n := providertest.New(t, silent, "silent")
	n.Flavor, n.Image = "1x64", "debian-12"
	n.Must("CREATE", p.Create)
	made, _, err := l.ConnectListAllDomains(1, lv.ConnectListDomainsActive)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range made {
		if strings.HasPrefix(d.Name, "coopr-") {
			err = errors.Join(err, l.DomainDestroy(d))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Confirm(waiting, n.Task("CONFIRM"))
		ended <- err
	}()
	for again := 0; again != len(made); time.Sleep(time.Millisecond) {
		running, _, err := l.ConnectListAllDomains(1, lv.ConnectListDomainsActive)
		if err != nil {
			t.Fatal(err)
		}
		again = len(running)
		select {
		case err := <-ended:
			t.Fatalf("the wait for a machine that was not started again: %v", err)
		default:
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the confirmation of a silent machine, canceled: %v", err)
	}
	silent["ready_within"] = "20ms"
	if err := n.Do("CONFIRM", p.Confirm); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_FATAL || !strings.Contains(err.Error(), "ready_within") {
		t.Errorf("a silent machine: %v: %v", sdk.OutcomeOf(err), err)
	}

	// Its pool is stopped, so it cannot be deleted, and the error says why.
	if err := l.StoragePoolDestroy(pool); err != nil {
		t.Fatal(err)
	}
	if err := n.Do("DELETE", p.Delete); err == nil || !strings.Contains(err.Error(), "pool-start") {
		t.Errorf("without its pool: %v", err)
	}
	if err := l.StoragePoolCreate(pool, 0); err != nil {
		t.Fatal(err)
	}
	n.Must("DELETE", p.Delete)

	// A domain that was only defined when the plugin was killed.
	f := &instance.Fields{Values: fields}
	c := open(f).(*cloud)
	s := &instance.Spec{Name: "coopr-m-c-1", Flavor: "1x64", Image: "no-such",
		Tags: instance.Tags{Mesh: "m", Cluster: "c", Node: "n", Fence: 1, Key: "k"}}
	text, err := fill(c.domain, &values{Name: s.Name, Type: "test", Pool: c.pool, Root: rootOf(s.Name), Network: "default", CPUs: 1,
		Mebibytes: 64,
		Metadata:  `<node xmlns="` + namespace + `" mesh="m" cluster="c" node="n" fence="1" key="k" pool="default-pool" done="false"/>`})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.DomainDefineXML(text); err != nil {
		t.Fatal(err)
	}
	ms, err := c.List(t.Context(), instance.Tags{Mesh: "m"})
	if err != nil || len(ms) != 1 || ms[0].State != instance.Failed {
		t.Fatalf("%+v %v", ms, err)
	}
	s.Image = "debian-12"
	if _, err := c.Create(t.Context(), s); instance.KindOf(err) != instance.Conflict {
		t.Errorf("a domain over another: %v", err)
	}
	if err := c.Delete(t.Context(), &ms[0]); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*cloud){
		"pool":    func(c *cloud) { c.pool = "no-such" },
		"network": func(c *cloud) { c.kind = "marvel" },
	} {
		bad := *c
		change(&bad)
		if _, err := bad.Create(t.Context(), s); err == nil {
			t.Errorf("a domain without its %s", what)
		}
	}
	if ms, err := c.List(t.Context(), instance.Tags{Mesh: "m"}); err != nil || len(ms) > 0 {
		t.Errorf("left: %+v %v", ms, err)
	}
	after, _, err := l.ConnectListAllDomains(1, 0)
	vols, _, verr := l.StoragePoolListAllVolumes(pool, 1, 0)
	if err != nil || verr != nil || len(after) != len(before) || len(vols) != 1 {
		t.Errorf("left: %v %v %v %v", after, vols, err, verr)
	}
	away := *c
	away.daemons = []daemon{{address: "/no/such/socket"}}
	if _, err := away.List(context.Background(), instance.Tags{}); instance.KindOf(err) != instance.Unclear {
		t.Errorf("no daemon: %v", err)
	}
}

// TestHosts uses two daemons with one zone each. While one of them does not answer, its domains are
// unknown.
func TestHosts(t *testing.T) {
	var hosts []string
	clients := map[string]*lv.Libvirt{}
	for _, zone := range []string{"a", "b"} {
		socket := daemonFor(t)
		hosts = append(hosts, zone+"="+socket)
		l := lv.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
		if err := l.ConnectToURI("test:///default"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Disconnect() }()
		clients[zone] = l
		pool, err := l.StoragePoolLookupByName("default-pool")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.StorageVolCreateXML(pool, "<volume><name>debian-12</name><capacity>1000000</capacity><target><format "+
			"type='qcow2'/></target></volume>", 0); err != nil {
			t.Fatal(err)
		}
	}
	f := &instance.Fields{Values: map[string]any{
		"uri": "test:///default", "daemons": strings.Join(hosts, ", "), "zones": "a, b", "domain_type": "test", "pool": "default-pool",
		"seed": "none",
	}}
	c := open(f).(*cloud)
	if err := f.Faults.Err(); err != nil {
		t.Fatal(err)
	}
	tags := instance.Tags{Mesh: "m", Cluster: "c", Node: "n", Fence: 1, Key: "k"}
	for i, zone := range []string{"b", "a"} {
		s := &instance.Spec{Name: fmt.Sprint("coopr-", i), Flavor: "1x64", Image: "debian-12", Tags: tags, Zone: zone}
		if m, err := c.Create(t.Context(), s); err != nil || m.Zone != zone {
			t.Fatalf("%+v %v", m, err)
		}
		if _, err := clients[zone].DomainLookupByName(s.Name); err != nil {
			t.Errorf("%s: %v", zone, err)
		}
	}
	if _, err := c.Create(t.Context(), &instance.Spec{Name: "coopr-2", Flavor: "1x64", Image: "debian-12", Tags: tags,
		Zone: "c"}); instance.KindOf(err) != instance.Invalid {
		t.Errorf("no such zone: %v", err)
	}
	ms, err := c.List(t.Context(), tags)
	if err != nil || len(ms) != 2 || ms[0].Zone != "a" || ms[1].Zone != "b" {
		t.Fatalf("%+v %v", ms, err)
	}
	half := *c
	half.daemons = []daemon{c.daemons[0], {zone: "b", address: "/no/such/socket"}}
	if ms, err := half.List(t.Context(), tags); err == nil {
		t.Errorf("one daemon is away: %+v", ms)
	}
	for _, m := range ms {
		if err := c.Delete(t.Context(), &m); err != nil {
			t.Error(err)
		}
	}
	if ms, err := c.List(t.Context(), tags); err != nil || len(ms) > 0 {
		t.Errorf("left: %+v %v", ms, err)
	}
}

// TestFields checks that faults of the field daemons are reported.
func TestFields(t *testing.T) {
	for _, x := range []struct {
		fields map[string]any
		faults string
	}{
		{map[string]any{"host": "rack1:16509"}, ""},
		{map[string]any{"host": "rack1"}, "host"},
		{map[string]any{"socket": "run/libvirt-sock"}, "socket"},
		{map[string]any{"daemons": "a=rack1:16509, b=/run/b", "zones": "a"}, ""},
		{map[string]any{"daemons": "a=rack1:16509"}, "zones"},
		{map[string]any{"daemons": "rack1:16509, a=x:1, a=y:2", "zones": "a"}, "daemons daemons"},
		{map[string]any{"daemons": "a=rack1:16509", "zones": "a", "host": "rack1:16509"}, "host"},
		{map[string]any{"domain": "{{.Nam"}, "domain"},
	} {
		f := &instance.Fields{Values: x.fields}
		open(f)
		var paths []string
		for _, fault := range f.Faults {
			paths = append(paths, fault.Path)
		}
		if got := strings.Join(paths, " "); got != x.faults {
			t.Errorf("%v: %v", x.fields, f.Faults)
		}
	}
}

// TestHung checks that a daemon that accepts connections without answering is given up when the
// task's time is over.
func TestHung(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1)) // waits for a request
			cancel()
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	c := open(&instance.Fields{Values: map[string]any{"socket": socket}}).(*cloud)
	if _, err := c.List(ctx, instance.Tags{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestSeed reads the disk like a FAT driver.
func TestSeed(t *testing.T) {
	data := []byte("#cloud-config\n" + strings.Repeat("x: y\n", 1000))
	disk, err := seed("i-1", "web-1", data)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if string(disk[43:54]) != "cidata     " || le.Uint16(disk[19:]) != uint16(len(disk)/sector) {
		t.Fatalf("boot sector % x", disk[:64])
	}
	next := func(c int) int {
		v := int(le.Uint16(disk[sector+c+c/2:]))
		if c%2 == 0 {
			return v & 0xfff
		}
		return v >> 4
	}
	files := map[string]string{}
	name := ""
	for at := rootAt * sector; at < dataAt*sector && disk[at] != 0; at += 32 {
		e := disk[at : at+32]
		switch e[11] {
		case 0x08:
		case 0x0f:
			name = ""
			for _, i := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
				if c := le.Uint16(e[i:]); c != 0 && c != 0xffff {
					name += string(rune(c))
				}
			}
		default:
			var content []byte
			for c := int(le.Uint16(e[26:])); c >= 2 && c < 0xff8; c = next(c) {
				content = append(content, disk[(dataAt+c-2)*sector:(dataAt+c-1)*sector]...)
			}
			files[name] = string(content[:le.Uint32(e[28:])])
		}
	}
	if files["user-data"] != string(data) || files["meta-data"] != "instance-id: i-1\nlocal-hostname: web-1\n" {
		t.Errorf("%q", files)
	}
	if _, err := seed("i", "h", make([]byte, 1<<20)); err == nil {
		t.Error("a megabyte fits")
	}
}

func TestSize(t *testing.T) {
	for flavor, want := range map[string][3]int{"1x512": {1, 512, 0}, "4x8192x40": {4, 8192, 40}} {
		if c, m, g, err := size(flavor); err != nil || [3]int{c, m, g} != want {
			t.Errorf("%s: %d %d %d %v", flavor, c, m, g, err)
		}
	}
	for _, flavor := range []string{"", "small", "1", "0x512", "1x0", "1x512x1x1", "x", "-1x5", "1x512x-3"} {
		if _, _, _, err := size(flavor); err == nil {
			t.Errorf("%q was taken", flavor)
		}
	}
}
