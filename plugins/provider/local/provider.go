package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/local/machine"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// stopGrace is how long a node's processes have between TERM and KILL.
const stopGrace = 5 * time.Second

// Provider makes nodes that are folders.
type Provider struct {
	defaultRoot string
	program     string // the program coopr-node
}

// New gives a provider. defaultRoot is where nodes are made unless the
// provider's field root says otherwise; program is the path of coopr-node, or
// of a program that behaves as it does when called by that name.
func New(defaultRoot, program string) *Provider {
	return &Provider{defaultRoot: defaultRoot, program: program}
}

// Describe gives the descriptor.
func (p *Provider) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "local", Label: "This machine", Description: "Nodes are folders with processes on the agent's own machine"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"root": {Label: "Root folder", Type: "text", Tip: "Absolute path of the folder for nodes; empty: the agent's data folder"},
		}}},
		Actions:    map[string]string{"create": "observe", "confirm": "idempotent", "delete": "idempotent"},
		PerMachine: true,
	}
}

// Validate checks the root folder.
func (p *Provider) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	var faults model.Faults
	if root, given := fields["root"]; given && scope == sdk.ScopeAdmin && root != "" {
		if s, ok := root.(string); !ok {
			faults.Add("root", "must be text")
		} else if err := checkRoot(s); err != nil {
			faults.Add("root", err.Error())
		}
	}
	return faults
}

// Create makes the node's folder and gives it an address. A node that exists
// already is given back as it is.
func (p *Provider) Create(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	at, err := p.place(t)
	if err != nil {
		return nil, err
	}
	defer at.close()
	if out, err := at.existing(t); out != nil || err != nil {
		return out, err
	}
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	address, err := allocate(at.root, at.base, at.name, t.Fence)
	if err != nil {
		return nil, fmt.Errorf("reserve an address: %w", err)
	}
	r := &Record{
		Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Node: t.Node, Number: int(in.Config.NodeNum), Hostname: in.Config.Hostname,
		Address: address, Zone: in.Config.Zone, Host: in.Config.Host, Operation: t.Operation, Fence: t.Fence,
	}
	if r.Hostname == "" {
		r.Hostname = fmt.Sprintf("%s-%d.local", t.Cluster, r.Number)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Made aside, it becomes the node by one rename.
	aside := path.Join(workDir, fmt.Sprintf("%s-%d-%d", t.Cluster, r.Number, t.Fence))
	err = p.build(at.root, aside, r)
	if err == nil {
		if err = at.root.Mkdir(t.Cluster, 0o755); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = at.root.Rename(aside, at.name)
	}
	if err == nil {
		t.Logf("made node %s with address %s", at.dir(), address)
		return r.output(at.dir()), nil
	}
	_ = at.root.RemoveAll(aside)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return at.existing(t) // another attempt was faster
	}
	return nil, fmt.Errorf("make node %s: %w", at.dir(), err)
}

// existing gives the output of the task's node if it is there.
func (at *place) existing(t *sdk.Task) (*sdk.Output, error) {
	r, err := read(at.root, at.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Node != t.Node || r.Mesh != t.Mesh {
		return nil, sdk.NothingDone(fmt.Errorf("%s is the folder of node %s (operation %s), not of node %s: delete that one first", at.dir(),
			r.Node, r.Operation, t.Node))
	}
	return r.output(at.dir()), nil
}

// build makes a node's folder.
func (p *Provider) build(root *os.Root, name string, r *Record) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	for _, d := range []string{name, path.Join(name, "bin"), path.Join(name, "run"), path.Join(name, "logs")} {
		if err := root.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if p.program != "" {
		if err := root.Symlink(p.program, path.Join(name, "bin", "coopr-node")); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return root.WriteFile(path.Join(name, recordName), append(b, '\n'), 0o644)
}

// Observe gives the node if it exists.
func (p *Provider) Observe(_ context.Context, t *sdk.Task) (*sdk.Output, error) {
	at, err := p.place(t)
	if err != nil {
		return nil, err
	}
	defer at.close()
	out, err := at.existing(t)
	if err == nil && out == nil {
		err = sdk.ErrNotFound
	}
	return out, err
}

// Confirm checks that the node is there.
func (p *Provider) Confirm(_ context.Context, t *sdk.Task) (*sdk.Output, error) {
	at, err := p.place(t)
	if err != nil {
		return nil, err
	}
	defer at.close()
	out, err := at.existing(t)
	if err == nil && out == nil {
		err = fmt.Errorf("node %s is not there any more", at.dir())
	}
	return out, err
}

// Delete ends the node's processes and removes its folder and address.
func (p *Provider) Delete(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	at, err := p.place(t)
	if err != nil {
		return nil, err
	}
	defer at.close()
	r, err := read(at.root, at.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Made in part, deleted in part, or deleted before: some of it, the
		// address above all, may still be there.
		if err := machine.Sweep(ctx, at.dir()); err != nil {
			return nil, err
		}
		if err := at.root.RemoveAll(at.gone()); err != nil {
			return nil, err
		}
		if address, ok := reserved(at.root, at.base, at.name); ok {
			return nil, release(at.root, address, at.name)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case r.Node != t.Node || r.Mesh != t.Mesh:
		t.Logf("%s belongs to node %s: there is nothing to delete", at.dir(), r.Node)
		return nil, nil
	}
	if err := at.remove(ctx, r); err != nil {
		return nil, err
	}
	t.Logf("removed node %s", at.dir())
	return nil, nil
}

// gone is where a node's folder is while it is being removed.
func (at *place) gone() string {
	return path.Join(workDir, strings.ReplaceAll(at.name, "/", "-")+".gone")
}

// remove ends a node's processes and removes its folder and address.
func (at *place) remove(ctx context.Context, r *Record) error {
	gone := at.gone()
	if err := machine.Shutdown(ctx, at.dir(), stopGrace); err != nil {
		return err
	}
	// Taken aside by one rename, it is no node any more, whatever comes next.
	if err := at.root.RemoveAll(gone); err != nil {
		return err
	}
	if err := at.root.Rename(at.name, gone); err != nil {
		return fmt.Errorf("remove node %s: %w", at.dir(), err)
	}
	// A script may have started something in the meantime.
	err := errors.Join(machine.Sweep(ctx, at.dir()), machine.Sweep(ctx, filepath.Join(at.base, gone)))
	if err == nil {
		err = at.root.RemoveAll(gone)
	}
	if err == nil {
		err = release(at.root, r.Address, at.name)
	}
	if err != nil {
		return fmt.Errorf("remove node %s: %w", at.dir(), err)
	}
	// The last node takes the cluster's folder along.
	_ = at.root.Remove(path.Dir(at.name))
	return nil
}

// Remove removes a listed node by its folder.
func (p *Provider) Remove(ctx context.Context, req sdk.ListRequest, x sdk.Resource) error {
	root, base, err := p.open(req.Fields)
	if err != nil {
		return err
	}
	defer root.Close()
	name, err := filepath.Rel(base, x.ID)
	if err != nil || !filepath.IsLocal(name) || path.Dir(path.Dir(name)) != "." {
		return nil // of another agent's root
	}
	at := &place{base: base, root: root, name: name}
	r, err := read(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case r.Node != x.Node || r.Cluster != x.Cluster || r.Mesh != req.Mesh:
		return fmt.Errorf("%s is another node's now: %s of cluster %s", x.ID, r.Node, r.Cluster)
	}
	return at.remove(ctx, r)
}

// List gives every node below the root.
func (p *Provider) List(_ context.Context, req sdk.ListRequest, found func(sdk.Resource) error) error {
	root, base, err := p.open(req.Fields)
	if err != nil {
		return err
	}
	defer root.Close()
	clusters, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, c := range clusters {
		if !c.IsDir() || strings.HasPrefix(c.Name(), ".") || req.Cluster != "" && c.Name() != req.Cluster {
			continue
		}
		nodes, err := fs.ReadDir(root.FS(), c.Name())
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if _, err := strconv.Atoi(n.Name()); err != nil || !n.IsDir() {
				continue
			}
			name := path.Join(c.Name(), n.Name())
			r, err := read(root, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted just now, or not ours
			}
			if err != nil {
				return err
			}
			if req.Tenant != "" && r.Tenant != req.Tenant || req.Mesh != "" && r.Mesh != req.Mesh {
				continue
			}
			dir := filepath.Join(base, name)
			if err := found(sdk.Resource{Cluster: r.Cluster, Node: r.Node, Fence: r.Fence, ID: dir, Output: r.output(dir)}); err != nil {
				return err
			}
		}
	}
	return nil
}
