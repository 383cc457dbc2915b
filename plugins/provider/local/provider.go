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

// stopGrace is the time between TERM and KILL for a node's processes.
const stopGrace = 5 * time.Second

// Provider creates nodes that are folders.
type Provider struct {
	defaultRoot string
	program     string // path of coopr-node
}

// New returns a provider. defaultRoot is the folder of nodes, unless the provider's field root
// names another. program is the path of coopr-node, or of a program that acts as coopr-node when
// called by that name.
func New(defaultRoot, program string) *Provider {
	return &Provider{defaultRoot: defaultRoot, program: program}
}

// Describe returns the descriptor.
func (p *Provider) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "local", Label: "This machine", Description: "Nodes are folders with processes on the agent's machine"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"root": {Label: "Root folder", Type: "text", Tip: "Absolute path of the folder for nodes; default: within the agent's data folder"},
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

// Create creates the node's folder and reserves its address. An existing node is returned
// unchanged.
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
	// The folder is built under another name and becomes the node by one rename.
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
		t.Logf("created node %s with address %s", at.dir(), address)
		return r.output(at.dir()), nil
	}
	_ = at.root.RemoveAll(aside)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return at.existing(t) // another attempt was faster
	}
	return nil, fmt.Errorf("create node %s: %w", at.dir(), err)
}

// existing returns the output of the task's node, or nil if it does not exist.
func (at *place) existing(t *sdk.Task) (*sdk.Output, error) {
	r, err := read(at.root, at.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Node != t.Node || r.Mesh != t.Mesh {
		return nil, sdk.NothingDone(fmt.Errorf("%s is the folder of node %s (operation %s), not of node %s: delete that node first", at.dir(),
			r.Node, r.Operation, t.Node))
	}
	return r.output(at.dir()), nil
}

// build creates a node's folder.
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

// Observe returns the node if it exists.
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

// Confirm checks that the node exists.
func (p *Provider) Confirm(_ context.Context, t *sdk.Task) (*sdk.Output, error) {
	at, err := p.place(t)
	if err != nil {
		return nil, err
	}
	defer at.close()
	out, err := at.existing(t)
	if err == nil && out == nil {
		err = fmt.Errorf("node %s does not exist any more", at.dir())
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
		// The node was created or deleted only in part, or deleted before. Parts of it may remain,
		// in particular its address.
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
		t.Logf("%s belongs to node %s: nothing to delete", at.dir(), r.Node)
		return nil, nil
	}
	if err := at.remove(ctx, r); err != nil {
		return nil, err
	}
	t.Logf("removed node %s", at.dir())
	return nil, nil
}

// gone returns the path of a node's folder while it is being removed.
func (at *place) gone() string {
	return path.Join(workDir, strings.ReplaceAll(at.name, "/", "-")+".gone")
}

// remove ends a node's processes and removes its folder and address.
func (at *place) remove(ctx context.Context, r *Record) error {
	gone := at.gone()
	if err := machine.Shutdown(ctx, at.dir(), stopGrace); err != nil {
		return err
	}
	// After one rename the folder is not a node any more, even if the removal stops here.
	if err := at.root.RemoveAll(gone); err != nil {
		return err
	}
	if err := at.root.Rename(at.name, gone); err != nil {
		return fmt.Errorf("remove node %s: %w", at.dir(), err)
	}
	// A script may have started a process meanwhile.
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
	// With its last node, the cluster's folder is removed as well.
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
		return nil // it lies in another root
	}
	at := &place{base: base, root: root, name: name}
	r, err := read(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case r.Node != x.Node || r.Cluster != x.Cluster || r.Mesh != req.Mesh:
		return fmt.Errorf("%s belongs to another node now: %s of cluster %s", x.ID, r.Node, r.Cluster)
	}
	return at.remove(ctx, r)
}

// List returns every node below the root.
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
				continue // deleted meanwhile, or not a node
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
