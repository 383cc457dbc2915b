// Package programs provides the programs of this repository to tests that run them.
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// builtVar names a folder that holds every program. testing/ci/tests.sh sets it: each package that
// builds the programs anew spends many seconds of processor time on linking them.
const builtVar = "COOPR_TEST_BIN"

// module is the path of this module.
const module = "github.com/coopr/coopr"

// Put puts the programs of packages into a folder, under the last element of their import paths. The
// packages are named from the root of the module, as "./cmd/..." or "./examples/shop/cmd/shop".
func Put(dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var paths []string
	for _, p := range packages {
		paths = append(paths, module+strings.TrimPrefix(p, "."))
	}
	built := os.Getenv(builtVar)
	if built == "" {
		out := dir + string(filepath.Separator) // a folder, though it may get a single program
		_, err := goCommand(append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", out}, paths...)...)
		return err
	}
	list, err := goCommand(append([]string{"list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`}, paths...)...)
	if err != nil {
		return err
	}
	for _, program := range strings.Fields(list) {
		name := path.Base(program)
		content, err := os.ReadFile(filepath.Join(built, name))
		if err == nil {
			// A link would let a test that writes to its program change that of others.
			err = os.WriteFile(filepath.Join(dir, name), content, 0o755)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", builtVar, err)
		}
	}
	return nil
}

// PutOf puts the programs of packages, as they were in an earlier commit, into a folder. The commit must be in this clone: one without
// the whole history may lack it.
func PutOf(commit, dir string, packages ...string) (err error) {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if _, err := command("git", "-C", root, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return fmt.Errorf("this clone lacks commit %s, whose programs the test runs: get the whole history (git fetch --unshallow): %w",
			commit, err)
	}
	work, err := os.MkdirTemp("", "coopr-commit-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	source, index := filepath.Join(work, "source"), "GIT_INDEX_FILE="+filepath.Join(work, "index")
	for _, args := range [][]string{
		{"env", index, "git", "-C", root, "read-tree", commit},
		{"env", index, "git", "-C", root, "checkout-index", "--all", "--prefix=" + source + "/"},
		append([]string{"go", "build", "-C", source, "-buildvcs=false", "-trimpath", "-ldflags=-w", "-o", dir + "/"}, packages...),
	} {
		if _, err := command(args...); err != nil {
			return err
		}
	}
	return nil
}

// moduleRoot returns the folder of this module.
func moduleRoot() (string, error) {
	root, err := goCommand("list", "-m", "-f", "{{.Dir}}", module)
	return strings.TrimSpace(root), err
}

func goCommand(args ...string) (string, error) { return command(append([]string{"go"}, args...)...) }

// command returns the output of a command.
func command(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// Tool builds a program of a folder in tools, which may be a module of its own, into a folder, and returns its path.
func Tool(dir, name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	_, err = goCommand("build", "-C", filepath.Join(root, "tools", name), "-buildvcs=false", "-ldflags=-w", "-o", path, ".")
	return path, err
}

// Installed returns the path of a program that a test needs of the system. The test is skipped where it is missing; `make ci-deps`
// installs what CI needs.
func Installed(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/libexec/" + name} { // daemons are in no ordinary user's PATH
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Skipf("needs %s: make ci-deps, or install it", name)
	return ""
}
