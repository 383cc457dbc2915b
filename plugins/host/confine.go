package host

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/proto"
)

// ownModule is the module of the plugins that come with Coopr.
const ownModule = "github.com/coopr/coopr"

// lasting are the plugins of Coopr that work on nodes of this machine, as paths of their main
// packages. The nodes' processes outlive the plugin and are in its domain for life.
var lasting = []string{ownModule + "/plugins/provider/coopr-provider-local", ownModule + "/plugins/automator/coopr-automator-shell"}

// ansible is the automator whose program has semaphores in /dev/shm.
const ansible = ownModule + "/plugins/automator/coopr-automator-ansible"

// origin returns the path of the main package of a program of Coopr, or "" for another program.
// The builder of a program can write any path into it, so this is no protection against a program that
// pretends to be another one; that is what checksums are for.
func origin(program io.ReaderAt) string {
	info, err := buildinfo.Read(program)
	if err != nil || info.Main.Path != ownModule {
		return ""
	}
	return info.Path
}

// profile returns the profile of a plugin's program, and the folder that is its own. program is the
// open program of a plugin that is built with the kit. node is the folder of the local node that a
// program of protocol "exec" works on, or "".
func (h *Host) profile(path string, program io.ReaderAt, node string) (p confine.Profile, own string, err error) {
	b := h.cfg.binary(path)
	if own, err = h.ownFolder(path); err != nil {
		return p, "", err
	}
	p = confine.Profile{
		Dir: "/", Env: append(h.cfg.env(b), "HOME="+own, "TMPDIR="+filepath.Join(own, "tmp")),
		Reads: slices.Concat(h.cfg.Reads, b.Reads, folders(b.Settings)), Writes: append([]string{own}, b.Writes...),
		LargeFiles: len(b.Writes) > 0,
	}
	for _, dir := range append(slices.Clone(h.cfg.Dirs), h.cfg.Bin, filepath.Dir(path)) {
		p.Reads = append(p.Reads, h.readable(dir)...)
	}
	p.Reads = append(p.Reads, path)
	for _, dir := range resourcesOf(h, path) {
		// Only what is there can be granted, and the agent lays out resources in it later.
		pass := h.cfg.Launcher.Pass
		if err := errors.Join(pass(h.cfg.Resources), pass(filepath.Dir(dir)), pass(dir)); err != nil {
			return p, "", fmt.Errorf("create the folder of the plugin's resources: %w", err)
		}
		p.Reads = append(p.Reads, dir)
	}
	nodes, from := []string{node}, ""
	if program != nil {
		from = origin(program)
	}
	if slices.Contains(lasting, from) {
		nodes = h.cfg.Local
	}
	if from == ansible {
		p.Writes = append(p.Writes, "/dev/shm")
	}
	if len(nodes) > 0 && nodes[0] != "" {
		p.Lasting = true
		p.Reads = append(p.Reads, "/opt", "/srv")
		p.Writes = append(append(p.Writes, nodes...), "/dev/shm")
	}
	return p, own, nil
}

// resourcesOf returns the folders with the resources of the types that a plugin's file serves. A type that another file serves is not
// among them, whatever this file says about itself.
func resourcesOf(h *Host, path string) (dirs []string) {
	if h.cfg.Resources == "" {
		return nil
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, p := range h.plugs {
		if p.file.path == path {
			dirs = append(dirs, filepath.Join(h.cfg.Resources, model.ResourceKey{Kind: p.Kind, Plugin: p.Name}.Folder()))
		}
	}
	return dirs
}

// readable returns what plugins read of a folder of programs: all of it, but of the agent's own folder, which may be a user's
// home, the programs in it only.
func (h *Host) readable(dir string) []string {
	switch {
	case dir == "":
		return nil
	case h.cfg.Bin == "" || !sameFolder(dir, h.cfg.Bin):
		return []string{dir}
	}
	entries, _ := os.ReadDir(dir)
	var programs []string
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); isProgram(at) {
			programs = append(programs, at)
		}
	}
	return programs
}

func sameFolder(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// ownFolder creates the folder of a plugin, which is its home and has its temporary files.
func (h *Host) ownFolder(path string) (string, error) {
	name := strings.TrimPrefix(filepath.Base(path), "coopr-")
	sum := sha256.Sum256([]byte(path))
	own := filepath.Join(h.cfg.WorkDir, name+"-"+hex.EncodeToString(sum[:3]))
	l := h.cfg.Launcher
	if err := errors.Join(l.Pass(h.cfg.WorkDir), l.Own(own), l.Own(filepath.Join(own, "tmp"))); err != nil {
		return "", fmt.Errorf("create the plugin's folder: %w", err)
	}
	return own, nil
}

// folders returns the absolute paths in a plugin's settings, which the plugin may read.
func folders(settings json.RawMessage) (out []string) {
	var v any
	if json.Unmarshal(settings, &v) != nil {
		return nil
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case string:
			if filepath.IsAbs(v) {
				out = append(out, v)
			}
		case []any:
			for _, x := range v {
				visit(x)
			}
		case map[string]any:
			for _, x := range v {
				visit(x)
			}
		}
	}
	visit(v)
	return out
}

// refusal returns why a program must not be started on a machine that cannot confine it, or nil.
func (h *Host) refusal(path string, program io.ReaderAt) error {
	if h.cfg.Unconfined || h.cfg.Launcher == nil || h.cfg.Launcher.Grade() != confine.None || program != nil && origin(program) != "" {
		return nil
	}
	return fmt.Errorf("%s is not a plugin of Coopr, and this machine cannot confine it, because its kernel has no Landlock: "+
		"use a newer kernel, or set isolation.unconfined if you trust the plugin", filepath.Base(path))
}

// afterDelete ends the processes of a deleted node of this machine. Its plugin ends only those that it
// can see: Landlock hides the environment of processes that an earlier process of a plugin started.
// A deletion that leaves processes has not succeeded yet.
func (h *Host) afterDelete(t *proto.Task, r *proto.Result) {
	if t.Automator || t.Action != model.Delete.String() || len(h.cfg.Local) == 0 {
		return
	}
	if err := h.endNode(nodeOf(t)); err != nil && r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED {
		r.Outcome, r.Message = proto.Outcome_OUTCOME_RETRYABLE, err.Error()
	}
}

// nodeOf returns the provider's id of a task's node if it is a path, or "".
func nodeOf(t *proto.Task) string {
	var in model.TaskInput
	if json.Unmarshal(t.Input, &in) != nil || in.Config.Results["transport"] != "local" {
		return ""
	}
	dir, _ := in.Config.Results["providerid"].(string)
	return dir
}

// localNode returns the folder of a task's node if it is one of this machine's local nodes, or "".
func (h *Host) localNode(t *proto.Task) string {
	dir := nodeOf(t)
	// Processes of the node may have replaced its folder by a link to another one.
	if resolved, err := filepath.EvalSymlinks(dir); err != nil || resolved != dir || !h.local(dir) {
		return ""
	}
	return dir
}

// local reports whether a path is in a folder of local nodes.
func (h *Host) local(dir string) bool {
	for _, root := range h.cfg.Local {
		if resolved, err := filepath.EvalSymlinks(root); err == nil {
			root = resolved
		}
		if rel, err := filepath.Rel(root, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			return true
		}
	}
	return false
}

// endNode ends the processes of a node of this machine if its folder is gone.
func (h *Host) endNode(dir string) error {
	if !h.local(dir) {
		return nil
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if left := killMarked(func(environ []byte) bool { return hasVariable(environ, "COOPR_NODE_DIR", dir) }); len(left) > 0 {
		return fmt.Errorf("processes %v of the deleted node %s were killed and do not end: "+
			"they may wait for a device or a network file system", left, dir)
	}
	return nil
}
