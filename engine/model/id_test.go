package model

import "testing"

func TestIDsAreFormedAndRead(t *testing.T) {
	c := NewClusterID(42)
	if c != "00000042" || NewClusterID(123456789) != "123456789" {
		t.Errorf("the ids of clusters are %q and %q", c, NewClusterID(123456789))
	}
	if op := c.Operation(7); op != "00000042-007" || op.Cluster() != c {
		t.Errorf("the operation's id is %q, of cluster %q", op, op.Cluster())
	}
	if op := c.Operation(1234); op != "00000042-1234" || op.Cluster() != c {
		t.Errorf("the operation's id is %q, of cluster %q", op, op.Cluster())
	}
	if n := c.Node(1000); n != "00000042-1000" || n.Cluster() != c {
		t.Errorf("the node's id is %q, of cluster %q", n, n.Cluster())
	}
	if p := c.Node(1000).Placement("web"); p != "00000042-1000/web" || p.Node() != c.Node(1000) {
		t.Errorf("the placement's id is %q, of node %q", p, p.Node())
	}
	if p := c.Node(1000).Placement(""); p != "00000042-1000/" || p.Node() != c.Node(1000) {
		t.Errorf("the id of the node's machine is %q, of node %q", p, p.Node())
	}
	task := c.Operation(7).Task(17)
	if op, v, err := task.Split(); task != "00000042-007/17" || err != nil || op != c.Operation(7) || v != 17 {
		t.Errorf("the task's id is %q: operation %q, vertex %d, %v", task, op, v, err)
	}
}

func TestMalformedIDs(t *testing.T) {
	for _, c := range []ClusterID{"", "42", "0000004x", "-0000042", "+0000042", "000000042", " 0000042", "99999999999999999999"} {
		if n, ok := c.Number(); ok {
			t.Errorf("%q is read as cluster %d", c, n)
		}
	}
	for _, op := range []OperationID{"", "00000042", "00000042-", "-001", "00000042-1", "00000042-0001", "00000042-x", "00000042-00x",
		"00000042-+01"} {
		if c := op.Cluster(); c != "" {
			t.Errorf("%q is read as an operation of cluster %q", op, c)
		}
	}
	for _, n := range []NodeID{"", "00000042", "00000042-", "-1000", "00000042-01000", "00000042-+1000", "00000042-1000/web"} {
		if c := n.Cluster(); c != "" {
			t.Errorf("%q is read as a node of cluster %q", n, c)
		}
	}
	for _, task := range []TaskID{"", "/", "/1", "00000042-001", "00000042-001/", "00000042-001/x", "00000042-001/-1", "00000042-001/01",
		"00000042-001/4294967296", "00000042-001/1/2"} {
		if op, v, err := task.Split(); err == nil || op != "" || v != 0 {
			t.Errorf("%q is read as vertex %d of %q", task, v, op)
		}
	}
}

// FuzzIDs checks that whatever is read from an id prints as the same id.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"00000042", "00000042-001", "00000042-1000", "00000042-001/17", "a-b-010/0", "-/-", "--001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := ClusterID(s).Number(); ok && NewClusterID(n) != ClusterID(s) {
			t.Errorf("%q is read as %d", s, n)
		}
		if op, v, err := TaskID(s).Split(); err == nil && op.Task(v) != TaskID(s) {
			t.Errorf("%q is read as %q and %d", s, op, v)
		}
		if c := OperationID(s).Cluster(); c != "" && len(c) >= len(s) {
			t.Errorf("%q is read as an operation of %q", s, c)
		}
		if c := NodeID(s).Cluster(); c != "" && len(c) >= len(s) {
			t.Errorf("%q is read as a node of %q", s, c)
		}
	})
}
