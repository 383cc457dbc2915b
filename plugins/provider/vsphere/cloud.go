package vsphere

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi"
	vfault "github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

// New returns the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base: model.Base{Name: "vsphere", Label: "vSphere",
			Description: "Nodes are virtual machines of a vCenter or ESXi host, cloned from a template"},
		Plugin: Version,
		Parameters: model.PluginParameters{Admin: model.PluginFields{
			Fields: map[string]model.FieldSchema{
				"url":        {Label: "Server", Type: "text", Tip: "https://HOST/sdk"},
				"username":   {Label: "User", Type: "text", Credential: true},
				"password":   {Label: "Password", Type: "password"},
				"insecure":   {Label: "Any certificate", Type: "checkbox", Tip: "Do not verify the server's certificate"},
				"datacenter": {Label: "Data center", Type: "text", Tip: "Default: the only one"},
				"folder": {Label: "Folder", Type: "text",
					Tip: "Path of the folder for machines, which should hold no others. Default: that of the data center"},
				"resource_pool": {Label: "Resource pool", Type: "text",
					Tip: "Path, such as CLUSTER/Resources; if zones are set, each zone names a pool instead"},
				"datastore": {Label: "Data store", Type: "text", Tip: "Default: that of the template"},
				"linked":    {Label: "Linked clones", Type: "checkbox", Tip: "Clone quickly: disks share data with the template's current snapshot"},
			},
			Required: [][]string{{"url", "username", "password"}},
		}},
	}})
}

// cloud is one server.
type cloud struct {
	url                                         *url.URL
	insecure, linked                            bool
	datacenter, folder, resourcePool, dataStore string
	guard                                       *instance.Guard
}

func open(f *instance.Fields) instance.Cloud {
	c := &cloud{
		insecure: f.Bool("insecure"), linked: f.Bool("linked"), datacenter: f.Text("datacenter", ""), folder: f.Text("folder", ""),
		resourcePool: f.Text("resource_pool", ""), dataStore: f.Text("datastore", ""),
		guard: f.Guard,
	}
	f.Need("url")
	c.url, _ = url.Parse(f.URL("url", ""))
	user, password := f.Need("username"), f.Need("password")
	if c.url != nil {
		c.url.User = url.UserPassword(user, password)
	}
	return c
}

// fault classifies the server's faults.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var missing *find.NotFoundError
	var many *find.MultipleFoundError
	kind := instance.KindOf(err)
	of := func(fs ...types.BaseMethodFault) bool {
		return slices.ContainsFunc(fs, func(f types.BaseMethodFault) bool { return vfault.Is(err, f) })
	}
	switch {
	case of(&types.InvalidLogin{}, &types.NoPermission{}, &types.NotAuthenticated{}, &types.RestrictedVersion{}):
		kind = instance.Credentials
	case of(&types.DuplicateName{}, &types.AlreadyExists{}, &types.InvalidPowerState{}, &types.InvalidState{}, &types.TaskInProgress{},
		&types.ConcurrentAccess{}):
		kind = instance.Conflict
	case of(&types.ManagedObjectNotFound{}):
		kind = instance.NotFound
	case isCapacity(err):
		kind = instance.Capacity
	case errors.As(err, &missing), errors.As(err, &many),
		of(&types.InvalidArgument{}, &types.InvalidName{}, &types.InvalidFolder{}, &types.CustomizationFault{}):
		kind = instance.Invalid
	case kind == instance.Other && !soap.IsSoapFault(err) && !soap.IsVimFault(err) && !vfault.Is(err, &types.MethodFault{}):
		var task interface{ Fault() types.BaseMethodFault }
		if !errors.As(err, &task) {
			kind = instance.Unclear // the server has not answered
		}
	}
	return &instance.Fault{Kind: kind, Err: err}
}

// isCapacity reports whether the server lacks resources, which is a family of faults.
func isCapacity(err error) bool {
	found := false
	vfault.In(err, func(f types.BaseMethodFault, _ string, _ []types.LocalizableMessage) bool {
		_, found = f.(types.BaseInsufficientResourcesFault)
		return found
	})
	return found
}

// logOut bounds the logout at the end of a session.
const logOut = 5 * time.Second

// with logs in while fn runs, so that no session can expire.
func (c *cloud) with(ctx context.Context, fn func(*govmomi.Client, *find.Finder) error) error {
	client, err := c.logIn(ctx)
	if err != nil {
		return fault(fmt.Errorf("log in to %s: %w", c.url.Host, err))
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), logOut)
		defer cancel()
		_ = client.Logout(late)
		client.CloseIdleConnections()
	}()
	f := find.NewFinder(client.Client, true)
	dc, err := f.DatacenterOrDefault(ctx, c.datacenter)
	if err != nil {
		return fault(err)
	}
	return fault(fn(client, f.SetDatacenter(dc)))
}

// logIn returns a client, whose connections are the guard's.
func (c *cloud) logIn(ctx context.Context) (*govmomi.Client, error) {
	s := soap.NewClient(c.url, c.insecure)
	t := s.DefaultTransport()
	t.DialContext, t.Proxy = c.guard.DialContext, nil
	v, err := vim25.NewClient(ctx, s)
	if err != nil {
		return nil, err
	}
	client := &govmomi.Client{Client: v, SessionManager: session.NewManager(v)}
	return client, client.Login(ctx, c.url.User)
}

// guestUser and guestMeta are the names under which cloud-init finds its data.
const (
	guestUser = "guestinfo.userdata"
	guestMeta = "guestinfo.metadata"
)

// List returns the machines of the folder and its subfolders that have Coopr's marks.
func (c *cloud) List(ctx context.Context, filter instance.Tags) (out []instance.Machine, err error) {
	err = c.with(ctx, func(client *govmomi.Client, f *find.Finder) error {
		folder, err := f.FolderOrDefault(ctx, c.folder)
		if err != nil {
			return err
		}
		v, err := view.NewManager(client.Client).CreateContainerView(ctx, folder.Reference(), []string{"VirtualMachine"}, true)
		if err != nil {
			return err
		}
		defer func() { _ = v.Destroy(context.WithoutCancel(ctx)) }()
		var vms []mo.VirtualMachine
		if err := v.Retrieve(ctx, []string{"VirtualMachine"},
			[]string{"name", "config.extraConfig", "config.template", "config.createDate", "runtime.powerState", "guest.ipAddress", "guest.net"},
			&vms); err != nil {
			return err
		}
		for i := range vms {
			if m, ours := machine(&vms[i]); ours && m.Tags.Fits(filter) {
				out = append(out, m)
			}
		}
		return nil
	})
	return out, err
}

// machine converts a virtual machine. It returns false if it is not Coopr's.
func machine(vm *mo.VirtualMachine) (instance.Machine, bool) {
	out := instance.Machine{ID: vm.Self.Value, Name: vm.Name}
	if vm.Config == nil || vm.Config.Template {
		return out, false
	}
	values := map[string]string{}
	for _, o := range vm.Config.ExtraConfig {
		if v := o.GetOptionValue(); strings.HasPrefix(v.Key, "coopr-") {
			values[v.Key] = fmt.Sprint(v.Value)
		}
	}
	var ours bool
	out.Tags, ours = instance.TagsOf(values)
	if vm.Config.CreateDate != nil {
		out.Created = *vm.Config.CreateDate
	}
	switch vm.Runtime.PowerState {
	case types.VirtualMachinePowerStatePoweredOn:
		out.State = instance.Running
	default:
		out.State = instance.Stopped
	}
	if vm.Guest != nil {
		out.Private = v4(vm.Guest)
	}
	return out, ours
}

// v4 returns the first address that other machines can reach.
func v4(g *types.GuestInfo) string {
	addresses := []string{g.IpAddress}
	for _, n := range g.Net {
		addresses = append(addresses, n.IpAddress...)
	}
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil && ip.To4() != nil && !ip.IsLinkLocalUnicast() {
			return a
		}
	}
	return ""
}

// Create clones the template. The clone is marked and started by the same request. Create waits for
// its end, because the machine has no id before.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (out *instance.Machine, err error) {
	spec, err := configOf(s)
	if err != nil {
		return nil, err
	}
	err = c.with(ctx, func(_ *govmomi.Client, f *find.Finder) error {
		template, err := f.VirtualMachine(ctx, s.Image)
		if err != nil {
			return fmt.Errorf("template: %w", err)
		}
		folder, err := f.FolderOrDefault(ctx, c.folder)
		if err != nil {
			return err
		}
		path := c.resourcePool
		if s.Zone != "" {
			path = s.Zone
		}
		pool, err := f.ResourcePoolOrDefault(ctx, path)
		if err != nil {
			return err
		}
		at := pool.Reference()
		clone := types.VirtualMachineCloneSpec{PowerOn: true, Config: spec, Location: types.VirtualMachineRelocateSpec{Pool: &at}}
		if c.dataStore != "" {
			store, err := f.Datastore(ctx, c.dataStore)
			if err != nil {
				return err
			}
			ref := store.Reference()
			clone.Location.Datastore = &ref
		}
		if c.linked {
			var t mo.VirtualMachine
			if err := template.Properties(ctx, template.Reference(), []string{"snapshot"}, &t); err != nil {
				return err
			}
			if t.Snapshot == nil || t.Snapshot.CurrentSnapshot == nil {
				return instance.Faultf(instance.Invalid, "template %s has no snapshot, which linked clones need", s.Image)
			}
			clone.Snapshot = t.Snapshot.CurrentSnapshot
			clone.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
		}
		task, err := template.Clone(ctx, folder, s.Name, clone)
		if err != nil {
			return err
		}
		info, err := task.WaitForResult(ctx)
		if err != nil {
			return err
		}
		ref, ok := info.Result.(types.ManagedObjectReference)
		if !ok {
			return instance.Faultf(instance.Unclear, "the clone of %s ended without a result", s.Image)
		}
		out = &instance.Machine{ID: ref.Value, Name: s.Name, Tags: s.Tags}
		return nil
	})
	return out, err
}

// configOf returns the configuration of a clone: its size, its marks, and the data for cloud-init.
func configOf(s *instance.Spec) (*types.VirtualMachineConfigSpec, error) {
	out := &types.VirtualMachineConfigSpec{}
	if s.Flavor != "" {
		var cpus int32
		var mebibytes int64
		var rest string
		if n, _ := fmt.Sscanf(s.Flavor+" .", "%dx%d %s", &cpus, &mebibytes, &rest); n != 3 || rest != "." || cpus < 1 || mebibytes < 4 {
			return nil, instance.Faultf(instance.Invalid, "flavor %q is not CPUSxMEBIBYTES, such as 2x4096", s.Flavor)
		}
		out.NumCPUs, out.MemoryMB = cpus, mebibytes
	}
	values := s.Tags.Map()
	values[guestUser] = base64.StdEncoding.EncodeToString(s.UserData)
	values[guestMeta] = base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "instance-id: %s\nlocal-hostname: %s\n", s.Token, s.Hostname))
	values[guestUser+".encoding"], values[guestMeta+".encoding"] = "base64", "base64"
	for _, k := range slices.Sorted(maps.Keys(values)) {
		out.ExtraConfig = append(out.ExtraConfig, &types.OptionValue{Key: k, Value: values[k]})
	}
	return out, nil
}

// Start powers a machine on, for example a clone that could not be started for lack of room.
func (c *cloud) Start(ctx context.Context, m *instance.Machine) error {
	return c.with(ctx, func(client *govmomi.Client, _ *find.Finder) error {
		vm := object.NewVirtualMachine(client.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: m.ID})
		task, err := vm.PowerOn(ctx)
		if err != nil {
			return err
		}
		return task.Wait(ctx)
	})
}

// Delete powers a machine off and destroys it with its disks.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	return c.with(ctx, func(client *govmomi.Client, _ *find.Finder) error {
		vm := object.NewVirtualMachine(client.Client, types.ManagedObjectReference{Type: "VirtualMachine", Value: m.ID})
		task, err := vm.PowerOff(ctx)
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil && !vfault.Is(err, &types.InvalidPowerState{}) {
			return err
		}
		if task, err = vm.Destroy(ctx); err != nil {
			return err
		}
		return task.Wait(ctx)
	})
}
