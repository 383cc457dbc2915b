package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/client"
)

// listing is a command that shows a list, once or as it changes.
type listing[T any] struct {
	use, short, example string
	args                cobra.PositionalArgs
	// fetch gets the list; rows puts it into a table.
	fetch func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]T, client.Meta, error)
	rows  func([]T) table
	// empty is said where there is nothing, unless one of the flags in narrow
	// is set: then nothing fits.
	empty  string
	narrow []string
	// still lists do not move: they have no --watch.
	still bool
}

func listCmd[T any](a *app, l listing[T]) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{Use: l.use, Short: l.short, Example: l.example, Args: l.args}
	if cmd.Args == nil {
		cmd.Args = args()
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML, asWide)
	if !l.still {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the list again whenever it changes, until Ctrl-C")
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		items, meta, err := l.fetch(ctx, c, args, client.Read{})
		if err != nil {
			return err
		}
		for _, flag := range l.narrow {
			if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
				l.empty = "There is nothing that fits."
			}
		}
		showList(a, l, items, meta, true)
		for watch {
			next, m, err := l.fetch(ctx, c, args, client.Read{After: max(meta.Index, 1), Wait: waitNewer})
			if err != nil {
				if errors.Is(context.Cause(ctx), errInterrupted) {
					return nil
				}
				return err
			}
			if !same(items, next) {
				showList(a, l, next, m, false)
			}
			items, meta = next, m
			if !pause(ctx, a.pace) {
				return nil
			}
		}
		return nil
	})
	return cmd
}

func showList[T any](a *app, l listing[T], items []T, meta client.Meta, first bool) {
	if items == nil {
		items = []T{}
	}
	switch {
	case a.structured():
		if !first && a.output == asYAML {
			fmt.Fprintln(a.out, "---")
		}
		_ = a.print(items)
		return
	case !first && a.outTerminal:
		fmt.Fprint(a.out, "\x1b[H\x1b[2J")
	case !first:
		fmt.Fprintln(a.out)
	}
	if len(items) == 0 {
		fmt.Fprintln(a.out, l.empty)
		return
	}
	a.show(l.rows(items))
	if meta.Total > len(items) {
		fmt.Fprintf(a.err, "%d of %d are shown: see --limit and --offset\n", len(items), meta.Total)
	}
}

func same(x, y any) bool {
	a, err1 := json.Marshal(x)
	b, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(a, b)
}

// pause waits; false where there is nothing to wait for any more.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pageFlags give a list its --offset and --limit.
func pageFlags(cmd *cobra.Command, p *client.Page) {
	cmd.Flags().IntVar(&p.Offset, "offset", 0, "leave out so many")
	cmd.Flags().IntVar(&p.Limit, "limit", 0, "at most so many (1000 unless told, 10000 at most)")
}
