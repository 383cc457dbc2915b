package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// logLine is a line that a task wrote, and its form in JSON.
type logLine struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Service string    `json:"service,omitempty"`
	Action  string    `json:"action"`
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Stderr  bool      `json:"stderr,omitempty"`
	Missing bool      `json:"missing,omitempty"` // the text is why output of the attempt is missing
	Text    string    `json:"text"`
}

func logsCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var follow bool
	var tail int
	var since time.Duration
	cmd := &cobra.Command{
		Use: "logs CLUSTER [SERVICE]", Short: "Show the logs of a cluster's tasks, in order of time", Args: cli.Args("CLUSTER", "[SERVICE]"),
		Long: "Show the logs of a cluster's tasks, in order of time. Each line begins with its time, the node, the service (- for the\n" +
			"machine) and the action; ! marks what the task wrote to its standard error, and ? that\n" +
			"output is missing, with the reason. With SERVICE, show only tasks of that service.\n\n" +
			"With --follow, also show what is written later, by new tasks as well, until Ctrl-C or until the cluster is deleted.",
		Example: "  coopr cluster logs shop\n  coopr cluster logs shop nginx --follow --tail 20\n  coopr cluster logs shop --since 10m -o json",
		ValidArgsFunction: cli.CompletePart(app, func(ctx context.Context, c *client.Client, cluster string) ([]string, error) {
			cl, _, err := c.Cluster(ctx, cluster, client.Read{})
			return cl.Services, err
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with what is written later")
	cmd.Flags().IntVar(&tail, "tail", -1, "show at most this many of the lines that exist already, the latest (default: all)")
	cmd.Flags().DurationVar(&since, "since", 0, "show only lines that are not older than this, such as 10m or 2h")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.Cluster(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		l := &taskLogs{client: c, cluster: cl.ID, tail: tail, pace: app.Pace(), show: func(line logLine) error { return showLog(out, line) },
			attempts: map[attemptKey]*attemptLog{}, ended: map[string]bool{}}
		if len(args) > 1 {
			if l.service = args[1]; !slices.Contains(cl.Services, l.service) {
				return problem.New(problem.NotFound, "cluster %s has no service %q", cl.Name, l.service)
			}
		}
		if since > 0 {
			l.since = out.Clock().Add(-since)
		}
		if err := l.present(ctx); err != nil || !follow {
			return err
		}
		return l.follow(ctx)
	})
	return cmd
}

// showLog writes a line.
func showLog(out *output.Printer, l logLine) error {
	if out.Structured() {
		return output.EncodeLine(out.Stdout, l)
	}
	mark := "|"
	switch {
	case l.Missing:
		mark = "?"
	case l.Stderr:
		mark = "!"
	}
	head := strings.Join([]string{l.Time.Format("2006-01-02 15:04:05.000Z"), l.Node, cmp.Or(l.Service, "-"), l.Action, mark}, " ")
	return out.Output(out.Stdout, out.Paint(output.Faint, head)+" "+l.Text+"\n")
}

// attemptKey names an attempt at a task.
type attemptKey struct {
	task   string
	number int
}

// attemptLog is what is known about the log of an attempt.
type attemptLog struct {
	attemptKey
	head   logLine       // of all its lines
	leased time.Time     // when the attempt began
	over   chan struct{} // closed when the attempt has ended
	end    time.Time     // when it has ended; set before over is closed

	// These are owned by whoever reads the log.
	lines  int  // read from the agent that ran the attempt
	kept   int  // lines read of the end of the log that the state keeps
	missed bool // a line has said that output is missing
}

// ended reports whether the attempt has ended.
func (a *attemptLog) ended() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// finish marks the attempt as ended.
func (a *attemptLog) finish(at time.Time) {
	a.end = at
	close(a.over)
}

// latest returns a time that lines without a time get: when the attempt ended, or else when it began.
func (a *attemptLog) latest() time.Time {
	if a.ended() {
		return a.end
	}
	return a.leased
}

// newAttempt returns the log of an attempt at a task, of which nothing was read.
func newAttempt(t *model.Task, at *model.TaskAttempt) *attemptLog {
	a := &attemptLog{attemptKey: attemptKey{t.ID, at.Number}, over: make(chan struct{}), leased: time.UnixMilli(at.Leased).UTC()}
	name, _, _ := strings.Cut(t.Hostname, ".")
	name = cmp.Or(name, t.Node, model.AgentSteps)
	a.head = logLine{Node: name, Service: t.Service, Action: progress.Does(*t), Task: t.ID, Attempt: at.Number}
	return a
}

// stampLength is the length of a line's time, and headLength that of all before its text.
const stampLength, headLength = len("15:04:05.000"), len("15:04:05.000 ! ")

// parse splits a line of the log. Its time lacks the date: it is the first such time after last, the time of the line before it, or a
// little earlier, since clocks differ. A line without a time has that of the line before it.
func (a *attemptLog) parse(text string, last time.Time) logLine {
	l := a.head
	l.Time, l.Text = last, text
	if last.IsZero() {
		l.Time, last = a.latest(), a.leased
	}
	if len(text) < headLength {
		return l
	}
	stamp, err := time.Parse("15:04:05.000", text[:stampLength])
	if err != nil || text[stampLength] != ' ' || text[stampLength+1] != ' ' && text[stampLength+1] != '!' {
		return l
	}
	earliest := last.Add(-time.Hour)
	year, month, day := earliest.Date()
	l.Time = time.Date(year, month, day, stamp.Hour(), stamp.Minute(), stamp.Second(), stamp.Nanosecond(), time.UTC)
	if l.Time.Before(earliest) {
		l.Time = l.Time.AddDate(0, 0, 1)
	}
	l.Stderr, l.Text = text[stampLength+1] == '!', text[headLength:]
	return l
}

// byTime compares lines by their time. Lines of one attempt keep their order in a stable sort.
func byTime(a, b logLine) int { return a.Time.Compare(b.Time) }
