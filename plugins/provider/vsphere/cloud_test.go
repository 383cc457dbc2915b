package vsphere

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

var (
	cloneName = regexp.MustCompile(`<name>(coopr-[^<]+)</name>`)
	cloneData = regexp.MustCompile(`(?s)<key>(guestinfo\.[a-z.]+|coopr-[a-z]+)</key>\s*<value[^>]*>([^<]*)</value>`)
)

// guests is a proxy in front of the simulator that plays the machines: it reads the user data of
// clones, boots them, and reports their addresses. It also starts a clone and sets its extra
// configuration, which a vCenter does and this version of the simulator does not.
type guests struct {
	t     *testing.T
	fleet *providertest.Fleet
	to    http.Handler
	sdk   *url.URL
	mu    sync.Mutex
	off   bool // clones are not started
}

func (g *guests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	name, data := cloneName.FindSubmatch(body), map[string]string{}
	for _, m := range cloneData.FindAllSubmatch(body, -1) {
		data[string(m[1])] = string(m[2])
	}
	if !strings.Contains(string(body), "CloneVM_Task") || name == nil {
		g.to.ServeHTTP(w, r)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	rec := httptest.NewRecorder()
	g.to.ServeHTTP(rec, r)
	g.boot(string(name[1]), data)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = io.Copy(w, rec.Body)
}

// boot boots a clone.
func (g *guests) boot(name string, data map[string]string) {
	var d struct {
		Users []struct {
			Keys []string `yaml:"ssh_authorized_keys"`
		}
	}
	text, err := base64.StdEncoding.DecodeString(data[guestUser])
	if err == nil {
		err = yaml.Unmarshal(text, &d)
	}
	if err != nil || len(d.Users) != 1 {
		g.t.Errorf("user data %q: %v", text, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := govmomi.NewClient(ctx, g.sdk, true)
	if err != nil {
		g.t.Error(err)
		return
	}
	defer c.CloseIdleConnections()
	for f := find.NewFinder(c.Client, true); ctx.Err() == nil; {
		dc, err := f.DefaultDatacenter(ctx)
		if err != nil {
			g.t.Error(err)
			return
		}
		vm, err := f.SetDatacenter(dc).VirtualMachine(ctx, name)
		if err != nil {
			time.Sleep(time.Millisecond) // the task is still running
			continue
		}
		if on, err := vm.PowerState(ctx); err != nil || on == types.VirtualMachinePowerStatePoweredOn {
			return // a second request with the same name, which was refused
		}
		data["SET.guest.ipAddress"] = g.fleet.Boot(d.Users[0].Keys[0])
		var extra []types.BaseOptionValue
		for k, v := range data {
			extra = append(extra, &types.OptionValue{Key: k, Value: v})
		}
		// An impossible folder of logs: the simulator removes that folder together with the
		// machine, in a goroutine that races with the next removal.
		files := &types.VirtualMachineFileInfo{LogDirectory: "none"}
		task, err := vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: extra, Files: files})
		if err == nil {
			err = task.Wait(ctx)
		}
		if err == nil && !g.off {
			if task, err = vm.PowerOn(ctx); err == nil {
				err = task.Wait(ctx)
			}
		}
		if err != nil {
			g.t.Error(err)
		}
		return
	}
}

// TestMachines runs all tests with VMware's library against VMware's simulator of a vCenter, and
// real SSH.
func TestMachines(t *testing.T) {
	m := simulator.VPX()
	if err := m.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Remove)
	m.Service.TLS = nil
	m.Service.Listen = &url.URL{User: url.UserPassword("coopr", "right"), Host: "127.0.0.1:0"}
	s := m.Service.NewServer()
	t.Cleanup(s.Close)
	base := *s.URL
	base.User, base.Path = nil, ""
	proxy := httputil.NewSingleHostReverseProxy(&base)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	vcenter := &guests{t: t, fleet: providertest.NewFleet(t), to: proxy, sdk: s.URL}
	api := providertest.NewTroubled(t, vcenter, func(_ *http.Request, body string) bool {
		return strings.Contains(body, "CloneVM_Task")
	})
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	password, _ := s.URL.User.Password()
	fields := map[string]any{
		"url": api.URL + "/sdk", "username": s.URL.User.Username(), "password": password, "insecure": true, "resource_pool": "DC0_C0/Resources",
		"ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir(),
	}
	(&providertest.Instances{
		Provider: p, Fields: fields, Flavor: "1x64", Image: "DC0_H0_VM0", Confirms: true, Troubled: api,
		Refused: providertest.Says(500, "Content-Type: text/xml", `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<soapenv:Body><soapenv:Fault>
<faultcode>ServerFaultCode</faultcode><faultstring>Permission to perform this operation was denied.</faultstring>
<detail><NoPermissionFault xmlns="urn:vim25" xsi:type="NoPermission">
<object type="VirtualMachine">vm-1</object>
<privilegeId>VirtualMachine.Provisioning.Clone</privilegeId>
</NoPermissionFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`),
	}).Try(t)
	// A clone that was not started, for example for lack of room.
	vcenter.mu.Lock()
	vcenter.off = true
	vcenter.mu.Unlock()
	n := providertest.New(t, fields, "off")
	n.Flavor, n.Image = "1x64", "DC0_H0_VM0"
	n.Must("CREATE", p.Create)
	n.Must("CONFIRM", p.Confirm)
	n.Must("DELETE", p.Delete)

	for says, change := range map[string][2]any{"credentials": {"password", ""}, "resource pool": {"resource_pool", "no/such"},
		"datastore": {"datastore", "no-such"}, "folder": {"folder", "no/such"}} {
		bad := map[string]any{}
		for k, v := range fields {
			bad[k] = v
		}
		if bad[change[0].(string)] = change[1]; says == "credentials" {
			bad["password"] = "wrong"
		}
		n := providertest.New(t, bad, "n")
		n.Image = "DC0_H0_VM0"
		if err := n.Do("CREATE", p.Create); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestFields(t *testing.T) {
	f := &instance.Fields{Values: map[string]any{"url": "vcenter", "insecure": 7}}
	open(f)
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "insecure password url username" {
		t.Errorf("%s: %v", got, f.Faults)
	}
	for _, flavor := range []string{"2", "ax1", "2x1", "2x4096x1"} {
		if _, err := configOf(&instance.Spec{Flavor: flavor}); instance.KindOf(err) != instance.Invalid {
			t.Errorf("%s: %v", flavor, err)
		}
	}
}
