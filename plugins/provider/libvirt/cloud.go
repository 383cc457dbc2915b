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

// New gives the provider.
func New(keys ssh.Keys) *instance.Provider {
	return instance.New(instance.Config{Keys: keys, Open: open, Type: model.PluginType{
		Base:   model.Base{Name: "libvirt", Label: "libvirt", Description: "Nodes are domains of a libvirt daemon"},
		Plugin: Version, PerMachine: true,
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"uri": {Label: "URI", Type: "text", Default: defaultURI,
				Tip: "What the daemon shall connect to: qemu:///system, test:///default"},
			"socket": {Label: "Socket", Type: "text", Default: defaultSocket, Tip: "The daemon's, on the agent's machine"},
			"host": {Label: "Host", Type: "text",
				Tip: "HOST:PORT of a daemon that listens on TCP, instead of a socket; use it in a trusted network only"},
			"daemons":     {Label: "Daemons", Type: "text", Tip: "Several of them, as ZONE=HOST:PORT with commas; zones says where nodes may be"},
			"domain_type": {Label: "Domain type", Type: "select", Options: []string{"kvm", "qemu", "test"}, Default: "kvm"},
			"pool":        {Label: "Storage pool", Type: "text", Default: "default", Tip: "Where images are, and nodes' disks are made"},
			"network":     {Label: "Network", Type: "text", Default: "default"},
			"bridge": {Label: "Bridge", Type: "text",
				Tip: "A bridge of the host's instead of a network; addresses are then those that the host has seen (ARP)"},
			"seed": {Label: "Seed disk", Type: "select", Options: []string{"disk", "none"}, Default: "disk",
				Tip: "A small disk from which cloud-init learns who may log in"},
			"kernel":  {Label: "Kernel", Type: "text", Tip: "Path of a kernel on the daemon's machine, for images without a boot loader"},
			"initrd":  {Label: "Initial file system", Type: "text"},
			"cmdline": {Label: "Kernel's command line", Type: "text", Default: defaultCmdline},
			"domain":  {Label: "Domain's XML", Type: "text", Tip: "A template instead of the plugin's own"},
		}}},
	}})
}

const (
	defaultURI     = "qemu:///system"
	defaultSocket  = "/run/libvirt/libvirt-sock"
	defaultCmdline = "root=/dev/vda rw console=ttyS0"
)

// cloud is one daemon, or several that are set up alike.
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

// is says whether an error is the daemon's, of one of these numbers.
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

// fault tells the daemon's errors apart.
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
		kind = instance.Unclear // the connection
	}
	return &instance.Fault{Kind: kind, Err: err}
}

func rootOf(name string) string { return name + ".qcow2" }
func seedOf(name string) string { return name + "-seed.img" }

// List gives the domains with our mark, of all daemons or none.
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
				continue // gone just now
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

// machine gives a domain as it is; nil: it is gone.
func (c *cloud) machine(l *lv.Libvirt, d lv.Domain, mark *mark) (*instance.Machine, error) {
	m := &instance.Machine{ID: uuid(d.UUID), Name: d.Name, Tags: mark.tags()}
	state, _, err := l.DomainGetState(d, 0)
	switch {
	case err != nil && isGone(err):
		return nil, nil
	case err != nil:
		return nil, fault(err)
	case !mark.Done:
		m.State, m.Fault = instance.Failed, "it was made in part"
	case lv.DomainState(state) == lv.DomainRunning:
		m.State = instance.Running
		m.Private = c.address(l, d)
	case lv.DomainState(state) == lv.DomainCrashed:
		m.State, m.Fault = instance.Failed, "it crashed"
	case lv.DomainState(state) == lv.DomainShutoff:
		m.State = instance.Stopped
	default:
		m.State = instance.Pending // paused, or on its way down
	}
	return m, nil
}

func isGone(err error) bool { return is(err, lv.ErrNoDomain) }

// address asks the network's leases, then what the host has seen, then the guest's
// agent, which only some images have.
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

// volume is what is read of an image's XML.
type volume struct {
	Capacity uint64 `xml:"capacity"`
	Target   struct {
		Path   string `xml:"path"`
		Format struct {
			Type string `xml:"type,attr"`
		} `xml:"format"`
	} `xml:"target"`
}

// Create defines the domain first, so that nothing is made that nobody finds, then
// makes its disks, starts it, and marks it done.
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
			return instance.Faultf(instance.Conflict, "domain %s (%s) is another node's", s.Name, uuid(old.UUID))
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

// lookUp finds a storage pool that is active.
func lookUp(l *lv.Libvirt, name string) (lv.StoragePool, error) {
	pool, err := l.StoragePoolLookupByName(name)
	if err != nil {
		return pool, fault(err)
	}
	active, err := l.StoragePoolIsActive(pool)
	if err == nil && active == 0 {
		err = fmt.Errorf("storage pool %s is not active: virsh pool-start %[1]s, and pool-autostart", name)
	}
	return pool, err
}

// image finds the image that a node's disk is made over.
func (c *cloud) image(l *lv.Libvirt, pool lv.StoragePool, name string) (*volume, error) {
	vol, err := l.StorageVolLookupByName(pool, name)
	if is(err, lv.ErrNoStorageVol) {
		// It may have been put there without libvirt's knowledge.
		_ = l.StoragePoolRefresh(pool, 0)
		vol, err = l.StorageVolLookupByName(pool, name)
	}
	if is(err, lv.ErrNoStorageVol) {
		return nil, instance.Faultf(instance.Invalid, "pool %s has no volume %s: put the image there", c.pool, name)
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

// disks makes the domain's disks, anew where remains of an earlier attempt are.
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
		return fault(fmt.Errorf("disk %s: %w", root.Name, err))
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
		return fault(fmt.Errorf("disk %s: %w", small.Name, err))
	}
	return nil
}

// dropDisks removes a domain's disks, where they are.
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
			return fault(fmt.Errorf("disk %s: %w", n, err))
		}
	}
	return nil
}

// Start starts a domain that was ended, by itself or by somebody.
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

// Delete ends a domain, removes its disks, and last what it is found by.
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
			return fmt.Errorf("domain %s has lost its mark: %w", m.Name, err)
		}
		if err := l.DomainDestroy(d); err != nil && !is(err, lv.ErrOperationInvalid) {
			return fault(err)
		}
		if err := c.dropDisks(l, of.Metadata.Node.Pool, m.Name); err != nil {
			return err
		}
		err = l.DomainUndefineFlags(d, lv.DomainUndefineManagedSave|lv.DomainUndefineSnapshotsMetadata|lv.DomainUndefineNvram)
		if err != nil && !isGone(err) {
			err = l.DomainUndefine(d) // drivers that know no flags
		}
		if err != nil && !isGone(err) {
			return fault(err)
		}
		return nil
	})
}
