package libvirt

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"text/template"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/remote/ssh"
)

// Version is the plugin's version.
const Version = "1.0.0"

// New returns the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "libvirt", Label: "libvirt", Description: "Nodes are domains of a libvirt daemon"},
		Plugin: Version, PerMachine: true,
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"uri": {Label: "URI", Type: "text", Default: defaultURI,
				Tip: "Hypervisor of the daemon: qemu:///system, test:///default"},
			"socket": {Label: "Socket", Type: "text", Default: defaultSocket, Tip: "Path of the daemon's socket on the agent's machine"},
			"host": {Label: "Host", Type: "text",
				Tip: "HOST:PORT of a daemon that listens on TCP, instead of a socket; only for trusted networks"},
			"daemons":     {Label: "Daemons", Type: "text", Tip: "Several daemons, as comma-separated ZONE=HOST:PORT; zones selects among them"},
			"domain_type": {Label: "Domain type", Type: "select", Options: []string{"kvm", "qemu", "test"}, Default: "kvm"},
			"pool":        {Label: "Storage pool", Type: "text", Default: "default", Tip: "Pool of the images and of the nodes' disks"},
			"network":     {Label: "Network", Type: "text", Default: "default"},
			"bridge": {Label: "Bridge", Type: "text",
				Tip: "A bridge of the host instead of a network; addresses are then those in the host's ARP table"},
			"seed": {Label: "Seed disk", Type: "select", Options: []string{"disk", "none"}, Default: "disk",
				Tip: "A small disk from which cloud-init reads the key that can log in"},
			"kernel":  {Label: "Kernel", Type: "text", Tip: "Path of a kernel on the daemon's machine, for images without a boot loader"},
			"initrd":  {Label: "Initial file system", Type: "text"},
			"cmdline": {Label: "Kernel's command line", Type: "text", Default: defaultCmdline},
			"domain":  {Label: "Domain's XML", Type: "text", Tip: "A template that replaces the plugin's own"},
		}}},
	}})
}

const (
	defaultURI     = "qemu:///system"
	defaultSocket  = "/run/libvirt/libvirt-sock"
	defaultCmdline = "root=/dev/vda rw console=ttyS0"
)

// cloud is one daemon, or several with the same settings.
type cloud struct {
	daemons                          []daemon
	uri, kind, pool, network, bridge string
	seeds                            bool
	kernel, initrd, cmdline          string
	domain                           *template.Template
}

func open(f *instance.Fields) instance.Cloud {
	c := &cloud{
		uri: f.Text("uri", defaultURI), daemons: daemonsOf(f),
		kind: f.OneOf("domain_type", "kvm", "qemu", "test"), pool: f.Text("pool", "default"), network: f.Text("network", "default"),
		bridge: f.Text("bridge", ""),
		seeds:  f.OneOf("seed", "disk", "none") == "disk", kernel: f.Text("kernel", ""), initrd: f.Text("initrd", ""),
		cmdline: f.Text("cmdline", defaultCmdline),
	}
	var err error
	if c.domain, err = parseTemplate(f.Text("domain", plainDomain)); err != nil {
		f.Faults.Add("domain", err.Error())
	}
	return c
}

// is reports whether an error comes from the daemon with one of these codes.
func is(err error, codes ...lv.ErrorNumber) bool {
	var e lv.Error
	if errors.As(err, &e) {
		for _, c := range codes {
			if e.Code == uint32(c) {
				return true
			}
		}
	}
	return false
}

// fault classifies the daemon's errors.
func fault(err error) error {
	var e lv.Error
	kind := instance.Other
	switch {
	case err == nil:
		return nil
	case is(err, lv.ErrAuthFailed, lv.ErrAccessDenied, lv.ErrAuthUnavailable):
		kind = instance.Credentials
	case is(err, lv.ErrNoNetwork, lv.ErrNoStoragePool, lv.ErrXMLError, lv.ErrXMLDetail, lv.ErrConfigUnsupported, lv.ErrInvalidArg,
		lv.ErrNoKernel):
		kind = instance.Invalid
	case is(err, lv.ErrNoDomain, lv.ErrNoStorageVol):
		kind = instance.NotFound
	case is(err, lv.ErrOperationInvalid, lv.ErrDomExist, lv.ErrStorageVolExist):
		kind = instance.Conflict
	case is(err, lv.ErrNoMemory):
		kind = instance.Capacity
	case !errors.As(err, &e):
		kind = instance.Unclear // an error of the connection
	}
	return &instance.Fault{Kind: kind, Err: err}
}

func rootOf(name string) string { return name + ".qcow2" }
func seedOf(name string) string { return name + "-seed.img" }

// List returns the domains with Coopr's mark. It fails if any daemon cannot be reached.
func (c *cloud) List(ctx context.Context, filter instance.Tags) (out []instance.Machine, err error) {
	for _, d := range c.daemons {
		ms, err := c.list(ctx, d, filter)
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

func (c *cloud) list(ctx context.Context, at daemon, filter instance.Tags) (out []instance.Machine, err error) {
	err = at.with(ctx, c.uri, func(l *lv.Libvirt) error {
		all, _, err := l.ConnectListAllDomains(1, 0)
		if err != nil {
			return fault(err)
		}
		for _, d := range all {
			text, err := l.DomainGetXMLDesc(d, 0)
			if is(err, lv.ErrNoDomain) {
				continue // undefined meanwhile
			}
			if err != nil {
				return fault(err)
			}
			var is described
			if err := xml.Unmarshal([]byte(text), &is); err != nil {
				return fmt.Errorf("domain %s: %w", d.Name, err)
			}
			mark := is.Metadata.Node
			if mark == nil || !mark.tags().Fits(filter) {
				continue
			}
			m, err := c.machine(l, d, mark)
			if err != nil {
				return err
			}
			if m != nil {
				m.Zone = at.zone
				out = append(out, *m)
			}
		}
		return nil
	})
	return out, err
}

// machine converts a domain. It returns nil if the domain does not exist any more.
func (c *cloud) machine(l *lv.Libvirt, d lv.Domain, mark *mark) (*instance.Machine, error) {
	m := &instance.Machine{ID: uuid(d.UUID), Name: d.Name, Tags: mark.tags()}
	state, _, err := l.DomainGetState(d, 0)
	switch {
	case err != nil && isGone(err):
		return nil, nil
	case err != nil:
		return nil, fault(err)
	case !mark.Done:
		m.State, m.Fault = instance.Failed, "its creation was not completed"
	case lv.DomainState(state) == lv.DomainRunning:
		m.State = instance.Running
		m.Private = c.address(l, d)
	case lv.DomainState(state) == lv.DomainCrashed:
		m.State, m.Fault = instance.Failed, "it crashed"
	case lv.DomainState(state) == lv.DomainShutoff:
		m.State = instance.Stopped
	default:
		m.State = instance.Pending // paused or shutting down
	}
	return m, nil
}

func isGone(err error) bool { return is(err, lv.ErrNoDomain) }

// address returns the domain's address from the network's leases, or the host's ARP table, or the
// guest agent, which only some images have.
func (c *cloud) address(l *lv.Libvirt, d lv.Domain) string {
	for _, source := range []lv.DomainInterfaceAddressesSource{lv.DomainInterfaceAddressesSrcLease, lv.DomainInterfaceAddressesSrcArp,
		lv.DomainInterfaceAddressesSrcAgent} {
		found, err := l.DomainInterfaceAddresses(d, uint32(source), 0)
		if err != nil {
			continue
		}
		for _, i := range found {
			for _, a := range i.Addrs {
				if ip := net.ParseIP(a.Addr); ip != nil && ip.To4() != nil && !ip.IsLoopback() {
					return a.Addr
				}
			}
		}
	}
	return ""
}

func uuid(u lv.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// volume holds the parts of an image's XML that are used.
type volume struct {
	Capacity uint64 `xml:"capacity"`
	Target   struct {
		Path   string `xml:"path"`
		Format struct {
			Type string `xml:"type,attr"`
		} `xml:"format"`
	} `xml:"target"`
}

// Create defines the domain first, so that List finds everything that was created. Then it creates
// the disks, starts the domain, and marks it as complete.
func (c *cloud) Create(ctx context.Context, s *instance.Spec) (out *instance.Machine, err error) {
	cpus, mebibytes, gibibytes, err := size(s.Flavor)
	if err != nil {
		return nil, &instance.Fault{Kind: instance.Invalid, Err: err}
	}
	metadata, err := xml.Marshal(markOf(s.Tags, c.pool, false))
	if err != nil {
		return nil, err
	}
	v := &values{
		Name: s.Name, Hostname: s.Hostname, Type: c.kind, Pool: c.pool, Root: rootOf(s.Name), Network: c.network, Bridge: c.bridge,
		Kernel: c.kernel, Initrd: c.initrd, Cmdline: c.cmdline, CPUs: cpus, Mebibytes: mebibytes, Metadata: string(metadata),
	}
	if c.seeds {
		v.Seed = seedOf(s.Name)
	}
	text, err := fill(c.domain, v)
	if err != nil {
		return nil, &instance.Fault{Kind: instance.Invalid, Err: err}
	}
	at, err := c.at(s.Zone)
	if err != nil {
		return nil, err
	}
	err = at.with(ctx, c.uri, func(l *lv.Libvirt) error {
		pool, err := lookUp(l, c.pool)
		if err != nil {
			return err
		}
		image, err := c.image(l, pool, s.Image)
		if err != nil {
			return err
		}
		if old, err := l.DomainLookupByName(s.Name); err == nil {
			return instance.Faultf(instance.Conflict, "domain %s (%s) belongs to another node", s.Name, uuid(old.UUID))
		}
		d, err := l.DomainDefineXML(text)
		if err != nil {
			return fault(err)
		}
		if err := c.disks(l, pool, image, s, gibibytes); err != nil {
			return err
		}
		if err := l.DomainCreate(d); err != nil {
			return fault(fmt.Errorf("start: %w", err))
		}
		if err := l.DomainSetAutostart(d, 1); err != nil {
			return fault(err)
		}
		done, err := xml.Marshal(markOf(s.Tags, c.pool, true))
		if err != nil {
			return err
		}
		err = l.DomainSetMetadata(d, int32(lv.DomainMetadataElement), lv.OptString{string(done)}, lv.OptString{"coopr"}, lv.OptString{namespace},
			lv.DomainAffectConfig|lv.DomainAffectLive)
		if err != nil {
			return fault(err)
		}
		out = &instance.Machine{ID: uuid(d.UUID), Name: s.Name, Tags: s.Tags, Zone: at.zone}
		return nil
	})
	return out, err
}

// lookUp returns an active storage pool.
func lookUp(l *lv.Libvirt, name string) (lv.StoragePool, error) {
	pool, err := l.StoragePoolLookupByName(name)
	if err != nil {
		return pool, fault(err)
	}
	active, err := l.StoragePoolIsActive(pool)
	if err == nil && active == 0 {
		err = fmt.Errorf("storage pool %s is not active: run virsh pool-start %[1]s, and pool-autostart", name)
	}
	return pool, err
}

// image returns the image below a node's disk.
func (c *cloud) image(l *lv.Libvirt, pool lv.StoragePool, name string) (*volume, error) {
	vol, err := l.StorageVolLookupByName(pool, name)
	if is(err, lv.ErrNoStorageVol) {
		// The file may have been added without libvirt.
		_ = l.StoragePoolRefresh(pool, 0)
		vol, err = l.StorageVolLookupByName(pool, name)
	}
	if is(err, lv.ErrNoStorageVol) {
		return nil, instance.Faultf(instance.Invalid, "pool %s has no volume %s: add the image to the pool", c.pool, name)
	}
	if err != nil {
		return nil, fault(err)
	}
	text, err := l.StorageVolGetXMLDesc(vol, 0)
	if err != nil {
		return nil, fault(err)
	}
	v := &volume{}
	if err := xml.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	return v, nil
}

// disks creates the domain's disks, and replaces those of an earlier attempt.
func (c *cloud) disks(l *lv.Libvirt, pool lv.StoragePool, image *volume, s *instance.Spec, gibibytes int) error {
	if err := c.dropDisks(l, c.pool, s.Name); err != nil {
		return err
	}
	type backing struct {
		Path   string `xml:"path"`
		Format struct {
			Type string `xml:"type,attr"`
		} `xml:"format"`
	}
	type vol struct {
		XMLName  xml.Name `xml:"volume"`
		Name     string   `xml:"name"`
		Capacity uint64   `xml:"capacity"`
		Target   struct {
			Format struct {
				Type string `xml:"type,attr"`
			} `xml:"format"`
		} `xml:"target"`
		Backing *backing `xml:"backingStore"`
	}
	root := vol{Name: rootOf(s.Name), Capacity: max(image.Capacity, uint64(gibibytes)<<30), Backing: &backing{Path: image.Target.Path}}
	root.Target.Format.Type, root.Backing.Format.Type = "qcow2", image.Target.Format.Type
	text, err := xml.Marshal(&root)
	if err != nil {
		return err
	}
	if _, err := l.StorageVolCreateXML(pool, string(text), 0); err != nil {
		return fault(fmt.Errorf("create disk %s: %w", root.Name, err))
	}
	if !c.seeds {
		return nil
	}
	disk, err := seed(s.Token, s.Hostname, s.UserData)
	if err != nil {
		return &instance.Fault{Kind: instance.Invalid, Err: err}
	}
	small := vol{Name: seedOf(s.Name), Capacity: uint64(len(disk))}
	small.Target.Format.Type = "raw"
	if text, err = xml.Marshal(&small); err != nil {
		return err
	}
	made, err := l.StorageVolCreateXML(pool, string(text), 0)
	if err == nil {
		err = l.StorageVolUpload(made, bytes.NewReader(disk), 0, uint64(len(disk)), 0)
	}
	if err != nil {
		return fault(fmt.Errorf("create disk %s: %w", small.Name, err))
	}
	return nil
}

// dropDisks removes a domain's disks, if they exist.
func (c *cloud) dropDisks(l *lv.Libvirt, poolName, name string) error {
	pool, err := lookUp(l, poolName)
	if err != nil {
		return err
	}
	for _, n := range []string{rootOf(name), seedOf(name)} {
		vol, err := l.StorageVolLookupByName(pool, n)
		if err == nil {
			err = l.StorageVolDelete(vol, 0)
		}
		if err != nil && !is(err, lv.ErrNoStorageVol) {
			return fault(fmt.Errorf("delete disk %s: %w", n, err))
		}
	}
	return nil
}

// Start starts a domain that has stopped.
func (c *cloud) Start(ctx context.Context, m *instance.Machine) error {
	at, err := c.at(m.Zone)
	if err != nil {
		return err
	}
	return at.with(ctx, c.uri, func(l *lv.Libvirt) error {
		d, err := l.DomainLookupByName(m.Name)
		if err == nil {
			err = l.DomainCreate(d)
		}
		return fault(err)
	})
}

// Delete stops a domain and removes its disks. The definition, by which List finds it, is removed
// last.
func (c *cloud) Delete(ctx context.Context, m *instance.Machine) error {
	at, err := c.at(m.Zone)
	if err != nil {
		return err
	}
	return at.with(ctx, c.uri, func(l *lv.Libvirt) error {
		d, err := l.DomainLookupByName(m.Name)
		if isGone(err) || err == nil && uuid(d.UUID) != m.ID {
			return nil
		}
		if err != nil {
			return fault(err)
		}
		text, err := l.DomainGetXMLDesc(d, 0)
		if err != nil {
			return fault(err)
		}
		var of described
		if err := xml.Unmarshal([]byte(text), &of); err != nil || of.Metadata.Node == nil {
			return fmt.Errorf("domain %s has no mark of Coopr: %w", m.Name, err)
		}
		if err := l.DomainDestroy(d); err != nil && !is(err, lv.ErrOperationInvalid) {
			return fault(err)
		}
		if err := c.dropDisks(l, of.Metadata.Node.Pool, m.Name); err != nil {
			return err
		}
		err = l.DomainUndefineFlags(d, lv.DomainUndefineManagedSave|lv.DomainUndefineSnapshotsMetadata|lv.DomainUndefineNvram)
		if err != nil && !isGone(err) {
			err = l.DomainUndefine(d) // for drivers that do not support flags
		}
		if err != nil && !isGone(err) {
			return fault(err)
		}
		return nil
	})
}
