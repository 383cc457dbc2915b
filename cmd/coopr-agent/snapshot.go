package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/state"
)

// snapshotInfo describes a snapshot of the state.
type snapshotInfo struct {
	Index   uint64         `json:"index"`
	Records map[string]int `json:"records,omitempty"` // by kind; only of a snapshot that is not an archive
	Archive *archive.Meta  `json:"archive,omitempty"`
}

func snapshotCommand() *cobra.Command {
	c := &cobra.Command{Use: "snapshot", Short: "Work with saved states, without a mesh", Args: cobra.NoArgs}
	c.AddCommand(inspectCommand())
	return c
}

// inspectCommand reads a snapshot to its end.
func inspectCommand() *cobra.Command {
	var form string
	c := &cobra.Command{
		Use: "inspect FILE", Short: "Check that a saved state is complete, and show what it contains",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("give one FILE")}
			}
			return nil
		},
		Example: "  coopr-agent snapshot inspect coopr.snap",
	}
	c.Flags().StringVarP(&form, "output", "o", "table", "table, json or yaml")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains([]string{"table", "json", "yaml"}, form) {
			return usageError{fmt.Errorf("--output must be table, json or yaml, and is %q", form)}
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := inspectSnapshot(f)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		return info.write(c.OutOrStdout(), form, args[0])
	}
	return c
}

// inspectSnapshot checks an archive (of `coopr operator snapshot save`) or a snapshot
// of a Raft log.
func inspectSnapshot(in io.Reader) (info snapshotInfo, err error) {
	r := bufio.NewReader(in)
	if head, err := r.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b { // gzip: an archive
		meta, err := archive.Inspect(r)
		info.Index, info.Archive = meta.Index, &meta
		return info, err
	}
	info.Index, info.Records, err = state.Check(r)
	return info, err
}

func (s snapshotInfo) write(out io.Writer, form, file string) error {
	switch form {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	case "yaml": // with the keys and the formats of JSON
		b, err := json.Marshal(s)
		if err != nil {
			return err
		}
		var node yaml.Node
		if err := yaml.Unmarshal(b, &node); err != nil {
			return err
		}
		blockStyle(&node)
		return yaml.NewEncoder(out).Encode(&node)
	}
	fmt.Fprintf(out, "%s is complete. Its state is of index %d.\n", file, s.Index)
	if m := s.Archive; m != nil {
		fmt.Fprintf(out, "Taken at %s, %d bytes, by build %s.\n", m.TakenAt.UTC().Format("2006-01-02 15:04:05Z"), m.Size, m.Build)
	}
	if len(s.Records) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "RECORDS\tNUMBER")
	for _, name := range slices.Sorted(maps.Keys(s.Records)) {
		fmt.Fprintf(t, "%s\t%d\n", name, s.Records[name])
	}
	return t.Flush()
}

// blockStyle removes the flow style that nodes parsed from JSON have.
func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle | yaml.DoubleQuotedStyle
	for _, c := range n.Content {
		blockStyle(c)
	}
}
