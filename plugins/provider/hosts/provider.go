package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// Version is the plugin's version.
const Version = "1.0.0"

const (
	// scriptType is the type of the resources that the field reset may name.
	scriptType = "scripts"
	// parallel is how many machines are contacted at once.
	parallel = 16
	// patience is how long one machine may take to return its claim.
	patience = 30 * time.Second
)

// Provider hands out the machines of an inventory and takes them back.
type Provider struct {
	pool *ssh.Pool
	keys ssh.Keys
	hunt hunt
}

// New returns a provider, which the caller closes. keys are the folders of private keys for the
// field ssh_identityfile.
func New(keys ssh.Keys) *Provider {
	return &Provider{pool: ssh.New(ssh.Config{}), keys: keys, hunt: hunt{busy: map[string]time.Time{}}}
}

// Close closes all connections.
func (p *Provider) Close() { p.pool.Close() }

// Describe returns the descriptor.
func (p *Provider) Describe() model.PluginType {
	return model.PluginType{
		Base: model.Base{Name: "hosts", Label: "Existing machines",
			Description: "Machines of an inventory that are reached over SSH, handed out and taken back"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"inventory": {Label: "Inventory", Type: "text", Tip: "One machine per line: ADDRESS [name=… internal=… port=… flavor=… image=… " +
					"zone=… user=… hostkey=TYPE:BASE64]; or a list of such objects"},
				"ssh_user":         {Label: "SSH user", Type: "text", Tip: "root, or a user with sudo", Default: "root"},
				"ssh_identityfile": {Label: "SSH key file", Type: "text", Tip: "Name of a private key in the key folders of the plugins' settings"},
				"ssh_private_key":  {Label: "SSH private key", Type: "password", Tip: "The key itself, instead of a file"},
				"ssh_password":     {Label: "SSH password", Type: "password"},
				"ssh_port":         {Label: "SSH port", Type: "text", Default: "22"},
				"ssh_dir":          {Label: "Folder on machines", Type: "text", Default: ssh.DefaultDir},
				"ssh_jump":         {Label: "Jump hosts", Type: "text", Tip: "A list of objects: address, ssh-auth, ssh_host_keys"},
				"zones": {Label: "Zones", Type: "text", Tip: "Comma-separated zones of the inventory's machines, over which nodes are spread",
					Override: true},
				"reset": {Label: "Reset script", Type: "text", Tip: "Resets a machine that is taken back: a script that begins with #!, or the name " +
					"of a resource; an exit status other than 0 sets the machine aside"},
			},
			Required: [][]string{{"inventory"}},
		}},
		ResourceTypes: map[string]model.ResourceType{scriptType: {Format: "file", Permissions: "0755"}},
		Actions:       map[string]string{"create": "observe", "confirm": "idempotent", "delete": "idempotent"},
	}
}

// Validate checks the fields.
func (p *Provider) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	if scope != sdk.ScopeAdmin {
		return nil
	}
	s, faults := parse(fields)
	if len(faults) == 0 {
		if _, err := ssh.JumpsOf(s.jumps, p.keys); err != nil {
			faults.Add("ssh_jump", err.Error())
		}
	}
	return faults
}

// read parses a task's fields.
func read(fields map[string]any) (*settings, error) {
	s, faults := parse(fields)
	if err := faults.Err(); err != nil {
		return nil, sdk.Fatal(fmt.Errorf("fields of the provider: %w", err))
	}
	return s, nil
}

// host returns a machine with its connection, and its host keys. known are host keys from an
// earlier contact.
func (p *Provider) host(ctx context.Context, s *settings, m *machine, known []gossh.PublicKey) (*host, []gossh.PublicKey, error) {
	t, err := s.target(m, p.keys)
	if err != nil {
		return nil, nil, err
	}
	if len(t.HostKeys) == 0 {
		t.HostKeys = known
	}
	if len(t.HostKeys) == 0 {
		key, err := p.pool.Learn(ctx, t)
		if err != nil {
			return nil, nil, fmt.Errorf("machine %s: %w", m.Name, err)
		}
		t.HostKeys = []gossh.PublicKey{key}
	}
	return &host{machine: m, node: p.pool.Node(t), dir: cmp.Or(t.Dir, ssh.DefaultDir)}, t.HostKeys, nil
}

// mine returns the claim for a task's node.
func mine(t *sdk.Task) *claim {
	return &claim{Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Node: t.Node, Fence: t.Fence, Task: t.ID}
}

// output returns the task's output for a machine.
func (s *settings) output(m *machine, keys []gossh.PublicKey) *sdk.Output {
	r := s.results(m)
	r.HostKeys = keys
	result := r.Map()
	result["providerid"] = m.Name
	if m.Zone != "" {
		result["zone"] = m.Zone
	}
	if s.jumps != nil {
		result["ssh_jump"] = s.jumps
	}
	return &sdk.Output{IPAddresses: map[string]string{"access_v4": m.Address, "bind_v4": m.Internal}, Result: result}
}

// Create hands out a machine: the first free one that fits, in the node's own order.
func (p *Provider) Create(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	s, err := read(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, err
	}
	var taken, unfit int
	var away []error
	left := order(s.machines, t.Node)
	left = slices.DeleteFunc(left, func(m machine) bool { return !m.fits(&in.Config) })
	unfit = len(s.machines) - len(left)
	for len(left) > 0 {
		var m machine
		m, left = p.hunt.next(left)
		h, held, keys, err := p.try(ctx, s, &m, mine(t))
		if err == nil && held.of(t) && !held.by(t) {
			// The node has had this machine before, and it was left behind without a reset.
			t.Logf("machine %s belonged to node %s before", m.Name, t.Node)
			if err = p.takeBack(ctx, t, s, h, held); err == nil {
				_, held, keys, err = p.try(ctx, s, &m, mine(t))
			}
		}
		switch {
		case errors.Is(err, errUncertain):
			// The machine may be claimed now, so the next attempt observes first.
			return nil, sdk.Unknown(err)
		case ctx.Err() != nil:
			return nil, sdk.NothingDone(context.Cause(ctx))
		case err != nil:
			t.Logf("skipped: %v", err)
			away = append(away, err)
		case held.by(t):
			t.Logf("machine %s is claimed for node %s", m.Name, t.Node)
			return s.output(&m, keys), nil
		default:
			taken++
		}
	}
	err = fmt.Errorf("no machine of the inventory is free: of %d, %d are in use or set aside, %d have another flavor, image or zone, "+
		"%d cannot be reached", len(s.machines), taken, unfit, len(away))
	if len(away) > 0 {
		err = fmt.Errorf("%w; the first error: %w", err, away[0])
	}
	return nil, sdk.NothingDone(err)
}

// errUncertain means that a machine may have been claimed.
var errUncertain = errors.New("the machine may have been claimed")

// try claims a machine and returns the claim that is in force.
func (p *Provider) try(ctx context.Context, s *settings, m *machine, c *claim) (*host, *claim, []gossh.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h, keys, err := p.host(ctx, s, m, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	held, err := h.take(ctx, c)
	if errors.Is(err, remote.ErrLost) || err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errUncertain, err)
	}
	return h, held, keys, err
}

// survey contacts all machines, several at a time. It calls found for each one with a claim, and
// away for each error.
func (p *Provider) survey(ctx context.Context, s *settings, found func(*host, []gossh.PublicKey, *claim) error, away func(error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex // serialises found and away
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range s.machines {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			patient, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			h, keys, err := p.host(patient, s, &s.machines[i], nil)
			var c *claim
			if err == nil {
				c, err = h.read(patient)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				away(err)
			case c != nil:
				if err := found(h, keys, c); err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Observe returns the machine that an earlier attempt of the task has claimed, or, for a check, the
// node's machine. If several attempts have claimed machines, the latest is kept and the others are
// released. Machines that the node had before do not count.
func (p *Provider) Observe(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	s, err := read(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, err
	}
	type held struct {
		host  *host
		keys  []gossh.PublicKey
		claim *claim
	}
	var ours []held
	// A check is about the node's current machine, whichever task claimed it.
	check := t.Action == model.Check.String()
	name, _ := in.Config.Results["providerid"].(string)
	err = p.survey(ctx, s, func(h *host, keys []gossh.PublicKey, c *claim) error {
		if c.by(t) || check && c.of(t) && h.Name == name {
			ours = append(ours, held{h, keys, c})
		}
		return nil
	}, func(err error) { t.Logf("the owner of a machine is unknown: %v", err) })
	if err != nil {
		return nil, err
	}
	if len(ours) == 0 {
		return nil, sdk.ErrNotFound
	}
	slices.SortFunc(ours, func(a, b held) int { return cmp.Compare(b.claim.Fence, a.claim.Fence) })
	for _, extra := range ours[1:] {
		t.Logf("machine %s was claimed as well: released", extra.host.Name)
		if err := extra.host.drop(ctx, extra.claim); err != nil {
			return nil, err
		}
	}
	return s.output(ours[0].host.machine, ours[0].keys), nil
}

// of returns the machine of a task's node, or nil if the inventory lacks it, and the host keys that
// were recorded at its creation.
func (p *Provider) of(t *sdk.Task) (*settings, *machine, []gossh.PublicKey, error) {
	in, err := t.Input()
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := read(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, nil, nil, err
	}
	name, _ := in.Config.Results["providerid"].(string)
	keys, err := ssh.ParseHostKeys(in.Config.Results["ssh_host_keys"])
	if err != nil {
		return nil, nil, nil, sdk.Fatal(err)
	}
	for i := range s.machines {
		if s.machines[i].Name == name {
			return s, &s.machines[i], keys, nil
		}
	}
	return s, nil, keys, nil
}

// Confirm waits until the node's machine is ready for work over SSH, and checks that the claim on
// the machine still names the node.
func (p *Provider) Confirm(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	s, m, known, err := p.of(t)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, sdk.Fatal(fmt.Errorf("the machine of node %s is missing from the inventory: add it again, or delete the node", t.Node))
	}
	target, err := s.target(m, p.keys)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	if len(target.HostKeys) == 0 {
		target.HostKeys = known
	}
	key, err := p.pool.WaitReady(ctx, target, func(line string) { t.Logf("%s", line) })
	if errors.Is(err, ssh.ErrHostKey) {
		return nil, sdk.Fatal(err)
	}
	if err != nil {
		return nil, err
	}
	h, keys, err := p.host(ctx, s, m, []gossh.PublicKey{key})
	if err != nil {
		return nil, err
	}
	c, err := h.read(ctx)
	if err != nil {
		return nil, err
	}
	if c == nil || !c.of(t) {
		return nil, sdk.Fatal(fmt.Errorf("machine %s is no longer claimed for node %s: its file %s/claim.json is gone or names "+
			"another node; delete the node", m.Name, t.Node, h.dir))
	}
	return s.output(m, keys), nil
}

// Delete takes the node's machine back: it is reset and released, or set aside. If the machine does
// not respond to a second attempt either, it is left behind.
func (p *Provider) Delete(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	s, m, known, err := p.of(t)
	if err != nil {
		return nil, err
	}
	if m != nil {
		h, _, err := p.host(ctx, s, m, known)
		var c *claim
		if err == nil {
			c, err = h.read(ctx)
		}
		if err != nil && t.Attempt > 1 && ctx.Err() == nil && !errors.Is(err, ssh.ErrHostKey) && !errors.Is(err, ssh.ErrAuth) {
			// The claim stays, so the machine is not handed out; it is an orphan once it responds
			// again.
			t.Logf("machine %s does not respond and is left behind: %v", m.Name, err)
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if c == nil || !c.of(t) {
			t.Logf("machine %s does not belong to node %s: nothing to take back", h.Name, t.Node)
			return nil, nil
		}
		return nil, p.takeBack(ctx, t, s, h, c)
	}
	// The node's machine is unknown: the answer to a create was lost, or the inventory has changed.
	err = p.survey(ctx, s, func(h *host, _ []gossh.PublicKey, c *claim) error {
		if !c.of(t) {
			return nil
		}
		return p.takeBack(ctx, t, s, h, c)
	}, func(err error) { t.Logf("the owner of a machine is unknown: %v", err) })
	return nil, err
}

// takeBack resets a machine with the claim of a task's node, then releases it or sets it aside.
func (p *Provider) takeBack(ctx context.Context, t *sdk.Task, s *settings, h *host, c *claim) error {
	if s.reset != "" {
		script, err := t.Script(scriptType, s.reset)
		if err != nil {
			return err
		}
		refused, err := h.reset(ctx, t, script)
		if err != nil {
			return err
		}
		if refused != "" {
			t.Logf("machine %s is set aside: %s. Remove %s/claim.json on it once it can be used again", h.Name, refused, h.dir)
			return h.refuse(ctx, refused)
		}
	}
	if err := h.drop(ctx, c); err != nil {
		return err
	}
	p.hunt.free(h.machine)
	t.Logf("machine %s is released", h.Name)
	return nil
}

// reset runs the operator's script. It returns the reason why the machine is refused, or "".
func (h *host) reset(ctx context.Context, t *sdk.Task, script string) (refused string, err error) {
	path, remove, err := h.node.Secret(ctx, []byte(script+"\n"))
	if err != nil {
		return "", err
	}
	defer remove()
	// The script's first line names its interpreter.
	exit, err := h.node.Run(ctx, remote.Command{
		Args: []string{"/bin/sh", "-c", `i=$(head -n 1 "$1"); exec ${i#\#!} "$1"`, "sh", path}, Dir: "/",
		Env: []string{"PATH=" + h.node.Path(), "LANG=C.UTF-8", "COOPR_CLUSTER=" + t.Cluster, "COOPR_NODE=" + t.Node,
			"COOPR_NODE_DIR=" + h.dir},
		Stdout: t.Stdout(), Stderr: t.Stderr(),
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("reset machine %s: %w", h.Name, err)
	case exit.Signal != "":
		return "", fmt.Errorf("reset machine %s: the script was ended by a signal: %s", h.Name, exit.Signal)
	case exit.Code != 0:
		return fmt.Sprintf("the reset script failed with exit status %d", exit.Code), nil
	}
	return "", nil
}

// List returns every machine with an owner.
func (p *Provider) List(ctx context.Context, req sdk.ListRequest, found func(sdk.Resource) error) error {
	s, err := read(req.Fields)
	if err != nil {
		return err
	}
	var away []error
	err = p.survey(ctx, s, func(h *host, keys []gossh.PublicKey, c *claim) error {
		if c.Refused != "" || req.Mesh != "" && c.Mesh != req.Mesh || req.Tenant != "" && c.Tenant != req.Tenant ||
			req.Cluster != "" && c.Cluster != req.Cluster {
			return nil
		}
		return found(sdk.Resource{Cluster: c.Cluster, Node: c.Node, Fence: c.Fence, ID: h.Name, Output: s.output(h.machine, keys)})
	}, func(err error) { away = append(away, err) })
	if err == nil && len(away) > 0 {
		return fmt.Errorf("%d of %d machines of the inventory cannot be reached; the first error: %w", len(away), len(s.machines), away[0])
	}
	return err
}

// Remove takes back a listed machine that belongs to no node.
func (p *Provider) Remove(ctx context.Context, req sdk.ListRequest, x sdk.Resource) error {
	s, err := read(req.Fields)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.machines, func(m machine) bool { return m.Name == x.ID })
	if i < 0 {
		return fmt.Errorf("machine %s is missing from the inventory: add it again", x.ID)
	}
	h, _, err := p.host(ctx, s, &s.machines[i], nil)
	if err != nil {
		return err
	}
	c, err := h.read(ctx)
	t := sdk.NewTask(&proto.Task{Tenant: req.Tenant, Mesh: req.Mesh, Cluster: x.Cluster, Node: x.Node, Fence: x.Fence,
		ResourcesDir: req.Resources}, nil, nil)
	if err != nil || c == nil || !c.of(t) || c.Fence > x.Fence {
		return err // the machine may have been claimed again since it was listed
	}
	return p.takeBack(ctx, t, s, h, c)
}

var (
	_ sdk.Provider  = (*Provider)(nil)
	_ sdk.Observer  = (*Provider)(nil)
	_ sdk.Validator = (*Provider)(nil)
	_ sdk.Remover   = (*Provider)(nil)
)
