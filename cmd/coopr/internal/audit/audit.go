// Package audit holds the commands that read, export and verify the audit log.
package audit

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command returns the command "audit".
func Command(app cli.App) *cobra.Command {
	return cli.Group("audit", "List, export and verify the audit log of all changes", listCmd(app), exportCmd(app), verifyCmd(app),
		sinksCmd(app), keysCmd(app))
}

// auditFlags holds the flags that select records.
type auditFlags struct {
	audit.Filter
	since, until string
}

// add adds the flags to a command.
func (f *auditFlags) add(cmd *cobra.Command, app cli.App) {
	fl := cmd.Flags()
	fl.StringVar(&f.Cluster, "cluster", "", "only records of this cluster, by id or name")
	fl.StringVar(&f.Operation, "operation", "", "only records of this operation and its tasks")
	fl.StringVar(&f.Node, "node", "", "only records of the tasks of this node, by its id")
	fl.StringVar(&f.Actor, "actor", "", "only changes by this actor; the mesh itself is the actor coopr")
	fl.StringSliceVar(&f.Types, "type", nil, "only records of these types, such as operation.order or task.*")
	fl.StringVar(&f.since, "since", "", "only records since this time: a duration before now (2h, 3d) or a time (2006-01-02, "+
		"2006-01-02T15:04:05Z)")
	fl.StringVar(&f.until, "until", "", "only records until this time")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteClusters(app))
	cli.CompleteFlag(cmd, "operation", cli.CompleteOperations(app))
	cli.CompleteFlag(cmd, "node", cli.CompleteNodes(app))
}

// narrowing are the flags after which an empty list means that nothing matches.
var narrowing = []string{"cluster", "operation", "node", "actor", "type", "since", "until", "from"}

// filter returns the filter that the flags describe.
func (f *auditFlags) filter(cmd *cobra.Command, now time.Time) (audit.Filter, error) {
	for _, x := range []struct {
		name, text string
		into       *int64
	}{{"since", f.since, &f.Since}, {"until", f.until, &f.Until}} {
		if x.text == "" {
			continue
		}
		at, err := pointInTime(x.text, now)
		if err != nil {
			return audit.Filter{}, cli.Usage(cmd, "--%s: %v", x.name, err)
		}
		*x.into = at.UnixMilli()
	}
	return f.Filter, nil
}

// pointInTime parses a time, or a duration before now.
func pointInTime(s string, now time.Time) (time.Time, error) {
	text, days := s, time.Duration(1)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		text, days = n+"h", 24
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d * days), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time; use a duration before now (30m, 2h, 3d), 2006-01-02 or 2006-01-02T15:04:05Z", s)
}

func listCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var f auditFlags
	var q client.AuditQuery
	next := ""
	cmd := cli.List(app, cli.Listing[audit.Record]{
		Whole: true, Use: "list", Short: "List changes with time and actor, newest first",
		Example: "  coopr audit list --cluster shop\n  coopr audit list --type operation.order --since 7d\n" +
			"  coopr audit list --operation 00000001-001 --type 'task.*' --oldest-first -o json",
		Empty: "There are no records.", Narrow: narrowing,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]audit.Record, client.Meta, error) {
			page, meta, err := c.Audit(ctx, q, read)
			next = page.Next
			return page.Records, meta, err
		},
		Rows: func(items []audit.Record) output.Table {
			t := output.Table{Head: []string{"NUMBER", "TIME", "ACTOR", "TYPE", "CLUSTER", "SUBJECT", "CHANGE", "OPERATION", "REQUEST", "SOURCE",
				"AGENT", "CLUSTER ID", "HASH"}, Wide: 6}
			for _, r := range items {
				t.Row(audit.CursorOf(&r).String(), output.Moment(r.Time), r.Actor, r.Type, cmp.Or(r.ClusterName, r.Cluster), subject(&r), change(&r),
					r.Operation, r.Request, r.Source, r.Agent, r.Cluster, r.Hash[:min(len(r.Hash), 12)])
			}
			return t
		},
	})
	f.add(cmd, app)
	cmd.Flags().BoolVar(&q.Oldest, "oldest-first", false, "list the oldest records first")
	cmd.Flags().StringVar(&q.From, "from", "", "continue after the record with this number")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "show at most this many, up to 10000")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if q.Filter, err = f.filter(cmd, out.Clock()); err != nil {
			return err
		}
		if err := run(cmd, args); err != nil {
			return err
		}
		if next != "" {
			out.Notef("There are more records; continue with --from %s\n", next)
		}
		return nil
	}
	return cmd
}

// subject returns what a record is about.
func subject(r *audit.Record) string {
	if r.Task == "" {
		return r.Subject
	}
	s := r.Node + "/" + r.Action
	if r.Service != "" {
		s += "/" + r.Service
	}
	return s
}

// change describes on one line what a record changed.
func change(r *audit.Record) string {
	var before, after map[string]any
	_ = json.Unmarshal(r.Before, &before)
	_ = json.Unmarshal(r.After, &after)
	var parts []string
	names := map[string]bool{}
	for k := range before {
		names[k] = true
	}
	for k := range after {
		names[k] = true
	}
	delete(names, "fence") // not useful to users
	for k := range names {
		was, is := oneWord(before[k]), oneWord(after[k])
		switch {
		case k == "status" && was != "":
			parts = append(parts, was+" → "+is)
		case len(before) == 0 || len(after) == 0 || r.Task != "" && was == "":
			parts = append(parts, k+" "+was+is)
		default:
			parts = append(parts, k+": "+was+" → "+is)
		}
	}
	slices.SortFunc(parts, func(x, y string) int {
		// A status has no name before it, and comes first.
		isStatus := func(s string) bool { return strings.Contains(s, " → ") && !strings.Contains(s, ": ") }
		if sx, sy := isStatus(x), isStatus(y); sx != sy {
			if sx {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	text := strings.Join(parts, ", ")
	if _, said := after["message"]; r.Message != "" && !said && after["reason"] == nil {
		text = strings.TrimPrefix(text+"; "+r.Message, "; ")
	}
	return text
}

// oneWord returns a value as short text.
func oneWord(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func sinksCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[model.AuditSink]{
		Use: "sinks", Short: "List the places to which the log is sent, and how far that has come", Example: "  coopr audit sinks",
		Empty: "There are no sinks. The agents' configuration has them (audit.sinks).", Still: true,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]model.AuditSink, client.Meta, error) {
			s, err := c.AuditSinks(ctx)
			return s, client.Meta{}, err
		},
		Rows: func(items []model.AuditSink) output.Table {
			t := output.Table{Head: []string{"NAME", "TYPE", "TARGET", "NUMBER", "BEHIND", "OLDEST", "LOST", "FAULT"}}
			for _, s := range items {
				t.Row(s.Name, s.Type, s.Target, strconv.FormatUint(s.Number, 10), strconv.FormatUint(s.Behind, 10), output.Moment(s.Oldest),
					strconv.FormatUint(s.Lost, 10), s.Fault)
			}
			return t
		},
	})
}

func keysCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[signing.PublicKey]{
		Whole: true, Use: "keys", Short: "List the public keys with which the mesh signs heads of the log and snapshots",
		Example: "  coopr audit keys\n  coopr audit keys -o json > mesh-keys.json",
		Empty:   "The mesh has no signing key yet.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]signing.PublicKey, client.Meta, error) {
			keys, err := c.SigningKeys(ctx, read)
			return keys, client.Meta{}, err
		},
		Rows: func(items []signing.PublicKey) output.Table {
			t := output.Table{Head: []string{"NUMBER", "KEY"}}
			for _, k := range items {
				t.Row(strconv.FormatUint(uint64(k.Number), 10), base64.StdEncoding.EncodeToString(k.Key))
			}
			return t
		},
	})
}

func exportCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var f auditFlags
	var after uint64
	cmd := &cobra.Command{
		Use: "export [FILE]", Short: "Export the log as lines of JSON, oldest first", Args: cli.Args("[FILE]"),
		Long: `Export the log as lines of JSON, oldest first, to a file or the standard output.

A file that was exported without a filter can be verified by itself:
coopr audit verify FILE. It holds records of other tenants as digests only.

To keep the log for longer than the mesh does, export it regularly with --after
and the last number that you have. Keep the files where the mesh cannot change
them.`,
		Example: "  coopr audit export audit.jsonl\n  coopr audit export --after 5000 audit-2.jsonl\n" +
			"  coopr audit export --cluster shop | jq .type",
	}
	f.add(cmd, app)
	cmd.Flags().Uint64Var(&after, "after", 0, "only records after the one with this number")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filter, err := f.filter(cmd, out.Clock())
		if err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.AuditExport(ctx, filter, after)
			if err != nil {
				return err
			}
			defer r.Close()
			if len(args) == 0 {
				_, err = out.Copy(r)
				return err
			}
			err = cli.WriteFile(args[0], func(w io.Writer) error {
				_, err := io.Copy(w, r)
				return err
			})
			if err != nil {
				return err
			}
			out.Printf("%s was written.\n", args[0])
			return nil
		})(cmd, args)
	}
	return cmd
}

func verifyCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var known []string
	var keyFile string
	cmd := &cobra.Command{
		Use: "verify [FILE]", Short: "Verify that no record was changed or removed, in the mesh or in an exported file", Args: cli.Args("[FILE]"),
		Long: `Verify that no record was changed or removed, in the mesh or in an exported
file. A file is verified without a mesh. The command names the first bad record.

An attacker who can replace the whole log can also compute a valid chain of
hashes. Therefore keep the head that this command shows in a safe place, and
give it later with --known: the log must still contain it.

The mesh signs the head of its log each minute in which it has grown. These
signed heads are records of the log. The command checks them, and names the
records after the last one. For a file, --key has the public keys of the mesh,
from "coopr audit keys -o json"; without it, the signatures are not checked.

With --stale, the agent at --addr verifies its own copy instead of the leader's.`,
		Example: "  coopr audit verify\n  coopr audit verify audit.jsonl --key mesh-keys.json\n" +
			"  coopr audit verify --known 120:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	}
	cmd.Flags().StringSliceVar(&known, "known", nil, "head from an earlier verification, as NUMBER:HASH; may be repeated")
	cmd.Flags().StringVar(&keyFile, "key", "", "file with the public keys of the mesh, for an exported file")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.ReadForm(out, cmd); err != nil {
			return err
		}
		var keys signing.Chain
		if keyFile != "" {
			var err error
			if keys, err = readKeys(keyFile); err != nil {
				return cli.Usage(cmd, "--key: %v", err)
			}
		}
		places := make([]audit.Place, len(known))
		for i, k := range known {
			if err := readPlace(k, &places[i]); err != nil {
				return cli.Usage(cmd, "--known: %v", err)
			}
		}
		if len(args) == 1 {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return verified(out, args[0], f, keys, places)
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if len(places) > 0 || keys != nil {
				// The mesh's own verification takes no heads (--known). The exported records
				// show whether the log contains them.
				r, err := c.AuditExport(ctx, audit.Filter{}, 0)
				if err != nil {
					return err
				}
				defer r.Close()
				if keys == nil {
					if keys, err = c.SigningKeys(ctx, client.Read{}); err != nil {
						return err
					}
				}
				return verified(out, "The audit log", r, keys, places)
			}
			rep, err := c.AuditVerify(ctx, client.Read{})
			if err != nil {
				return err
			}
			return verdict(out, "The audit log", rep)
		})(cmd, args)
	}
	return cmd
}

// readPlace parses NUMBER:HASH.
func readPlace(text string, into *audit.Place) error {
	number, hash, ok := strings.Cut(text, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q must have the form NUMBER:HASH", text)
	}
	into.Seq = n
	return into.Hash.UnmarshalText([]byte(hash))
}

// readKeys reads a file with public keys.
func readKeys(path string) (signing.Chain, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys signing.Chain
	if err := json.Unmarshal(text, &keys); err != nil || len(keys) == 0 {
		return nil, fmt.Errorf("%s does not have public keys, as coopr audit keys -o json shows them", path)
	}
	return keys, keys.Check()
}

// verified verifies exported lines and shows the result.
func verified(out *output.Printer, name string, r io.Reader, keys signing.Chain, known []audit.Place) error {
	rep, err := audit.VerifyLines(bufio.NewReader(r), keys, known...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, k := range known {
		if rep.OK && (k.Seq < rep.Anchor.Seq || k.Seq > rep.Head.Seq) {
			return fmt.Errorf("%s is intact, but holds only records %d to %d; it cannot show whether record %d is the known one", name,
				rep.Anchor.Seq+1, rep.Head.Seq, k.Seq)
		}
	}
	if keys == nil && rep.Heads > 0 && !out.Structured() {
		out.Printf("The signatures of its heads were not verified: give --key.\n")
	}
	return verdict(out, name, rep)
}

// verdict shows the result of a verification. It returns an error if the log is not intact.
func verdict(out *output.Printer, name string, rep audit.Verification) error {
	if out.Structured() {
		if err := out.Encode(rep); err != nil {
			return err
		}
		if !rep.OK {
			return cli.ErrReported
		}
		return nil
	}
	if b := rep.Bad; b != nil {
		line := ""
		if b.Line > 0 {
			line = fmt.Sprintf(" (line %d)", b.Line)
		}
		return fmt.Errorf("%s is not intact: record %d%s: %s", name, b.Seq, line, b.Reason)
	}
	out.Printf("%s is intact: %s up to number %d.\n", name, words.Count(int(rep.Records), "record"), rep.Head.Seq)
	if rep.Hidden > 0 {
		out.Printf("It also holds digests of %s of other tenants.\n", words.Count(int(rep.Hidden), "record"))
	}
	if rep.Anchor.Seq > 0 {
		out.Printf("It begins after number %d.\n", rep.Anchor.Seq)
	}
	if rep.Dropped > 0 {
		out.Printf("%s between others were removed, because their tenants had too many. They cannot be verified.\n",
			words.Count(int(rep.Dropped), "number"))
	}
	switch {
	case rep.Heads == 0:
		out.Printf("It has no signed head.\n")
	case rep.Signed+1 < rep.Head.Seq:
		out.Printf("Signed heads cover it up to number %d. No signed head covers the records %d to %d.\n", rep.Signed, rep.Signed+1, rep.Head.Seq)
	default:
		out.Printf("Signed heads cover it up to number %d.\n", rep.Signed)
	}
	out.Printf("Head: %d:%s\n", rep.Head.Seq, rep.Head.Hash)
	return nil
}
