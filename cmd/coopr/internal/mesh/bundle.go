package mesh

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/internal/release"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

const (
	// mostArchive, mostPlain and mostFile bound what one agent adds to a bundle: all of it as it comes and unpacked, and each file, in
	// bytes. mostFiles is the number of its files. An agent may belong to somebody else by now.
	mostArchive, mostPlain, mostFile, mostFiles = 64 << 20, 160 << 20, 16 << 20, 100
	// agentTime bounds the answer of one agent, besides the seconds of its measurement, and meshTime that about the mesh.
	agentTime, meshTime = 90 * time.Second, 20 * time.Second
	// atOnce is the number of agents that are asked at the same time.
	atOnce = 8
)

// debugCmd returns the command that makes a debug bundle.
func debugCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var seconds int
	cmd := &cobra.Command{
		Use: "debug FILE", Short: "Save a debug bundle of all agents to a file", Args: cli.Args("FILE"),
		Long: `Save a debug bundle to a file (tar.gz), for somebody who is to find out why the mesh does not work. It has a folder for each agent:
status, members, Raft group, configuration, metrics, profiles, the findings of doctor, and the end of its log. The folder "mesh" has what
is known of the mesh as a whole. manifest.json lists everything, also the agents that did not answer, and what is missing or cut.

The bundle has no passwords, tokens, keys or other secrets. It has names and addresses, of all tenants.`,
		Example: "  coopr operator debug coopr-debug.tar.gz\n  coopr operator debug coopr-debug.tar.gz --seconds 30",
	}
	cmd.Flags().IntVar(&seconds, "seconds", 2, "how long each agent measures, 60 at most")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if seconds < 0 || seconds > 60 {
			return cli.Usage(cmd, "--seconds: use 0 to 60")
		}
		m := api.BundleManifest{Client: release.Build(), Time: time.Now().UnixMilli(), Seconds: seconds}
		if err := cli.WriteFile(args[0], func(w io.Writer) error { return writeBundle(ctx, c, w, &m) }); err != nil {
			return err
		}
		out.Printf("%s has the state of %s.\n", args[0], words.Count(len(m.Agents), "agent"))
		for _, a := range m.Agents {
			if a.Error != "" {
				out.Notef("Warning: agent %s is missing or not whole: %s\n", path.Base(a.Folder), a.Error)
			}
		}
		return nil
	})
	return cmd
}

// bundle is a debug bundle that is written.
type bundle struct {
	archive *tar.Writer
	time    time.Time
}

func (b *bundle) add(name string, content []byte) error {
	if err := b.archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: b.time}); err != nil {
		return err
	}
	_, err := b.archive.Write(content)
	return err
}

// writeBundle writes a debug bundle, and completes its manifest.
func writeBundle(ctx context.Context, c *client.Client, w io.Writer, m *api.BundleManifest) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(w)
	b := &bundle{archive: tar.NewWriter(zip), time: time.UnixMilli(m.Time)}
	folders := map[string]bool{}
	for _, x := range members {
		a := api.BundleAgent{ID: x.ID, Name: x.Name, Status: x.Status, Build: x.Build, Folder: folderOf(x, folders)}
		folders[a.Folder] = true
		m.Agents = append(m.Agents, a)
	}
	archives := make([]bytes.Buffer, len(m.Agents))
	var asked sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range m.Agents {
		asked.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := fetch(ctx, c, m.Agents[i].ID, m.Seconds, &archives[i]); err != nil {
				m.Agents[i].Error = err.Error()
			}
		})
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	for i := range m.Agents {
		if err := b.unpack(&m.Agents[i], &archives[i]); err != nil {
			return err
		}
	}
	if err := b.mesh(ctx, c, m); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(b.add(api.ManifestFile, append(text, '\n')), b.archive.Close(), zip.Close())
}

// folderOf returns an agent's folder, which is none of those that are taken. Names and ids are the agents' own, and gossip may have forged
// them.
func folderOf(x api.Member, taken map[string]bool) string {
	for _, name := range []string{x.Name, x.ID} {
		if f := "agents/" + name; plain(name) && !taken[f] {
			return f
		}
	}
	for i := 1; ; i++ {
		if f := fmt.Sprintf("agents/agent-%d", i); !taken[f] {
			return f
		}
	}
}

// plain reports whether a name that an agent has made can be that of a file on any machine.
func plain(name string) bool {
	return name != "" && len(name) <= 128 && !strings.HasPrefix(name, ".") &&
		!strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune(`/\:`, r) || !unicode.IsPrint(r) })
}

// fetch copies the archive of an agent, as far as it comes.
func fetch(ctx context.Context, c *client.Client, agent string, seconds int, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+agentTime)
	defer cancel()
	r, err := c.ExamineAgent(ctx, agent, seconds)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(w, io.LimitReader(r, mostArchive))
	if err == nil && n == mostArchive {
		err = fmt.Errorf("its archive has more than %d bytes", mostArchive)
	}
	return err
}

// unpack copies the files of an agent's archive into its folder. An archive that is not whole is noted, as far as it was not before.
func (b *bundle) unpack(a *api.BundleAgent, archive io.Reader) error {
	note := func(err error) error {
		if a.Error == "" {
			a.Error = err.Error()
		}
		return nil
	}
	if a.Error != "" && archive.(*bytes.Buffer).Len() == 0 {
		return nil
	}
	zip, err := gzip.NewReader(archive)
	if err != nil {
		return note(err)
	}
	left := &io.LimitedReader{R: zip, N: mostPlain}
	files := tar.NewReader(left)
	for n := 0; ; n++ {
		h, err := files.Next()
		switch {
		case left.N <= 0:
			return note(fmt.Errorf("its archive has more than %d bytes unpacked", mostPlain))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return note(err)
		case n == mostFiles:
			return note(fmt.Errorf("its archive has more than %d files", mostFiles))
		}
		content, err := io.ReadAll(io.LimitReader(files, mostFile))
		if err != nil {
			return note(err)
		}
		if h.Name == api.ManifestFile {
			var m api.AgentManifest
			if err := json.Unmarshal(content, &m); err != nil {
				return note(err)
			}
			a.Parts = m.Parts
			continue
		}
		if !plain(h.Name) {
			return note(fmt.Errorf("its archive has a file %q", h.Name))
		}
		if err := b.add(a.Folder+"/"+h.Name, content); err != nil {
			return err
		}
	}
}

// mesh adds what is known of the mesh as a whole.
func (b *bundle) mesh(ctx context.Context, c *client.Client, m *api.BundleManifest) error {
	read := client.Read{}
	for _, p := range []struct {
		name string
		ask  func(ctx context.Context) (any, error)
	}{
		{"raft-peers", func(ctx context.Context) (any, error) { return c.RaftPeers(ctx) }},
		{"agents", func(ctx context.Context) (any, error) { v, _, err := c.Agents(ctx, read); return v, err }},
		{"plugins", func(ctx context.Context) (any, error) { v, _, err := c.Plugins(ctx, read); return v, err }},
		{"attention", func(ctx context.Context) (any, error) { v, _, err := c.Attention(ctx, read); return v, err }},
		{"rotations", func(ctx context.Context) (any, error) { v, _, err := c.Rotations(ctx, read); return v, err }},
		{"keyring", func(ctx context.Context) (any, error) { v, _, err := c.Keyring(ctx, read); return v, err }},
		{"sinks", func(ctx context.Context) (any, error) { return c.AuditSinks(ctx) }},
		{"operations", func(ctx context.Context) (any, error) {
			v, _, err := c.Operations(ctx, "", nil, client.Page{Limit: 100}, read)
			return v, err
		}},
	} {
		started, name := time.Now(), "mesh/"+p.name+".json"
		asked, cancel := context.WithTimeout(ctx, meshTime)
		v, err := p.ask(asked)
		cancel()
		var text []byte
		if err == nil {
			text, err = json.MarshalIndent(v, "", "  ")
		}
		if err == nil {
			if err := b.add(name, append(text, '\n')); err != nil {
				return err
			}
		}
		done := api.BundlePart{Name: name, Bytes: int64(len(text)), Milliseconds: time.Since(started).Milliseconds()}
		if err != nil {
			done.Error = err.Error()
		}
		m.Mesh = append(m.Mesh, done)
	}
	return nil
}
