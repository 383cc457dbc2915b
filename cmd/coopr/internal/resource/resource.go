// Package resource holds the commands for resources of plugins: scripts, archives, cookbooks and keys.
package resource

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command is "coopr resource": what plugins work with, uploaded by tenants.
func Command(app cli.App) *cobra.Command {
	return cli.Group("resource", "Upload scripts, archives, cookbooks and keys for plugins, and put them in force",
		listCmd(app), uploadCmd(app),
		orderCmd(app, model.StageResource, "Let the next sync put a version in force", "Staged: %s. It is in force after `coopr resource sync`.\n"),
		orderCmd(app, model.RecallResource, "Let the next sync take a version out of force", "Recalled: %s. What that means is in force after `coopr resource sync`.\n"),
		syncCmd(app),
		orderCmd(app, model.ActivateResource, "Put a version in force now, in the place of another", "In force: %s.\n"),
		getCmd(app), downloadCmd(app), deleteCmd(app))
}

const resourceHelp = `A resource is named PLUGIN/TYPE/RESOURCES/NAME, such as automator/shell/scripts/deploy.sh
or provider/google/ssh_keys/coopr, and a version of it NAME@VERSION.`

// parseResource reads PLUGIN/TYPE/RESOURCES/NAME[@VERSION]; the version is 0 where there is none.
func parseResource(cmd *cobra.Command, text string, version bool) (k model.ResourceKey, n int, err error) {
	name, at, given := strings.Cut(text, "@")
	parts := strings.Split(name, "/")
	kinds := map[string]model.Kind{
		"provider": model.KindProviderType, "providertypes": model.KindProviderType,
		"automator": model.KindAutomatorType, "automatortypes": model.KindAutomatorType,
	}
	if len(parts) != 4 || kinds[parts[0]] == "" {
		return k, 0, cli.Usage(cmd, "%q names no resource: write automator/TYPE/RESOURCES/NAME or provider/TYPE/RESOURCES/NAME", text)
	}
	k = model.ResourceKey{Kind: kinds[parts[0]], Plugin: parts[1], Type: parts[2], Name: parts[3]}
	if given {
		if n, err = strconv.Atoi(at); err != nil || n < 1 {
			return k, 0, cli.Usage(cmd, "%q is no version: write a number from 1 behind the @", at)
		}
	} else if version {
		return k, 0, cli.Usage(cmd, "%s: which version? Write %s@1, or another number of `coopr resource list`", text, text)
	}
	return k, n, nil
}

// shortResource is a resource as the command line names it.
func shortResource(k model.ResourceKey) string {
	return strings.TrimSuffix(string(k.Kind), "types") + "/" + k.Plugin + "/" + k.Type + "/" + k.Name
}

func completeResources(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, err := c.Resources(ctx, "")
		var out []string
		for _, v := range all {
			out = append(out, fmt.Sprintf("%s@%d\t%s", shortResource(v.ResourceKey), v.Version, v.Status))
		}
		return out, err
	})
}

func listCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var status string
	cmd := cli.List(app, cli.Listing[model.ResourceVersion]{
		Use: "list", Short: "List all versions of all resources", Still: true,
		Example: "  coopr resource list\n  coopr resource list --status active",
		Narrow:  []string{"status"},
		Empty:   "There are no resources: `coopr resource upload automator/shell/scripts/NAME FILE` makes one.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]model.ResourceVersion, client.Meta, error) {
			all, err := c.Resources(ctx, model.ResourceStatus(status))
			return all, client.Meta{}, err
		},
		Rows: func(items []model.ResourceVersion) output.Table {
			slices.SortFunc(items, func(x, y model.ResourceVersion) int {
				return cmp.Or(strings.Compare(shortResource(x.ResourceKey), shortResource(y.ResourceKey)), x.Version-y.Version)
			})
			t := output.Table{Head: []string{"RESOURCE", "VERSION", "STATUS", "SIZE", "AGE", "BY", "SHA256"}, Wide: 1}
			for _, v := range items {
				sum := v.SHA256
				if v.Secret {
					sum = model.Redacted
				}
				t.Row(shortResource(v.ResourceKey), strconv.Itoa(v.Version), string(v.Status), strconv.FormatInt(v.Size, 10), out.Ago(v.Time), v.Actor, sum)
			}
			return t
		},
	})
	cmd.Flags().StringVar(&status, "status", "", "only versions that are inactive, staged, active or recalled")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"inactive", "staged", "active", "recalled"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func uploadCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var stage, activate bool
	cmd := &cobra.Command{
		Use: "upload PLUGIN/TYPE/RESOURCES/NAME FILE", Short: "Upload the next version of a resource", Args: cli.Args("RESOURCE", "FILE"),
		Long: resourceHelp + `

FILE may be a folder: it goes as an archive. The new version is inactive until it is
staged and synced, or activated.`,
		Example: "  coopr resource upload automator/shell/scripts/deploy.sh ./deploy.sh --activate\n  coopr resource upload automator/chef-solo/cookbooks/web ./cookbooks/web --stage",
	}
	cmd.Flags().BoolVar(&stage, "stage", false, "stage it at once")
	cmd.Flags().BoolVar(&activate, "activate", false, "put it in force at once")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmd.ValidateArgs(args); err != nil {
			return err
		}
		k, n, err := parseResource(cmd, args[0], false)
		switch {
		case err != nil:
			return err
		case n != 0:
			return cli.Usage(cmd, "%s: the mesh chooses the version's number: leave it out", args[0])
		case stage && activate:
			return cli.Usage(cmd, "--stage and --activate: one of them")
		}
		then := ""
		if stage {
			then = model.StageResource
		} else if activate {
			then = model.ActivateResource
		}
		f, size, sum, err := readResource(args[1])
		if err != nil {
			return err
		}
		defer f.Close()
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if err := mayBeFolder(ctx, c, k, args[1]); err != nil {
				return err
			}
			v, err := c.UploadResource(ctx, k, f, size, sum, then)
			if err != nil {
				return err
			}
			if out.Structured() {
				return out.Encode(v)
			}
			out.Printf("Uploaded: %s@%d, %d bytes, %s.\n", shortResource(k), v.Version, v.Size, v.Status)
			return nil
		})(cmd, args)
	}
	return cmd
}

// readResource opens what is to be uploaded: a file, or a folder as an archive.
func readResource(path string) (f *os.File, size int64, sum string, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, 0, "", err
	}
	if fi.IsDir() {
		f, err = packFolder(path)
	} else {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, 0, "", err
	}
	h := sha256.New()
	size, err = io.Copy(h, f)
	if err != nil {
		return nil, 0, "", errors.Join(err, f.Close())
	}
	return f, size, hex.EncodeToString(h.Sum(nil)), nil
}

// packFolder makes a tar.gz of what is in a folder, in a file without a name. The same
// folder gives the same archive.
func packFolder(dir string) (_ *os.File, err error) {
	f, err := os.CreateTemp("", "coopr-resource-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, os.Remove(f.Name())); err != nil {
			_ = f.Close()
		}
	}()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		if fi.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		} else if !fi.Mode().IsRegular() && !fi.IsDir() {
			return fmt.Errorf("%s is no file, folder or link", path)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(rel), Mode: int64(fi.Mode().Perm()), Size: fi.Size(), Typeflag: tar.TypeReg, Linkname: link}
		if fi.IsDir() {
			h.Typeflag, h.Size, h.Name = tar.TypeDir, 0, h.Name+"/"
		} else if link != "" {
			h.Typeflag, h.Size = tar.TypeSymlink, 0
		}
		if err := t.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(t, in)
		return errors.Join(err, in.Close())
	})
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir, err)
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

func orderCmd(app cli.App, order, short, done string) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: order + " PLUGIN/TYPE/RESOURCES/NAME@VERSION", Short: short, Long: short + ".\n\n" + resourceHelp, Args: cli.Args("RESOURCE@VERSION"),
		Example: "  coopr resource " + order + " automator/shell/scripts/deploy.sh@2", ValidArgsFunction: completeResources(app),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], true)
		if err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if _, err := c.OrderResource(ctx, order, k, n); err != nil {
				return err
			}
			out.Printf(done, args[0])
			return nil
		})(cmd, args)
	}
	return cmd
}

func syncCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "sync", Short: "Put in force what is staged, and out of force what is recalled", Args: cli.Args(),
		Long:    "Put in force what is staged, and out of force what is recalled, all at once. Plans that\nbegin from now on work with it; those under way keep the versions that they were planned with.",
		Example: "  coopr resource sync",
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		s, err := c.SyncResources(ctx)
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(s)
		}
		out.Printf("In force: %s.\n", words.Count(len(s.Active), "resource"))
		return nil
	})
	return cmd
}

func getCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "get PLUGIN/TYPE/RESOURCES/NAME@VERSION", Short: "Show what is known of a version", Args: cli.Args("RESOURCE@VERSION"),
		Example: "  coopr resource get automator/shell/scripts/deploy.sh@2", ValidArgsFunction: completeResources(app)}
	cli.FormFlag(cmd, output.FormYAML, output.FormJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], true)
		if err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			v, err := c.Resource(ctx, k, n)
			if err != nil {
				return err
			}
			return out.Encode(v)
		})(cmd, args)
	}
	return cmd
}

func downloadCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "download PLUGIN/TYPE/RESOURCES/NAME@VERSION [FILE]", Short: "Copy the content of a version into a file, or to the output", Args: cli.Args("RESOURCE@VERSION", "[FILE]"),
		Long: "Copy the content of a version into a file, or to the output. Keys are not given back.", Example: "  coopr resource download automator/shell/scripts/deploy.sh@2 deploy.sh", ValidArgsFunction: completeResources(app)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], true)
		if err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				return c.ResourceContent(ctx, k, n, out.Stdout)
			}
			f, err := os.CreateTemp(filepath.Dir(args[1]), ".coopr-")
			if err != nil {
				return err
			}
			err = errors.Join(c.ResourceContent(ctx, k, n, f), f.Close())
			if err == nil {
				err = os.Rename(f.Name(), args[1])
			}
			if err != nil {
				return errors.Join(err, os.Remove(f.Name()))
			}
			return nil
		})(cmd, args)
	}
	return cmd
}

func deleteCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "delete PLUGIN/TYPE/RESOURCES/NAME[@VERSION]", Short: "Delete a version that is inactive, or all versions", Args: cli.Args("RESOURCE"),
		Long:    "Delete a version, or all of them; they must be inactive. Plans that were made with them keep\ntheir contents for as long as they are kept themselves.",
		Example: "  coopr resource delete automator/shell/scripts/deploy.sh@1 --yes", ValidArgsFunction: completeResources(app)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], false)
		if err != nil {
			return err
		}
		what := args[0]
		if n == 0 {
			what += " with all its versions"
		}
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Delete %s?", what)); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if err := c.DeleteResource(ctx, k, n); err != nil {
				return err
			}
			out.Printf("Deleted: %s.\n", what)
			return nil
		})(cmd, args)
	}
	return cmd
}

// mayBeFolder refuses a folder for what is to be a file: its archive would be taken for one.
func mayBeFolder(ctx context.Context, c *client.Client, k model.ResourceKey, path string) error {
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		return err
	}
	types, _, err := c.Plugins(ctx, client.Read{})
	if err != nil {
		return err
	}
	for _, t := range types {
		if t.Class+"types" == string(k.Kind) && t.Name == k.Plugin && t.ResourceTypes[k.Type].Format == "file" {
			return fmt.Errorf("%s is a folder, and %s are files: upload one of its files", path, k.Type)
		}
	}
	return nil
}
