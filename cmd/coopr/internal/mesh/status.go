package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// report is the status of an agent and of its mesh, with what needs attention.
type report struct {
	api.AgentStatus
	// Attention is nil if no copy of the state can be read. AttentionError has the reason.
	Attention      *api.Attention `json:"attention,omitempty"`
	AttentionError string         `json:"attentionError,omitempty"`
}

// StatusCommand returns the command "status".
func StatusCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of the agent at --addr, of its mesh, and what needs attention", Args: cli.Args(),
		Long: "Show the status of the agent at --addr, of its mesh, and what needs attention. Any agent answers, with a leader or without.\n" +
			"The exit code is 0 if all is well, and 6 if something is wrong: no leader, a missing agent, too few voters, an ill cluster,\n" +
			"or a mesh that is held since it was restored.",
		Example: "  coopr status\n  coopr --addr 10.0.0.2 status -o json",
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		r, err := fetchStatus(ctx, c)
		if err != nil {
			return err
		}
		if err := out.Result(r, func() { showStatus(out, r) }); err != nil {
			return err
		}
		if r.wrong() {
			return &cli.ExitError{Code: cli.ExitUnwell}
		}
		return nil
	})
	return cmd
}

// fetchStatus asks an agent. Without a leader, what needs attention is read from a copy of the state.
func fetchStatus(ctx context.Context, c *client.Client) (report, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return report{}, err
	}
	r := report{AgentStatus: s}
	var read client.Read
	if s.Leader == "" {
		read.Consistency = api.Stale
	}
	o, _, err := c.Attention(ctx, read)
	switch {
	case err == nil:
		r.Attention = &o
	case ctx.Err() != nil, errors.Is(err, client.ErrUnauthorized):
		return r, err
	default:
		r.AttentionError = err.Error()
	}
	return r, nil
}

// wrong reports whether something needs attention. What merely waits for a person is not wrong.
func (r *report) wrong() bool {
	q := &r.Quorum
	return r.Leader == "" || !r.LeaderReady || q.Alive < q.Voters || q.Voters < q.Wanted || len(r.Missing) > 0 || len(r.Clocks) > 0 ||
		r.Attention == nil || r.Attention.Ill > 0 || r.Attention.Hold != nil
}

// showStatus shows a report as text.
func showStatus(out *output.Printer, r report) {
	leader := r.Leader
	switch {
	case r.IsLeader:
		leader = "this agent"
	case leader == "":
		leader = out.Paint(output.Red, "none")
	}
	if r.Leader != "" && !r.LeaderReady {
		leader += " (not ready yet)"
	}
	out.Field("Agent", fmt.Sprintf("%s (%s), build %s", r.Name, r.ID, r.Build))
	out.Field("Mesh", r.Mesh)
	out.Field("Leader", leader)
	out.Field("Voters", quorumText(out, r.Quorum))
	missing(out, "Missing", "voter ", r.Quorum.Missing)
	missing(out, "Missing", "agent ", r.Missing)
	clocks(out, r.Clocks)
	out.Field("Members", fmt.Sprintf("%d alive of %d", r.Alive, r.Members))
	out.Field("Voter", output.YesNo(r.Voter))
	attention(out, r)
	out.Field("Workers", fmt.Sprintf("%d of %d busy", r.Busy, r.Slots))
	out.Field("Index", fmt.Sprintf("%d", r.Applied))
	isolation(out, r.Isolation)
	retention(out, r.Retention)
}

// quorumText describes how many voters are there, and how many more may be lost.
func quorumText(out *output.Printer, q api.Quorum) string {
	if q.Voters == 0 {
		return out.Paint(output.Red, "unknown")
	}
	text := fmt.Sprintf("%d alive of %d, %d wanted; ", q.Alive, q.Voters, q.Wanted)
	switch {
	case q.Lost:
		return text + out.Paint(output.Red, fmt.Sprintf("%d more must be back before anything can be changed", q.Needed-q.Alive))
	case q.Margin == 0 && q.Voters > 1:
		return text + out.Paint(output.Yellow, "no more may be lost")
	case q.Margin == 0:
		return text + "none may be lost"
	}
	return text + fmt.Sprintf("%d more may be lost", q.Margin)
}

// missing prints the agents that do not answer, one on a line.
func missing(out *output.Printer, field, noun string, list []api.MissingAgent) {
	for _, x := range list {
		text := noun + x.Name
		if x.Name == "" {
			text = noun + x.ID
		}
		if x.Since > 0 {
			text += fmt.Sprintf(", since %s (%s)", output.Moment(x.Since), out.Ago(x.Since))
		}
		out.Field(field, out.Paint(output.Red, text))
	}
}

// clocks prints the agents whose clocks differ from the others, one on a line.
func clocks(out *output.Printer, list []api.ClockOffset) {
	for _, x := range list {
		by, way := time.Duration(x.Ahead)*time.Millisecond, "ahead of"
		if by < 0 {
			by, way = -by, "behind"
		}
		out.Field("Clock", out.Paint(output.Red, fmt.Sprintf("agent %s is %s %s the others: set the clock of its host", x.Name,
			output.Span(by), way)))
	}
}

// attention prints what needs attention.
func attention(out *output.Printer, r report) {
	o := r.Attention
	if o == nil {
		out.Field("Clusters", out.Paint(output.Red, "unknown: "+r.AttentionError))
		return
	}
	if o.Hold != nil {
		out.Field("Held", out.Paint(output.Red, o.Hold.Why())+"; look at the clusters and operations, then run coopr operator resume")
	}
	text := fmt.Sprintf("%d, %d ill", o.Clusters, o.Ill)
	if o.Ill > 0 {
		text = out.Paint(output.Red, text) + "; see coopr cluster list --unhealthy, with --tenant for another tenant"
	}
	out.Field("Clusters", text)
	if o.Failed > 0 {
		out.Field("Failed", out.Paint(output.Red, words.Count(o.Failed, "latest operation")))
	}
	for _, w := range o.Waits {
		what := fmt.Sprintf("cluster %s of tenant %s", w.Cluster, w.Tenant)
		switch {
		case w.Operation != "":
			what += ", operation " + w.Operation
		case w.Node != "":
			what += ", node " + w.Node
		}
		out.Field("Waiting", fmt.Sprintf("%s: %s", what, w.Reason))
	}
	if more := o.Waiting - len(o.Waits); more > 0 {
		out.Field("Waiting", fmt.Sprintf("%d more", more))
	}
}

// isolation prints what keeps plugins away from an agent, and which of them were killed.
func isolation(out *output.Printer, x *api.Isolation) {
	if x == nil {
		return
	}
	text := x.Grade
	if x.User != "" {
		text += " (user " + x.User + ")"
	}
	out.Field("Isolation", text)
	for _, w := range x.Warnings {
		out.Field("Warning", out.Paint(output.Red, w))
	}
	for _, k := range x.Killed {
		out.Field("Killed", out.Paint(output.Red, fmt.Sprintf("plugin %s: %s (%s, last at %s)", k.Plugin, k.Reason, words.Count(k.Count, "time"),
			output.Moment(k.At))))
	}
}

// retention prints how long an agent keeps what has ended, and what it removed last.
func retention(out *output.Printer, r api.Retention) {
	span := func(d model.Millis) string { return output.Span(time.Duration(d) * time.Millisecond) }
	out.Field("Kept", fmt.Sprintf("terminated clusters %s (at most %d), operations %s, request ids %s, task logs %s (at most %s)",
		span(r.Clusters), r.ClusterCount, span(r.Operations), span(r.Requests), span(r.Logs), output.Bytes(r.LogSize)))
	fault := func(f string) string {
		if f == "" {
			return ""
		}
		return "; " + out.Paint(output.Red, f)
	}
	switch x := r.StateSweep; {
	case x == nil:
		out.Field("Removed", "the leader knows what was removed from the state")
	case x.At == 0:
		out.Field("Removed", "nothing yet")
	default:
		out.Field("Removed", fmt.Sprintf("%s, %s and %s at %s%s", words.Count(x.Clusters, "cluster"), words.Count(x.Operations, "operation"),
			words.Count(x.Requests, "request id"), output.Moment(x.At), fault(x.Fault)))
	}
	if x := r.LogSweep; x.At != 0 {
		out.Field("Task logs", fmt.Sprintf("%s left of %s, %d removed at %s%s", output.Bytes(x.Bytes), words.Count(x.Files+x.Removed, "log"),
			x.Removed, output.Moment(x.At), fault(x.Fault)))
	}
}
