package sinks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// create creates a cluster.
func (l *log) create(t *testing.T, id, name string, labels map[string]string) {
	t.Helper()
	g, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	op := model.Operation{ID: id + "-001", Tenant: "t", Cluster: id, Type: model.OpCreate}
	cl := model.Cluster{ID: id, Tenant: "t", Name: name, Operation: op.ID, Operations: 1, Labels: labels}
	l.apply(&pb.Command{Tenant: "t", Actor: "ann", RequestId: op.ID, Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Graph: g.Encode(), Operation: logtest.Operation(op), Cluster: logtest.Cluster(cl)}}})
}

// TestWants has sinks that want the records of some clusters only. One is away for an hour: it gets all of them, and counts as having
// the others.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, red, none := newLog(t), &sink{fault: errors.New("away")}, &sink{fault: errors.New("is never asked")}
		byLabel := target("red", red)
		byLabel.Wants = func(_ *audit.Record, labels map[string]string) bool { return labels["team"] == "red" }
		nothing := target("none", none)
		nothing.Wants = func(*audit.Record, map[string]string) bool { return false }
		c, end := l.lead(byLabel, nothing)
		defer end()
		l.write(1)
		for i := range 60 {
			l.create(t, fmt.Sprintf("%08d", 1+2*i), fmt.Sprint("r", i), map[string]string{"team": "red"})
			// A name that is another cluster's id does not lend it its labels.
			l.create(t, fmt.Sprintf("%08d", 2+2*i), fmt.Sprintf("%08d", 4+2*i), map[string]string{"team": "blue"})
			pass(time.Minute)
		}
		if r := c.Report(); r[0].Behind == 0 || r[0].Fault != "away" || r[1].Behind != 0 || r[1].Fault != "" || none.calls != 0 {
			t.Errorf("%+v, %d calls", r, none.calls)
		}
		red.breakWith(nil)
		pass(2 * time.Minute)
		var created []string
		for _, r := range red.took {
			if !strings.HasPrefix(r.ClusterName, "r") {
				t.Errorf("it got %+v", r)
			}
			if r.Type == "cluster.created" {
				created = append(created, r.ClusterName)
			}
		}
		if n := len(slices.Compact(created)); n != 60 || created[59] != "r59" {
			t.Errorf("%d clusters", n)
		}
		if r := c.Report()[0]; r.Behind != 0 || r.Fault != "" || r.Lost != 0 || r.Number != l.View().Audit().Stats().Head.Seq {
			t.Errorf("%+v", r)
		}
	})
}

// TestEvery has a sink that takes few records at a time, and seldom. Records that it does not want do not delay those that it wants.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{}
		seldom := target("seldom", s)
		seldom.Most, seldom.Every = 10, time.Minute
		seldom.Wants = func(r *audit.Record, _ map[string]string) bool { return r.Type == "tenant.changed" }
		_, end := l.lead(seldom)
		defer end()
		l.write(1) // tenant.created
		pass(time.Second)
		l.write(25)
		pass(time.Second)
		if calls, records := s.seen(); calls != 3 || records != 25 {
			t.Errorf("%d deliveries of %d records", calls, records)
		}
		for range 30 {
			l.write(1)
			pass(time.Second)
		}
		if calls, _ := s.seen(); calls != 3 {
			t.Errorf("%d deliveries within a minute", calls)
		}
		pass(time.Minute)
		if calls, records := s.seen(); calls != 6 || records != 55 {
			t.Errorf("%d deliveries of %d records", calls, records)
		}
	})
}

// TestEveryInLongLog has a sink that gets one record of many, seldom. It does not fall behind a log that grows fast.
func TestEveryInLongLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{fault: errors.New("away")}
		seldom := target("seldom", s)
		seldom.Most, seldom.Every = 500, time.Minute
		seldom.Wants = func(r *audit.Record, _ map[string]string) bool { return r.Seq%500 == 0 }
		c, end := l.lead(seldom)
		defer end()
		l.write(25_000)
		pass(time.Minute)
		s.breakWith(nil)
		before, _ := s.seen()
		pass(time.Minute)
		if calls, records := s.seen(); records != 50 || calls-before > 3 {
			t.Errorf("%d deliveries of %d records", calls-before, records)
		}
		if r := c.Report()[0]; r.Behind != 0 || r.Lost != 0 {
			t.Errorf("%+v", r)
		}
	})
}
