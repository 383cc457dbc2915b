package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/doubles/digitalocean"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-hosts",
	"./plugins/provider/coopr-provider-digitalocean", "./plugins/provider/coopr-provider-openstack")

func TestMain(m *testing.M) { programs.Main(m) }

// one is the machine, provider, service, template and cluster of a fault, all with the same name.
type one struct {
	*site.Site
	name    string
	machine *lab.Machine // of the lab
	folder  string       // of machines of a cloud
	// flavor and image are the cloud's; "": "any", and that of played ones.
	flavor, image string
}

// on creates a machine called name and the definitions of a cluster on it, for the test of one
// fault. install is the script of the service's action install.
func on(t *testing.T, s *site.Site, name, install, timeout string, spec lab.Spec) *one {
	t.Helper()
	o := &one{Site: s.For(t), name: name}
	spec.Name = name
	o.machine = o.Machine(spec)
	o.define(site.Entry(o.machine), install, timeout)
	return o
}

// define imports the definitions of a fault: a machine of an inventory and a script.
func (o *one) define(inventory, install, timeout string) {
	o.T.Helper()
	o.defineOn("hosts", map[string]any{"ssh_identityfile": site.KeyFile, "inventory": inventory},
		"#!/bin/sh\necho \"$COOPR_FENCE\" >>/begun\n"+install+"\necho \"$COOPR_FENCE\" >>/ended\n", timeout)
}

// defineOn imports definitions that all have the fault's name.
func (o *one) defineOn(kind string, fields map[string]any, install, timeout string) {
	o.T.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		o.T.Fatal(err)
	}
	o.Define(o.name+".yaml", fmt.Sprintf(`providers: [{name: %[1]s, providertype: %[2]s, provisioner: %[3]s}]
hardwaretypes: [{name: %[1]s, providermap: {%[1]s: {flavor: %[7]s}}}]
imagetypes: [{name: %[1]s, providermap: {%[1]s: {image: %[4]s}}}]
services: [{name: %[1]s, provisioner: {actions: {install: {type: shell, timeout: %[5]s, fields: {script: %[6]q}}}}}]
clustertemplates:
- name: %[1]s
  defaults: {services: [%[1]s], provider: %[1]s, hardwaretype: %[1]s, imagetype: %[1]s}
  compatibility: {services: [%[1]s], hardwaretypes: [%[1]s], imagetypes: [%[1]s]}
`, o.name, kind, b, cmp.Or(o.image, digitalocean.Image), timeout, install, cmp.Or(o.flavor, "any")))
}

// begin starts the cluster and returns its operation.
func (o *one) begin() model.Operation {
	o.T.Helper()
	st, _, err := o.API.CreateCluster(o.Context(),
		model.CreateCluster{Name: o.name, ClusterTemplate: o.name, NumMachines: 1, OnFailure: "leave"}, false)
	if err != nil {
		o.T.Fatal(err)
	}
	return *st.Operation
}

// over waits for an operation's end and returns its tasks that were attempted.
func (o *one) over(op string, want model.OperationStatus) []model.Task {
	o.T.Helper()
	o.Await("the operation's end", func() error {
		d, _, err := o.API.Operation(o.Context(), op, client.Read{})
		if err == nil && !d.Status.Ended() {
			err = fmt.Errorf("it is %s", d.Status)
		}
		if err == nil && d.Status != want {
			o.T.Errorf("it is %s, not %s: %s", d.Status, want, d.Message)
		}
		return err
	})
	tasks, _, err := o.API.Tasks(o.Context(), op, "", client.Page{}, client.Read{})
	if err != nil {
		o.T.Fatal(err)
	}
	return tasks
}

// lines returns the number of lines of a file on the machine, 0 if there is none.
func (o *one) lines(file string) int {
	out, err := o.machine.Run(o.Context(), "/bin/sh", "-c", "cat "+file+" 2>/dev/null || true")
	if err != nil {
		o.T.Fatal(err)
	}
	return len(strings.Fields(out))
}

// install returns the INSTALL task, at which the fault occurs.
func install(tasks []model.Task) model.Task {
	for _, t := range tasks {
		if t.Action == model.Install {
			return t
		}
	}
	return model.Task{}
}

// remove deletes the cluster: its machine is free and clean, and nothing runs there.
func (o *one) remove() {
	o.T.Helper()
	if out, err := o.Coopr("cluster", "delete", o.name, "--yes"); err != nil {
		o.T.Errorf("delete: %v\n%s", err, out)
	}
	// A guard whose connection is gone cleans up by itself.
	o.Await("nothing to be left on the machine", func() error {
		out, err := o.machine.Run(o.Context(), "/bin/sh", "-c", "ls -A /var/lib/coopr 2>/dev/null; ls -A /dev/shm; pgrep -f '[m]arker-"+o.name+
			"' || true")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
}
