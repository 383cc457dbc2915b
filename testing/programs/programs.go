// Package programs provides the programs of this repository to tests that run them.
package programs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// builtVar names a folder that holds every program. testing/ci/tests.sh sets it: each package that
// builds the programs anew spends many seconds of processor time on linking them.
const builtVar = "COOPR_TEST_BIN"

// Put puts the programs of packages into a folder, under the last element of their import paths. The
// packages are named from the root of the module, as "./cmd/..." or "./examples/shop/cmd/shop".
func Put(dir string, packages ...string) error {
	root, err := root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	built := os.Getenv(builtVar)
	if built == "" {
		out := dir + string(filepath.Separator) // a folder, though it may get a single program
		_, err := goCommand(root, append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", out}, packages...)...)
		return err
	}
	list, err := goCommand(root, append([]string{"list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`}, packages...)...)
	if err != nil {
		return err
	}
	for _, program := range strings.Fields(list) {
		if err := copyProgram(filepath.Join(built, path.Base(program)), filepath.Join(dir, path.Base(program))); err != nil {
			return fmt.Errorf("%s: %w", builtVar, err)
		}
	}
	return nil
}

func goCommand(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// copyProgram copies a file. A link would let a test that writes to its program change that of others.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return cmp.Or(err, out.Close())
}

// root is the folder of this module.
func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in any folder above the test")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
