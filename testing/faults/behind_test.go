package faults

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// leftBehind: a machine stops answering, and its node gets another one. When the lost machine
// returns, no node gets it before it was cleaned as an orphan.
func leftBehind(t *testing.T, s *site.Site) {
	o := &one{Site: s.For(t), name: "behind"}
	lost, spare := o.Machine(lab.Spec{Name: "behind"}), o.Machine(lab.Spec{Name: "spare"})
	o.define(site.Entry(lost)+"\n"+site.Entry(spare), "true", "1m")
	o.over(o.begin().ID, model.OpSucceeded)
	node := func() model.Node {
		cl, _, err := o.API.Cluster(o.Context(), o.name, client.Read{})
		if err != nil || len(cl.Nodes) != 1 {
			t.Fatalf("%+v %v", cl.Nodes, err)
		}
		return cl.Nodes[0]
	}
	if node().IPAddresses["access_v4"] != lost.Addr.String() {
		lost, spare = spare, lost
	}
	// Its sshd moves to another port and existing connections end: a refusal is noticed sooner than
	// silence.
	change := func(script string) {
		t.Helper()
		if out, err := lost.Run(o.Context(), "/bin/sh", "-c",
			script+"; pkill -HUP -o -x sshd; for p in $(pgrep -f '[s]shd: root'); do kill $p; done"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	change("echo Port 2222 >/etc/ssh/sshd_config.d/away.conf")
	if out, err := o.Coopr("node", "replace", o.name, node().ID, "--yes"); err != nil {
		t.Fatalf("replace: %v\n%s", err, out)
	}
	if at := node().IPAddresses["access_v4"]; at != spare.Addr.String() {
		t.Errorf("the node is at %s", at)
	}
	change("rm /etc/ssh/sshd_config.d/away.conf")
	if err := lost.WaitSSH(o.Context()); err != nil {
		t.Fatal(err)
	}
	o.Await("the lost machine to be found", o.removeOrphan)
	if out, err := lost.Run(o.Context(), "/bin/sh", "-c", "ls -A /var/lib/coopr 2>/dev/null; true"); err != nil ||
		strings.TrimSpace(out) != "" {
		t.Errorf("left on it: %q %v", out, err)
	}
	o.machine = spare
	o.remove()
}
