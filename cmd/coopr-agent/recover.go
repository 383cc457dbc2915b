package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/identity"
)

// errDeclined is returned when the question of a command was answered with no.
var errDeclined = errors.New("not done")

// recoverCommand returns the command "recover", which writes a file with a new set of voters. A
// stopped agent reads it at its next start.
func recoverCommand() *cobra.Command {
	var dir, form string
	var yes, compare bool
	c := &cobra.Command{
		Use:   "recover {--survey DIR|FILE… | --data-dir DIR ID=ADDRESS…}",
		Short: "Give this stopped agent a new Raft group, after a majority is lost for good",
		Long: `Give this stopped agent a new Raft group, after a majority of the voters is lost
for good: their disks are gone, not only their power.

Stop every surviving agent. Run this command on each of them with the same list:
the id (in the file agent-id of the data directory) and the peer address of every
survivor that was a voter. Then start them. What the survivors did not have is
lost. Do not start a lost voter with its old data, should it come back.

With --survey, nothing is written. The command compares the data directories of
stopped agents, and says from which one to recover and which entries of the log
it may lack. A file, which --survey -o json has written on another host, stands
for the data directory of that host. Add what is left of the lost voters, too: a
data directory without a log may still show how far its log reached.`,
		Example: `  coopr-agent recover --survey /var/lib/coopr -o json >here.json
  coopr-agent recover --survey /var/lib/coopr there.json
  coopr-agent recover --data-dir /var/lib/coopr 7d0f1b2c-1111-4222-8333-944455566677=10.0.0.1:55055`,
	}
	c.Flags().StringVar(&dir, "data-dir", "", "data directory of the stopped agent (required)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before writing")
	c.Flags().BoolVar(&compare, "survey", false, "compare what the agents' disks hold, and write nothing")
	c.Flags().StringVarP(&form, "output", "o", "table", "of --survey: table or json")
	c.RunE = func(c *cobra.Command, peers []string) error {
		if compare {
			switch {
			case dir != "" || yes:
				return usageError{errors.New("--survey writes nothing, so it has neither --data-dir nor --yes: name the directories as DIR…")}
			case len(peers) == 0:
				return usageError{errors.New("name the data directories of the agents: DIR…")}
			case form != "table" && form != "json":
				return usageError{fmt.Errorf("--output must be table or json, and is %q", form)}
			}
			return survey(c.Context(), c.OutOrStdout(), peers, form)
		}
		switch {
		case dir == "":
			return usageError{errors.New("--data-dir is missing")}
		case len(peers) == 0:
			return usageError{errors.New("name the voters of the new group: ID=ADDRESS…")}
		}
		body, err := recoverFile(dir, peers)
		if err != nil {
			return err
		}
		lock, err := identity.LockDir(dir)
		if err != nil {
			return fmt.Errorf("the agent must be stopped first: %w", err)
		}
		defer func() { _ = lock.Release() }()
		if err := confirm(c, yes, fmt.Sprintf("Give the agent in %s a Raft group of %s?", dir, words.Count(len(peers), "voter"))); err != nil {
			return err
		}
		path := filepath.Join(dir, raftgroup.RecoverFile)
		if err := writeRecoverFile(path, body); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "Written: %s. Do the same on the other survivors, then start them all.\n", path)
		return nil
	}
	return c
}

// agentID returns the id of the agent in dir.
func agentID(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "agent-id"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not the data directory of an agent: it has no file agent-id", dir)
	}
	return strings.TrimSpace(string(raw)), err
}

// recoverFile returns the content of the recovery file for the agent in dir.
func recoverFile(dir string, peers []string) ([]byte, error) {
	self, err := agentID(dir)
	if err != nil {
		return nil, err
	}
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
		faults.Add("", fmt.Sprintf("the list does not have the agent of %s itself, %s", dir, self))
	}
	if len(faults) > 0 {
		return nil, faults
	}
	body, err := json.MarshalIndent(entries, "", "  ")
	return append(body, '\n'), err
}

// writeRecoverFile writes the recovery file. It parses a draft as the agent will,
// before the draft gets the name that the agent looks for.
func writeRecoverFile(path string, body []byte) error {
	draft := path + ".draft"
	if err := os.WriteFile(draft, body, 0o600); err != nil {
		return err
	}
	if _, err := raftgroup.ReadRecoverFile(draft); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	if err := chownLike(draft, filepath.Dir(path)); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return os.Rename(draft, path)
}

// chownLike gives a file the owner of a folder: root may run the command for an agent
// that runs as another user.
func chownLike(file, dir string) error {
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

// confirm asks a question on the terminal, unless yes is set. Without a terminal, it
// fails.
func confirm(c *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	in, ok := c.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usageError{fmt.Errorf("%s There is no terminal to answer on: add --yes", question)}
	}
	fmt.Fprintf(c.OutOrStdout(), "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(c.OutOrStdout())
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}
