package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/coopr/coopr/testing/lab"
)

// Guests runs servers as light machines of the lab. They boot like the images of a cloud: Debian's
// cloud-init reads the configuration drive and sets users, keys and the host name. They accept no
// other keys.
type Guests struct {
	lab   *lab.Lab
	layer string

	mu sync.Mutex
	by map[string]*lab.Machine
}

// Guests returns a Guests without machines, in the cloud's lab.
func (c *Cloud) Guests() *Guests {
	return &Guests{lab: c.Lab, layer: filepath.Join(c.cache, "guest"), by: map[string]*lab.Machine{}}
}

// cloudInit is the configuration of cloud-init: the source of its data, and the modules that are
// switched off, because a light machine has no disk of its own and no route out of the lab.
const cloudInit = `datasource_list: [ConfigDrive]
network: {config: disabled}
apt: {preserve_sources_list: true}
growpart: {mode: "off"}
resize_rootfs: false
locale: false
`

// drive is the folder that cloud-init reads as a configuration drive.
const drive = "var/lib/cloud/seed/config_drive/openstack/latest/"

// Boot starts a server's machine.
func (g *Guests) Boot(ctx context.Context, s Server) error {
	if m := g.machine(s.ID); m != nil {
		return m.Boot(ctx)
	}
	metadata, err := json.Marshal(s.Metadata)
	if err != nil {
		return err
	}
	m, err := g.lab.Start(ctx, lab.Spec{
		Name: "server-" + s.ID, Addr: s.Address, Systemd: true, Layers: []string{g.layer},
		Files: map[string]string{
			"etc/cloud/cloud.cfg.d/99_lab.cfg": cloudInit,
			drive + "meta_data.json":           string(metadata),
			drive + "user_data":                string(s.UserData),
			"root/.ssh/authorized_keys":        "",
			"home/debian/.ssh/authorized_keys": "",
		},
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by[s.ID] = m
	return nil
}

// Stop stops a server's machine like a power cut.
func (g *Guests) Stop(id string) error {
	if m := g.machine(id); m != nil {
		return m.Crash()
	}
	return nil
}

// Delete removes a server's machine.
func (g *Guests) Delete(id string) error {
	m := g.machine(id)
	if m == nil {
		return nil
	}
	g.mu.Lock()
	delete(g.by, id)
	g.mu.Unlock()
	return m.Destroy()
}

// Lose removes a server's machine without Nova's knowledge, so that Nova still reports the server
// as ACTIVE.
func (g *Guests) Lose(id string) error {
	if g.machine(id) == nil {
		return fmt.Errorf("server %s has no machine", id)
	}
	return g.Delete(id)
}

// Running returns the number of machines.
func (g *Guests) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.by)
}

func (g *Guests) machine(id string) *lab.Machine {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.by[id]
}
