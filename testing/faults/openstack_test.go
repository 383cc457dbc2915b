package faults

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/openstack"
	"github.com/coopr/coopr/testing/site"
)

// TestOpenStack covers faults between an agent and a real OpenStack, from the request to the script
// on the machine (make test-openstack). Faults run one after the other, because quota and hosts
// belong to the whole cloud.
func TestOpenStack(t *testing.T) {
	openstack.Need(t)
	s := site.New(t, programs, site.Config{})
	network := netip.MustParsePrefix("10.80.0.0/24")
	if err := s.Lab.Own(network); err != nil {
		t.Fatal(err)
	}
	cloud := openstack.Start(t, s.Lab, network, network)
	machines := openstack.NewFleet(t)
	cloud.Hypervisor(machines)
	api := cloud.Troubled()

	for _, x := range []struct {
		name     string
		trouble  providertest.Trouble
		fields   map[string]any
		before   func()                // is done before the cluster is asked for
		after    func()                // once says was said
		ends     model.OperationStatus // of the creation
		attempts int                   // of CREATE, at least
		ever     int                   // how many servers were seen
		says     string                // a task that failed, or tried again
	}{
		{name: "answer-lost", trouble: providertest.Lost, ends: model.OpSucceeded, attempts: 2, ever: 1, says: "EOF"},
		{name: "done-later", trouble: providertest.Late, after: api.Release, ends: model.OpSucceeded, attempts: 2, ever: 2, says: "EOF"},
		{name: "quota", before: func() { cloud.Quota(0) }, after: func() { cloud.Quota(10) }, ends: model.OpSucceeded, attempts: 2, ever: 1,
			says: "Quota exceeded"},
		{name: "no-host", before: func() { cloud.Hosts(false) }, after: func() { cloud.Hosts(true) }, ends: model.OpSucceeded, attempts: 2,
			ever: 1, says: "No valid host"},
		{name: "wrong-password", fields: map[string]any{"password": "wrong"}, ends: model.OpFailed, attempts: 1, says: "credentials"},
		{name: "no-network", fields: map[string]any{"networks": "no-such"}, ends: model.OpFailed, attempts: 1,
			says: "no network is named no-such"},
	} {
		ok := t.Run(x.name, func(t *testing.T) {
			before := machines.Ever()
			o := &one{Site: s.For(t), name: x.name, folder: t.TempDir(), flavor: openstack.Flavor, image: openstack.Image}
			fields := map[string]any{
				"auth_url": cloud.Keystone, "username": openstack.User, "password": openstack.Password, "project": openstack.Project,
				"region":    openstack.Region,
				"interface": "internal", "networks": openstack.Network, "ssh_port": providertest.FleetPort, "ssh_dir": o.folder,
			}
			maps.Copy(fields, x.fields)
			o.defineOn("openstack", fields, "#!/bin/sh\necho \"$COOPR_FENCE\" >>installed\n", "1m")
			if x.before != nil {
				x.before()
			}
			if x.trouble != nil {
				api.Next(x.trouble)
			}
			op := o.begin().ID
			t.Cleanup(func() {
				if t.Failed() {
					tasks, _ := o.Coopr("operation", "tasks", op)
					log, _ := o.Coopr("operation", "log", op)
					t.Logf("%s\n%s", tasks, log)
				}
			})
			if x.after != nil {
				o.Await(x.says, func() error { return o.said(op, x.says) })
				x.after()
			}
			tasks := o.over(op, x.ends)
			attempts, installed := 0, 0
			for _, task := range tasks {
				if task.Action == model.Create {
					attempts = task.Attempt
				}
			}
			if err := o.said(op, x.says); err != nil || attempts < x.attempts || x.attempts == 1 && attempts != 1 {
				t.Errorf("%d attempts: %v", attempts, err)
			}
			if x.ends == model.OpSucceeded {
				installed = 1
			}
			if n := o.installed(); n != installed {
				t.Errorf("installed %d times, not %d", n, installed)
			}
			if x.after != nil && x.trouble != nil {
				// The late server was removed by CONFIRM or is found as an orphan.
				o.Await("one server", func() error {
					list, err := cloud.Servers()
					if err == nil && len(list) != 1 {
						err = errors.Join(fmt.Errorf("there are %v", list), o.removeOrphan())
					}
					return err
				})
			}
			if list, err := cloud.Servers(); err != nil || len(list) != installed {
				t.Errorf("servers: %v %v", list, err)
			}
			if n := machines.Ever() - before; n > x.ever {
				t.Errorf("%d servers were made, not %d", n, x.ever)
			}
			if x.fields == nil { // without credentials nothing can be removed either
				if out, err := o.Coopr("cluster", "delete", o.name, "--yes"); err != nil {
					t.Errorf("delete: %v\n%s", err, out)
				}
			}
			cloud.Empty()
		})
		if !ok {
			break // its leftovers would disturb the other tests
		}
	}
}

// said reports whether a task of an operation has failed with a text, or an attempt of it.
func (o *one) said(op, text string) error {
	tasks, _, err := o.API.Tasks(o.Context(), op, "", client.Page{}, client.Read{})
	if err != nil {
		return err
	}
	var all []string
	for _, task := range tasks {
		all = append(all, task.Message)
		for _, a := range task.Attempts {
			all = append(all, a.Message)
		}
	}
	if said := strings.Join(all, "\n"); !strings.Contains(said, text) {
		return fmt.Errorf("nobody says %q: %s", text, said)
	}
	return nil
}
