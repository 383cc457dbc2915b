package act

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/plugins/confine"
)

// repo is the git repository of one file tree, on the agent's machine. Each folder has the contents
// of the tree's files. A second folder, with the suffix ".modes", has their modes and owners as
// JSON, because git records only the executable bit.
type repo struct {
	dir      string
	launcher *confine.Launcher // starts git
}

// configuration is the whole of a repository's configuration.
const configuration = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\thooksPath = /dev/null\n\tbigFileThreshold = 16m\n"

func (r *repo) git(ctx context.Context, args ...string) ([]byte, error) {
	return r.feed(ctx, nil, args...)
}

// feed runs git with the given standard input.
func (r *repo) feed(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("trees of files are kept with git: install git on the agent's machine: %w", err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LANG=C",
		"GIT_AUTHOR_NAME=Coopr", "GIT_AUTHOR_EMAIL=coopr@localhost", "GIT_COMMITTER_NAME=Coopr", "GIT_COMMITTER_EMAIL=coopr@localhost"}
	cmd, release, err := r.launcher.Prepare(ctx, confine.Profile{
		Program: program, Args: append([]string{"git"}, args...), Env: env, Dir: r.dir, Reads: []string{filepath.Dir(program)},
		Writes: []string{r.dir}, AsAgent: true,
	}, nil, 0)
	if err != nil {
		return nil, err
	}
	defer release()
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}

// init creates the repository if it does not exist. It removes a lock that a killed agent
// left, as no other process uses the repository.
func (r *repo) init(ctx context.Context) error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(r.dir, ".git", "HEAD")); err == nil {
		if err := os.Remove(filepath.Join(r.dir, ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if _, err := r.git(ctx, "init", "-q", "-b", "main", "--template="); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, ".git", "config"), []byte(configuration), 0o600)
}

// put writes a file into one of the folders.
func (r *repo) put(folder, name string, s seen) error {
	at, err := kept(name)
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, folder, at)
	meta, err := json.Marshal(s.fileState)
	if err != nil {
		return err
	}
	side := filepath.Join(r.dir, folder+".modes", at)
	for _, f := range []struct {
		path string
		data []byte
	}{{file, s.content}, {side, meta}} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f.path), 0o700), os.WriteFile(f.path, f.data, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// get reads a file from one of the folders. It returns false if there is no such file.
func (r *repo) get(folder, name string) (seen, bool, error) {
	var s seen
	at, err := kept(name)
	if err != nil {
		return s, false, err
	}
	b, err := os.ReadFile(filepath.Join(r.dir, folder+".modes", at))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s.fileState)
	}
	if err != nil {
		return s, false, err
	}
	s.content, err = os.ReadFile(filepath.Join(r.dir, folder, at))
	return s, err == nil, err
}

func (r *repo) drop(folder, name string) error {
	at, err := kept(name)
	if err != nil {
		return err
	}
	for _, f := range []string{folder, folder + ".modes"} {
		if err := os.Remove(filepath.Join(r.dir, f, at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// state writes state.json atomically.
func (r *repo) state(st *treeState) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	file := filepath.Join(r.dir, "state.json")
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// commit commits everything, if anything has changed.
func (r *repo) commit(ctx context.Context, message string) error {
	if _, err := r.git(ctx, "add", "-A", "-f"); err != nil {
		return err
	}
	if _, err := r.git(ctx, "diff", "--cached", "--quiet"); err == nil {
		return nil
	}
	_, err := r.git(ctx, "commit", "-q", "--no-verify", "-m", message)
	return err
}

// merge merges two versions of one text. If both changed the same place, clean is false and
// merged has conflict marks.
func (r *repo) merge(ctx context.Context, mine, base, theirs []byte) (merged []byte, clean bool, err error) {
	dir, err := os.MkdirTemp(r.dir, "merge-")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(dir)
	for name, b := range map[string][]byte{"mine": mine, "base": base, "theirs": theirs} {
		if bytes.IndexByte(b, 0) >= 0 {
			return nil, false, nil // no text
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return nil, false, err
		}
	}
	out, err := r.git(ctx, "merge-file", "-p", "-L", "by hand", "-L", "before", "-L", "by the site",
		filepath.Join(dir, "mine"), filepath.Join(dir, "base"), filepath.Join(dir, "theirs"))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() < 128 {
		return out, false, nil
	}
	return out, err == nil, err
}
