package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// ImportCommand returns the command "import".
func ImportCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var check, offline, skip bool
	cmd := &cobra.Command{
		Use: "import DIR|FILE…", Short: "Write all definitions in files and directories at once",
		Long: `Write all definitions in the given files and directories: either all of them or
none. With --skip-faulty, faulty definitions and definitions that need them are
left out and listed, all others are written, and the exit code is 1.

Files are JSON or YAML. A file may hold one definition, several definitions, or
an export. The kind of a definition follows from its directory (services/,
clustertemplates/, …), its key "kind", or its other keys. Definitions that are
not in the files do not change.

With --check the mesh checks the definitions as for an import, but writes
nothing. With --check --offline the files are only checked by themselves: not
against the definitions, plugins and permissions of a mesh.`,
		Example: "  coopr import examples/shop\n  coopr import --check shop.yaml services/\n  coopr import --skip-faulty old-templates/\n" +
			"  coopr export | coopr --tenant other import -",
		Args: cli.Args("DIR|FILE…"),
	}
	cmd.Flags().BoolVar(&check, "check", false, "only check the definitions; write nothing")
	cmd.Flags().BoolVar(&offline, "offline", false, "with --check: do not ask the mesh")
	cmd.Flags().BoolVar(&skip, "skip-faulty", false, "leave out faulty definitions and write all others")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if err := cli.ReadForm(out, cmd); err != nil {
			return err
		}
		if offline && !check {
			return cli.Usage(cmd, "--offline needs --check: an import needs the mesh")
		}
		defs, faults, err := gather(app, names)
		if err != nil {
			return err
		}
		var kept []model.Definition
		for _, d := range defs {
			if ok, why := d.Imports(); !ok {
				out.Notef("%s: left out: %s\n", d.Source, why)
				continue
			}
			kept = append(kept, d)
		}
		if len(kept) == 0 && len(faults) == 0 {
			return fmt.Errorf("there are no definitions in %s; files with definitions end in .json, .yaml or .yml", strings.Join(names, ", "))
		}
		// References may point to definitions in the mesh. Only faults in the files themselves are
		// found here.
		good, found, warnings := lint.Linter{}.Sift(kept)
		if !skip {
			found, warnings = lint.Lint(kept, nil)
		}
		faults = append(faults, named(found, kept)...)
		if len(faults) > 0 && !skip {
			return faults
		}
		if offline || len(good) == 0 {
			for _, d := range kept {
				warnings = append(warnings, lint.Literals(d, nil)...)
			}
			for _, w := range named(warnings, kept) {
				out.Warn(w)
			}
			if len(faults) > 0 {
				return leftOut(out, faults)
			}
			out.Printf("%s without faults.\n", words.Count(len(kept), "definition"))
			return nil
		}
		c, err := app.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		done, refused, err := send(cmd.Context(), c, good, skip, check)
		if err != nil {
			return err
		}
		faults = append(faults, refused...)
		noPlugin := false
		for _, w := range done.Warnings {
			kind, _, _ := strings.Cut(w.Subject, "/")
			noPlugin = noPlugin || kind == string(model.KindProviderType) || kind == string(model.KindAutomatorType)
		}
		for _, w := range named(done.Warnings, kept) {
			out.Warn(w)
		}
		if noPlugin && !check {
			out.Noteln("The definitions were written. An agent reports its plugins some seconds after its start; to list them: coopr plugin list")
		}
		if out.Structured() {
			if err := out.Encode(done); err != nil || len(faults) == 0 {
				return err
			}
			return leftOut(out, faults)
		}
		written := "WRITTEN"
		if check {
			written = "WITHOUT FAULTS"
		}
		t := output.Table{Head: []string{"KIND", written}}
		for _, kind := range model.Kinds {
			n := 0
			for _, ref := range done.Written {
				if ref.Kind == kind {
					n++
				}
			}
			if n > 0 {
				t.Row(string(kind), fmt.Sprint(n))
			}
		}
		out.Show(t)
		if len(faults) > 0 {
			return leftOut(out, faults)
		}
		return nil
	}
	return cmd
}

// leftOut lists the faults because of which an import left out definitions.
func leftOut(out *output.Printer, faults model.Faults) error {
	for _, f := range faults {
		out.LeftOut(f)
	}
	return cli.ErrReported
}

// send writes definitions, all or none, or with check only lets the mesh check them. With skip, it leaves
// out the definitions in which the mesh finds faults until the mesh accepts the rest, and returns the faults.
func send(ctx context.Context, c *client.Client, defs []model.Definition, skip, check bool) (
	done api.Imported, faults model.Faults, err error,
) {
	for len(defs) > 0 {
		body := map[model.Kind][]json.RawMessage{}
		for _, d := range defs {
			raw, err := model.Encode(d)
			if err != nil {
				return done, nil, err
			}
			body[d.Kind] = append(body[d.Kind], raw)
		}
		done, _, err = c.Import(ctx, body, check)
		var problem *client.Error
		if !errors.As(err, &problem) {
			return done, faults, err
		}
		good := slices.DeleteFunc(slices.Clone(defs), func(d model.Definition) bool {
			return slices.ContainsFunc(problem.Faults, func(f *model.Fault) bool { return f.Subject == d.ID() })
		})
		problem.Faults = named(problem.Faults, defs)
		if !skip || len(good) == len(defs) {
			return done, faults, err
		}
		faults = append(faults, problem.Faults...)
		defs = good
	}
	return done, faults, nil
}

// named adds the file to the subject of each fault.
func named(faults model.Faults, defs []model.Definition) model.Faults {
	files := map[string]string{}
	for _, d := range defs {
		files[d.ID()] = d.Source
	}
	for _, f := range faults {
		if file := files[f.Subject]; file != "" {
			f.Subject = file + " (" + f.Subject + ")"
		}
	}
	return faults
}

// gather reads the definitions in files and directories. It returns the faults of all files.
func gather(app cli.App, names []string) (defs []model.Definition, faults model.Faults, err error) {
	var files []string
	for _, name := range names {
		if name == "-" {
			files = append(files, name)
			continue
		}
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("there is no file or directory %s", name)
		}
		if err != nil {
			return nil, nil, err
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != name {
				return filepath.SkipDir
			}
			if !d.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, strings.ToLower(filepath.Ext(path))) {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for _, file := range files {
		data, err := cli.ReadFile(app, file)
		if err != nil {
			return nil, nil, err
		}
		name := file
		if name == "-" {
			name = "standard input"
		}
		got, err := decode.Classify(name, data)
		var bad model.Faults
		if err != nil && !errors.As(err, &bad) {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		defs, faults = append(defs, got...), append(faults, bad...)
	}
	return defs, faults, nil
}

// ExportCommand returns the command "export".
func ExportCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var dir string
	cmd := &cobra.Command{
		Use: "export", Short: "Show all definitions, or write each to a file", Args: cli.Args(),
		Long: "Show all definitions of the tenant in a form that import accepts. For admins, the\n" +
			"output includes the secrets of providers: store it like a password.",
		Example: "  coopr export > definitions.yaml\n  coopr export --dir definitions/",
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write one file for each definition into this directory")
	cli.FormFlag(cmd, output.FormYAML, output.FormJSON)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		all, _, err := c.Export(ctx, client.Read{})
		if err != nil {
			return err
		}
		if dir == "" {
			return out.Encode(all)
		}
		raw, err := json.Marshal(all)
		if err != nil {
			return err
		}
		var kinds map[string][]json.RawMessage
		if err := json.Unmarshal(raw, &kinds); err != nil {
			return err
		}
		n := 0
		for kind, defs := range kinds {
			folder := filepath.Join(dir, kind)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
			for _, d := range defs {
				var base model.Base
				if err := json.Unmarshal(d, &base); err != nil {
					return err
				}
				if why := model.CheckName(base.Name); why != "" {
					return fmt.Errorf("%s: the name %s", kind, why)
				}
				// Providers may contain passwords.
				f, err := os.OpenFile(filepath.Join(folder, base.Name+"."+out.Form), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return err
				}
				if err := errors.Join(output.Encode(f, out.Form, d), f.Close()); err != nil {
					return err
				}
				n++
			}
		}
		out.Printf("%s written to %s.\n", words.Count(n, "definition"), dir)
		return nil
	})
	return cmd
}
