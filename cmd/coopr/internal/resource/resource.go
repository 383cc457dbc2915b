// Package resource holds the commands for resources of plugins: scripts, archives, cookbooks and keys.
package resource

import (
	"archive/tar"
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
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command returns the command "resource": files for plugins, uploaded by tenants.
func Command(app cli.App) *cobra.Command {
	return cli.Group("resource", "Upload and activate scripts, archives, cookbooks and keys for plugins",
		listCmd(app), uploadCmd(app),
		orderCmd(app, model.StageResource, "Stage a version: the next sync activates it", "%s was staged. To activate it: coopr resource sync\n"),
		orderCmd(app, model.RecallResource, "Recall a version: the next sync deactivates it",
			"%s was recalled. To deactivate it: coopr resource sync\n"),
		syncCmd(app),
		orderCmd(app, model.ActivateResource, "Activate a version now, instead of the active one", "%s is active.\n"),
		getCmd(app), downloadCmd(app), deleteCmd(app))
}

const resourceHelp = `The name of a resource is PLUGIN/TYPE/RESOURCES/NAME, for example
automator/shell/scripts/deploy.sh or provider/google/ssh_keys/coopr. The name of
a version ends in @VERSION.`

// parseResource parses PLUGIN/TYPE/RESOURCES/NAME[@VERSION]. If version is true, the version is required;
// otherwise it is 0 if it is missing.
func parseResource(cmd *cobra.Command, text string, version bool) (k model.ResourceKey, n int, err error) {
	name, at, given := strings.Cut(text, "@")
	parts := strings.Split(name, "/")
	kinds := map[string]model.Kind{
		"provider": model.KindProviderType, "providertypes": model.KindProviderType,
		"automator": model.KindAutomatorType, "automatortypes": model.KindAutomatorType,
	}
	if len(parts) != 4 || kinds[parts[0]] == "" {
		return k, 0, cli.Usage(cmd, "%q is not the name of a resource; use automator/TYPE/RESOURCES/NAME or provider/TYPE/RESOURCES/NAME", text)
	}
	k = model.ResourceKey{Kind: kinds[parts[0]], Plugin: parts[1], Type: parts[2], Name: parts[3]}
	if given {
		if n, err = strconv.Atoi(at); err != nil || n < 1 {
			return k, 0, cli.Usage(cmd, "%q is not a version; write a number from 1 after the @", at)
		}
	} else if version {
		return k, 0, cli.Usage(cmd, "%s: the version is missing; write %s@1, or another number that `coopr resource list` shows", text, text)
	}
	return k, n, nil
}

// shortResource returns the name of a resource on the command line.
func shortResource(k model.ResourceKey) string {
	return strings.TrimSuffix(string(k.Kind), "types") + "/" + k.Plugin + "/" + k.Type + "/" + k.Name
}

// completeResources completes versions of resources.
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
		Empty:   "There are no resources. To upload one: coopr resource upload automator/shell/scripts/NAME FILE",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]model.ResourceVersion, client.Meta, error) {
			all, err := c.Resources(ctx, model.ResourceStatus(status))
			return all, client.Meta{}, err
		},
		Rows: func(items []model.ResourceVersion) output.Table {
			t := output.Table{Head: []string{"RESOURCE", "VERSION", "STATUS", "SIZE", "AGE", "BY", "SHA256"}, Wide: 1}
			for _, v := range items {
				sum := v.SHA256
				if v.Secret {
					sum = model.Redacted
				}
				t.Row(shortResource(v.ResourceKey), strconv.Itoa(v.Version), string(v.Status), strconv.FormatInt(v.Size, 10), out.Ago(v.Time),
					v.Actor, sum)
			}
			return t
		},
	})
	cmd.Flags().StringVar(&status, "status", "", "only versions with this status: inactive, staged, active or recalled")
	cli.CompleteValues(cmd, "status", "inactive", "staged", "active", "recalled")
	return cmd
}

func uploadCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var stage, activate bool
	cmd := &cobra.Command{
		Use: "upload PLUGIN/TYPE/RESOURCES/NAME FILE", Short: "Upload the next version of a resource", Args: cli.Args("RESOURCE", "FILE"),
		Long: resourceHelp + `

FILE may be a directory; it is uploaded as an archive. The new version is
inactive until it is activated, or staged and synced.`,
		Example: "  coopr resource upload automator/shell/scripts/deploy.sh ./deploy.sh --activate\n" +
			"  coopr resource upload automator/chef-solo/cookbooks/web ./cookbooks/web --stage",
	}
	cmd.Flags().BoolVar(&stage, "stage", false, "stage the new version")
	cmd.Flags().BoolVar(&activate, "activate", false, "activate the new version")
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
			return cli.Usage(cmd, "%s: the mesh assigns the version; omit the @ and the number", args[0])
		case stage && activate:
			return cli.Usage(cmd, "--stage and --activate exclude each other")
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
			if err := checkDir(ctx, c, k, args[1]); err != nil {
				return err
			}
			v, err := c.UploadResource(ctx, k, f, size, sum, then)
			if err != nil {
				return err
			}
			if out.Structured() {
				return out.Encode(v)
			}
			out.Printf("%s@%d was uploaded: %d bytes, %s.\n", shortResource(k), v.Version, v.Size, v.Status)
			return nil
		})(cmd, args)
	}
	return cmd
}

// readResource opens a file to upload, or a directory as an archive. It returns the size and the SHA-256 sum.
func readResource(path string) (f *os.File, size int64, sum string, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, 0, "", err
	}
	if fi.IsDir() {
		f, err = packDir(path)
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

// packDir packs a directory into a temporary tar.gz file that has no name any more. The same directory
// always results in the same archive.
func packDir(dir string) (_ *os.File, err error) {
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
			return fmt.Errorf("%s is neither a file nor a directory nor a link", path)
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
		Use: order + " PLUGIN/TYPE/RESOURCES/NAME@VERSION", Short: short, Long: short + ".\n\n" + resourceHelp,
		Args:    cli.Args("RESOURCE@VERSION"),
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
		Use: "sync", Short: "Activate all staged versions and deactivate all recalled ones", Args: cli.Args(),
		Long: "Activate all staged versions and deactivate all recalled ones, in one step. New plans use\n" +
			"the new versions; running plans keep the versions with which they were made.",
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
		out.Printf("%s active.\n", words.Count(len(s.Active), "resource"))
		return nil
	})
	return cmd
}

func getCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "get PLUGIN/TYPE/RESOURCES/NAME@VERSION", Short: "Show the details of a version",
		Args:    cli.Args("RESOURCE@VERSION"),
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
	cmd := &cobra.Command{Use: "download PLUGIN/TYPE/RESOURCES/NAME@VERSION [FILE]",
		Short: "Download the content of a version to a file or the standard output", Args: cli.Args("RESOURCE@VERSION", "[FILE]"),
		Long:    "Download the content of a version to a file or the standard output. Keys cannot be\ndownloaded.",
		Example: "  coopr resource download automator/shell/scripts/deploy.sh@2 deploy.sh", ValidArgsFunction: completeResources(app)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], true)
		if err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				return c.ResourceContent(ctx, k, n, out.Stdout)
			}
			return cli.WriteFile(args[1], func(w io.Writer) error { return c.ResourceContent(ctx, k, n, w) })
		})(cmd, args)
	}
	return cmd
}

func deleteCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "delete PLUGIN/TYPE/RESOURCES/NAME[@VERSION]", Short: "Delete an inactive version, or all versions",
		Args:    cli.Args("RESOURCE"),
		Long:    "Delete one version or all versions of a resource; they must be inactive. Existing plans\nthat use a version keep its content.",
		Example: "  coopr resource delete automator/shell/scripts/deploy.sh@1 --yes", ValidArgsFunction: completeResources(app)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, n, err := parseResource(cmd, args[0], false)
		if err != nil {
			return err
		}
		what := args[0]
		if n == 0 {
			what = "all versions of " + what
		}
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Delete %s?", what)); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if err := c.DeleteResource(ctx, k, n); err != nil {
				return err
			}
			out.Printf("Deleted %s.\n", what)
			return nil
		})(cmd, args)
	}
	return cmd
}

// checkDir refuses a directory if the resource must be a file, because its archive would be taken for the file.
func checkDir(ctx context.Context, c *client.Client, k model.ResourceKey, path string) error {
	if fi, err := os.Stat(path); err != nil || !fi.IsDir() {
		return err
	}
	types, _, err := c.Plugins(ctx, client.Read{})
	if err != nil {
		return err
	}
	for _, t := range types {
		if t.Class+"types" == string(k.Kind) && t.Name == k.Plugin && t.ResourceTypes[k.Type].Format == "file" {
			return fmt.Errorf("%s is a directory, but resources of type %s are single files; upload a file from it", path, k.Type)
		}
	}
	return nil
}
