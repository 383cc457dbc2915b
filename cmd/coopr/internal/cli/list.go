package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/rpc/listing"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Listing describes a command that shows a list, once or whenever the list changes.
type Listing[T any] struct {
	Use, Short, Example string
	Args                cobra.PositionalArgs // nil: no arguments
	Complete            Completion           // of the arguments; nil: none
	// Fetch gets the list, and Rows puts it into a table.
	Fetch func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]T, client.Meta, error)
	Rows  func([]T) output.Table
	// Empty is shown if the list is empty, unless one of the flags in Narrow is set.
	Empty  string
	Narrow []string
	// Still lists do not change by themselves and have no --watch.
	Still bool
	// Whole lists have no --filter, --sort and --limit: the API does not have them as lists.
	Whole bool
}

// List returns the command that a listing describes.
func List[T any](app App, l Listing[T]) *cobra.Command {
	out := app.Printer()
	var watch bool
	var part client.List
	var labels []string
	cmd := &cobra.Command{Use: l.Use, Short: l.Short, Example: l.Example, Args: l.Args, ValidArgsFunction: l.Complete}
	if cmd.Args == nil {
		cmd.Args = Args()
	}
	FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	if !l.Still {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the list again each time it changes, until Ctrl-C")
	}
	if !l.Whole {
		partFlags(cmd, &part)
		completeFields(cmd, reflect.TypeFor[T]())
		l.Narrow = append(slices.Clone(l.Narrow), "filter")
		if slices.Contains(listing.Names(reflect.TypeFor[T](), false), "labels.") {
			cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only those whose label KEY is VALUE (KEY=VALUE) or is not (KEY!=VALUE); "+
				"several are separated by commas; may be repeated")
			l.Narrow = append(l.Narrow, "label")
		}
	}
	cmd.RunE = Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if !l.Whole {
			part := part
			for _, s := range labels {
				terms, err := labelTerms(s)
				if err != nil {
					return Usage(cmd, "--label: %v", err)
				}
				part.Filter = append(slices.Clone(part.Filter), terms...)
			}
			part.Count = part.Limit > 0
			ctx = client.WithList(ctx, part)
		}
		items, meta, err := l.Fetch(ctx, c, args, client.Read{})
		if err != nil {
			return err
		}
		for _, flag := range l.Narrow {
			if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
				l.Empty = "Nothing matches."
			}
		}
		l.show(out, items, meta)
		for watch {
			next, m, err := l.Fetch(ctx, c, args, Newer(meta))
			if err != nil {
				if Interrupted(ctx) {
					return nil
				}
				return err
			}
			if !Same(items, next) {
				out.Again()
				l.show(out, next, m)
			}
			items, meta = next, m
			if !Pause(ctx, app.Pace()) {
				return nil
			}
		}
		return nil
	})
	return cmd
}

func (l *Listing[T]) show(out *output.Printer, items []T, meta client.Meta) {
	if items == nil {
		items = []T{}
	}
	if out.Structured() {
		_ = out.Encode(items)
		return
	}
	if len(items) == 0 {
		out.Println(l.Empty)
		return
	}
	out.Show(l.Rows(items))
	if meta.Total > len(items) && !l.Whole {
		out.Notef("%d of %d shown; see --limit and --filter\n", len(items), meta.Total)
	}
}

// Newer returns a read that waits for something newer than an earlier answer.
func Newer(meta client.Meta) client.Read {
	return client.Read{After: max(meta.Index, 1), Wait: WaitNewer}
}

// Same reports whether two values are the same as JSON.
func Same(x, y any) bool {
	a, err1 := json.Marshal(x)
	b, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(a, b)
}

// partFlags adds the flags that all lists have.
func partFlags(cmd *cobra.Command, l *client.List) {
	cmd.Flags().StringArrayVar(&l.Filter, "filter", nil,
		"only those for which FIELD=VALUE, FIELD!=VALUE or FIELD~PART holds, with fields as in -o json, such as labels.team=red; may be repeated")
	cmd.Flags().StringVar(&l.Sort, "sort", "", "fields to sort by, separated by commas; - before one reverses it: --sort=-createTime,name")
	cmd.Flags().IntVar(&l.Limit, "limit", 0, "show at most this many, up to 10000")
}

// labelTerms returns the terms of a filter for labels in the form KEY=VALUE or KEY!=VALUE, with commas between them.
func labelTerms(s string) (terms []string, err error) {
	for one := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(one, "=")
		op := "="
		if k, differs := strings.CutSuffix(key, "!"); differs {
			key, op = k, "!="
		}
		if why := model.CheckName(key); !ok || why != "" {
			return nil, fmt.Errorf("%q must have the form KEY=VALUE or KEY!=VALUE", one)
		}
		quoted, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		terms = append(terms, "labels."+key+op+string(quoted))
	}
	return terms, nil
}

// completeFields completes the fields in the values of --filter and --sort.
func completeFields(cmd *cobra.Command, row reflect.Type) {
	if row == reflect.TypeFor[json.RawMessage]() {
		row = reflect.TypeFor[model.Base]() // what definitions of all kinds have
	}
	complete := func(flag, after string, sorts bool) {
		CompleteFlag(cmd, flag, func(_ *cobra.Command, _ []string, start string) (out []string, _ cobra.ShellCompDirective) {
			at := strings.LastIndex(start, ",") + 1
			if rest := start[at:]; sorts && strings.HasPrefix(rest, "-") {
				at++
			}
			for _, name := range listing.Names(row, sorts) {
				if strings.HasPrefix(name, start[at:]) {
					if !strings.HasSuffix(name, ".") {
						name += after
					}
					out = append(out, start[:at]+name)
				}
			}
			return out, cobra.ShellCompDirectiveNoSpace
		})
	}
	complete("filter", "=", false)
	complete("sort", "", true)
}

// OffsetFlag adds --offset to a list.
func OffsetFlag(cmd *cobra.Command, p *client.Page) {
	cmd.Flags().IntVar(&p.Offset, "offset", 0, "skip this many")
}
