package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// The durations of the simulated provider and job. The rest of a run's time is Coopr's.
const (
	simCreate = 300 * time.Millisecond
	simJob    = 500 * time.Millisecond
	simDelete = 200 * time.Millisecond
)

// simulated is an executor that only waits.
type simulated struct{}

// Execute waits for as long as the action takes.
func (simulated) Execute(ctx context.Context, t *pb.Task, _ host.Sink) *pb.Result {
	r := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
	wait := time.Duration(0)
	switch t.Action {
	case "CREATE":
		wait = simCreate
		r.Output = []byte(`{"ipaddresses":{"access_v4":"10.0.0.1"},"result":{"providerid":"x"}}`)
	case "RUN":
		wait = simJob
		r.Output = []byte(`{"result":{"exit":0}}`)
	case "DELETE":
		wait = simDelete
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		r.Outcome = pb.Outcome_OUTCOME_CANCELLED
	}
	return r
}

// Types returns as many types as a mesh needs to be ready.
func (simulated) Types() []host.Type {
	of := func(kind model.Kind, name string) host.Type {
		return host.Type{Kind: kind, PluginType: model.PluginType{Base: model.Base{Name: name}, Plugin: "1"}, Checksum: name}
	}
	return []host.Type{of(model.KindProviderType, "sim"), of(model.KindProviderType, "other"), of(model.KindAutomatorType, "shell"),
		of(model.KindAutomatorType, "none")}
}

// BenchmarkRuns has 1,000 runs at a time on simulated providers, through three agents. runs/min is
// how many end in a minute; over-p50-ms and over-p99-ms are the time of a run beyond that of
// provider and job, until its program has ended.
func BenchmarkRuns(b *testing.B) {
	for _, at := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d-at-a-time", at), func(b *testing.B) {
			m := newMesh(b, "wal", 2048, 3, func(c *agent.Config) { c.Executor = simulated{} })
			m.call("PUT", "/v1/profiles/sim", profile.Profile{Provisioner: profile.Provisioner{Name: "sim"}}, nil)
			m.call("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{{Command: []string{"true"}}}}, nil)
			var over []float64
			spent := time.Duration(0)
			b.ResetTimer()
			for range b.N {
				begin := time.Now()
				var clients sync.WaitGroup
				for i := range min(at, 16) {
					clients.Go(func() {
						for range (at + 15 - i) / 16 {
							if err := m.try(m.leader, "POST", "/v1/programs/job/start", api.StartRun{Profile: "sim"}, nil); err != nil {
								b.Error(err)
							}
						}
					})
				}
				clients.Wait()
				for {
					var runs []api.RunDetails
					m.call("GET", fmt.Sprintf("/v1/runs?limit=%d", at), nil, &runs)
					if !slices.ContainsFunc(runs, func(r api.RunDetails) bool { return !r.Over() }) {
						for _, r := range runs {
							if r.Status != profile.Completed {
								b.Fatalf("run %s is %s: %s", r.ID, r.Status, r.Message)
							}
							over = append(over, float64(r.Ended-r.Created)-float64((simCreate+simJob).Milliseconds()))
						}
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
				spent += time.Since(begin)
			}
			slices.Sort(over)
			b.ReportMetric(float64(len(over))/spent.Minutes(), "runs/min")
			b.ReportMetric(over[len(over)/2], "over-p50-ms")
			b.ReportMetric(over[len(over)*99/100], "over-p99-ms")
		})
	}
}
