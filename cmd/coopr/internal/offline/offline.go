// Package offline holds the commands that work on files of a stopped agent and need no mesh.
package offline

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/identity"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// InspectCommand reads a snapshot through, without a mesh.
func InspectCommand(out *output.Printer) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect FILE", Short: "Check that a saved state is whole, and show what is in it; needs no mesh", Args: cli.Args("FILE"),
		Example: "  coopr operator snapshot inspect coopr.snap",
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.ReadForm(out, cmd); err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		r := bufio.NewReader(f)
		var found struct {
			Index   uint64         `json:"index"`
			Records map[string]int `json:"records,omitempty"`
			Archive *archive.Meta  `json:"archive,omitempty"`
		}
		if head, err := r.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b { // gzip: an archive
			meta, err := archive.Inspect(r)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			found.Index, found.Archive = meta.Index, &meta
		} else if found.Index, found.Records, err = state.Check(r); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if out.Structured() {
			return out.Encode(found)
		}
		out.Printf("%s is whole. Its state is of index %d.\n", args[0], found.Index)
		if m := found.Archive; m != nil {
			out.Printf("Taken at %s, %d bytes, by build %s.\n", m.TakenAt.UTC().Format("2006-01-02 15:04:05Z"), m.Size, m.Build)
		}
		if len(found.Records) > 0 {
			t := output.Table{Head: []string{"RECORDS", "NUMBER"}}
			names := make([]string, 0, len(found.Records))
			for name := range found.Records {
				names = append(names, name)
			}
			sort.Strings(names)
			for _, name := range names {
				t.Row(name, strconv.Itoa(found.Records[name]))
			}
			out.Show(t)
		}
		return nil
	}
	return cmd
}

// RecoverCommand writes the file by which a stopped agent gets a new Raft group.
func RecoverCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var dir string
	cmd := &cobra.Command{
		Use: "recover --data-dir DIR ID=ADDRESS…", Short: "Give a stopped agent a new Raft group, after a majority is lost for good", Args: cli.Args("ID=ADDRESS…"),
		Long: `Give a stopped agent a new Raft group, after a majority of the voters is lost for
good: their disks are gone, not only their power.

Stop every surviving agent. Run this on each of them with the same list: the id
(in the file agent-id of the data directory) and the peer address of every
survivor that was a voter. Then start them. What the survivors did not have is
lost; a lost voter that comes back must not be started with its old data.`,
		Example: "  coopr operator recover --data-dir /var/lib/coopr 7d0f1b2c-1111-4222-8333-944455566677=10.0.0.1:55055",
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data directory of the stopped agent (required)")
	cmd.RunE = func(cmd *cobra.Command, peers []string) error {
		if dir == "" {
			return cli.Usage(cmd, "--data-dir is missing")
		}
		raw, err := os.ReadFile(filepath.Join(dir, "agent-id"))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is no data directory of an agent: it has no file agent-id", dir)
		}
		if err != nil {
			return err
		}
		self := strings.TrimSpace(string(raw))
		type entry struct {
			ID      string `json:"id"`
			Address string `json:"address"`
		}
		var entries []entry
		var faults model.Faults
		own := false
		for _, p := range peers {
			id, address, ok := strings.Cut(p, "=")
			if !ok || id == "" || address == "" {
				faults.Add(p, "must be ID=ADDRESS, such as 7d0f1b2c-…=10.0.0.1:55055")
			}
			own = own || id == self
			entries = append(entries, entry{id, address})
		}
		if !own {
			faults.Add("", fmt.Sprintf("the agent of %s itself, %s, is not in the list", dir, self))
		}
		if len(faults) > 0 {
			return faults
		}
		lock, err := identity.LockDir(dir)
		if err != nil {
			return fmt.Errorf("the agent must be stopped first: %w", err)
		}
		defer func() { _ = lock.Release() }()
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Give the agent in %s a Raft group of %s?", dir, words.Count(len(entries), "voter"))); err != nil {
			return err
		}
		body, err := json.MarshalIndent(entries, "", "  ")
		if err != nil {
			return err
		}
		// The reader that the agent has must like it before it gets its name.
		path := filepath.Join(dir, raftgroup.RecoverFile)
		draft := path + ".draft"
		if err := os.WriteFile(draft, append(body, '\n'), 0o600); err != nil {
			return err
		}
		if _, err := raftgroup.ReadRecoverFile(draft); err != nil {
			return errors.Join(err, os.Remove(draft))
		}
		if err := giveTo(draft, dir); err != nil {
			return errors.Join(err, os.Remove(draft))
		}
		if err := os.Rename(draft, path); err != nil {
			return err
		}
		out.Printf("Written: %s. Do the same on the other survivors, then start them all.\n", path)
		return nil
	}
	return cmd
}

// giveTo makes a file belong to the owner of a folder: the command may be run
// by root for an agent that is not.
func giveTo(file, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(file, int(owner.Uid), int(owner.Gid))
}
