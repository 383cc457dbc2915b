package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// Version is the plugin's version.
const Version = "1.0.0"

// The labels of a container, which identify its node.
const (
	labelTenant  = "coopr.tenant"
	labelMesh    = "coopr.mesh"
	labelCluster = "coopr.cluster"
	labelNode    = "coopr.node"
	labelFence   = "coopr.fence"
)

// Provider creates nodes that are containers.
type Provider struct {
	keys  ssh.Keys
	guard *instance.Guard
	pool  *ssh.Pool

	mu      sync.Mutex
	engines map[string]*client.Client // by address
}

// New returns a provider, which the caller closes. keys are the folders of private keys for the
// field ssh_identityfile. guard decides which engines may be reached over TCP; nil: any.
func New(keys ssh.Keys, guard *instance.Guard) *Provider {
	return &Provider{keys: keys, guard: guard, pool: ssh.New(ssh.Config{}), engines: map[string]*client.Client{}}
}

// Close closes all connections.
func (p *Provider) Close() {
	p.pool.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.engines {
		_ = c.Close()
	}
}

// Describe returns the descriptor.
func (p *Provider) Describe() model.PluginType {
	return model.PluginType{
		Base:   model.Base{Name: "docker", Label: "Docker", Description: "Nodes are containers of a Docker engine, with sshd"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"engine":  {Label: "Engine", Type: "text", Tip: "unix://PATH or tcp://HOST:PORT; default: the engine of the agent's machine"},
			"network": {Label: "Network", Type: "text", Tip: "A network of the engine", Default: defaultNetwork},
			"publish": {Label: "Publish SSH", Type: "text", Tip: "Address of the engine's machine where the containers' SSH ports are " +
				"published; default: agents connect to the containers' own addresses"},
			"command":  {Label: "Command", Type: "text", Tip: "Command of the container, run by /bin/sh", Default: defaultCommand},
			"ssh_user": {Label: "SSH user", Type: "text", Tip: "root, or a user of the image with sudo", Default: "root"},
			"ssh_identityfile": {Label: "SSH key file", Type: "text",
				Tip: "Name of a private key in the key folders of the plugins' settings; default: each node gets a key of its own"},
		}}},
		Actions:    map[string]string{"create": "observe", "confirm": "idempotent", "delete": "idempotent"},
		PerMachine: true, // the default engine is that of the agent's machine
	}
}

// Validate checks the fields.
func (p *Provider) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	if scope != sdk.ScopeAdmin {
		return nil
	}
	_, faults := parse(fields)
	return faults
}

// engine parses the fields and returns the client of their engine.
func (p *Provider) engine(fields map[string]any) (*settings, *client.Client, error) {
	s, faults := parse(fields)
	if err := faults.Err(); err != nil {
		return nil, nil, sdk.Fatal(fmt.Errorf("fields of the provider: %w", err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.engines[s.host]
	if c == nil {
		opts := []client.Opt{}
		if s.host != "" {
			opts = append(opts, client.WithHost(s.host))
		}
		if strings.HasPrefix(s.host, "tcp:") {
			opts = append(opts, client.WithDialContext(p.guard.DialContext))
		}
		var err error
		if c, err = client.New(opts...); err != nil {
			return nil, nil, sdk.Fatal(fmt.Errorf("engine %s: %w", s.host, err))
		}
		p.engines[s.host] = c
	}
	return s, c, nil
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }

// told marks an engine's error as fatal, as having changed nothing, or as unknown. begun means that
// the request may have changed something.
func told(what string, err error, begun bool) error {
	err = fmt.Errorf("%s: %w", what, err)
	switch {
	case errdefs.IsInvalidArgument(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return sdk.Fatal(err)
	case !begun:
		return sdk.NothingDone(err)
	case client.IsErrConnectionFailed(err):
		return sdk.Unknown(err)
	}
	return err
}

// at is a task's node with its settings and its engine.
type at struct {
	in   *model.TaskInput
	s    *settings
	c    *client.Client
	name string
}

func (p *Provider) at(t *sdk.Task) (*at, error) {
	in, err := t.Input()
	if err != nil {
		return nil, err
	}
	s, c, err := p.engine(in.Config.Provider.Provisioner)
	if err != nil {
		return nil, err
	}
	if !safeName.MatchString(t.Cluster) {
		return nil, sdk.Fatal(fmt.Errorf("cluster id %q cannot be part of a container's name", t.Cluster))
	}
	return &at{in, s, c, name(t.Mesh, t.Cluster, int(in.Config.NodeNum))}, nil
}

// name returns the name of a node's container. Ids of clusters are unique within one mesh only.
func name(mesh, cluster string, number int) string {
	if mesh != "" {
		mesh += "-"
	}
	return fmt.Sprintf("coopr-%s%s-%d", mesh, cluster, number)
}

// find returns the node's container, or nil if there is none. A container of that name that belongs
// to another node is an error.
func (a *at) find(ctx context.Context, t *sdk.Task) (*container.InspectResponse, error) {
	got, err := a.c.ContainerInspect(ctx, a.name, client.ContainerInspectOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, told("find container "+a.name, err, false)
	}
	if labels := got.Container.Config.Labels; labels[labelNode] != t.Node || labels[labelCluster] != t.Cluster || labels[labelMesh] != t.Mesh {
		return nil, sdk.NothingDone(fmt.Errorf("container %s: %w (its labels name node %q of cluster %q): remove it first", a.name, errAnothers,
			labels[labelNode], labels[labelCluster]))
	}
	return &got.Container, nil
}

var errAnothers = errors.New("it does not belong to this node")

// Create creates the node's container, installs its keys and starts it. An existing container is
// adopted and gets new keys.
func (p *Provider) Create(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	found, err := a.find(ctx, t)
	if err != nil {
		return nil, err
	}
	if found != nil {
		t.Logf("container %s exists already", a.name)
		return p.finish(ctx, a, found.ID)
	}
	nano, memory, err := limits(a.in.Config.Flavor)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	if a.in.Config.Image == "" {
		return nil, sdk.Fatal(errors.New("the image type has no image for this provider (providermap: image)"))
	}
	if a.s.identity != "" {
		if _, err := p.keys.Signer(a.s.identity); err != nil {
			return nil, sdk.Fatal(fmt.Errorf("ssh_identityfile: %w", err))
		}
	}
	if _, err := a.c.NetworkInspect(ctx, a.s.network, client.NetworkInspectOptions{}); isNotFound(err) {
		return nil, sdk.Fatal(fmt.Errorf("the engine has no network %s: run docker network create %s", a.s.network, a.s.network))
	} else if err != nil {
		return nil, told("find network "+a.s.network, err, false)
	}
	host := &container.HostConfig{
		NetworkMode: container.NetworkMode(a.s.network), RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyUnlessStopped},
		Resources: container.Resources{NanoCPUs: nano, Memory: memory},
	}
	exposed := network.PortSet{}
	if a.s.publish.IsValid() {
		port := network.MustParsePort("22/tcp")
		exposed[port] = struct{}{}
		host.PortBindings = network.PortMap{port: {{HostIP: a.s.publish}}}
	}
	hostname, _, _ := strings.Cut(a.in.Config.Hostname, ".")
	made, err := a.c.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: a.name,
		Config: &container.Config{
			Image: a.in.Config.Image, Hostname: hostname, ExposedPorts: exposed,
			Entrypoint: []string{"/bin/sh", "-c", a.s.command}, Cmd: []string{}, User: "root",
			Labels: map[string]string{labelTenant: t.Tenant, labelMesh: t.Mesh, labelCluster: t.Cluster, labelNode: t.Node,
				labelFence: strconv.FormatUint(t.Fence, 10)},
		},
		HostConfig: host,
	})
	switch {
	case isNotFound(err):
		return nil, sdk.Fatal(fmt.Errorf("the engine has no image %s: pull or import it", a.in.Config.Image))
	case errdefs.IsConflict(err):
		return nil, fmt.Errorf("container %s was created meanwhile: %w", a.name, err) // the next attempt adopts it
	case err != nil:
		return nil, told("create container "+a.name, err, true)
	}
	t.Logf("created container %s (%.12s)", a.name, made.ID)
	return p.finish(ctx, a, made.ID)
}

// finish installs a container's keys and starts it.
func (p *Provider) finish(ctx context.Context, a *at, id string) (*sdk.Output, error) {
	r, err := p.equip(ctx, a.c, id, a.s)
	if err != nil {
		return nil, told("container "+a.name, err, true)
	}
	if _, err := a.c.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return nil, told("start container "+a.name, err, true)
	}
	got, err := a.c.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, told("inspect container "+a.name, err, true)
	}
	return a.s.output(&got.Container, r)
}

// output returns the task's output for a container.
func (s *settings) output(c *container.InspectResponse, r *ssh.Results) (*sdk.Output, error) {
	address, err := s.address(c)
	if err != nil {
		return nil, err
	}
	out := &sdk.Output{IPAddresses: map[string]string{"access_v4": address.String(), "bind_v4": address.String()}}
	if s.publish.IsValid() {
		ports := c.NetworkSettings.Ports[network.MustParsePort("22/tcp")]
		if len(ports) == 0 {
			return nil, fmt.Errorf("container %s publishes no SSH port: it is not running, or was created before the field "+
				"publish was set", c.Name)
		}
		r.Address = s.publish.String()
		if r.Port, err = strconv.Atoi(ports[0].HostPort); err != nil {
			return nil, fmt.Errorf("container %s: port %q", c.Name, ports[0].HostPort)
		}
		out.IPAddresses["access_v4"] = r.Address
	}
	out.Result = r.Map()
	out.Result["providerid"] = c.ID
	return out, nil
}

// address returns a running container's address on its network.
func (s *settings) address(c *container.InspectResponse) (netip.Addr, error) {
	if c.NetworkSettings != nil {
		if e := c.NetworkSettings.Networks[s.network]; e != nil && e.IPAddress.IsValid() {
			return e.IPAddress, nil
		}
	}
	state := "gone"
	if c.State != nil {
		state = string(c.State.Status)
	}
	return netip.Addr{}, fmt.Errorf("container %s has no address on network %s: it is %s", c.Name, s.network, state)
}

// Observe returns the node if its container exists. The container gets new keys, because those of
// an earlier attempt may be lost.
func (p *Provider) Observe(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	found, err := a.find(ctx, t)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, sdk.ErrNotFound
	}
	return p.finish(ctx, a, found.ID)
}

// Confirm waits until the container can be worked on.
func (p *Provider) Confirm(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	found, err := a.find(ctx, t)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, sdk.Fatal(fmt.Errorf("container %s does not exist any more", a.name))
	}
	r := &ssh.Results{User: a.s.user, Identity: a.s.identity}
	if auth, ok := a.in.Config.Results["ssh-auth"].(map[string]any); ok {
		r.PrivateKey, _ = auth["private_key"].(string)
	}
	if r.HostKeys, err = ssh.ParseHostKeys(a.in.Config.Results["ssh_host_keys"]); err != nil {
		return nil, sdk.Fatal(err)
	}
	// A restart may have changed its address.
	out, err := a.s.output(found, r)
	if err != nil {
		return nil, err
	}
	target, err := ssh.TargetOf(&model.TaskInput{Config: model.TaskConfig{Results: out.Result, IPAddresses: out.IPAddresses}}, p.keys)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	var key gossh.PublicKey
	if key, err = p.pool.WaitReady(ctx, target, func(line string) { t.Logf("%s", line) }); errors.Is(err, ssh.ErrHostKey) {
		return nil, sdk.Fatal(err)
	}
	if err != nil {
		return nil, err
	}
	r.HostKeys = []gossh.PublicKey{key}
	return a.s.output(found, r)
}

// Delete removes the node's container with its volumes.
func (p *Provider) Delete(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	a, err := p.at(t)
	if err != nil {
		return nil, err
	}
	found, err := a.find(ctx, t)
	switch {
	case errors.Is(err, errAnothers):
		t.Logf("%v: nothing to delete", err)
		return nil, nil
	case err != nil || found == nil:
		return nil, err
	}
	if err := remove(ctx, a.c, found.ID); err != nil {
		return nil, told("remove container "+a.name, err, true)
	}
	t.Logf("removed container %s", a.name)
	return nil, nil
}

// remove removes a container, or waits until a concurrent removal has ended.
func remove(ctx context.Context, c *client.Client, id string) error {
	for {
		_, err := c.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || isNotFound(err) {
			return nil
		}
		if !errdefs.IsConflict(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Remove removes a listed container by its id.
func (p *Provider) Remove(ctx context.Context, req sdk.ListRequest, x sdk.Resource) error {
	_, c, err := p.engine(req.Fields)
	if err != nil {
		return err
	}
	got, err := c.ContainerInspect(ctx, x.ID, client.ContainerInspectOptions{})
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return told("inspect container "+x.ID, err, false)
	}
	if l := got.Container.Config.Labels; l[labelNode] != x.Node || l[labelCluster] != x.Cluster || l[labelMesh] != req.Mesh {
		return fmt.Errorf("container %s: %w", x.ID, errAnothers)
	}
	return remove(ctx, c, x.ID)
}

// List returns every container with Coopr's labels.
func (p *Provider) List(ctx context.Context, req sdk.ListRequest, found func(sdk.Resource) error) error {
	_, c, err := p.engine(req.Fields)
	if err != nil {
		return err
	}
	filters := client.Filters{}.Add("label", labelNode)
	if req.Cluster != "" {
		filters = filters.Add("label", labelCluster+"="+req.Cluster)
	}
	if req.Mesh != "" {
		filters = filters.Add("label", labelMesh+"="+req.Mesh)
	}
	if req.Tenant != "" {
		filters = filters.Add("label", labelTenant+"="+req.Tenant)
	}
	all, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return told("list containers", err, false)
	}
	for _, x := range all.Items {
		fence, _ := strconv.ParseUint(x.Labels[labelFence], 10, 64)
		if err := found(sdk.Resource{Cluster: x.Labels[labelCluster], Node: x.Labels[labelNode], Fence: fence, ID: x.ID}); err != nil {
			return err
		}
	}
	return nil
}

var (
	_ sdk.Provider  = (*Provider)(nil)
	_ sdk.Observer  = (*Provider)(nil)
	_ sdk.Validator = (*Provider)(nil)
	_ sdk.Remover   = (*Provider)(nil)
)
