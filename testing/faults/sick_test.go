package faults

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// sick breaks a service, so that its checks fail until recovery restarts it. The provider reports
// that the machine exists; therefore recovery restarts the service and does not replace the machine.
func sick(t *testing.T, s *site.Site) {
	o := &one{Site: s.For(t), name: "sick"}
	o.machine = o.Machine(lab.Spec{Name: o.name})
	o.Define("sick.yaml", fmt.Sprintf(`providers: [{name: sick, providertype: hosts, provisioner: {ssh_identityfile: %s, inventory: %q}}]
hardwaretypes: [{name: sick, providermap: {sick: {flavor: any}}}]
imagetypes: [{name: sick, providermap: {sick: {image: any}}}]
services:
- name: sick
  provisioner:
    actions:
      start: {type: shell, fields: {script: "#!/bin/sh\n: >/well"}}
      stop: {type: shell, fields: {script: "#!/bin/sh\nrm -f /well"}}
      check: {type: shell, fields: {script: "#!/bin/sh\necho >>/checks\ntest -e /well"}}
  health-check: {interval: 200, timeout: 20s, max-consecutive-failures: 2, grace-period: 0}
clustertemplates:
- name: sick
  defaults: {services: [sick], provider: sick, hardwaretype: sick, imagetype: sick}
  compatibility: {services: [sick], hardwaretypes: [sick], imagetypes: [sick]}
  recovery: {backoff: 1s, max-backoff: 2s}
`, site.KeyFile, site.Entry(o.machine)))
	o.over(o.begin().ID, model.OpSucceeded)
	node := func() model.Node {
		cl, _, err := o.API.Cluster(o.Context(), o.name, client.Read{})
		if err != nil || len(cl.Nodes) != 1 {
			t.Fatalf("%+v %v", cl.Nodes, err)
		}
		n, _, err := o.API.Node(o.Context(), cl.Nodes[0].ID, client.Read{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	is := func(want string) {
		t.Helper()
		o.Await("the node to be "+want, func() error {
			if n := node(); n.Health.Status() != want {
				return fmt.Errorf("it is %q: %+v", n.Health.Status(), n.Health)
			}
			return nil
		})
	}
	run := func(script string) string {
		t.Helper()
		out, err := o.machine.Run(o.Context(), "/bin/sh", "-c", script)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	is("healthy")
	if _, err := o.Coopr("cluster", "pause-recovery", o.name, "--reason", "a test"); err != nil {
		t.Fatal(err)
	}
	run("rm /well; : >/checks")
	is("unhealthy")
	o.Await("more checks", func() error {
		var n int
		if _, err := fmt.Sscan(run("wc -l </checks"), &n); err != nil || n < 6 {
			return fmt.Errorf("%d: %v", n, err)
		}
		return nil
	})
	if n := node(); n.Health.Machine != "" {
		t.Errorf("its provider says that the machine is %s", n.Health.Machine)
	}
	if _, err := o.Coopr("cluster", "resume-recovery", o.name); err != nil {
		t.Fatal(err)
	}
	is("healthy")
	o.Await("the service to be there again", func() error { return o.there("/well") })
	ops, _, err := o.API.Operations(o.Context(), "", nil, client.Page{}, client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if op.Cluster == node().Cluster && op.Type == model.OpReplaceNode {
			t.Error("the machine was replaced")
		}
	}
	run("rm /checks")
	o.remove()
}
