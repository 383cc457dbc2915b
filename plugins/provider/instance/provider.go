package instance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// scriptType is the type of the resources that the field boot_script may name.
const scriptType = "scripts"

// Config describes a Provider.
type Config struct {
	// Type is the descriptor with the cloud's own fields; the common ones are added.
	Type model.PluginType
	// Open decodes the fields and returns their cloud, without a request to it. It adds faults of
	// the fields to their Faults. A Cloud that is an io.Closer is closed by the Provider.
	Open func(*Fields) Cloud
	// Keys are the folders of private keys for the field ssh_identityfile.
	Keys ssh.Keys
	// Poll is the first interval at which a changing machine is polled; default one second.
	Poll time.Duration
}

// Provider is a provider of rented machines.
type Provider struct {
	cfg  Config
	keys ssh.Keys
	pool *ssh.Pool
	// guard checks the addresses of clouds; nil: none is refused.
	guard *Guard

	mu     sync.Mutex
	clouds map[string]Cloud // by their fields, as JSON
}

// New returns a provider, which the caller closes.
func New(cfg Config) *Provider {
	cfg.Poll = cmp.Or(cfg.Poll, time.Second)
	fields := commonFields()
	maps.Copy(fields, cfg.Type.Parameters.Admin.Fields)
	cfg.Type.Parameters.Admin.Fields = fields
	cfg.Type.ResourceTypes = map[string]model.ResourceType{scriptType: {Format: "file", Permissions: "0755"}}
	cfg.Type.Actions = map[string]string{"create": "observe", "confirm": "idempotent", "delete": "idempotent"}
	return &Provider{cfg: cfg, keys: cfg.Keys, pool: ssh.New(ssh.Config{}), clouds: map[string]Cloud{}}
}

// Protect makes g check the addresses of all clouds. It is called before any other method.
func (p *Provider) Protect(g *Guard) { p.guard = g }

// Close closes all connections.
func (p *Provider) Close() {
	defer p.guard.close()
	p.pool.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
}

// forget closes the open clouds.
func (p *Provider) forget() {
	for _, c := range p.clouds {
		if c, ok := c.(io.Closer); ok {
			_ = c.Close()
		}
	}
	clear(p.clouds)
}

// Describe returns the descriptor.
func (p *Provider) Describe() model.PluginType { return p.cfg.Type }

// Validate checks the fields.
func (p *Provider) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	if scope != sdk.ScopeAdmin {
		return nil
	}
	f := &Fields{Values: fields, Guard: p.guard}
	if c, ok := p.cfg.Open(f).(io.Closer); ok {
		_ = c.Close()
	}
	f.common()
	return f.Faults
}

// maxClouds bounds the number of open clouds.
const maxClouds = 64

// open returns the cloud of a provider's fields.
func (p *Provider) open(fields map[string]any) (Cloud, *common, error) {
	f := &Fields{Values: fields, Guard: p.guard}
	c := f.common()
	key, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, sdk.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cloud := p.clouds[string(key)]
	if cloud == nil {
		cloud = p.cfg.Open(f)
	}
	if err := f.Faults.Err(); err != nil {
		return nil, nil, sdk.Fatal(fmt.Errorf("fields of the provider: %w", err))
	}
	if len(p.clouds) >= maxClouds {
		p.forget()
	}
	p.clouds[string(key)] = cloud
	return cloud, c, nil
}

// at is a task's node in its cloud.
type at struct {
	in     *model.TaskInput
	cloud  Cloud
	common *common
	tags   Tags
	name   string
}

func (p *Provider) at(t *sdk.Task) (*at, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	cloud, common, err := p.open(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, err
	}
	return &at{in, cloud, common, Tags{Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Node: t.Node},
		name(t.Mesh, t.Cluster, int(in.Config.NodeNum))}, nil
}

// machines returns the node's machines, beginning with that of the earliest attempt.
func (a *at) machines(ctx context.Context) ([]Machine, error) {
	ms, err := a.cloud.List(ctx, a.tags)
	if err != nil {
		return nil, told("find machine "+a.name, err, false)
	}
	slices.SortStableFunc(ms, func(x, y Machine) int {
		return cmp.Or(cmp.Compare(x.Tags.Fence, y.Tags.Fence), x.Created.Compare(y.Created), cmp.Compare(x.ID, y.ID))
	})
	return ms, nil
}

// Create requests the node's machine, or adopts an existing one.
func (p *Provider) Create(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	out, err := p.adopt(ctx, a, t)
	if err == nil || !errors.Is(err, sdk.ErrNotFound) {
		return out, err
	}
	k, err := p.access(a, t)
	if err != nil {
		return nil, err
	}
	if k == nil {
		if k, err = newKey(); err != nil {
			return nil, sdk.NothingDone(err)
		}
		// The key is saved before the machine exists, because the task's answer may be lost.
		if err := t.Save(savedKey, k.private); err != nil {
			return nil, sdk.NothingDone(err)
		}
	}
	c := &a.in.Config
	tags := a.tags
	tags.Fence, tags.Key = t.Fence, k.fingerprint()
	s := &Spec{
		Name: a.name, Hostname: cmp.Or(c.Hostname, a.name), Tags: tags, Token: token(a.name, tags), Flavor: c.Flavor, Image: c.Image,
		Zone: c.Zone, PublicKey: k.authorized(), User: a.common.user,
	}
	boot := ""
	if a.common.boot != "" {
		if boot, err = t.Script(scriptType, a.common.boot); err != nil {
			return nil, err
		}
	}
	if s.UserData, err = a.common.userData(k, s.Hostname, boot); err != nil {
		return nil, sdk.NothingDone(err)
	}
	if s.Image == "" {
		return nil, sdk.Fatal(errors.New("the image type has no image for this provider (providermap: image)"))
	}
	m, err := a.cloud.Create(ctx, s)
	if err != nil {
		return nil, told("create machine "+a.name, err, true)
	}
	t.Logf("created machine %s (%s)", m.Name, m.ID)
	return a.output(m, k, nil), nil
}

// Observe returns the node's machine, if there is one.
func (p *Provider) Observe(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	if t.Action == model.Create.String() {
		return p.adopt(ctx, a, t)
	}
	// A check changes nothing: it only reports whether the machine exists.
	ms, err := a.machines(ctx)
	if err != nil {
		return nil, err
	}
	if len(ms) == 0 {
		return nil, sdk.ErrNotFound
	}
	return &sdk.Output{Result: map[string]any{"providerid": ms[0].ID}}, nil
}

// adopt takes over the machine of an earlier attempt at CREATE. Nothing runs on it yet, so machines
// that cannot be used are removed.
func (p *Provider) adopt(ctx context.Context, a *at, t *sdk.Task) (*sdk.Output, error) {
	ms, err := a.machines(ctx)
	if err != nil {
		return nil, err
	}
	k, err := p.access(a, t)
	if err != nil {
		return nil, err
	}
	var mine *Machine
	var rest []Machine
	for _, m := range ms {
		if mine == nil && m.State != Failed && k != nil && m.Tags.Key == k.fingerprint() {
			mine = &m
		} else {
			rest = append(rest, m)
		}
	}
	if len(rest) > 0 {
		t.Logf("%d machines of earlier attempts cannot be used: removing them", len(rest))
		if err := p.end(ctx, a.cloud, rest, a.tags); err != nil {
			return nil, err
		}
	}
	if mine == nil {
		return nil, sdk.ErrNotFound
	}
	t.Logf("machine %s (%s) exists already", mine.Name, mine.ID)
	return a.output(mine, k, nil), nil
}

// addresses returns the addresses that agents and other nodes use for a machine.
func (c *common) addresses(m *Machine) (access, bind string) {
	access = cmp.Or(m.Public, m.Private)
	if c.private {
		access = cmp.Or(m.Private, m.Public)
	}
	return access, cmp.Or(m.Private, m.Public)
}

// output returns the task's output for a machine.
func (a *at) output(m *Machine, k *access, hostKeys []gossh.PublicKey) *sdk.Output {
	r := ssh.Results{User: a.common.user, Identity: k.identity, PrivateKey: k.private, HostKeys: hostKeys, Port: a.common.port,
		Dir: a.common.dir}
	out := &sdk.Output{Result: r.Map()}
	out.Result["providerid"] = m.ID
	if len(hostKeys) == 0 {
		out.Result["ssh_host_keys"] = nil // removes the host keys of an earlier machine of the node
	}
	if m.Zone != "" {
		out.Result["zone"] = m.Zone
	}
	if access, bind := a.common.addresses(m); access != "" {
		out.IPAddresses = map[string]string{"access_v4": access, "bind_v4": bind}
		if m.Public != "" {
			out.IPAddresses["public"] = m.Public
		}
	}
	return out
}

// errLate ends the wait for a machine that has less time than its task.
var errLate = errors.New("the time is over")

// Confirm waits until the machine runs and can be worked on.
func (p *Provider) Confirm(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	if a.common.within == 0 {
		return p.confirm(ctx, a, t)
	}
	limited, cancel := context.WithTimeoutCause(ctx, a.common.within, errLate)
	defer cancel()
	out, err := p.confirm(limited, a, t)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, sdk.Fatal(fmt.Errorf("machine %s was not ready within %s (ready_within): %w", a.name, a.common.within, err))
	}
	return out, err
}

func (p *Provider) confirm(ctx context.Context, a *at, t *sdk.Task) (*sdk.Output, error) {
	k, err := p.access(a, t)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, sdk.Fatal(fmt.Errorf("the key of machine %s is lost, with the results of its creation: delete the node "+
			"and create it again", a.name))
	}
	known, err := ssh.ParseHostKeys(a.in.Config.Results["ssh_host_keys"])
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	id, _ := a.in.Config.Results["providerid"].(string)
	m, second, err := p.await(ctx, a, t, id)
	if err != nil {
		return nil, err
	}
	if len(second) > 0 {
		t.Logf("removing %d surplus machines of the node, which late attempts have created", len(second))
		if err := p.end(ctx, a.cloud, second, a.tags); err != nil {
			return nil, err
		}
	}
	key, err := p.pool.WaitReady(ctx, a.target(m, k, known), func(line string) { t.Logf("%s", line) })
	if errors.Is(err, ssh.ErrHostKey) {
		return nil, sdk.Fatal(err)
	}
	if err != nil {
		return nil, err
	}
	return a.output(m, k, []gossh.PublicKey{key}), nil
}

// await waits until the node's machine runs and has an address. It returns that machine and any
// other machines of the node.
func (p *Provider) await(ctx context.Context, a *at, t *sdk.Task, id string) (*Machine, []Machine, error) {
	said := ""
	for wait := p.cfg.Poll; ; wait = min(wait*3/2, 10*p.cfg.Poll) {
		ms, err := a.machines(ctx)
		if err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(ms, func(m Machine) bool { return m.ID == id })
		if i < 0 {
			return nil, nil, sdk.Fatal(fmt.Errorf("machine %s (%s) does not exist any more", a.name, id))
		}
		m := ms[i]
		access, _ := a.common.addresses(&m)
		switch {
		case m.State == Failed:
			return nil, nil, fmt.Errorf("machine %s (%s) failed: %s", a.name, id, cmp.Or(m.Fault, "the cloud gives no reason"))
		case m.State == Running && access != "":
			return &m, slices.Delete(ms, i, i+1), nil
		case m.State == Stopped:
			if err := a.start(ctx, &m); err != nil {
				return nil, nil, err
			}
		}
		if s := fmt.Sprintf("not ready: the machine is %s, its address is %q", m.State, access); s != said {
			said = s
			t.Logf("%s", s)
		}
		if err := pause(ctx, wait); err != nil {
			return nil, nil, err
		}
	}
}

// start starts a stopped machine, if its cloud is a Starter.
func (a *at) start(ctx context.Context, m *Machine) error {
	s, ok := a.cloud.(Starter)
	if !ok {
		return nil
	}
	// A Conflict means that the request that created the machine is still starting it.
	if err := s.Start(ctx, m); err != nil && KindOf(err) != Conflict {
		return told("start machine "+a.name, err, true)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Delete removes every machine of the node.
func (p *Provider) Delete(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	ms, err := a.machines(ctx)
	if err != nil || len(ms) == 0 {
		return nil, err
	}
	if err := p.end(ctx, a.cloud, ms, a.tags); err != nil {
		return nil, err
	}
	t.Logf("removed machine %s", a.name)
	return nil, nil
}

// end removes machines and waits until they are not listed any more.
func (p *Provider) end(ctx context.Context, cloud Cloud, ms []Machine, tags Tags) error {
	doomed := map[string]bool{}
	for _, m := range ms {
		doomed[m.ID] = true
	}
	for wait := p.cfg.Poll; ; wait = min(wait*3/2, 10*p.cfg.Poll) {
		for _, m := range ms {
			if err := cloud.Delete(ctx, &m); err != nil && KindOf(err) != NotFound && KindOf(err) != Conflict {
				if KindOf(err) == Credentials {
					return told("remove machine "+m.ID, err, true)
				}
				return fmt.Errorf("remove machine %s: %w", m.ID, err)
			}
		}
		left, err := cloud.List(ctx, tags)
		if err != nil {
			return fmt.Errorf("list the machines that are being removed: %w", err)
		}
		if ms = slices.DeleteFunc(left, func(m Machine) bool { return !doomed[m.ID] }); len(ms) == 0 {
			return nil
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// List returns every machine of the mesh.
func (p *Provider) List(ctx context.Context, req sdk.ListRequest, found func(sdk.Resource) error) error {
	cloud, _, err := p.open(req.Fields)
	if err != nil {
		return err
	}
	ms, err := cloud.List(ctx, Tags{Tenant: req.Tenant, Mesh: req.Mesh, Cluster: req.Cluster})
	if err != nil {
		return told("list machines", err, false)
	}
	for _, m := range ms {
		if err := found(sdk.Resource{Cluster: m.Tags.Cluster, Node: m.Tags.Node, Fence: m.Tags.Fence, ID: m.ID}); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes one listed machine.
func (p *Provider) Remove(ctx context.Context, req sdk.ListRequest, x sdk.Resource) error {
	cloud, _, err := p.open(req.Fields)
	if err != nil {
		return err
	}
	tags := Tags{Tenant: req.Tenant, Mesh: req.Mesh, Cluster: x.Cluster, Node: x.Node}
	ms, err := cloud.List(ctx, tags)
	if err != nil {
		return told("find machine "+x.ID, err, false)
	}
	if ms = slices.DeleteFunc(ms, func(m Machine) bool { return m.ID != x.ID }); len(ms) == 0 {
		return nil
	}
	return p.end(ctx, cloud, ms, tags)
}

var (
	_ sdk.Provider  = (*Provider)(nil)
	_ sdk.Observer  = (*Provider)(nil)
	_ sdk.Remover   = (*Provider)(nil)
	_ sdk.Validator = (*Provider)(nil)
)
